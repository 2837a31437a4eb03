"""All missing prerequisites of a machine are reported at once; a machine that may work is accepted."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from hack.lab.base.progress import LabError
from hack.lab.build import machine, prerequisites
from hack.lab.build.machine import Machine, Place
from hack.lab.build.prerequisites import GB, Need

ALL_CONTROLLERS = frozenset({"cpu", "cpuacct", "cpuset", "memory", "pids"})
WHOLE = Machine(
    memory=20 * GB,
    controllers=ALL_CONTROLLERS,
    kernel=dict.fromkeys(("namespaces", "bridge", "veth", "nftables", "iptables", "overlayfs"), True),
)
BARE = Machine(memory=None, controllers=None, kernel={"namespaces": True})


def need(size: int, *, free: int, device: int = 1, path: str = "/cache") -> Need:
    return Need(Place(Path(path), device, free), size, "programs")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param(Machine(root=False), "not root", id="missing rights"),
        pytest.param(Machine(architecture="riscv64"), "riscv64", id="another processor"),
        pytest.param(Machine(system="Darwin"), "Darwin", id="another system"),
        pytest.param(
            Machine(missing=frozenset({"apt-get", "dpkg-query"})),
            "apt-get and dpkg-query",
            id="no Debian system",
        ),
        pytest.param(Machine(missing=frozenset({"cc"})), "gcc and libc6-dev", id="no compiler"),
        pytest.param(Machine(memory=3 * GB), "3.0 GB can be had", id="too little memory"),
        pytest.param(Machine(controllers=ALL_CONTROLLERS - {"pids"}), "has pids", id="a missing cgroup controller"),
        pytest.param(Machine(controllers=frozenset()), "cpu, cpuset, memory, pids", id="cgroups read-only"),
        pytest.param(Machine(kernel={"namespaces": False}), "no network and mount namespaces", id="no namespaces"),
        pytest.param(Machine(kernel={"overlayfs": False}), "no overlayfs", id="no overlayfs"),
    ],
)
def test_each_missing_prerequisite_is_one_sentence(found: Machine, words: str) -> None:
    (sentence,) = prerequisites.judge(found)
    assert words in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("found", "built"),
    [
        pytest.param(WHOLE, False, id="all prerequisites"),
        pytest.param(BARE, False, id="unknown prerequisites"),
        pytest.param(Machine(memory=1 * GB, lab=True), False, id="memory in use by the machine's own lab"),
        pytest.param(Machine(missing=frozenset({"cc"})), True, id="no compiler, and the programs are built"),
        pytest.param(
            Machine(controllers=frozenset({"cpu", "cpuset", "memory", "pids"})),
            False,
            id="cgroups of version 2",
        ),
    ],
)
def test_a_machine_that_may_work_is_accepted(found: Machine, built: bool) -> None:
    assert prerequisites.judge(found, [need(2 * GB, free=3 * GB)], built=built) == []


def test_all_faults_are_reported_at_once() -> None:
    poor = Machine(root=False, memory=GB, missing=frozenset({"cc"}), controllers=frozenset())
    said = prerequisites.judge(poor, [need(2 * GB, free=GB)])
    assert [sentence.partition(":")[0] for sentence in said] == ["Rights", "Programs", "Memory", "Disk", "Cgroups"]


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        pytest.param(
            [need(6 * GB, free=10 * GB), need(6 * GB, free=10 * GB)],
            ["10.0 GB are free"],
            id="two places on one disk",
        ),
        pytest.param(
            [need(6 * GB, free=10 * GB), need(6 * GB, free=10 * GB, device=2)],
            [],
            id="two places on two disks",
        ),
        pytest.param(
            [need(6 * GB, free=10 * GB), need(6 * GB, free=1 * GB, device=2)],
            ["1.0 GB are"],
            id="two disks, one of them full",
        ),
        pytest.param([need(0, free=0)], [], id="no space needed"),
    ],
)
def test_places_on_one_disk_share_its_free_space(needs: list[Need], said: list[str]) -> None:
    sentences = prerequisites.judge(WHOLE, needs)
    assert len(sentences) == len(said)
    assert all(words in sentence for words, sentence in zip(said, sentences, strict=True))


def test_each_probed_feature_has_a_sentence() -> None:
    none: Mapping[str, bool] = dict.fromkeys(WHOLE.kernel, False)
    assert len(prerequisites.judge(Machine(kernel=none))) == len(WHOLE.kernel)


def test_faults_end_the_program_with_status_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "read", lambda *_: Machine(root=False, memory=GB))
    monkeypatch.setattr(prerequisites, "_needs", lambda built: [])
    assert prerequisites.main([]) == 1
    assert [line[:9] for line in capsys.readouterr().err.splitlines()] == ["This mach", "  Rights:", "  Memory:"]


def test_a_machine_is_inspected_without_traces(tmp_path: Path) -> None:
    found = machine.read(("sh", "no-such-program"), tmp_path / "state")
    assert found.missing == {"no-such-program"}
    assert found.memory is None or found.memory > 0
    assert list(tmp_path.iterdir()) == []


def test_the_used_space_of_a_place_is_counted(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(b"x" * 100_000)
    assert 100_000 <= machine.held(tmp_path) < 200_000
    assert machine.held(tmp_path / "nowhere") == 0
    assert machine.place(tmp_path / "not" / "yet").device == tmp_path.stat().st_dev


def test_the_check_raises_an_error_of_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read", lambda *_: Machine(root=False))
    monkeypatch.setattr(prerequisites, "_needs", lambda built: [])
    with pytest.raises(LabError, match="not root"):
        prerequisites.check()


@pytest.mark.parametrize(
    ("found", "lanes"),
    [
        pytest.param(Machine(processors=4, memory=12 * GB), 3, id="memory for two labs"),
        pytest.param(Machine(processors=4, memory=10 * GB), 2, id="memory for one lab"),
        pytest.param(Machine(processors=4, memory=8 * GB, lab=True), 3, id="memory for one lab beside a running one"),
        pytest.param(Machine(processors=4, memory=6 * GB, lab=True), 2, id="no memory beside a running lab"),
        pytest.param(Machine(processors=4), 3, id="unknown memory"),
        pytest.param(Machine(processors=2, memory=24 * GB), 2, id="two processors"),
    ],
)
def test_tests_run_in_parallel_where_two_labs_fit(found: Machine, lanes: int) -> None:
    assert prerequisites.lanes(found) == lanes
