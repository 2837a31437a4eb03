"""Node autoscalers see worker pods that want a node in the worker cluster, later leave them alone, and see nothing in
the manager.

No autoscaler runs here. The Cluster Autoscaler and Karpenter act on fields of pods: both add nodes for a pod with
PodScheduled=False and the reason Unschedulable, and each reads its annotation before it empties a node. So these fields
are checked, from the first moment of each pod to its last.
"""

import json

import pytest

from adapter import names
from adapter.objects.unstructured import Raw, annotation, condition, label
from adapter.shell.kube.resources import PODS
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.nodes import added
from hack.testbed.recorder import Recorder
from hack.testbed.stage import Stage

JOB = "pi"
STAYS = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
_SOON = 30.0  # seconds within which nothing may keep a node any more when the job is over


@pytest.mark.long
def test_they_add_nodes_where_the_workers_run_and_none_in_the_manager(stage: Stage, running: Controller) -> None:
    """An elastic job, so that also those that come later are looked at."""
    west = stage.fleet.workers["west"]
    own = stage.own("west")
    stage.clusters = (own,)
    patch = json.dumps({"spec": {"canGrow": True}})
    stage.manager.kubectl("patch", "workercluster", own, "--type=merge", "-p", patch)
    stage.build({"west": 4}, node_labels={"west": {"pool": stage.name}})
    with Recorder(stage.name, {stage.manager: (PODS,), west: (PODS,)}) as seen:
        stage.ray_cluster(JOB, workers=2, elastic=4, least=2)
        wait(lambda: len(_without_node(stage)) == 2, 90, "two pods wait for a node there", running.tail)
        stage.scale(JOB, 0, 3)
        wait(lambda: len(_without_node(stage)) == 3, 90, "so does one that comes later", running.tail)
        for pod in _without_node(stage):
            assert not pod["spec"].get("schedulingGates"), "who adds nodes passes over pods with gates"
        unschedulable = names.ConditionReason.UNSCHEDULABLE
        wait(lambda: all(_dispatched(pod) == unschedulable for pod in stage.workers()), 30, "it is told", running.tail)
        with added(west, stage.name):
            wait(lambda: stage.running(3), 90, "all run on nodes that came", running.tail)
            for pod in stage.remote()["west"]:
                assert {key: annotation(pod, key) for key in STAYS} == STAYS
            stage.manager.delete("raycluster", JOB, stage.name, wait=False)
            wait(lambda: not stage.remote()["west"], _SOON, "no pod keeps a node any more", running.tail)
    changes = [(one.cluster, one.after) for one in seen.changes if one.after is not None]
    here = [
        pod
        for cluster, pod in changes
        if cluster == stage.manager.name and label(pod, names.RAY_NODE_TYPE_LABEL) == "worker"
    ]
    there = [pod for cluster, pod in changes if cluster == west.name and label(pod, names.POD_UID_LABEL)]
    assert {reason for pod in here if (reason := _why(pod))} == {"SchedulingGated"}, "never anything else, at no moment"
    assert "Unschedulable" in set(map(_why, there)), "that shows in what is recorded"
    assert all(annotation(pod, key) == value for pod in there for key, value in STAYS.items()), (
        "from the first moment on"
    )


def _why(pod: Raw) -> str:
    """Why a pod has no node, empty once it has one."""
    return str(condition(pod, "PodScheduled").get("reason") or "")


def _without_node(stage: Stage) -> list[Raw]:
    """The copies for which an autoscaler would add nodes."""
    return [pod for pod in stage.remote()["west"] if _why(pod) == "Unschedulable"]


def _dispatched(pod: Raw) -> str:
    """What a pod of the manager says of its copy, in a word."""
    return str(condition(pod, names.DISPATCHED_CONDITION).get("reason") or "")
