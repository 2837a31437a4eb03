"""The audit log lists our writes in a namespace of the worker clusters, without reads and without writes of others."""

from pathlib import Path

import pytest

from hack.testbed.auditlog import Write, Written, gangs
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.stage import Stage
from tests.unit.hack.test_bench_audit import KUEUE, recorded

OURS = "system:serviceaccount:rayspan-system:rayspan-worker"
NAME = "pi-worker-6pddq"  # in every recorded request


def stage(folder: Path) -> Stage:
    """A stage over two worker clusters whose directories hold the log alone."""
    for name in ("east", "west"):
        (folder / name).mkdir()
        (folder / name / "audit.log").write_text(recorded(OURS, "create") + "\n")
    workers = {name: Cluster(name, folder / name / "kubeconfig") for name in ("east", "west")}
    return Stage(Clusters(Cluster("manager", folder / "kubeconfig"), workers), "demo")


def add(folder: Path, cluster: str, *lines: str) -> None:
    with (folder / cluster / "audit.log").open("a") as log:
        log.write("".join(f"{line}\n" for line in lines))


def test_our_writes_in_the_namespace_are_listed_once(tmp_path: Path) -> None:
    written = Written(stage(tmp_path))
    assert written.take() == [], "what was before is not counted"
    add(tmp_path, "east", recorded(OURS, "create"), recorded(OURS, "list"), recorded(KUEUE, "patch", "workloads"))
    add(tmp_path, "west", recorded(OURS, "delete", "configmaps"), recorded(OURS, "create", namespace="of-others"))
    found = written.take()
    assert found == [Write("east", "create", "pods", NAME), Write("west", "delete", "configmaps", NAME)]
    assert str(found[0]) == f"east: create pods {NAME}"
    assert written.take() == []


def test_a_forbidden_attempt_is_listed(tmp_path: Path) -> None:
    written = Written(stage(tmp_path))
    add(tmp_path, "east", recorded(OURS, "create", code=403))
    assert [one.verb for one in written.take()] == ["create"]


def test_a_dry_run_is_no_write(tmp_path: Path) -> None:
    written = Written(stage(tmp_path))
    tried = recorded(OURS, "create").replace(f"/pods/{NAME}", "/pods?dryRun=All")
    add(tmp_path, "east", tried, recorded(OURS, "patch"))
    assert [one.verb for one in written.take()] == ["patch"]


def test_verbs_can_be_selected(tmp_path: Path) -> None:
    written = Written(stage(tmp_path))
    add(tmp_path, "east", recorded(OURS, "create"), recorded(OURS, "patch"))
    assert [one.verb for one in written.take(["patch"])] == ["patch"]


def test_a_share_names_its_gang() -> None:
    writes = [Write("east", "create", "workloads", "rayjob-pi-4f2a1-2"), Write("west", "create", "pods", "other-1")]
    assert gangs(writes) == {"rayjob-pi-4f2a1"}


def test_a_cluster_without_a_log_is_an_error(tmp_path: Path) -> None:
    made = stage(tmp_path)
    (tmp_path / "west" / "audit.log").unlink()
    with pytest.raises(FileNotFoundError):
        Written(made)
