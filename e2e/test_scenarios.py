"""Tests the scenarios of docs/scenarios.md that need real Ray and GPUs: fill and spill, fill and no spill.

Three teams submit one RayJob each, without waiting, from namespaces of their own. A job has two workers with one GPU.
`static` is east, whose node has four GPUs; `dynamic` is west. The GPUs are only declared (hack/testbed/gpus.py), so Ray
counts them and nothing computes on them. On fake nodes, with more cases: tests/integration/test_scenarios.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.lab.base.lab import GPUS
from hack.lab.base.paths import REPO
from hack.lab.cluster.node import GPU
from hack.testbed import audit, gpus, policies, quotas, rayspec, tenants, workerclusters
from hack.testbed.audit import Kind, Request
from hack.testbed.auditlog import log_of, writes
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.rayjob import Job
from hack.testbed.reader import Raw

pytestmark = pytest.mark.long

TEAMS = ("rayjob1", "rayjob2", "rayjob3")
WORKERS = 2  # of each job
SECONDS = 480  # for nine Ray nodes to start on two busy cores
DECISION_SECONDS = 5
GRACE_SECONDS = 30  # of a worker pod: Ray stops meanwhile, and the pod holds its quota
CLEANUP_SECONDS = 60
_PAGE = REPO / "docs" / "scenarios.md"
_REMOVAL = Kind("kubelet", "delete", "pods")
_AMPLE = {"cpu": "100", "memory": "100Gi"}
_SUBMITTER = {"cpu": "100m", "memory": "200Mi"}  # KubeRay's default of 500m is too much for three on the lab's node
PROGRAM = f"""
import collections, json
import ray

ray.init(logging_level="ERROR")
bundles = ray.util.placement_group([{{"GPU": 1}}] * {WORKERS}, strategy="STRICT_SPREAD")
ray.get(bundles.ready(), timeout=120)

@ray.remote(num_cpus=0, num_gpus=1)
def train():
    return ray.get_runtime_context().get_node_id(), ray.get_gpu_ids()

steps = [
    train.options(placement_group=bundles, placement_group_bundle_index=index).remote() for index in range({WORKERS})
]
cluster_of = {{node["NodeID"]: node["Labels"].get("rayspan.dev/cluster") for node in ray.nodes()}}
where = collections.Counter(cluster_of[node] for node, ids in ray.get(steps, timeout=120) if len(ids) == 1)
print("TRAINED " + json.dumps(where), flush=True)
"""


def test_fill_and_spill(fleet: Clusters) -> None:
    """C1: static takes two jobs; the third goes to dynamic, where an autoscaler adds its GPUs."""
    west = fleet.workers["west"]
    with ExitStack() as stack:
        _equip(stack, fleet, {"east": GPUS, "west": WORKERS})
        stack.enter_context(workerclusters.growing(fleet, "west"))
        stack.enter_context(gpus.declared(west, 0))
        stack.enter_context(policies.changed(fleet.manager, _policy("fill-and-spill")))
        jobs = stack.enter_context(_submitted(fleet))
        wait(lambda: all(map(_where, jobs)), SECONDS, "three jobs are placed", jobs[-1].dump)
        places = {job: _where(job).removeprefix("2 ") for job in jobs}
        assert sorted(places.values()) == ["east", "east", "west"], "jobs made in one second have no order"
        assert max(map(_decided_after, jobs)) <= timedelta(seconds=DECISION_SECONDS)
        wait(lambda: _unschedulable(west) == WORKERS, SECONDS, "two workers wait for a node", jobs[-1].dump)
        gpus.declare(west, WORKERS)
        for job, cluster in places.items():
            _check_success(job, cluster)


@pytest.mark.usefixtures("audited")
def test_fill_and_no_spill(fleet: Clusters) -> None:
    """C2: the policy names static alone; the third job waits until one of the others ends, and dynamic sees nothing."""
    logs = {name: log_of(worker) for name, worker in fleet.workers.items()}
    with ExitStack() as stack:
        _equip(stack, fleet, {"east": GPUS, "west": GPUS})
        stack.enter_context(policies.changed(fleet.manager, _policy("fill-and-no-spill")))
        jobs = stack.enter_context(_submitted(fleet))
        wait(lambda: sorted(map(_state, jobs)) == [*[PlacementState.PLACED] * 2, PlacementState.WAITING], SECONDS,
             "two jobs are placed and one waits", jobs[-1].dump)  # fmt: skip
        (third,) = (job for job in jobs if _state(job) == PlacementState.WAITING)
        first, second = (job for job in jobs if job is not third)
        assert "east has capacity for 0" in third.placement()["status"]["reason"]
        assert [_where(first), _where(second)] == ["2 east", "2 east"]
        assert fleet.manager.items("pods", third.namespace) == [], "its head waits, too"
        assert third.remote_objects() == []
        wait(lambda: _where(third) == "2 east", SECONDS, "the third job is placed", third.dump)
        placed = _placed_at(third)
        for job in jobs:
            _check_success(job, "east")
        waited = placed - min(map(_ended_at, (first, second)))
        requests = {name: log.take() for name, log in logs.items()}
    assert timedelta(0) <= waited <= timedelta(seconds=GRACE_SECONDS + DECISION_SECONDS)
    vacated = min(_vacated_at(requests["east"], job.namespace) for job in (first, second))
    assert placed - vacated <= timedelta(seconds=DECISION_SECONDS)
    assert {name for name in requests if writes(name, requests[name], TEAMS)} == {"east"}


def _policy(name: str) -> Raw:
    """The spec of a DispatchPolicy of docs/scenarios.md."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    documents = [yaml.safe_load(block) for block in blocks]
    (spec,) = (each["spec"] for each in documents if each.get("metadata", {}).get("name") == name)
    return dict(spec)


def _equip(stack: ExitStack, fleet: Clusters, count: Mapping[str, int]) -> None:
    """Give the queue of each worker cluster quota for so many GPUs, and open the teams' namespaces."""
    stack.enter_context(tenants.opened(fleet, TEAMS))
    stack.enter_context(quotas.given(fleet.manager, {**_AMPLE, GPU: "100"}))
    for name, worker in fleet.workers.items():
        stack.enter_context(quotas.given(worker, {**_AMPLE, GPU: str(count[name])}))


@contextmanager
def _submitted(fleet: Clusters) -> Iterator[list[Job]]:
    """A RayJob of each team, submitted one after the other without waiting; in the end nothing of them exists."""
    jobs = [Job(fleet, "train", WORKERS, namespace=team) for team in TEAMS]
    try:
        for job in jobs:
            job.submit(PROGRAM, _with_a_gpu_each, submitterPodTemplate=_submitter())
        yield jobs
    finally:
        for job in jobs:
            job.delete()
        for job in jobs:
            job.wait_until_gone()


def _with_a_gpu_each(cluster: Raw) -> None:
    rayspec.soon_ready(cluster)
    cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    (group,) = cluster["workerGroupSpecs"]
    group["template"]["spec"]["containers"][0]["resources"]["limits"][GPU] = "1"


def _submitter() -> Raw:
    container = {"name": "submitter", "image": "rayproject/ray:2.60.0", "resources": {"requests": _SUBMITTER}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _state(job: Job) -> str:
    return str((job.placement().get("status") or {}).get("state"))


def _where(job: Job) -> str:
    """Where its workers are placed; empty before."""
    return str(job.placement()["status"]["where"]) if _state(job) == PlacementState.PLACED else ""


def _unschedulable(worker: Cluster) -> int:
    pods = (pod for team in TEAMS for pod in worker.items("pods", team, names.MANAGER_LABEL))
    return sum(condition(pod, "PodScheduled").get("reason") == "Unschedulable" for pod in pods)


def _decided_after(job: Job) -> timedelta:
    """From the creation of the RayJob until its Placement is `Placed`; both times are whole seconds."""
    created = job.manager.get("rayjobs", job.name, job.namespace)["metadata"]["creationTimestamp"]
    return _placed_at(job) - _time(created)


def _vacated_at(requests: Sequence[Request], namespace: str) -> datetime:
    """When the node had removed the last remote pod of a namespace's job."""
    removals = [each.at for each in audit.about(requests, namespace) if each.kind == _REMOVAL]
    return max(map(_time, removals))


def _placed_at(job: Job) -> datetime:
    placed = condition(job.placement(), names.PLACED)
    assert placed["status"] == "True", placed
    return _time(placed["lastTransitionTime"])


def _ended_at(job: Job) -> datetime:
    """When its RayJob was complete, which KubeRay writes after the success of the job."""
    return _time(wait(lambda: str(job.status().get("endTime", "")), 60, f"{job.name} is complete", job.dump))


def _check_success(job: Job, cluster: str) -> None:
    """It succeeded on GPUs of that cluster, and what it had in worker clusters is deleted while its RayJob exists."""
    assert job.wait_for_end(SECONDS) == "SUCCEEDED", job.output()
    assert job.said("TRAINED") == {cluster: WORKERS}
    remaining = CLEANUP_SECONDS - (datetime.now(UTC) - _ended_at(job)).total_seconds()
    wait(lambda: not job.remote_objects(), remaining, "it is given back", lambda: str(job.remote_objects()))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
