"""What becomes of a running gang that loses what it had in one cluster: preempted, deleted, out of sight, or drained?

Real Kueue and KubeRay; workers on fake nodes, so no Ray head tells who is alive.
"""

import json
from collections.abc import Iterator

import pytest
import yaml

from adapter import names
from hack.apireader import Raw
from hack.clusters import Clusters, condition, wait
from hack.lab import faults
from hack.lab import lab as definition
from hack.lab.lab import Lab
from hack.lab.progress import LabError
from tests.integration.controller import Controller
from tests.integration.stage import QUEUE, Stage, plain_pod, pods_by_cluster

PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}


@pytest.fixture
def lab(fleet: Clusters) -> Iterator[Lab]:
    """The lab, whole again afterwards."""
    found = definition.load()
    yield found
    faults.heal(found)


@pytest.fixture
def east(fleet: Clusters) -> Iterator[str]:
    """East's WorkerCluster, as it was afterwards."""
    yield "east"
    _set(fleet, cordoned=None, draining=None, maxUnavailable=None)


def test_a_preempted_share_is_replaced_elsewhere(stage: Stage, running: Controller) -> None:
    """East takes its quota back: those workers go to west, and those that were in west stay the same pods."""
    stage.build({"east": 2, "west": 1})
    stage.ray_cluster("pi", workers=3, priority=stage.priority("low", 10))
    wait(lambda: stage.running(3), 90, "three workers run", running.tail)
    stayed = _uids(stage, "west")
    stage.set_quota(stage.fleet.workers["west"], 3)
    _preempt(stage)
    wait(lambda: stage.where("pi") == "3 west", 60, "they have a place in west", lambda: _dump(stage, running))
    wait(lambda: stage.running(3), 60, "and run there", lambda: _dump(stage, running))
    assert stayed <= _uids(stage, "west")
    assert "Workers were lost, 2 in east: its workers were stopped there" in stage.events("pi")["ShareLost"]
    assert stage.remote("workloads")["east"] == [], "something of the lost share stands"
    assert {len(found) for found in (stage.remote()["east"], stage.remote()["west"])} == {0, 3}


def test_without_room_the_job_runs_on_and_gets_its_workers_later(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2, priority=stage.priority("low", 10))
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    _preempt(stage)
    wait(lambda: _status(stage)["workers"] == "1 of 2", 60, "one has no place", lambda: _dump(stage, running))
    wait(lambda: "1 worker needed" in _status(stage)["reason"], 30, "it is said what it waits for", running.tail)
    assert stage.check("pi")["state"] == names.CHECK_READY
    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(lambda: stage.running(2), 60, "it has a place again", lambda: _dump(stage, running))
    assert stage.where("pi") == "2 west"


def test_a_policy_may_restart_the_whole_gang(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 1}, policy={"onShareLost": "Restart"})
    stage.ray_cluster("pi", workers=2, priority=stage.priority("low", 10))
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    before = {pod["metadata"]["uid"] for pod in stage.workers()}
    first = stage.placement("pi")["metadata"]["name"]
    stage.set_quota(stage.fleet.workers["west"], 2)
    _preempt(stage)
    wait(lambda: "starts again" in stage.check("pi").get("message", "") or _other(stage, first), 60,
         "the whole gang starts again", lambda: _dump(stage, running))  # fmt: skip
    wait(lambda: stage.where("pi") == "2 west", 90, "it is placed anew", lambda: _dump(stage, running))
    wait(lambda: stage.running(2), 60, "and runs", lambda: _dump(stage, running))
    assert not before & {pod["metadata"]["uid"] for pod in stage.workers()}


def test_a_cluster_out_of_sight_is_given_up_in_time(stage: Stage, running: Controller, lab: Lab) -> None:
    """Unknown first, replaced after the policy's timeout, and nothing doubled when the cluster is back."""
    stage.build({"east": 2, "west": 3}, policy={"workerLostTimeout": "12s"})
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.running(3), 90, "three workers run", running.tail)
    stayed = _uids(stage, "west")
    faults.cut(lab, lab.cluster("east"), way="link")  # also from this machine, on which the controller runs here
    wait(lambda: len(_unknown(stage)) == 2, 60, "nothing is known of two", lambda: _dump(stage, running))
    assert "cannot be seen since" in _unknown(stage)[0]["message"]
    assert _status(stage)["state"] == names.UNKNOWN
    assert stage.running(3), "they are left running meanwhile"
    wait(lambda: stage.where("pi") == "3 west", 60, "they are given up and replaced", lambda: _dump(stage, running))
    wait(lambda: stage.running(3), 60, "all three run in west", lambda: _dump(stage, running))
    assert stayed <= _uids(stage, "west")
    faults.heal(lab)
    wait(lambda: not stage.remote()["east"], 60, "what was left in east is gone", lambda: _dump(stage, running))
    wait(lambda: not stage.remote("workloads")["east"], 30, "and its quota free", lambda: _dump(stage, running))
    assert stage.running(3)


def test_a_drained_cluster_is_left_one_by_one(stage: Stage, running: Controller, east: str) -> None:
    stage.build({"east": 3, "west": 3})
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.running(3), 90, "three workers run in east", running.tail)
    assert pods_by_cluster(stage.workers()) == {"east": 3}
    _set(stage.fleet, draining=True)
    away: list[int] = []

    def left() -> bool:
        away.append(3 - sum(condition(pod, "Ready").get("status") == "True" for pod in stage.workers()))
        return pods_by_cluster(stage.workers()) == {"west": 3} and stage.running(3)

    wait(left, 120, "all run in west", lambda: _dump(stage, running))
    assert max(away) <= 1, "more than one was away at once"
    wait(lambda: stage.where("pi") == "3 west", 30, "the share in east is given back", lambda: _dump(stage, running))
    wait(lambda: not stage.remote("workloads")["east"], 30, "and gone", lambda: _dump(stage, running))
    wait(lambda: _workers_in(stage.fleet) == 0, 30, "east says that nobody is left", running.tail)


def test_who_has_no_other_place_stays_in_a_drained_cluster(stage: Stage, running: Controller, east: str) -> None:
    stage.build({"east": 2, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run in east", running.tail)
    _set(stage.fleet, draining=True)
    wait(lambda: stage.where("pi") == "1 east, 1 west" or pods_by_cluster(stage.workers()) == {"east": 1, "west": 1},
         60, "one has moved", lambda: _dump(stage, running))  # fmt: skip
    wait(lambda: stage.running(2), 30, "both run", lambda: _dump(stage, running))
    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(
        lambda: pods_by_cluster(stage.workers()) == {"west": 2},
        60,
        "the other one follows",
        lambda: _dump(stage, running),
    )


def test_a_worker_cluster_with_workers_is_not_deleted_by_mistake(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 0})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "a worker runs in east", running.tail)
    wait(lambda: _workers_in(stage.fleet) >= 1, 30, "east says so", running.tail)
    with pytest.raises(
        LabError, match=r"WorkerCluster east: status\.workers is \d+\. Drain it first with kubectl rayspan drain east"
    ):
        stage.manager.kubectl("delete", "workercluster", "east", "--dry-run=server")
    forced = {"metadata": {"annotations": {names.FORCE_DELETE_ANNOTATION: "true"}}}
    stage.manager.kubectl("patch", "workercluster", "east", "--type=merge", "-p", json.dumps(forced))
    stage.manager.kubectl("delete", "workercluster", "east", "--dry-run=server")
    undone = {"metadata": {"annotations": {names.FORCE_DELETE_ANNOTATION: None}}}
    stage.manager.kubectl("patch", "workercluster", "east", "--type=merge", "-p", json.dumps(undone))


def test_workers_follow_a_head_that_moved(stage: Stage, running: Controller) -> None:
    """Whoever was made with the old address is replaced, and runs with the new one. The head is on a fake node, which gives
    a new pod the address of the last one: so its status is told another one."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    before = {pod["metadata"]["uid"] for pod in stage.workers()}
    moved = json.dumps({"status": {"podIP": "10.99.99.99", "podIPs": [{"ip": "10.99.99.99"}]}})
    name = stage.manager.items("pods", stage.name, f"{names.RAY_NODE_TYPE_LABEL}=head")[0]["metadata"]["name"]
    stage.manager.kubectl("-n", stage.name, "patch", "pod", name, "--subresource=status", "--type=merge", "-p", moved)
    wait(lambda: stage.running(2) and _heads_known(stage) == {"10.99.99.99"}, 90,
         "both know the new address", lambda: _dump(stage, running))  # fmt: skip
    assert not before & {pod["metadata"]["uid"] for pod in stage.workers()}


def test_a_cluster_that_refuses_the_pods_is_done_without(stage: Stage, running: Controller) -> None:
    """Its quota is given, and then a policy of its own admin refuses every pod: the job says so, and runs elsewhere."""
    stage.build({"east": 2, "west": 2})
    _refuse_pods(stage, "east")
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", lambda: _dump(stage, running))
    assert stage.where("pi") == "2 west"
    assert "no Ray here" in stage.events("pi")["PodRefused"]
    assert "2 in east: the cluster refuses its pods" in stage.events("pi")["ShareLost"]
    wait(lambda: not stage.remote("workloads")["east"], 30, "nothing is held in east", running.tail)


def _refuse_pods(stage: Stage, name: str) -> None:
    cluster, group = stage.fleet.workers[name], "admissionregistration.k8s.io"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "Namespaced",
    }
    where = {"matchLabels": {"kubernetes.io/metadata.name": stage.name}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": where},
        "validations": [{"expression": "false", "message": "no Ray here"}],
    }
    bound = {"policyName": stage.name, "validationActions": ["Deny"]}
    made = (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound))
    objects = [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": stage.name}, "spec": of} for kind, of in made
    ]
    cluster.apply(yaml.safe_dump_all(objects))
    stage.made += [(cluster, f"{kind}.{group}", stage.name) for kind, _ in made]
    wait(lambda: _refuses(stage, name), 30, f"{name} refuses pods")


def _refuses(stage: Stage, name: str) -> bool:
    pod = yaml.safe_dump(plain_pod("probe", stage.name, ""))
    try:
        stage.fleet.workers[name].kubectl("create", "--dry-run=server", "-f", "-", input=pod)
    except LabError as refusal:
        return "no Ray here" in str(refusal)
    return False


def _heads_known(stage: Stage) -> set[str]:
    pods = (pod for found in stage.remote().values() for pod in found)
    return {pod["metadata"]["annotations"][names.HEAD_ANNOTATION] for pod in pods}


def _preempt(stage: Stage) -> None:
    """Somebody of east's own users, of higher priority, takes all of its quota."""
    cluster = stage.fleet.workers["east"]
    cluster.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(PREEMPTION))
    stage.add(cluster, "WorkloadPriorityClass", {"value": 500})
    quota = cluster.get("clusterqueues", stage.name)["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    pod = plain_pod("local", stage.name, QUEUE, str(quota["nominalQuota"]))
    pod["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = stage.name
    cluster.apply(yaml.safe_dump(pod))


def _uids(stage: Stage, cluster: str) -> set[str]:
    return {
        pod["metadata"]["uid"] for pod in stage.fleet.workers[cluster].items("pods", stage.name, names.MANAGER_LABEL)
    }


def _status(stage: Stage) -> dict[str, str]:
    return {"state": "", "workers": "", "reason": "", **(stage.placement("pi").get("status") or {})}


def _other(stage: Stage, first: str) -> bool:
    return bool((stage.placement("pi").get("metadata") or {}).get("name", first) != first)


def _unknown(stage: Stage) -> list[Raw]:
    found = (condition(pod, names.DISPATCHED_CONDITION) for pod in stage.workers())
    return [one for one in found if one.get("status") == "Unknown"]


def _workers_in(fleet: Clusters) -> int:
    return int((fleet.manager.get("workerclusters", "east").get("status") or {}).get("workers") or 0)


def _set(fleet: Clusters, **spec: object) -> None:
    fleet.manager.kubectl("patch", "workercluster", "east", "--type=merge", "-p", json.dumps({"spec": spec}))


def _dump(stage: Stage, running: Controller) -> str:
    pods = [
        f"{p['metadata']['name']} {p['status']['phase']} {p['metadata']['annotations'].get(names.SLOT_ANNOTATION)}"
        for p in stage.workers()
    ]
    return "\n".join([json.dumps(stage.placement("pi").get("status")), *pods, running.tail()])
