"""What admins do to a cluster for a while is undone in the end, however the time between passes; and a restore is one of etcd's files."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from adapter import leader_election
from adapter.shell.kube import reflector
from hack.lab.base.lab import Cluster as Home
from hack.lab.base.lab import Lab
from hack.lab.base.paths import REPO
from hack.lab.cluster import control_plane
from hack.lab.cluster.control_plane import CLONE, FIRST
from hack.testbed import install
from hack.trials import restore
from hack.trials.chaos import draw, mistakes
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import GANGS, Ground
from hack.trials.outages import Outages

NEW = {"kubeconfig-swapped", "kubeconfig-mistyped", "etcd-restored", "no-room"}
KUBECONFIGS = {name: f"apiVersion: v1\nkind: Config\nclusters: [{name}]\n" for name in ("east", "west")}


def fault(kind: str) -> Fault:
    return Fault(1, kind, "east", "", 1.0, "", False, 0)


class Stood:
    """A ground on which is noted what is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.secrets = dict(KUBECONFIGS)
        self.outages = Outages()
        monkeypatch.setattr(install, "worker_kubeconfig", lambda _, name: self.secrets[name])
        monkeypatch.setattr(install, "hand_over", lambda _, name, text: self.secrets.update({name: text}))
        monkeypatch.setattr(restore, "backup", lambda home: self.done.append(f"copy {home.name}"))
        monkeypatch.setattr(restore, "put_back", self._put_back)

    def _put_back(self, lab: Lab, home: Home, copy: object, operators: list[Any]) -> None:
        silent = bool(self.outages.of(home.name, time.monotonic()))
        self.done.append(f"put back {home.name}, {len(operators)} operators, excused: {silent}")

    @property
    def ground(self) -> Ground:
        cluster = SimpleNamespace(kubectl=lambda *words: self.done.append(" ".join(words)))
        stage = SimpleNamespace(manager=None, clusters=("east", "west"))
        found = SimpleNamespace(
            stage=stage, lab=Lab(), cluster=lambda name: cluster, kueues={"east": None}, outages=self.outages
        )
        return cast(Ground, found)


@pytest.fixture
def stood(monkeypatch: pytest.MonkeyPatch) -> Stood:
    return Stood(monkeypatch)


def strike(stood: Stood, kind: str) -> Iterator[None]:
    """Go through an outage in which something else fails as well."""
    with pytest.raises(KeyError), mistakes.OUTAGES[kind](stood.ground, fault(kind)):
        yield
        raise KeyError("something else")


def test_a_secret_leads_elsewhere_and_back(stood: Stood) -> None:
    for _ in strike(stood, "kubeconfig-swapped"):
        assert stood.secrets == {"east": KUBECONFIGS["west"], "west": KUBECONFIGS["west"]}
    assert stood.secrets == KUBECONFIGS


def test_a_secret_has_a_typo_for_a_while(stood: Stood) -> None:
    for _ in strike(stood, "kubeconfig-mistyped"):
        with pytest.raises(yaml.YAMLError):
            yaml.safe_load(stood.secrets["east"])
        assert stood.secrets["west"] == KUBECONFIGS["west"]
    assert stood.secrets == KUBECONFIGS


def test_nodes_take_nobody_for_a_while(stood: Stood) -> None:
    for _ in strike(stood, "no-room"):
        assert stood.done == ["cordon --selector=type=kwok"]
    assert stood.done[1:] == ["uncordon --selector=type=kwok"]


def test_etcd_is_put_back_to_what_it_was_when_the_fault_began(stood: Stood) -> None:
    for _ in strike(stood, "etcd-restored"):
        assert stood.done == ["copy east"]
        assert not stood.outages.of("east", time.monotonic()), "it answers until then"
    assert stood.done[1:] == ["put back east, 2 operators, excused: True"]


def test_the_short_trial_has_each_of_them() -> None:
    """`make test` draws the same faults each time, and these last for so long that they are noticed."""
    said = re.search(r"--n (\d+) --seed (\d+)", (REPO / "Makefile").read_text())
    assert said, "make test-chaos names its seed"
    drawn = [draw.fault(int(said[2]), number, 20.0) for number in range(1, int(said[1]) + 1)]
    assert {one.kind for one in drawn if one.lasts > reflector.PROBE_SECONDS / 2} >= NEW
    assert {one.kind for one in drawn} >= {"grown", "shrunk"}, "elastic gangs"
    (cut,), (stopped,) = ([one for one in drawn if one.kind == kind] for kind in ("cut", "controller-stopped"))
    assert cut.way != "data" and cut.lasts > reflector.PROBE_SECONDS, "fake workers send no data"
    assert stopped.lasts > leader_election.RENEW_DEADLINE_SECONDS, "who goes on then leads no more"
    first = [draw.gang(int(said[2]), number).workers for number in range(1, GANGS + 1)]
    assert sum(workers > 1 for workers in first) > GANGS // 2, "most gangs are in both clusters"
    assert len({one.kind for one in drawn}) == 15


# --- restoring -----------------------------------------------------------------------------------------------------------


def test_a_frozen_process_writes_nothing_and_goes_on(tmp_path: Path) -> None:
    """Copied is one instant: none of its threads goes on meanwhile."""
    said = tmp_path / "said"
    program = (
        "import sys, threading, time\n"
        "def write():\n"
        "    while True: open(sys.argv[1], 'a').write('x'); time.sleep(0.001)\n"
        "threading.Thread(target=write).start(); write()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(said)]) as running:
        try:
            _await(said, 1)
            with restore.frozen(running.pid):
                before = said.read_bytes()
                time.sleep(0.1)
                assert said.read_bytes() == before
            _await(said, len(before) + 1)
        finally:
            running.send_signal(signal.SIGKILL)


def _await(path: Path, size: int) -> None:
    deadline = time.monotonic() + 20
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < deadline, f"{path} has not come to {size} bytes"
        time.sleep(0.01)


def test_what_was_there_before_a_restore_is_gone(tmp_path: Path) -> None:
    source, goal = tmp_path / "backup", tmp_path / "etcd"
    (source / "member").mkdir(parents=True)
    (source / "member" / "db").write_bytes(b"then" + bytes(1 << 20))
    (goal / "member").mkdir(parents=True)
    (goal / "member" / "newer").write_text("now")
    restore._copy(source, goal)
    assert [one.name for one in (goal / "member").iterdir()] == ["db"]
    assert (goal / "member" / "db").read_bytes() == (source / "member" / "db").read_bytes()


def test_a_clone_has_ports_and_files_of_its_own() -> None:
    """Whatever it shared with the original would be one of theirs too few."""
    home = Home("mgr", 0)
    assert not {FIRST.etcd, FIRST.peers, FIRST.serves} & {CLONE.etcd, CLONE.peers, CLONE.serves}
    assert not set(FIRST.processes) & set(CLONE.processes)
    for flags in (control_plane._etcd, control_plane._apiserver):
        first, clone = ({flag for flag in flags(home, seat)} for seat in (FIRST, CLONE))
        assert all(str(port) not in flag for flag in clone for port in (":2379", ":2380", "=6443"))
        named = {flag.partition("=")[0] for flag in first - clone}
        assert named == {flag.partition("=")[0] for flag in clone - first}
        assert named in (
            {"--data-dir", "--listen-client-urls", "--advertise-client-urls", "--listen-peer-urls"},
            {"--etcd-servers", "--secure-port", "--audit-log-path"},
        )
