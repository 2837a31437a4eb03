"""Faults of admins and wrong clocks are undone at the end of their time, and a restore replaces etcd's files."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from adapter import leader_election
from adapter.shell.kube import reflector
from hack.lab.base.lab import MANAGER, Lab
from hack.lab.base.lab import Cluster as Home
from hack.lab.base.paths import REPO
from hack.lab.cluster import cgroups, control_plane
from hack.lab.cluster.control_plane import CLONE, FIRST
from hack.testbed import install
from hack.testbed.reader import Raw
from hack.trials import clocks, restore
from hack.trials.chaos import clockjumps, draw, mistakes, restarts
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import GANGS, Ground
from hack.trials.outages import Outages

NEW = {"kubeconfig-swapped", "kubeconfig-mistyped", "etcd-restored", "no-room"}
KUBECONFIGS = {name: f"apiVersion: v1\nkind: Config\nclusters: [{name}]\n" for name in ("east", "west")}


def fault(kind: str, where: str = "east", way: str = "") -> Fault:
    return Fault(1, kind, where, way, 1.0, "", False, 0)


def enlarged(name: str) -> Raw:
    """A pod to which a LimitRange has added something."""
    added = "LimitRanger plugin set: memory request for container c"
    return {"metadata": {"name": name, "annotations": {"kubernetes.io/limit-ranger": added}}}


class Stood:
    """A ground that records its actions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.secrets = dict(KUBECONFIGS)
        self.workers: list[Raw] = []
        self.outages = Outages()
        monkeypatch.setattr(install, "worker_kubeconfig", lambda _, name: self.secrets[name])
        monkeypatch.setattr(install, "hand_over", lambda _, name, text: self.secrets.update({name: text}))
        monkeypatch.setattr(restore, "backup", lambda home: self.done.append(f"copy {home.name}"))
        monkeypatch.setattr(restore, "put_back", self._put_back)

    def _put_back(self, lab: Lab, home: Home, copy: object, operators: list[Any]) -> None:
        silent = bool(self.outages.of(home.name, time.monotonic()))
        self.done.append(f"put back {home.name}, {len(operators)} operators, excused: {silent}")

    def _kubectl(self, *words: str, input: str = "") -> str:
        if "--dry-run=server" in words:  # the first answer is of a server that has not noticed yet
            self.done.append("dry run")
            return yaml.safe_dump(enlarged("probe") if self.done.count("dry run") == 1 else {"metadata": {}})
        self.done.append(" ".join(words))
        return ""

    @property
    def ground(self) -> Ground:
        cluster = SimpleNamespace(
            kubectl=self._kubectl,
            apply=lambda text: self.done.append(f"apply {yaml.safe_load(text)['spec']}"),
            delete=lambda kind, name, namespace: self.done.append(f"delete {kind}"),
        )
        stage = SimpleNamespace(manager=cluster, clusters=("east", "west"), name="chaos", workers=lambda: self.workers)
        found = SimpleNamespace(
            stage=stage,
            lab=Lab(),
            cluster=lambda name: cluster,
            kueues={"east": None},
            outages=self.outages,
            load=SimpleNamespace(renew=lambda: self.done.append("renew a gang")),
            controller=SimpleNamespace(processes=lambda: [7]),
        )
        return cast(Ground, found)


@pytest.fixture
def stood(monkeypatch: pytest.MonkeyPatch) -> Stood:
    return Stood(monkeypatch)


def strike(stood: Stood, kind: str, where: str = "east", way: str = "") -> Iterator[None]:
    """Play an outage during which another fault fails."""
    outages = {**mistakes.OUTAGES, **clockjumps.OUTAGES}
    with pytest.raises(KeyError), outages[kind](stood.ground, fault(kind, where, way)):
        yield
        raise KeyError("something else")


def test_a_secret_points_to_another_cluster_and_back(stood: Stood) -> None:
    for _ in strike(stood, "kubeconfig-swapped"):
        assert stood.secrets == {"east": KUBECONFIGS["west"], "west": KUBECONFIGS["west"]}
    assert stood.secrets == KUBECONFIGS


def test_a_secret_has_a_typo_for_a_while(stood: Stood) -> None:
    for _ in strike(stood, "kubeconfig-mistyped"):
        with pytest.raises(yaml.YAMLError):
            yaml.safe_load(stood.secrets["east"])
        assert stood.secrets["west"] == KUBECONFIGS["west"]
    assert stood.secrets == KUBECONFIGS


def test_nodes_are_cordoned_for_a_while(stood: Stood) -> None:
    for _ in strike(stood, "no-room"):
        assert stood.done == ["cordon --selector=type=kwok"]
    assert stood.done[1:] == ["uncordon --selector=type=kwok"]


def test_etcd_is_restored_to_the_begin_of_the_fault(stood: Stood) -> None:
    for _ in strike(stood, "etcd-restored"):
        assert stood.done == ["copy east"]
        assert not stood.outages.of("east", time.monotonic()), "it answers until then"
    assert stood.done[1:] == ["put back east, 2 operators, excused: True"]


@pytest.mark.parametrize(
    ("where", "way", "want"),
    [
        pytest.param("east", "larger", [], id="larger pods in a worker cluster, whose shares hold what is added"),
        pytest.param(MANAGER, "refusing", [], id="forbidden pods in the manager"),
        pytest.param(
            MANAGER,
            "larger",
            ["dry run", "dry run", "-n chaos delete pod large --ignore-not-found --wait=false"],
            id="larger pods in the manager, which are deleted when no more of them come",
        ),
    ],
)
def test_a_limit_range_appears_and_goes(stood: Stood, where: str, way: str, want: list[str]) -> None:
    stood.workers = [enlarged("large"), {"metadata": {"name": "usual"}}]
    for _ in strike(stood, "limit-range", where, way):
        (applied, renewed) = stood.done
        assert applied.startswith("apply {'limits': [{") and renewed == "renew a gang"
    assert stood.done[2:] == ["delete limitrange", *want]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], int]]:
    """The steps of clocks: processes and seconds. Each cluster has the processes 1 and 2."""
    done: list[tuple[list[int], int]] = []
    monkeypatch.setattr(clocks, "set_ahead", lambda processes, seconds: done.append((sorted(processes), seconds)))
    monkeypatch.setattr(cgroups, "processes", lambda home: {1, 2})
    monkeypatch.setattr(restarts, "alone", nullcontext)
    return done


@pytest.mark.parametrize(
    ("kind", "way", "want"),
    [
        pytest.param("clock-jumped", "", ([1, 2], clockjumps.STEP), id="all processes of a cluster"),
        pytest.param("controller-clock-jumped", "back", ([7], -3600), id="the controller's, an hour back"),
        pytest.param("controller-clock-jumped", "ahead", ([7], 3600), id="the controller's, an hour ahead"),
    ],
)
def test_clocks_jump_and_are_set_right(
    stood: Stood, steps: list[tuple[list[int], int]], kind: str, way: str, want: tuple[list[int], int]
) -> None:
    for _ in strike(stood, kind, way=way):
        assert steps == [want]
    assert steps[1:] == [([1, 2], 0)]


def test_a_cluster_is_ahead_by_less_than_a_token_may_be_early() -> None:
    """An API server accepts a token for a minute before it is valid, so a clock that is set right costs no login."""
    assert 0 < clockjumps.STEP < 60


def test_the_short_trial_has_each_fault() -> None:
    """`make test` always draws these faults, and they last long enough to have an effect."""
    said = re.search(r"--n (\d+) --seed (\d+)", (REPO / "Makefile").read_text())
    assert said, "make test-chaos names its seed"
    drawn = [draw.fault(int(said[2]), number, 20.0) for number in range(1, int(said[1]) + 1)]
    assert {one.kind for one in drawn if one.lasts > reflector.PROBE_SECONDS / 2} >= NEW
    assert {one.kind for one in drawn} >= {"grown", "shrunk"}, "elastic gangs"
    assert {one.kind for one in drawn} >= {"limit-range", "job-rejected", "placement-deleted", "clock-jumped"}
    assert draw.READINESS_CLOCK not in {one.kind for one in drawn}, "it would count for all faults after it"
    (cut,), (stopped,) = ([one for one in drawn if one.kind == kind] for kind in ("cut", "controller-stopped"))
    assert cut.way != "data" and cut.lasts > reflector.PROBE_SECONDS, "fake workers send no data"
    assert stopped.lasts > leader_election.RENEW_DEADLINE_SECONDS, "who goes on then leads no more"
    first = [draw.gang(int(said[2]), number).workers for number in range(1, GANGS + 1)]
    assert sum(workers > 1 for workers in first) > GANGS // 2, "most gangs are in both clusters"
    assert len({one.kind for one in drawn}) == 15


# --- restoring --------------------------------------------------------------------------------------------------------


def test_a_frozen_process_writes_nothing_and_goes_on(tmp_path: Path) -> None:
    """The copy is of one instant: no thread of the process runs meanwhile."""
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


def test_a_restore_deletes_the_earlier_files(tmp_path: Path) -> None:
    source, goal = tmp_path / "backup", tmp_path / "etcd"
    (source / "member").mkdir(parents=True)
    (source / "member" / "db").write_bytes(b"then" + bytes(1 << 20))
    (goal / "member").mkdir(parents=True)
    (goal / "member" / "newer").write_text("now")
    restore._copy(source, goal)
    assert [one.name for one in (goal / "member").iterdir()] == ["db"]
    assert (goal / "member" / "db").read_bytes() == (source / "member" / "db").read_bytes()


def test_a_clone_has_ports_and_files_of_its_own() -> None:
    """A shared port or file would be missing in one of them."""
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
