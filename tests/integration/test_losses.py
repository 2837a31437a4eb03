"""A running gang loses workers or quota in one cluster, or somebody would delete them by mistake.

Real Kueue and KubeRay; workers on fake nodes. Slower cases are in faults/test_running.py.
"""

import json
import signal

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.preemption import preempt, uids, workers_in
from hack.testbed.stage import Stage, plain_pod


def test_a_preempted_share_is_replaced_elsewhere(stage: Stage, running: Controller) -> None:
    """East takes its quota back: those workers go to west, and those that were in west stay the same pods."""
    stage.build({"east": 2, "west": 1})
    stage.ray_cluster("pi", workers=3, priority=stage.priority("low", 10))
    wait(lambda: stage.running(3), 90, "three workers run", running.tail)
    stayed = uids(stage, "west")
    stage.set_quota(stage.fleet.workers["west"], 3)
    preempt(stage)
    wait(lambda: stage.where("pi") == "3 west", 60, "they have a place in west", lambda: dump(stage, running))
    wait(lambda: stage.running(3), 60, "and run there", lambda: dump(stage, running))
    assert stayed <= uids(stage, "west")
    assert "Workers were lost, 2 in east: its workers were stopped there" in stage.told("pi", "ShareLost")
    wait(lambda: not stage.remote("workloads")["east"], 30, "nothing of the lost share stands", running.tail)
    wait(
        lambda: [len(stage.remote()[name]) for name in ("east", "west")] == [0, 3],
        30,
        "all copies are in west",
        running.tail,
    )


@pytest.mark.long
def test_a_gang_below_its_minimum_queues_again(stage: Stage, running: Controller) -> None:
    """B17: four of six run, and east takes its quota back. After the delay the two in west give theirs back, too; the
    gang starts again when four fit."""
    stage.build({"east": 2, "west": 2}, policy={"gang": "BestEffort", "minWorkers": 4, "minWorkersTimeout": "20s"})
    stage.ray_cluster("pi", workers=6, priority=stage.priority("low", 10))
    wait(lambda: stage.running(4), 90, "four run", lambda: dump(stage, running))
    wait(lambda: _minimum(stage) == "MinWorkersRunning", 30, "the minimum runs", lambda: dump(stage, running))
    stayed = uids(stage, "west")
    preempt(stage)
    wait(lambda: _minimum(stage) == "BelowMinWorkers", 60, "two are missing", lambda: dump(stage, running))
    assert uids(stage, "west") == stayed, "the others run on"
    wait(lambda: "MinWorkersTimeout" in stage.events("pi"), 60, "the delay is over", lambda: dump(stage, running))
    assert "Fewer than 4 workers of the job ran for 20s, and 2 run now" in stage.told("pi", "MinWorkersTimeout")
    wait(lambda: not any(stage.remote("workloads").values()), 60, "all shares are given back", running.tail)
    wait(lambda: "4 workers needed at once, 2 fit now" in stage.reason("pi"), 60, "it waits", running.tail)
    assert stage.state("pi") == PlacementState.WAITING
    stage.fleet.workers["east"].delete("pods", "local", stage.name)
    wait(lambda: stage.where("pi") == "2 east, 2 west", 60, "four fit again", lambda: dump(stage, running))
    wait(lambda: stage.running(4), 90, "four run again", lambda: dump(stage, running))
    assert not stayed & uids(stage, "west")


@pytest.mark.long
def test_a_worker_cluster_with_workers_is_not_deleted_by_mistake(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 0})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "a worker runs in east", running.tail)
    wait(lambda: workers_in(stage.fleet, "east") >= 1, 30, "east says so", running.tail)
    with pytest.raises(
        LabError, match=r"WorkerCluster east: status\.workers is \d+\. Drain it first with kubectl rayspan drain east"
    ):
        stage.manager.kubectl("delete", "workercluster", "east", "--dry-run=server")
    forced = {"metadata": {"annotations": {names.FORCE_DELETE_ANNOTATION: "true"}}}
    undone = {"metadata": {"annotations": {names.FORCE_DELETE_ANNOTATION: None}}}
    stage.manager.kubectl("patch", "workercluster", "east", "--type=merge", "-p", json.dumps(forced))
    try:
        stage.manager.kubectl("delete", "workercluster", "east", "--dry-run=server")
    finally:
        stage.manager.kubectl("patch", "workercluster", "east", "--type=merge", "-p", json.dumps(undone))


@pytest.mark.long
def test_workers_follow_a_head_that_moved(stage: Stage, running: Controller) -> None:
    """Workers with the old address are replaced and run with the new one.

    The head is on a fake node, which gives a new pod the last one's address: so the test writes another one into its
    status.
    """
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    before = {pod["metadata"]["uid"] for pod in stage.workers()}
    moved = json.dumps({"status": {"podIP": "10.99.99.99", "podIPs": [{"ip": "10.99.99.99"}]}})
    name = stage.manager.items("pods", stage.name, f"{names.RAY_NODE_TYPE_LABEL}=head")[0]["metadata"]["name"]
    stage.manager.kubectl("-n", stage.name, "patch", "pod", name, "--subresource=status", "--type=merge", "-p", moved)
    wait(lambda: stage.running(2) and _heads_known(stage) == {"10.99.99.99"}, 90,
         "both know the new address", lambda: dump(stage, running))  # fmt: skip
    assert not before & {pod["metadata"]["uid"] for pod in stage.workers()}


@pytest.mark.long
def test_a_cluster_that_refuses_the_pods_is_done_without(stage: Stage, running: Controller) -> None:
    """A policy of its own admin allows dry runs, and denies every real pod: the job says so, and runs elsewhere."""
    stage.build({"east": 2, "west": 2})
    tried = f"object.metadata.name.startsWith('{names.DRY_RUN_POD_PREFIX}')"
    probe = yaml.safe_dump(plain_pod("probe", stage.name, ""))
    _refuse(stage, "east", "", "pods", *_CREATE, input=probe, allowed=tried)
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", lambda: dump(stage, running))
    assert stage.where("pi") == "2 west"
    assert "no Ray here" in stage.told("pi", "RemotePodRejected")
    assert "2 in east: the cluster denies its pods" in stage.told("pi", "ShareLost")
    wait(lambda: not stage.remote("workloads")["east"], 30, "nothing is held in east", running.tail)


@pytest.mark.long
def test_a_namespace_that_goes_there_takes_its_workers_elsewhere(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 2})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    assert stage.where("pi") == "1 east, 1 west"
    stayed = uids(stage, "west")
    stage.fleet.workers["east"].kubectl("delete", f"namespace/{stage.name}", "--wait=false")
    wait(
        lambda: stage.where("pi") == "2 west" and stage.running(2), 90, "both run in west", lambda: dump(stage, running)
    )
    assert stayed <= uids(stage, "west")
    assert "1 in east" in stage.told("pi", "ShareLost")
    wait(lambda: not stage.remote("workloads")["east"], 30, "nothing stands in east", running.tail)


@pytest.mark.long
@pytest.mark.alone
def test_a_share_that_somebody_deletes_leaves_no_anchor(stage: Stage, running: Controller) -> None:
    """The controller notices only when the Workload is gone: nothing names its anchor any more. West has an anchor
    of that name."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    before = _uids(stage)
    share = stage.remote("workloads")["east"][0]["metadata"]["name"]
    running.send(signal.SIGSTOP)
    try:
        stage.fleet.workers["east"].delete("workload", share, stage.name)
    finally:
        running.send(signal.SIGCONT)
    wait(lambda: not before & _uids(stage), 60, "the old share and its anchor are gone", lambda: dump(stage, running))
    wait(lambda: stage.running(2), 60, "the worker runs on a new share", lambda: dump(stage, running))


@pytest.mark.long
def test_a_share_that_is_refused_leaves_no_anchor(stage: Stage, running: Controller) -> None:
    """East accepts the anchor and not the Workload, as while its Kueue is down: when it is not wanted any more, the
    anchor is deleted."""
    stage.build({"east": 1, "west": 0}, timeout="5m")
    template = plain_pod("probe", stage.name, "")["spec"]
    probe = {
        "apiVersion": names.KUEUE_API_VERSION,
        "kind": "Workload",
        "metadata": {"name": "probe", "namespace": stage.name},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": template}}]},
    }
    _refuse(stage, "east", names.KUEUE_DOMAIN, "workloads", *_CREATE, input=yaml.safe_dump(probe))
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.remote("configmaps")["east"], 60, "east has an anchor", lambda: dump(stage, running))
    stage.manager.kubectl("-n", stage.name, "delete", "raycluster", "pi")
    wait(lambda: not stage.remote("configmaps")["east"], 30, "the anchor is gone", lambda: dump(stage, running))


@pytest.mark.long
def test_a_share_that_its_cluster_keeps_holds_up_nobody(stage: Stage, running: Controller) -> None:
    """The job is stopped and started again, and east denies the deletion of Workloads: it goes west, and says what
    is left in east."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "the worker runs", running.tail)
    assert stage.where("pi") == "1 east"
    share = stage.remote("workloads")["east"][0]["metadata"]["name"]
    _refuse(stage, "east", names.KUEUE_DOMAIN, "workloads", "-n", stage.name, "delete", "workload", share)
    work = stage.workload("pi")["metadata"]["name"]
    _activate(stage, work, False)
    wait(lambda: not stage.workers(), 60, "the job is stopped", lambda: dump(stage, running))
    _activate(stage, work, True)
    wait(
        lambda: stage.where("pi") == "1 west" and stage.running(1), 90, "it runs in west", lambda: dump(stage, running)
    )
    said = stage.told("pi", "FailedShareDeletion")
    assert (
        said.startswith(f"Worker cluster east denies the deletion of Workload {share} of this job, which still holds")
        and "no Ray here" in said
    )
    assert [one["metadata"]["name"] for one in stage.remote("workloads")["east"]] == [share]
    stage.fleet.workers["east"].delete("validatingadmissionpolicybinding", stage.name)
    wait(lambda: not stage.remote("workloads")["east"], 90, "it is gone when it may go", lambda: dump(stage, running))


@pytest.mark.long
def test_a_check_that_is_taken_off_its_queue_stops_nothing_that_runs(stage: Stage, running: Controller) -> None:
    """Kueue lets run what it admitted; workers that fail are still replaced, and all is tidied up when the job ends."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    stayed, lost = uids(stage, "west"), stage.remote()["east"][0]["metadata"]
    off = json.dumps([{"op": "remove", "path": "/spec/admissionChecksStrategy"}])
    stage.manager.kubectl("patch", "clusterqueue", stage.name, "--type=json", "-p", off)
    stage.manager.delete("admissioncheck", stage.name)
    wait(lambda: not stage.workload("pi")["status"].get("admissionChecks"), 30, "the job has no check", running.tail)
    stage.fleet.workers["east"].delete("pod", lost["name"], stage.name)
    wait(lambda: _replaced(stage, lost["uid"]), 60, "the worker in east is replaced", lambda: dump(stage, running))
    wait(lambda: stage.running(2), 60, "two workers run", lambda: dump(stage, running))
    assert uids(stage, "west") == stayed
    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left", lambda: str(stage.leftovers()))


def _activate(stage: Stage, workload: str, active: bool) -> None:
    body = json.dumps({"spec": {"active": active}})
    stage.manager.kubectl("-n", stage.name, "patch", "workload", workload, "--type=merge", "-p", body)


def _replaced(stage: Stage, uid: str) -> bool:
    return [pod["metadata"]["uid"] != uid for pod in stage.remote()["east"]] == [True]


def _uids(stage: Stage) -> set[str]:
    return {raw["metadata"]["uid"] for kind in ("workloads", "configmaps") for raw in stage.remote(kind)["east"]}


_CREATE = ("create", "-f", "-")


def _refuse(
    stage: Stage, name: str, of: str, plural: str, *probe: str, input: str = "", allowed: str = "false"
) -> None:
    """The cluster's admin denies what `probe` does to these kinds in the stage's namespace, except for what is
    `allowed` (CEL).

    Returns when that is in effect.
    """
    cluster, group = stage.fleet.workers[name], "admissionregistration.k8s.io"
    rule = {
        "apiGroups": [of],
        "apiVersions": ["*"],
        "operations": ["CREATE" if probe == _CREATE else "DELETE"],
        "resources": [plural],
        "scope": "Namespaced",
    }
    where = {"matchLabels": {"kubernetes.io/metadata.name": stage.name}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": where},
        "validations": [{"expression": allowed, "message": "no Ray here"}],
    }
    bound = {"policyName": stage.name, "validationActions": ["Deny"]}
    made = (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound))
    objects = [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": stage.name}, "spec": what}
        for kind, what in made
    ]
    cluster.apply(yaml.safe_dump_all(objects))
    stage.made += [(cluster, f"{kind}.{group}", stage.name) for kind, _ in made]
    wait(lambda: _refuses(cluster, *probe, input=input), 30, f"{name} refuses {plural}")


def _refuses(cluster: Cluster, *probe: str, input: str) -> bool:
    try:
        cluster.kubectl(*probe, "--dry-run=server", input=input)
    except LabError as refusal:
        return "no Ray here" in str(refusal)
    return False


def _heads_known(stage: Stage) -> set[str]:
    pods = (pod for found in stage.remote().values() for pod in found)
    return {pod["metadata"]["annotations"][names.HEAD_IP_ANNOTATION] for pod in pods}


def _minimum(stage: Stage) -> object:
    """Whether the minimum of the workers of `pi` runs: the reason of the condition."""
    return condition(stage.placement("pi"), names.MIN_WORKERS_RUNNING).get("reason")
