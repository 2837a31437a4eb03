"""The clusters that a job's annotation names count as draining for its own gang, and for no other."""

import asyncio
from typing import Any

import pytest

from adapter import names
from adapter.objects import specs
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.objects.worker_pod import Slot, slot_of
from adapter.objects.workload import Job
from adapter.planning.rounds import PlanResult
from adapter.shell.observe.drains import DrainObserver
from adapter.shell.observe.slots import PendingAssignments, SlotObserver
from tests.unit import builders
from tests.unit.builders import (
    at,
    make_copy,
    make_meta,
    make_placement,
    make_pod,
    make_ray_cluster,
    make_reservation,
    make_worker_cluster,
    make_workload,
)
from tests.unit.stores import Sight, fill, make_template

WORKLOAD = make_workload(check=names.CHECK_READY)
PLACEMENT = make_placement(WORKLOAD, placedRound=1)
KEY = (builders.NAMESPACE, WORKLOAD["metadata"]["name"])
JOB = Job("ray.io/v1", "RayJob", builders.NAMESPACE, builders.JOB, "uid-of-job")
OTHER_JOB = Job("ray.io/v1", "RayJob", builders.NAMESPACE, "other", "uid-of-other")


def ray_job(move_from: str, *, name: str = builders.JOB, uid: str = "uid-of-job") -> Raw:
    return {"metadata": make_meta(name, uid=uid, annotations={names.MOVE_FROM_ANNOTATION: move_from}), "spec": {}}


def sight(*jobs: Raw, workload: Raw = WORKLOAD, placement: Raw = PLACEMENT) -> Sight:
    observed = Sight({"east": 8, "west": 8})
    fill(observed.manager.worker_clusters, make_worker_cluster("east"), make_worker_cluster("west"))
    fill(observed.manager.ray_jobs, *jobs)
    fill(observed.manager.workloads, workload)
    fill(observed.manager.placements, placement)
    fill(observed.manager.ray_clusters, make_ray_cluster())
    return observed


def drain(observed: Sight, name: str) -> None:
    observed.members[name].spec = specs.parse_worker_cluster(make_worker_cluster(name, draining=True))


@pytest.mark.parametrize(
    ("jobs", "drained", "job", "want"),
    [
        pytest.param([], "", JOB, set(), id="none"),
        pytest.param([], "west", JOB, {"west"}, id="the fleet's"),
        pytest.param([ray_job("east")], "", JOB, {"east"}, id="the job's"),
        pytest.param([ray_job("east")], "west", JOB, {"east", "west"}, id="the fleet's and the job's"),
        pytest.param([ray_job("east")], "west", None, {"west"}, id="of no job"),
        pytest.param([ray_job("east")], "", OTHER_JOB, set(), id="another job's"),
        pytest.param(
            [ray_job("east", uid="uid-of-a-later-job")], "", JOB, set(), id="those of a later job of its name"
        ),
        pytest.param([ray_job("north,east")], "", JOB, {"east"}, id="not an unknown cluster"),
        pytest.param([ray_job("x" * 5_000)], "", JOB, set(), id="not of a text that is too long"),
    ],
)
def test_which_clusters_drain(jobs: list[Raw], drained: str, job: Job | None, want: set[str]) -> None:
    observed = sight(*jobs)
    if drained:
        drain(observed, drained)
    assert DrainObserver(observed.manager, observed.fleet).clusters_of(job) == want


def test_its_gang_its_workers_and_its_slots_have_the_same_clusters() -> None:
    slot = Slot(ShareKey("east", 1), "role-workers", 0)
    pod = make_pod(placement=PLACEMENT["metadata"]["name"], index="0", listed="east/1/role-workers/2")
    observed = sight(ray_job("east"))
    fill(observed.manager.pods, pod)
    slots = SlotObserver(observed.manager, observed.fleet, PendingAssignments(), observed.memory)
    assert observed.facts.gang_observer.facts(KEY, at(9)).clusters.draining == {"east"}
    worker = observed.facts.worker_observer.facts(key_of(pod))
    assert worker.clusters.draining == {"east"}
    assert worker.pod is not None and slot_of(worker.pod) is None, "no worker is created on its template slot"
    assert slots.occupied_shares(parse_placement(PLACEMENT)) == set()
    fill(observed.manager.ray_jobs, ray_job(""))
    worker = observed.facts.worker_observer.facts(key_of(pod))
    assert worker.pod is not None and slot_of(worker.pod) == slot, "without the annotation it may stay"
    assert slots.occupied_shares(parse_placement(PLACEMENT)) == {("east", 1)}, "and its gang observes that at once"


def test_its_workers_leave_one_by_one_for_free_slots() -> None:
    pods = [
        working(f"w{number}", slot) for number, slot in enumerate(("east/1/role-workers/0", "east/1/role-workers/1"))
    ]
    observed = sight(ray_job("east"))
    groups = [{"groupName": "workers", "replicas": 2}]
    fill(observed.manager.ray_clusters, {**make_ray_cluster(), "spec": {"workerGroupSpecs": groups}})
    fill(observed.manager.pods, *pods)
    fill(observed.members["east"].pods, *map(make_copy, pods))
    slots = SlotObserver(observed.manager, observed.fleet, PendingAssignments(), observed.memory)
    shares = [parse_reservation(cluster, make_reservation(PLACEMENT)) for cluster in ("east", "west")]
    assert [key_of(remote_pod)[1] for _, remote_pod in slots.pods_to_move(parse_placement(PLACEMENT), shares)] == ["w0"]
    assert slots.pods_to_move(parse_placement(PLACEMENT), shares[:1]) == (), "they stay where no slot is free elsewhere"
    fill(observed.manager.ray_jobs, ray_job(""))
    assert slots.pods_to_move(parse_placement(PLACEMENT), shares) == ()


def working(name: str, slot: str) -> Raw:
    pod = make_pod(name, placement=PLACEMENT["metadata"]["name"], slot=slot, dispatched=True, phase="Running")
    pod["status"]["conditions"].append({"type": "Ready", "status": "True"})
    return pod


@pytest.mark.parametrize(
    ("move_from", "want"),
    [
        ("east", ""),
        (
            "north",
            (
                "RayJob train: annotation rayspan.dev/move-from names a WorkerCluster that does not exist (north), and "
                "is ignored in that; correct the name, or remove it."
            ),
        ),
    ],
)
def test_its_gang_has_a_sentence_on_unknown_clusters(move_from: str, want: str) -> None:
    assert sight(ray_job(move_from)).facts.gang_observer.facts(KEY, at(9)).job.move_warning == want


# --- plans ------------------------------------------------------------------------------------------------------------


def waiting() -> Raw:
    raw = make_workload()
    for podset in raw["spec"]["podSets"]:
        podset["template"] = make_template("1")
    return raw


def plan(observed: Sight, workload: Raw, **more: Any) -> PlanResult:
    policy, _ = observed.facts.policies.policy_of(builders.CHECK)
    parsed = observed.manager.read_workload(workload)
    return asyncio.run(observed.planning.plan_gang(parsed, builders.CHECK, policy, (), builders.START, **more))


def test_a_plan_gives_it_no_share_there() -> None:
    workload = waiting()
    result = plan(sight(ray_job("east"), workload=workload), workload)
    assert [(share.cluster, share.workers) for share in result.plan.shares] == [("west", 4)]
    assert result.plan.sentence == "4 of 4 workers to west; east passed over: the job moves away from it."


def test_a_job_that_leaves_all_clusters_waits_and_may_fit_later() -> None:
    workload = waiting()
    result = plan(sight(ray_job("east,west"), workload=workload), workload)
    assert result.plan.shares == () and not result.plan.never_fits
    assert "east has capacity for 0 (the job moves away from it)" in result.plan.sentence


def test_the_plan_of_a_running_job_replaces_its_slots_there() -> None:
    workload = waiting()
    result = plan(
        sight(ray_job("east"), workload=workload), workload, kept_shares=parse_placement(PLACEMENT).active_shares
    )
    assert [(share.cluster, share.workers) for share in result.plan.shares] == [("west", 2)]
