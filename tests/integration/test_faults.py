"""A worker cluster that is cut off is reported and passed over while the others go on, and the lab's own repair works.

The controller is the deployed one, a pod of the manager cluster: what is cut off from it is what a user's would be.
"""

import pytest

from adapter import names
from adapter.objects.unstructured import meta
from hack.lab import cli, faults
from hack.lab.base import lab as definition
from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError
from hack.lab.cluster import kwok, processes
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.stage import Stage

pytestmark = [pytest.mark.usefixtures("deployed"), pytest.mark.long]  # which makes them alone


@pytest.mark.parametrize("way", faults.WAYS)
def test_a_silent_cluster_is_told_and_passed_over(stage: Stage, lab: Lab, way: str) -> None:
    """East's API is cut: its condition says since when, a new gang goes west, and after the repair east is reachable
    again."""
    stage.build({"east": 2, "west": 2})
    faults.cut(lab, lab.cluster("east"), scope="all" if way == "link" else "api", way=way)
    wait(lambda: _connected(stage).get("status") == "Unknown", 60, "east is told to be silent")
    assert "worker cluster east is unreachable since" in _connected(stage)["message"]

    stage.ray_cluster("pi", workers=2)
    wait(lambda: _west_runs(stage), 60, "both workers run in west")
    assert "east passed over: is unreachable since" in stage.reason("pi")

    faults.heal(lab)
    wait(lambda: _connected(stage).get("status") == "True", 60, "east is seen again")
    stage.set_quota(stage.fleet.workers["east"], 4)
    stage.ray_cluster("next", workers=4)
    wait(
        lambda: stage.where("next") == "4 east",
        30,
        "what changes in east is heard, without waiting for the watches to tire",
    )


def test_a_gang_that_is_placed_outlives_a_cut(stage: Stage, lab: Lab) -> None:
    """While only the API is silent nothing is replaced: the same pods are there before and after."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 30, "two workers run, although there were cuts just now")
    before = {pod["metadata"]["uid"] for pod in stage.workers()}
    faults.cut(lab, lab.cluster("east"), scope="api", way="drop")
    wait(lambda: _connected(stage).get("status") == "Unknown", 60, "east is told to be silent")
    wait(
        lambda: "workers in east are left running: the cluster is unreachable since" in _reason(stage),
        30,
        "the Placement says so",
    )
    faults.heal(lab)
    wait(lambda: _connected(stage).get("status") == "True", 60, "east is seen again")
    wait(
        lambda: _reason(stage) == "1 of 2 workers to east, 1 to west.",
        30,
        "all is well",
        lambda: f"{_reason(stage)} {stage.events('pi')}",
    )
    assert {pod["metadata"]["uid"] for pod in stage.workers()} == before, stage.events("pi")
    assert stage.running(2)


def test_up_brings_back_what_died(lab: Lab, fleet: Clusters) -> None:
    """A kubelet that was killed is started again by the next `up`, and nothing else is."""
    west = lab.cluster("west")
    before = {name: processes.pid(west, name) for name in ("etcd", "kube-apiserver", "containerd")}
    processes.end(west, "kubelet")
    assert cli.main(["up"]) == 0
    assert processes.alive(west, "kubelet")
    assert {name: processes.pid(west, name) for name in before} == before
    assert cli.main(["status"]) == 0


def test_a_new_kwok_holds_the_fake_nodes_at_once(lab: Lab, fleet: Clusters) -> None:
    """A node is lost if its Lease is not renewed for 50 s, and its pods are then never ready again."""
    east = lab.cluster("east")
    before = _holders(fleet)
    processes.end(east, kwok.NAME)
    assert cli.main(["up"]) == 0
    wait(lambda: _holders(fleet).isdisjoint(before | {""}), 20, "the new kwok holds all fake nodes of east")


def test_a_failure_is_one_sentence(capsys: pytest.CaptureFixture[str], fleet: Clusters) -> None:
    """The command line of the lab never shows a traceback."""
    assert cli.main(["cut", "atlantis"]) == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("The lab has no cluster called atlantis") and "\n" not in said
    with pytest.raises(LabError):
        definition.load().cluster("atlantis")


def _connected(stage: Stage) -> dict[str, str]:
    return dict(condition(stage.manager.get("workerclusters", "east"), names.CONNECTED))


def _reason(stage: Stage) -> str:
    return str((stage.placement("pi").get("status") or {}).get("reason"))


def _west_runs(stage: Stage) -> bool:
    """Whether both workers run there; east is not asked, for it may be out of our own reach as well."""
    copies = stage.fleet.workers["west"].items("pods", stage.name, names.MANAGER_LABEL)
    return stage.running(2) and len(copies) == 2


def _holders(fleet: Clusters) -> set[str]:
    """Who holds the Leases of east's fake nodes; empty strings where a Lease is not there."""
    east = fleet.workers["east"]
    leases = east.items("leases.coordination.k8s.io", "kube-node-lease")
    holders = {meta(lease)["name"]: lease["spec"]["holderIdentity"] for lease in leases}
    return {holders.get(meta(node)["name"], "") for node in east.items("nodes", selector="type=kwok")}
