"""Workers with a template slot go where it says and cost no write; a worker that cannot have its slot gets another."""

import json
from collections import Counter

import pytest

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import annotation, label
from adapter.objects.worker_pod import has_template_slot, slot_cluster, slot_of
from hack.lab.base import lab as definition
from hack.testbed import audit
from hack.testbed.clusters import Cluster, wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage, pods_by_cluster

OURS = names.CONTROLLER_ACCOUNT


def test_a_worker_costs_one_write_to_the_manager(stage: Stage, running: Controller) -> None:
    """KubeRay numbers the pods and their template lists the slots, so an assignment needs no write. The first status
    update contains the slot."""
    stage.build({"east": 3, "west": 3})
    log = audit.Log(definition.load().manager.audit_log)
    stage.ray_cluster("pi", workers=6)
    wait(lambda: stage.running(6), 90, "six workers run", running.tail)
    workers = {pod["metadata"]["name"]: pod for pod in stage.workers()}
    written = [
        one for one in audit.about(log.take(), stage.name) if one.kind.client == OURS and one.kind.verb != "watch"
    ]
    assert Counter(str(one.kind) for one in written if one.name in workers) == {f"{OURS} patch pods/status": 6}

    assert pods_by_cluster(workers.values()) == {"east": 3, "west": 3}
    (update,) = stage.check("pi")["podSetUpdates"]
    for pod in workers.values():
        assert annotation(pod, names.SLOTS_ANNOTATION) == update["annotations"][names.SLOTS_ANNOTATION]
        index = int(label(pod, names.RAY_REPLICA_INDEX_LABEL))
        cluster, rest = ("east", index) if index < 3 else ("west", index - 3)
        assert slot_cluster(pod) == label(pod, names.CLUSTER_LABEL) == cluster
        assert str(slot_of(pod)).endswith(f"/{rest}") and not has_template_slot(pod), "it is written by now"
    copies = {
        slot_of(copy): names.SLOTS_ANNOTATION in copy["metadata"]["annotations"]
        for copies in stage.remote().values()
        for copy in copies
    }
    assert copies == dict.fromkeys(map(slot_of, workers.values()), False)


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        pytest.param("west/1/{role}/1 east/1/{role}/1", "the other way round", id="forged"),
        pytest.param(None, "nothing is listed", id="missing", marks=pytest.mark.long),
        pytest.param("east/7/role/9", "of a round that never was", id="stale", marks=pytest.mark.long),
        pytest.param("kube-system/1/{role}/99999999", "of no cluster", id="nonsense", marks=pytest.mark.long),
    ],
)
def test_who_edits_a_template_gets_no_other_place_than_there_is(
    stage: Stage, running: Controller, listed: str | None, why: str
) -> None:
    """Where a list is of no use a slot is written, as before there were lists. A useful list names a slot of the
    plan, or none."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    role = str(slot_of(stage.workers()[0])).split("/")[2]
    _list(stage, listed.format(role=role) if listed else None)
    before = _slots(stage)
    gone = next(name for name, slot in before.items() if slot.startswith("east/"))
    stage.manager.delete("pod", gone, stage.name, wait=False)
    wait(lambda: gone not in _slots(stage) and stage.running(2), 90, f"another one runs, {why}", running.tail)
    assert sorted(_slots(stage).values()) == sorted(before.values()), "in the place that came free"
    assert {name: len(copies) for name, copies in stage.remote().items() if copies} == {"east": 1, "west": 1}


@pytest.mark.long
def test_whose_number_is_given_again_waits_for_the_copy_to_go(stage: Stage, running: Controller) -> None:
    """KubeRay reuses the number of a pod that is gone while its remote pod ends: both would claim one worker's
    quota."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    east, (copy,) = stage.fleet.workers["east"], stage.remote()["east"]
    gone, number = copy["metadata"]["name"], _numbers(stage)[copy["metadata"]["name"]]
    _finalizers(east, gone, stage.name, ["example.com/ends-slowly"])
    stage.manager.delete("pod", gone, stage.name, wait=False)
    wait(
        lambda: gone not in _numbers(stage) and len(_numbers(stage)) == 2, 60, "KubeRay made another one", running.tail
    )
    (fresh,) = (
        pod
        for pod in stage.workers()
        if pod["metadata"]["name"] in _numbers(stage).keys() - {gone} and has_template_slot(pod)
    )
    assert _numbers(stage)[fresh["metadata"]["name"]] == number
    _settled(stage, running)
    assert [pod["metadata"]["name"] for pod in stage.remote()["east"]] == [gone]
    _finalizers(east, gone, stage.name, None)
    wait(lambda: stage.running(2), 60, "it runs then", running.tail)
    assert [pod["metadata"]["name"] for pod in stage.remote()["east"]] == [fresh["metadata"]["name"]]


def _list(stage: Stage, listed: str | None) -> None:
    """Edit what the template of a running RayCluster lists."""
    path = "/spec/workerGroupSpecs/0/template/metadata/annotations/" + names.SLOTS_ANNOTATION.replace("/", "~1")
    patch = [{"op": "remove", "path": path} if listed is None else {"op": "replace", "path": path, "value": listed}]
    stage.manager.kubectl("-n", stage.name, "patch", "raycluster", "pi", "--type=json", "-p", json.dumps(patch))


def _slots(stage: Stage) -> dict[str, str]:
    return {pod["metadata"]["name"]: str(slot_of(pod)) for pod in stage.workers()}


def _numbers(stage: Stage) -> dict[str, str]:
    return {pod["metadata"]["name"]: label(pod, names.RAY_REPLICA_INDEX_LABEL) for pod in stage.workers()}


def _finalizers(cluster: Cluster, pod: str, namespace: str, wanted: list[str] | None) -> None:
    """Let a pod stay after its deletion, as one does that takes its grace, or let it go."""
    patch = json.dumps({"metadata": {"finalizers": wanted}})
    cluster.kubectl("-n", namespace, "patch", "pod", pod, "--type=merge", "-p", patch)


def _settled(stage: Stage, running: Controller) -> None:
    """What was to be done for a worker was done: the job that came after it is decided on."""
    stage.ray_cluster("after", workers=1)
    wait(lambda: stage.state("after") == PlacementState.WAITING, 60, "another gang was decided on", running.tail)
    stage.manager.delete("raycluster", "after", stage.name)
