"""The CPU weight of the lab's pods, by files that stand in for the kernel's."""

from pathlib import Path

import pytest

from hack.lab.base.lab import Cluster
from hack.lab.base.paths import NAME
from hack.lab.cluster import cgroups


def test_a_cgroup_of_pods_without_daemons_weighs_like_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchies = [tmp_path / name for name in ("cpu", "pids")]
    monkeypatch.setattr(cgroups, "hierarchies", lambda: hierarchies)
    for hierarchy in hierarchies:
        (hierarchy / NAME).mkdir(parents=True)
    shares = tmp_path / "cpu" / NAME / "cpu.shares"
    shares.write_text("1024")
    cgroups.create(Cluster("mgr", 0))
    assert shares.read_text() == "6144"
    assert not (tmp_path / "pids" / NAME / "cpu.shares").exists(), "nothing is made that the kernel has not"
