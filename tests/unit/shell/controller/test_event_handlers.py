"""A change wakes the keys whose decision reads it, and no others: what moves all the time wakes nobody."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import pairwise

import pytest

from adapter import names
from adapter.actions import DryRunPod, Reactivate, Reserve
from adapter.objects import trim
from adapter.objects.placement import PlacementState, parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.objects.workload import parse_workload
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.controller import event_handlers
from adapter.shell.controller.enqueue import (
    ANCHOR,
    BURST_SECONDS,
    CAPACITY_SECONDS,
    CHECK,
    CLUSTER,
    GANG,
    POD,
    POLICY,
    QUEUE,
    SERVICE,
    QueueKey,
)
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.write.anchors import RECHECK_SECONDS
from adapter.worker import status_mirror
from tests.unit import apiserver
from tests.unit import builders as make
from tests.unit.builders import NAMESPACE, make_placement, make_pod, make_reservation, make_target, make_workload
from tests.unit.stores import make_local_queue, make_member, make_template

WORK = make_workload()
PLACE, NO_ROOM = make_placement(WORK), make_placement(WORK, shares={})
WAITING = {**NO_ROOM, "metadata": NO_ROOM["metadata"] | {"resourceVersion": "2"}}
NAME = PLACE["metadata"]["name"]
SLOTTED = make_pod("slotted", placement=NAME, slot="east/1/role-workers/0")
FREE = make_pod("free", placement=NAME)
SHARE, CLUSTER_QUEUE = make_reservation(PLACE), make.make_cluster_queue(8)
RESERVED: Raw = {
    **SHARE,
    "metadata": SHARE["metadata"] | {"resourceVersion": "5"},
    "status": SHARE["status"] | {"admission": {"clusterQueue": "team-a"}},
}
TAKEN = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed"
NEVER = "couldn't assign flavors to pod set main: resource tpu unavailable in ClusterQueue"
HEAD = {
    "metadata": make.make_meta("head", labels={names.RAY_GCS_CLUSTER_LABEL: "train-abc"}),
    "status": {"podIP": "10.12.0.5"},
}
RAY_CLUSTER = make.make_ray_cluster()
HEAD_MIRROR = {"metadata": make.make_meta("train-abc-head-svc", labels={names.REMOTE_RAY_CLUSTER_LABEL: "train-abc"})}
GANG_KEY = (GANG, NAMESPACE, "rayjob-train")
ON_IT = {(POD, NAMESPACE, "slotted")}
PODS = ON_IT | {(POD, NAMESPACE, "free")}


class Queue(WorkQueue[QueueKey]):
    """Notes what is added, and how soon it is due."""

    def __init__(self) -> None:
        super().__init__(_handle)
        self.added: dict[QueueKey, float] = {}

    def add(self, key: QueueKey, after: float = 0.0) -> None:
        self.added[key] = min(after, self.added.get(key, after))
        super().add(key, after)


async def _handle(_: QueueKey) -> float | None:
    return None


class Bench:
    """A waker over a manager cluster with one gang and two of its pods."""

    def __init__(self, manager: ManagerCache, fleet: Fleet) -> None:
        self.manager, self.fleet, self.queue = manager, fleet, Queue()
        self.memory = TransientState()
        self.waker = EventHandlers(
            self.queue, manager, fleet, ReplanCheck(manager, fleet, PolicyObserver(manager), self.memory)
        )
        for store, found in (
            (manager.workloads, [WORK]),
            (manager.placements, [PLACE]),
            (manager.pods, [SLOTTED, FREE]),
            (manager.checks, [make.make_check()]),
        ):
            store.replace(found)

    def heard(self, store: str, before: Raw | None, after: Raw | None) -> None:
        """Something changed in the manager cluster."""
        (handle,) = (handle for one, handle in self.waker.store_handlers() if one is getattr(self.manager, store))
        handle(before, after)

    def woken(self) -> set[QueueKey]:
        return set(self.queue.added)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        yield Bench(ManagerCache(nobody), Fleet(asyncio.TaskGroup(), "mgr", lambda: True))


def changed(raw: Raw, *path: str, to: object) -> Raw:
    """The object with another value in one place."""
    if not path:
        return to  # type: ignore[return-value]
    return {**raw, path[0]: changed(raw.get(path[0]) or {}, *path[1:], to=to)}


# --- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "pods"),
    [
        pytest.param(make_reservation(PLACE, message="Quota reserved"), False, id="other words"),
        pytest.param(make_reservation(PLACE, admitted=False), True, id="admitted no more"),
        pytest.param(make_reservation(PLACE, conditions=[names.FINISHED]), True, id="finished"),
        pytest.param(make_reservation(PLACE, active=False), True, id="deactivated"),
        pytest.param(make_reservation(PLACE, round=2), True, id="another round"),
        pytest.param(changed(SHARE, "metadata", "ownerReferences", to=[]), True, id="another anchor"),
    ],
)
async def test_a_share_wakes_its_gang_and_pods_if_it_matters_to_them(bench: Bench, after: Raw, pods: bool) -> None:
    bench.waker.on_reservation("east", SHARE, after)
    assert bench.woken() == {GANG_KEY} | (ON_IT if pods else set())


async def test_a_share_wakes_no_worker_of_another_one(bench: Bench) -> None:
    bench.waker.on_reservation("east", None, make_reservation(PLACE, round=2))
    assert bench.woken() == {GANG_KEY}


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(changed(SHARE, "metadata", "resourceVersion", to="2"), id="a new version"),
        pytest.param(changed(SHARE, "status", "requeueState", to={"count": 1}), id="a count"),
        pytest.param(
            changed(SHARE, "metadata", "ownerReferences", to=[*SHARE["metadata"]["ownerReferences"], {"kind": "Pod"}]),
            id="a pod that is on it",
        ),
    ],
)
async def test_what_kueue_keeps_of_a_share_for_itself_wakes_nobody(bench: Bench, after: Raw) -> None:
    bench.waker.on_reservation("east", SHARE, after)
    assert bench.woken() == set()


async def test_a_share_that_comes_wakes_both(bench: Bench) -> None:
    bench.waker.on_reservation("east", None, SHARE)
    assert bench.woken() == {GANG_KEY} | ON_IT


async def test_a_share_that_goes_wakes_both_and_has_its_anchor_and_its_cluster_looked_at(bench: Bench) -> None:
    """Its anchor may be left behind, and its cluster may have no workers any more."""
    bench.waker.on_reservation("east", SHARE, None)
    also = {(ANCHOR, NAMESPACE, f"east/{SHARE['metadata']['name']}"), (CLUSTER, "", "east")}
    assert bench.woken() == {GANG_KEY} | also | ON_IT


async def test_a_share_that_was_to_be_made_has_its_anchor_looked_at(bench: Bench) -> None:
    """Later: what could be made stands then, and nothing is asked."""
    work, place = parse_workload(WORK), parse_placement(PLACE)
    bench.waker.after_actions([Reserve(place, place.shares[0], make_target("east"), (), None, True), Reactivate(work)])
    assert bench.queue.added == {(ANCHOR, NAMESPACE, f"east/{SHARE['metadata']['name']}"): RECHECK_SECONDS}


# --- room ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(CLUSTER_QUEUE, "metadata", "resourceVersion", to="2"), False, id="a new version"),
        pytest.param(changed(CLUSTER_QUEUE, "status", "pendingWorkloads", to=7), False, id="a counter"),
        pytest.param(changed(CLUSTER_QUEUE, "status", "admittedWorkloads", to=7), False, id="another counter"),
        pytest.param(make.make_cluster_queue(8, used=1), True, id="usage"),
        pytest.param(make.make_cluster_queue(9), True, id="quota"),
        pytest.param(make.make_cluster_queue(8, stopPolicy="Hold"), True, id="stopped"),
        pytest.param(
            changed(CLUSTER_QUEUE, "status", "conditions", to=[make.make_condition(names.ACTIVE)]), True, id="active"
        ),
        pytest.param(changed(CLUSTER_QUEUE, "metadata", "labels", to={"a": "b"}), True, id="a namespace's label"),
        pytest.param(None, True, id="gone"),
    ],
)
async def test_only_what_decides_on_room_wakes_who_waits_for_it(bench: Bench, after: Raw | None, matters: bool) -> None:
    bench.manager.placements.put(WAITING)
    before = bench.fleet.capacity_versions.version
    bench.waker.on_capacity("east", CLUSTER_QUEUE, after)
    assert bench.queue.added == ({GANG_KEY: CAPACITY_SECONDS} if matters else {})
    assert bench.fleet.capacity_versions.version == before + matters


async def test_whoever_queues_behind_wakes_who_waits_for_room(bench: Bench) -> None:
    """By a counter of the manager's queue: nothing else tells a gang that it keeps the quota there from somebody."""
    bench.manager.placements.put(WAITING)
    bench.heard("cluster_queues", CLUSTER_QUEUE, changed(CLUSTER_QUEUE, "status", "pendingWorkloads", to=1))
    assert bench.queue.added == {GANG_KEY: CAPACITY_SECONDS}


async def test_a_condition_that_is_told_again_is_no_news(bench: Bench) -> None:
    bench.manager.placements.put(WAITING)
    told = [[make.make_condition(names.ACTIVE, since=since, message=str(since))] for since in (1, 2)]
    bench.waker.on_capacity("east", *(changed(CLUSTER_QUEUE, "status", "conditions", to=found) for found in told))
    assert bench.woken() == set()


async def test_what_a_local_queue_repeats_of_its_cluster_queue_is_no_news(bench: Bench) -> None:
    """It changes with each share, and may be called as a ClusterQueue of another tree is."""
    bench.manager.placements.put(WAITING)
    version = bench.fleet.capacity_versions.version
    before = make_local_queue("team-a")
    bench.waker.on_capacity(
        "east", before, {**before, "status": CLUSTER_QUEUE["status"] | {"flavorsReservation": [{"name": "any"}]}}
    )
    assert (bench.woken(), bench.fleet.capacity_versions.version) == (set(), version)


async def test_what_a_cluster_says_of_pods_is_news_for_those_behind(bench: Bench) -> None:
    """They were planned as if the gang went where its template fits, and nothing else tells that it does not."""
    work, version = parse_workload(WORK), bench.fleet.capacity_versions.version
    bench.manager.placements.put(WAITING)
    bench.waker.after_actions([DryRunPod(work, work.podsets[1], make_target("east"), {})])
    assert (bench.queue.added, bench.fleet.capacity_versions.version) == ({GANG_KEY: CAPACITY_SECONDS}, version + 1)


@pytest.mark.parametrize(
    ("queue_at", "before", "matters"),
    [
        pytest.param("7", None, True, id="its queue told of it first"),
        pytest.param("7", changed(RESERVED, "status", "conditions", to=[]), True, id="so it did, and it stood there"),
        pytest.param("3", None, False, id="its queue is yet to tell of it"),
        pytest.param("7", changed(RESERVED, "status", "admission", "more", to=1), False, id="it held quota before"),
    ],
)
async def test_a_share_that_comes_after_the_news_of_its_queue_is_news(
    bench: Bench, queue_at: str, before: Raw | None, matters: bool
) -> None:
    """Who was planned between found it deducted twice."""
    member = make_member("east", 8)
    member.cluster_queues.put(changed(CLUSTER_QUEUE, "metadata", "resourceVersion", to=queue_at))
    member.workloads.put(RESERVED)
    bench.fleet._caches = {"east": member}
    bench.manager.placements.put(WAITING)
    version = bench.fleet.capacity_versions.version
    bench.waker.on_reservation("east", before, RESERVED)
    assert (bench.fleet.capacity_versions.version > version) is matters


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        pytest.param(NEVER, TAKEN, True, id="what it waits for may come now"),
        pytest.param(NEVER, "", True, id="it is to be tried anew"),
        pytest.param(NEVER, f"{NEVER}, still", False, id="nothing helps it"),
        pytest.param(TAKEN, f"{TAKEN}, still", False, id="other words"),
        pytest.param(TAKEN, NEVER, False, id="nothing helps it any more"),
    ],
)
async def test_who_may_be_helped_by_quota_wakes_who_may_give_way(
    bench: Bench, before: str, after: str, matters: bool
) -> None:
    """No counter of its queue tells of that."""
    works = []
    for text in (before, after):
        work = make_workload(name="behind", reserved=None)
        work["status"]["conditions"] = [make.make_condition(names.QUOTA_RESERVED, False, message=text)]
        works.append(work)
    bench.manager.placements.put(WAITING)
    bench.heard("workloads", *works)
    assert (GANG_KEY in bench.woken()) is matters


async def test_whoever_begins_to_borrow_is_looked_at(bench: Bench) -> None:
    """It is in the way of its whole cohort then, whose queues need not say anything new."""
    bench.manager.placements.put(WAITING)
    rows = [[{"name": "any", "resources": [{"name": "cpu", "borrowed": borrowed}]}] for borrowed in ("0", "2", "3")]
    mine, borrows, more = (changed(CLUSTER_QUEUE, "status", "flavorsReservation", to=row) for row in rows)
    bench.heard("cluster_queues", borrows, more)
    assert bench.woken() == set()
    bench.heard("cluster_queues", mine, borrows)
    assert bench.queue.added == {GANG_KEY: CAPACITY_SECONDS}


async def test_who_lacks_a_secret_leaves_room_to_those_behind(bench: Bench) -> None:
    version = bench.fleet.capacity_versions.version
    bench.manager.placements.replace([WAITING])
    bench.waker.on_order_changed()
    assert (bench.queue.added, bench.fleet.capacity_versions.version) == ({GANG_KEY: CAPACITY_SECONDS}, version + 1)


async def test_who_holds_shares_waits_for_no_room(bench: Bench) -> None:
    bench.waker.on_capacity("east", CLUSTER_QUEUE, None)
    assert bench.woken() == set()


def crowd(*gangs: tuple[str, float, int, int]) -> tuple[list[Raw], list[Raw]]:
    """Gangs that were planned and found no room, each with its age, priority and size."""
    works, places = [], []
    for name, created, priority, workers in gangs:
        work = make_workload(name=name, groups={"workers": workers})
        work["metadata"]["creationTimestamp"] = make.stamp(created)
        work["spec"]["priority"] = priority
        work["spec"]["podSets"][1]["template"] = make_template("1")
        place = make_placement(work, shares={})
        works.append(work)
        places.append(changed(place, "metadata", "name", to=name))
    return works, places


@pytest.mark.parametrize(
    ("gangs", "want"),
    [
        pytest.param([("b", 120, 0, 1), ("a", 0, 0, 1)], ["a", "b"], id="the older one first"),
        pytest.param([("a", 0, 0, 1), ("b", 120, 5, 1)], ["b", "a"], id="priority beats age"),
        pytest.param([("a", 0, 0, 1), ("b", 30, 0, 8)], ["b", "a"], id="of the same minute the larger one, as it is planned"),
        pytest.param([("b", 0, 0, 1), ("a", 0, 0, 1)], ["a", "b"], id="of the same second, by name"),
    ],
)  # fmt: skip
async def test_who_waits_is_looked_at_in_the_order_in_which_it_is_planned(
    bench: Bench, gangs: list[tuple[str, float, int, int]], want: list[str]
) -> None:
    """Else each would be planned with those before it planned once more."""
    works, places = crowd(*gangs)
    bench.manager.workloads.replace(works)
    bench.manager.placements.replace(places)
    bench.waker.on_order_changed()
    assert [name for _, _, name in bench.queue.added] == want


async def test_an_elastic_job_is_looked_at_by_the_age_of_its_job(bench: Bench) -> None:
    """As it is planned: its Workload is as old as its last growth."""
    works, places = crowd(("behind", 0, 0, 1), ("grown", 600, 0, 1))
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "pi", "uid": "uid-of-pi", "controller": True}
    works[1]["metadata"] |= {"ownerReferences": [owner], "annotations": {names.ELASTIC_ANNOTATION: "true"}}
    gang = parse_workload(works[1]).gang_name
    places[1]["spec"]["job"] = owner
    job = make.make_meta("pi", creationTimestamp=make.stamp(-600)) | {"uid": "uid-of-pi"}
    bench.manager.ray_clusters.put({"metadata": job})
    bench.manager.workloads.replace(works)
    bench.manager.placements.replace(places)
    bench.queue.added.clear()
    bench.waker.on_order_changed()
    assert [name for _, _, name in bench.queue.added] == [gang, "behind"]


async def test_a_placement_without_its_workload_comes_last(bench: Bench) -> None:
    works, places = crowd(("gone", 0, 9, 1), ("here", 120, 0, 1))
    bench.manager.workloads.replace(works[1:])
    bench.manager.placements.replace(places)
    bench.waker.on_order_changed()
    assert [name for _, _, name in bench.queue.added] == ["here", "gone"]


BEHIND = (GANG, NAMESPACE, "behind")


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(None, True, id="it is gone"),
        pytest.param(make_workload(deleting=True), True, id="it is being deleted"),
        pytest.param(make_workload(active=False), True, id="it yields"),
        pytest.param(make_workload(conditions=[names.EVICTED]), True, id="evicted"),
        pytest.param(make_workload(conditions=[names.FINISHED]), True, id="finished"),
        pytest.param(changed(WORK, "spec", "priority", to=-1), True, id="of lower priority"),
        pytest.param(make_workload(check=names.CHECK_READY), False, id="it has its shares"),
        pytest.param(make_workload(message="2 fit now"), False, id="other words"),
    ],
)
async def test_who_leaves_the_turn_wakes_those_behind_it(bench: Bench, after: Raw | None, matters: bool) -> None:
    """They were planned as if it took its share, or kept room for itself; no worker cluster tells that it does not."""
    work = make_workload(name="behind")
    place = make_placement(work, shares={})
    bench.manager.placements.put(
        changed(place, "metadata", to=place["metadata"] | {"name": "b", "resourceVersion": "2"})
    )
    version = bench.fleet.capacity_versions.version
    bench.heard("workloads", WORK, after)
    assert bench.queue.added == {GANG_KEY: 0} | ({BEHIND: CAPACITY_SECONDS} if matters else {})
    assert bench.fleet.capacity_versions.version == version + matters


async def test_a_workload_that_is_none_of_ours_makes_no_room(bench: Bench) -> None:
    version = bench.fleet.capacity_versions.version
    bench.heard("workloads", make_workload(checks=["another"]), None)
    assert bench.fleet.capacity_versions.version == version


async def test_a_gang_that_yielded_is_woken_as_old_as_it_is(bench: Bench) -> None:
    """It has a new Placement, which is younger than those of gangs that came after it."""
    for name, created, placed in (("old", 1, 9), ("young", 5, 6)):
        work = make_workload(name=name)
        found = work["metadata"] | {"creationTimestamp": make.stamp(created)}
        place = make_placement(work, shares={})
        placed_at = {"name": name, "creationTimestamp": make.stamp(placed)}
        bench.manager.workloads.put(changed(work, "metadata", to=found | {"resourceVersion": "2"}))
        bench.manager.placements.put(
            changed(place, "metadata", to=place["metadata"] | placed_at | {"resourceVersion": "2"})
        )
    bench.waker.on_capacity("east", CLUSTER_QUEUE, None)
    assert [name for _, _, name in bench.queue.added] == ["old", "young"]


# --- the manager's objects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "pods"),
    [
        pytest.param(make_placement(WORK, state="Placed"), False, id="its status, which we wrote ourselves"),
        pytest.param(make_placement(WORK, round=2), True, id="another round"),
        pytest.param(NO_ROOM, True, id="other shares"),
        pytest.param(None, True, id="gone"),
    ],
)
async def test_a_placement_wakes_its_gang_and_with_another_plan_its_pods(
    bench: Bench, after: Raw | None, pods: bool
) -> None:
    bench.heard("placements", PLACE, after)
    held = {(CLUSTER, "", "east"), (CLUSTER, "", "west")}  # they say for how many workers quota is held there
    assert bench.woken() - held == {GANG_KEY} | (PODS if pods else set())
    assert (held <= bench.woken()) is (after in (NO_ROOM, None))


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(HEAD, "status", "phase", to="Running"), False, id="its phase"),
        pytest.param(changed(HEAD, "metadata", "resourceVersion", to="2"), False, id="a new version"),
        pytest.param(changed(HEAD, "status", "podIP", to="10.12.0.6"), True, id="its address"),
        pytest.param(changed(HEAD, "metadata", "deletionTimestamp", to=make.stamp()), True, id="it leaves"),
        pytest.param(changed(HEAD, "metadata", "uid", to="another"), True, id="another head"),
        pytest.param(None, True, id="it is gone"),
    ],
)
async def test_a_head_wakes_its_workers_if_it_matters_to_them(bench: Bench, after: Raw | None, matters: bool) -> None:
    bench.heard("heads", HEAD, after)
    assert bench.woken() == (PODS if matters else set())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, HEAD_MIRROR, id="it came"),
        pytest.param(HEAD_MIRROR, None, id="it is gone"),
        pytest.param(HEAD_MIRROR, changed(HEAD_MIRROR, "spec", to={"selector": {"a": "b"}}), id="it was edited"),
        pytest.param(HEAD_MIRROR, changed(HEAD_MIRROR, "metadata", "labels", to={}), id="it was hidden from us"),
    ],
)
async def test_the_mirror_of_a_head_wakes_its_workers(bench: Bench, before: Raw | None, after: Raw | None) -> None:
    bench.waker.on_head_mirror(before, after)
    assert bench.queue.added == dict.fromkeys(PODS, BURST_SECONDS)


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        pytest.param(None, RAY_CLUSTER, True, id="it is heard of: now it is known whose its pods are"),
        pytest.param(RAY_CLUSTER, changed(RAY_CLUSTER, "status", "state", to="ready"), False, id="its state"),
        pytest.param(RAY_CLUSTER, changed(RAY_CLUSTER, "metadata", "uid", to="another"), True, id="another one"),
        pytest.param(RAY_CLUSTER, None, True, id="it is gone"),
    ],
)
async def test_a_ray_cluster_wakes_its_workers_when_it_comes_and_goes(
    bench: Bench, before: Raw | None, after: Raw | None, matters: bool
) -> None:
    bench.heard("ray_clusters", before, after)
    assert bench.woken() == (PODS if matters else set())


@pytest.mark.parametrize("store", ["ray_jobs", "ray_clusters"])
@pytest.mark.parametrize(
    ("change", "matters"),
    [
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True, id="it is being deleted"),
        pytest.param({"uid": "another"}, True, id="another one has its name"),
        pytest.param({"generation": 2}, False, id="its spec"),
    ],
)
async def test_a_job_wakes_its_gang_when_it_goes(
    bench: Bench, store: str, change: Mapping[str, object], matters: bool
) -> None:
    job: Raw = {"metadata": {"name": make.JOB, "namespace": make.NAMESPACE, "uid": "uid-of-job"}}
    bench.heard(store, job, {"metadata": {**job["metadata"], **change}})
    assert (GANG_KEY in bench.woken()) is matters


def slice_of(number: int, kind: str = "RayCluster") -> Raw:
    made = make_workload(name=f"train-{number}", owner=kind)
    made["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
    return made


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
async def test_all_that_an_elastic_job_has_wakes_its_one_gang(bench: Bench, kind: str) -> None:
    """Each of its slices, its Placement, the shares that earlier ones asked for, the copies on them, and the job that is let run."""
    first, second = slice_of(1, kind), slice_of(2, kind)
    work = parse_workload(first)
    assert work.job
    gang = (GANG, *work.gang_key)
    place = make_placement(first)
    place["metadata"]["name"] = place["metadata"]["uid"] = "train-chain"
    place["spec"]["job"] = {"kind": kind, "name": work.job.name, "uid": work.job.uid, "apiVersion": "ray.io/v1"}
    share = make_reservation(place)
    share["metadata"]["annotations"][names.WORKLOAD_ANNOTATION] = work.gang_name
    for raw in (first, second, place):
        raw["metadata"]["resourceVersion"] = "9"
    job: Raw = {"metadata": make.make_meta(make.JOB, uid=work.job.uid), "spec": {"suspend": True}}
    bench.manager.workloads.put(first)
    bench.manager.workloads.put(second)
    bench.manager.placements.put(place)
    running = {**job, "spec": {"suspend": False}}
    hears: list[Callable[[], object]] = [
        lambda: bench.heard("workloads", first, None),
        lambda: bench.heard("workloads", None, second),
        lambda: bench.heard("placements", None, place),
        lambda: bench.heard("ray_jobs" if kind == "RayJob" else "ray_clusters", job, running),
        lambda: bench.waker.on_reservation("east", None, share),
        lambda: bench.waker.resync_all(),
    ]
    for hear in hears:
        bench.queue.added.clear()
        hear()
        assert gang in bench.woken()
        assert not {(GANG, NAMESPACE, "train-1"), (GANG, NAMESPACE, "train-2")} & bench.woken()


async def test_a_ray_cluster_of_another_name_wakes_nobody_here(bench: Bench) -> None:
    bench.heard("ray_clusters", None, make.make_ray_cluster(name="other"))
    assert bench.woken() == set()


async def test_a_pod_that_went_wakes_those_without_a_slot(bench: Bench) -> None:
    bench.manager.pods.remove(SLOTTED)
    bench.heard("pods", SLOTTED, None)
    assert bench.woken() == {*PODS, GANG_KEY}, "and its gang: it may have been the last one on its share"
    assert {bench.queue.added[pod] for pod in PODS} == {0}


async def test_a_pod_that_went_wakes_those_whose_slot_may_not_be_their_own(bench: Bench) -> None:
    """Who came with one that was given up has none, and would wait for the next resync."""
    doubted = make_pod("doubted", placement=NAME, index="7", listed="north/1/role-workers/9")
    sure = make_pod("sure", placement=NAME, index="8", listed="north/1/role-workers/9", dispatched=True)
    bench.manager.pods.replace([SLOTTED, FREE, doubted, sure])
    tells: list[Callable[[], object]] = [
        lambda: bench.heard("pods", SLOTTED, None),
        lambda: bench.waker.on_contact("east"),
        lambda: bench.heard("pods", make_pod("slotted", placement=NAME), None),  # one that was just being given a slot
    ]
    for tell in tells:
        bench.queue.added.clear()
        tell()
        assert {name for what, _, name in bench.woken() if what == POD} == {"slotted", "free", "doubted"}


async def test_a_pod_that_leaves_its_slot_wakes_who_waits_for_one(bench: Bench) -> None:
    bench.heard("pods", SLOTTED, changed(SLOTTED, "metadata", "annotations", names.SLOT_ANNOTATION, to="west/1/x/0"))
    assert bench.woken() >= set(PODS)


async def test_one_of_a_thousand_that_goes_wakes_those_alone_who_may_want_its_slot(bench: Bench) -> None:
    """A gang that ends is as many deletions as it has pods, and each of them must not cost as much as the gang is large."""
    placed = [make_pod(f"p-{n}", placement=NAME, slot=f"east/1/role-workers/{n}") for n in range(1, 1000)]
    twin = make_pod("twin", placement=NAME, slot="east/1/role-workers/0")
    bench.manager.pods.replace([FREE, twin, *placed])
    bench.heard("pods", SLOTTED, None)
    assert bench.woken() == {*PODS, (POD, NAMESPACE, "twin"), GANG_KEY}


async def test_of_those_without_a_slot_few_are_woken_by_one_that_had_none(bench: Bench) -> None:
    without = [make_pod(f"p-{n}", placement=NAME) for n in range(1000)]
    bench.manager.pods.replace(without)
    bench.heard("pods", FREE, None)
    assert 0 < len(bench.woken() - {(POD, NAMESPACE, "free"), GANG_KEY}) <= event_handlers.MOST_CANDIDATES
    bench.heard("pods", SLOTTED, None)
    assert len(bench.woken()) > 1000, "a slot that somebody had is for whoever may take it"


async def test_whoever_may_take_what_one_without_a_slot_was_just_being_given_is_among_those_few(bench: Bench) -> None:
    """Others of the gang have no use for it, however many they are and whoever comes first."""
    others = [make_pod(f"g-{n}", placement=NAME, group="gpus") for n in range(event_handlers.MOST_CANDIDATES)]
    leaving = [make_pod(f"l-{n}", placement=NAME, deleting=True) for n in range(event_handlers.MOST_CANDIDATES)]
    bench.manager.pods.replace([*others, *leaving, FREE])
    bench.heard("pods", make_pod("gone", placement=NAME), None)
    assert bench.woken() == {(POD, NAMESPACE, "gone"), (POD, NAMESPACE, "free"), GANG_KEY}


async def test_a_pod_that_changed_wakes_itself_only(bench: Bench) -> None:
    bench.heard("pods", SLOTTED, changed(SLOTTED, "status", "podIP", to="10.12.0.9"))
    assert bench.woken() == {(POD, NAMESPACE, "slotted")}
    bench.heard("pods", SLOTTED, changed(SLOTTED, "status", "phase", to="Failed"))
    assert bench.woken() == {(POD, NAMESPACE, "slotted"), GANG_KEY}, "a share may have lost its last worker"


CAME = make_pod("slotted", placement=NAME, index="0", listed="east/1/role-workers/2")
TOLD = status_mirror.status_patch(CAME, make.make_copy(CAME), "east") or {}
AS_TOLD = {
    **trim.manager_pod({**CAME, "status": {**CAME["status"], **TOLD["status"]}}),
    "metadata": {
        **CAME["metadata"],
        "resourceVersion": "2",
        "labels": {**CAME["metadata"]["labels"], names.CLUSTER_LABEL: "east"},
        "annotations": {**CAME["metadata"]["annotations"], names.SLOT_ANNOTATION: "east/1/role-workers/0"},
    },
}


@pytest.mark.parametrize(
    ("after", "woken"),
    [
        pytest.param(AS_TOLD, False, id="as it was told"),
        pytest.param(
            changed(AS_TOLD, "status", "conditions", to=[{**one, "lastProbeTime": None} for one in AS_TOLD["status"]["conditions"]]),
            False,
            id="with what an API server adds that says nothing",
        ),
        pytest.param(changed(AS_TOLD, "metadata", "deletionTimestamp", to="2026-01-01T00:00:00Z"), True, id="and deleted meanwhile"),
        pytest.param(changed(AS_TOLD, "metadata", "uid", to="another"), True, id="and another pod"),
        pytest.param(changed(AS_TOLD, "metadata", "labels", names.PLACEMENT_LABEL, to="other"), True, id="and labelled anew"),
        pytest.param(changed(AS_TOLD, "spec", "schedulingGates", to=[]), True, id="and let run here"),
        pytest.param(changed(AS_TOLD, "status", "podIP", to="10.12.0.77"), True, id="in another way than it was told"),
        pytest.param(changed(AS_TOLD, "status", "phase", to="Failed"), True, id="and over"),
        pytest.param(None, True, id="gone"),
    ],
)  # fmt: skip
async def test_a_pod_that_we_tell_of_its_copy_wakes_itself_where_it_says_anything_else(
    bench: Bench, after: Raw | None, *, woken: bool
) -> None:
    bench.manager.pending_status_patches[key_of(CAME)] = TOLD
    bench.heard("pods", CAME, after)
    assert ((POD, NAMESPACE, "slotted") in bench.woken()) == woken
    assert woken or GANG_KEY in bench.woken(), "its gang waits for workers that run"
    bench.manager.pending_status_patches.clear()
    bench.heard("pods", CAME, after)
    assert (POD, NAMESPACE, "slotted") in bench.woken(), "from anybody else all is news"


async def test_a_pod_that_we_say_is_over_wakes_itself(bench: Bench) -> None:
    """What is left of it in a worker cluster is to go."""
    told = status_mirror.failed_patch(SLOTTED, reason="Lost", message="", now="2026-01-01T00:00:00Z") or {}
    bench.manager.pending_status_patches[key_of(SLOTTED)] = told
    bench.heard("pods", SLOTTED, {**SLOTTED, "status": {**SLOTTED["status"], **told["status"]}})
    assert bench.woken() >= ON_IT


async def test_a_copy_that_changes_waits_for_the_burst_and_one_that_goes_does_not(bench: Bench) -> None:
    copy = make.make_copy(SLOTTED)
    bench.waker.on_pod("east", copy, copy)
    assert bench.queue.added == {(POD, NAMESPACE, "slotted"): BURST_SECONDS}
    bench.waker.on_pod("east", copy, None)
    assert bench.queue.added[POD, NAMESPACE, "slotted"] == 0


COPY = make.make_copy(SLOTTED)
ANOTHER = make.make_copy(make_pod("another", placement=NAME, slot="east/1/role-workers/1"))
OVER = make.make_copy(SLOTTED, phase="Succeeded")


@pytest.mark.parametrize(
    ("before", "after", "others", "want"),
    [
        pytest.param(COPY, None, [], 0, id="the last one is gone: its share may go, and its quota is free"),
        pytest.param(COPY, None, [ANOTHER], BURST_SECONDS, id="one of many is gone: more will follow"),
        pytest.param(COPY, OVER, [OVER], BURST_SECONDS, id="it has ended, whenever its object goes"),
        pytest.param(OVER, OVER, [OVER], None, id="it had before"),
        pytest.param(COPY, make.make_copy(SLOTTED, deleting=True), [COPY], None, id="it begins to end"),
    ],
)
@pytest.mark.parametrize("places", [[PLACE], []], ids=["placed", "of a job that is gone"])
async def test_a_copy_that_holds_no_quota_any_more_wakes_its_gang(
    bench: Bench,
    before: Raw,
    after: Raw | None,
    others: list[Raw],
    want: float | None,
    places: list[Raw],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when nothing of its job is left in the manager: the copy itself says whose it was."""
    east = make_member("east", 8)
    east.pods.replace(others)
    monkeypatch.setattr(bench.fleet, "caches", lambda: {"east": east})
    bench.manager.placements.replace(places)
    bench.manager.pods.replace([])
    bench.waker.on_pod("east", before, after)
    assert bench.queue.added.get(GANG_KEY) == want


async def test_a_gate_that_changes_wakes_checks_and_gangs(bench: Bench) -> None:
    for store in ("gate_policies", "gate_bindings", "gate_webhooks"):
        bench.queue.added.clear()
        bench.heard(store, None, {"metadata": {"name": "x"}})
        assert bench.woken() == {(CHECK, "", make.CHECK), GANG_KEY}


POLICY_OF_ALL = make.make_policy("all")


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(POLICY_OF_ALL, "status", "observedGeneration", to=1), False, id="what we say of it"),
        pytest.param(changed(POLICY_OF_ALL, "spec", "strategy", to="Spread"), True, id="its spec"),
        pytest.param(None, True, id="it went"),
    ],
)
async def test_a_policy_wakes_itself_and_with_its_spec_all_others(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    """A status that woke every gang would have each of them planned anew for nothing."""
    bench.manager.policies.replace([make.make_policy("other")])
    bench.heard("policies", POLICY_OF_ALL, after)
    more = {(POLICY, "", "other"), (CHECK, "", make.CHECK), GANG_KEY} if matters else set()
    assert bench.woken() == {(POLICY, "", "all")} | more


@pytest.mark.parametrize(
    ("store", "before"),
    [("worker_clusters", make.make_worker_cluster("north")), ("multikueue_configs", {"metadata": {"name": "x"}})],
)
async def test_what_a_policy_names_wakes_it(bench: Bench, store: str, before: Raw) -> None:
    bench.manager.policies.replace([POLICY_OF_ALL])
    for change in ((None, before), (before, None)):
        bench.queue.added.clear()
        bench.heard(store, *change)
        assert (POLICY, "", "all") in bench.woken()


# --- what MultiKueue's admins write ----------------------------------------------------------------------------------

CONFIG = {"metadata": {"name": "all"}, "spec": {"clusters": ["east"]}}


async def test_a_multikueuecluster_or_a_secret_that_changes_wakes_worker_clusters(bench: Bench) -> None:
    bench.manager.worker_clusters.replace([make.make_worker_cluster("east")])
    for store, before, after in (
        ("multikueue_clusters", None, {"metadata": {"name": "x"}}),
        ("multikueue_clusters", None, None),  # they can be read now, or not any more
        ("secrets", {"metadata": {"name": "x"}}, None),
    ):
        bench.queue.added.clear()
        bench.heard(store, before, after)
        assert bench.woken() == {(CLUSTER, "", "east")}


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        pytest.param(None, CONFIG, True, id="it came"),
        pytest.param(CONFIG, changed(CONFIG, "spec", "clusters", to=["west"]), True, id="another list"),
        pytest.param(CONFIG, changed(CONFIG, "metadata", "resourceVersion", to="2"), False, id="a new version"),
        pytest.param(CONFIG, None, True, id="it went"),
        pytest.param(None, None, True, id="such objects can be read now"),
    ],
)
async def test_a_config_that_changes_wakes_checks_and_gangs(
    bench: Bench, before: Raw | None, after: Raw | None, matters: bool
) -> None:
    version = bench.fleet.capacity_versions.version
    bench.heard("multikueue_configs", before, after)
    assert bench.woken() == ({(CHECK, "", make.CHECK), GANG_KEY} if matters else set())
    assert bench.fleet.capacity_versions.version == version + matters


# --- quota that follows the worker clusters' ---------------------------------------------------------------------------

OPTED = changed(
    make.make_cluster_queue(8, name="summed"), "metadata", "annotations", to={names.QUOTA_ANNOTATION: "true"}
)
SUMMED = (QUEUE, "", "summed")


async def test_quota_is_summed_anew_when_a_part_of_it_may_have_changed(bench: Bench) -> None:
    bench.manager.cluster_queues.replace([OPTED, CLUSTER_QUEUE])
    changes: list[Callable[[], None]] = [
        lambda: bench.waker.on_capacity("east", CLUSTER_QUEUE, make.make_cluster_queue(9)),
        lambda: bench.waker.on_capacity("east", CLUSTER_QUEUE, None),
        lambda: bench.waker.on_contact("east"),
        lambda: bench.heard("local_queues", None, {"metadata": {"name": "x"}}),
        lambda: bench.heard("cluster_queues", None, OPTED),
        lambda: bench.heard("cluster_queues", OPTED, changed(OPTED, "spec", "cohortName", to="all")),
        lambda: bench.heard("policies", None, {"metadata": {"name": "x"}}),
        lambda: bench.heard("checks", None, make.make_check()),
        lambda: bench.heard("multikueue_configs", None, CONFIG),
    ]
    for change in changes:
        bench.queue.added.clear()
        change()
        assert bench.queue.added.get(SUMMED) == CAPACITY_SECONDS
        assert (QUEUE, "", "team-a") not in bench.woken(), "its admin did not ask"


async def test_what_moves_all_the_time_sums_nothing_anew(bench: Bench) -> None:
    bench.manager.cluster_queues.replace([OPTED])
    bench.waker.on_capacity("east", CLUSTER_QUEUE, make.make_cluster_queue(8, used=1))
    bench.heard("cluster_queues", OPTED, changed(OPTED, "status", "pendingWorkloads", to=7))
    assert SUMMED not in bench.woken()


FLAVOR = {"metadata": {"name": "remote"}, "spec": {"nodeLabels": {"rayspan.dev/pool": "remote"}}}


@pytest.mark.parametrize("store", ["cluster_queues", "local_queues", "flavors"])
@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(FLAVOR, "status", "pendingWorkloads", to=7), False, id="a counter"),
        pytest.param(changed(FLAVOR, "spec", "nodeLabels", to={}), True, id="its spec"),
        pytest.param(changed(FLAVOR, "metadata", "labels", to={"a": "b"}), True, id="its labels"),
        pytest.param(None, True, id="gone"),
    ],
)
async def test_a_queue_of_the_manager_wakes_checks_and_gangs_with_its_layout(
    bench: Bench, store: str, after: Raw | None, matters: bool
) -> None:
    bench.heard(store, FLAVOR, after)
    assert bench.woken() == ({(CHECK, "", make.CHECK), GANG_KEY} if matters else set())


@pytest.mark.parametrize(
    ("store", "before", "after"),
    [
        pytest.param("checks", make.make_check(), make.make_check(policy="other"), id="a check names another policy"),
        pytest.param("flavors", FLAVOR, changed(FLAVOR, "spec", "nodeLabels", to={}), id="a flavor's labels"),
        pytest.param(
            "cluster_queues", CLUSTER_QUEUE, make.make_cluster_queue(8, admissionChecksStrategy={}), id="other flavors"
        ),
    ],
)
async def test_who_waits_is_planned_anew_when_its_plan_would_be_another(
    bench: Bench, store: str, before: Raw, after: Raw
) -> None:
    version = bench.fleet.capacity_versions.version
    bench.heard(store, before, after)
    assert bench.fleet.capacity_versions.version > version and GANG_KEY in bench.woken()


@pytest.mark.parametrize(
    ("wanted", "shares", "matters"),
    [
        pytest.param((4, 6), 1, False, id="its job grows"),
        pytest.param((4, 3), 1, False, id="it shrinks, and held all that it wanted"),
        pytest.param((6, 5), 1, True, id="it asks for less beside its shares"),
        pytest.param((4, 4), 0, True, id="its next round has none"),
    ],
)
async def test_a_placement_plans_others_anew_when_it_leaves_something_to_them(
    bench: Bench, wanted: tuple[int, int], shares: int, matters: bool
) -> None:
    raw = make_placement(make.make_workload(), shares={"east": {"workers": 4}})
    before, after = (changed(raw, "spec", "wanted", to=number) for number in wanted)
    after = changed(changed(after, "spec", "shares", to=after["spec"]["shares"][:shares]), "spec", "attempt", to="next")
    version = bench.fleet.capacity_versions.version
    bench.heard("placements", before, after)
    assert (bench.fleet.capacity_versions.version > version) is matters


async def test_a_round_that_is_given_up_plans_others_anew(bench: Bench) -> None:
    """Its shares may never have held quota in their clusters: nothing changes there."""
    raw = make_placement(make.make_workload(), shares={"east": {"workers": 4}})
    given_up, version = changed(raw, "status", to={"withdrawnRound": 1}), bench.fleet.capacity_versions.version
    bench.heard("placements", raw, given_up)
    assert bench.fleet.capacity_versions.version == version + 1
    bench.heard("placements", given_up, changed(given_up, "status", "message", to="it waits"))
    bench.heard("placements", raw, changed(raw, "status", to={"state": PlacementState.PLACED}))
    assert bench.fleet.capacity_versions.version == version + 1


@pytest.mark.parametrize(("after", "matters"), [(False, True), (True, False)])
async def test_a_job_that_is_let_run_asks_for_no_room(bench: Bench, after: bool, matters: bool) -> None:
    """What an elastic one lacks it finds while it runs; those behind it were planned as if it took it all first."""
    job: Raw = {"metadata": {"name": make.JOB, "namespace": NAMESPACE, "uid": "uid-of-job"}, "spec": {"suspend": True}}
    version = bench.fleet.capacity_versions.version
    bench.heard("ray_jobs", job, changed(job, "spec", "suspend", to=after))
    assert (bench.fleet.capacity_versions.version > version) is matters


async def test_what_we_say_of_a_check_plans_nobody_anew(bench: Bench) -> None:
    version = bench.fleet.capacity_versions.version
    bench.heard("checks", make.make_check(), make.make_check(conditions=[make.make_condition(names.ACTIVE)]))
    assert bench.fleet.capacity_versions.version == version


async def test_another_check_wakes_ours_when_its_controller_may_be_another(bench: Bench) -> None:
    other = make.make_check() | {"metadata": {"name": "other"}}
    bench.heard("checks", other, changed(other, "status", "conditions", to=[]))
    assert bench.woken() == {(CHECK, "", "other"), GANG_KEY}
    bench.heard("checks", other, None)
    assert bench.woken() == {(CHECK, "", "other"), (CHECK, "", make.CHECK), GANG_KEY}


EAST = make.make_worker_cluster("east")


@pytest.mark.parametrize(
    ("after", "all_of_them"),
    [
        pytest.param(changed(EAST, "status", "clusterUID", to="u1"), True, id="it is on record who it is"),
        pytest.param(None, True, id="it goes"),
        pytest.param(changed(EAST, "status", "workers", to=5), False, id="it has workers"),
    ],
)
async def test_whose_cluster_another_one_is_wakes_it(bench: Bench, after: Raw | None, all_of_them: bool) -> None:
    """It may be registered twice, or no more."""
    bench.manager.worker_clusters.replace([make.make_worker_cluster("west")])
    bench.heard("worker_clusters", EAST, after)
    assert (("cluster", "", "west") in bench.woken()) is all_of_them


REACHED = make.make_worker_cluster(conditions=[make.make_condition(names.REACHABLE)])


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(make.make_worker_cluster(), True, id="not tried"),
        pytest.param(changed(REACHED, "status", "conditions", to=[{"type": names.REACHABLE}]), True, id="not reached"),
        pytest.param(changed(REACHED, "status", "triedSource", to="Secret other"), True, id="tried elsewhere"),
        pytest.param(changed(REACHED, "status", "workers", to=7), False, id="a counter"),
    ],
)
async def test_a_cluster_that_a_preflight_reached_or_not_wakes_who_waits(
    bench: Bench, after: Raw, matters: bool
) -> None:
    fill = [make_placement(WORK, shares={})]
    bench.manager.placements.replace([])
    bench.manager.placements.replace(fill)
    bench.heard("worker_clusters", REACHED, after)
    assert bench.woken() == {(CLUSTER, "", "east")} | ({GANG_KEY} if matters else set())


# --- whatever is heard -----------------------------------------------------------------------------------------------


async def test_what_cannot_be_read_breaks_no_watch(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The manager's stores and those of worker clusters are filled by watches, which would else be taken for broken."""
    bench.waker.register()
    bench.manager.workloads.notify({"metadata": {"name": "x", "labels": 7}, "status": {"admissionChecks": 7}}, None)
    odd: Raw = {"metadata": 7}
    bench.manager.ray_clusters.notify(odd, None)
    tell = bench.fleet._listeners
    for heard in (tell.on_reservation, tell.on_pod, tell.on_capacity):
        heard("east", odd, None)
    tell.on_head_mirror(odd, None)
    bench.manager.flavors.notify([], [])  # type: ignore[arg-type]
    assert "hear failed at _on_workload by " in caplog.text and "hear failed at _on_layout by " in caplog.text


async def test_one_object_that_cannot_be_read_is_no_ground_to_wake_nobody(bench: Bench) -> None:
    """An API server that lies about types, or is not one."""
    odd = [
        {"metadata": {"name": {"a": 1}, "namespace": 5, "uid": {"a": 1}, "labels": ["x"]}, "spec": 7, "status": ["x"]}
    ]
    for store in (bench.manager.placements, bench.manager.workloads, bench.manager.pods, bench.manager.worker_clusters):
        store._objects = {("", "odd"): odd[0], **store._objects}  # past the border
    bench.waker.resync_all()
    bench.waker.on_order_changed()
    bench.waker.on_contact("east")
    assert {(GANG, NAMESPACE, WORK["metadata"]["name"]), (POD, NAMESPACE, FREE["metadata"]["name"])} <= bench.woken()


async def test_a_resync_looks_at_each_in_its_own_time_and_a_start_at_all_at_once(bench: Bench) -> None:
    pods = [make_pod(f"p-{n}", placement=NAME, slot=f"east/1/role-workers/{n}") for n in range(100)]
    bench.manager.pods.replace([*pods, FREE])
    bench.waker.resync_all(50.0)
    due = sorted(bench.queue.added[POD, NAMESPACE, key_of(pod)[1]] for pod in [*pods, FREE])
    assert due[0] == 0 and 49 <= due[-1] < 50 and max(b - a for a, b in pairwise(due)) < 1
    assert bench.queue.added[POD, NAMESPACE, "free"] == 0, "who waits comes first"
    bench.queue.added.clear()
    bench.waker.resync_all()
    assert {bench.queue.added[POD, NAMESPACE, key_of(pod)[1]] for pod in pods} == {0}


async def test_a_resync_looks_at_what_stands_in_worker_clusters_and_nobody_in_the_manager_knows(bench: Bench) -> None:
    """A copy whose pod is gone, and a share whose gang is: the others are looked at already."""
    member, orphan = make_member("east", 8), make_pod("orphan", placement=NAME, slot="east/1/role-workers/1")
    member.pods.replace([SLOTTED, orphan])
    member.workloads.replace([SHARE])
    bench.fleet._caches = {"east": member}
    bench.manager.workloads.replace([])
    bench.waker.resync_all(50.0)
    assert {(POD, NAMESPACE, "orphan"), *PODS, GANG_KEY} <= bench.woken()
    assert max(bench.queue.added[POD, NAMESPACE, name] for name in ("orphan", "slotted")) <= 50


async def test_a_resync_looks_at_gangs_of_shares_and_at_services_of_slices_in_their_own_time_too(bench: Bench) -> None:
    member = make_member("east", 8)
    shares = [changed(SHARE, "metadata", "name", to=f"s-{n}") for n in range(10)]
    for number, share in enumerate(shares):
        share["metadata"]["annotations"] = {
            **share["metadata"]["annotations"],
            names.WORKLOAD_ANNOTATION: f"g-{number}",
        }
    slices = [
        {"metadata": {"namespace": NAMESPACE, "name": f"e-{n}", "labels": {names.SERVICE_NAME_LABEL: f"svc-{n}"}}}
        for n in range(10)
    ]
    member.workloads.replace(shares)
    bench.manager.slices.replace(slices)
    bench.fleet._caches = {"east": member}
    bench.waker.resync_all(50.0)
    for what, name in ((GANG, "g"), (SERVICE, "svc")):
        due = [bench.queue.added[what, NAMESPACE, f"{name}-{number}"] for number in range(10)]
        assert due == [5.0 * number for number in range(10)]


# --- contact ---------------------------------------------------------------------------------------------------------


async def test_a_cluster_that_falls_silent_wakes_who_has_to_do_with_it(bench: Bench) -> None:
    """With a hundred clusters, all of which come into sight at a start, all others are looked at a hundred times."""
    elsewhere = make_pod("elsewhere", placement=NAME, slot="west/1/role-workers/0")
    moved = make_pod("moved", placement=NAME, slot="east/1/role-workers/7")
    others = make_pod("others", placement="another", slot="east/4/role-workers/0"), make_pod("without a placement")
    bench.manager.pods.replace([SLOTTED, FREE, elsewhere, moved, *others])
    there = make_pod("moved", placement=NAME, slot="west/1/role-workers/7")
    bench.manager.pods.put({**there, "metadata": {**there["metadata"], "resourceVersion": "9000"}})
    silent = make.make_worker_cluster("east")
    tells: list[Callable[[], object]] = [
        lambda: bench.waker.on_contact("east"),
        lambda: bench.heard("worker_clusters", silent, {**silent, "status": {"lostSince": make.stamp()}}),
    ]
    for tell in tells:
        bench.queue.added.clear()
        tell()
        assert {key for key in bench.woken() if key[0] == POD} == PODS | {(POD, *key_of(one)) for one in others}
        assert GANG_KEY in bench.woken()


async def test_a_cluster_that_flaps_wakes_the_fleet_a_few_times_and_then_now_and_then(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose watches are refused and allowed in turn comes and goes twice a second."""
    now, at_once = 1000.0, 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pod = (POD, NAMESPACE, FREE["metadata"]["name"])
    for _ in range(600):
        bench.queue.added.clear()
        bench.waker.on_contact("east")
        at_once += bench.queue.added[pod] == 0.0
        assert all(after <= event_handlers.CONTACT_SECONDS for after in bench.queue.added.values()), (
            "nothing is forgotten"
        )
        now += 0.5
    assert at_once == event_handlers.CONTACT_BURST + 300 / event_handlers.CONTACT_SECONDS - 1
    bench.queue.added.clear()
    bench.waker.on_contact("west")
    assert bench.queue.added[pod] == 0.0, "another cluster pays nothing for it"


async def test_a_cluster_that_may_be_written_to_again_wakes_what_failed_and_not_as_often_as_it_likes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose it is, it says itself."""
    now, at_once = 1000.0, 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    bench.waker.register()
    bench.queue._failures[GANG_KEY] = 7
    for _ in range(150):
        bench.queue.added.clear()
        bench.fleet._listeners.on_writable("east")
        assert bench.woken() == {GANG_KEY}
        at_once += bench.queue.added[GANG_KEY] == 0.0
        now += 2
    assert at_once == event_handlers.CONTACT_BURST + 300 / event_handlers.CONTACT_SECONDS - 1


async def test_the_turn_of_a_gang_is_that_of_its_newest_version(bench: Bench) -> None:
    """It is reckoned once for each version, and not for each change of room."""
    works = [make.make_workload(name=name) for name in ("a", "b")]
    places = [make_placement(work, shares={}) for work in works]
    bench.manager.workloads.replace(works)
    bench.manager.placements.replace(places)
    keys = [(GANG, NAMESPACE, work["metadata"]["name"]) for work in works]
    bench.waker.on_order_changed()
    assert [key for key in bench.queue.added if key in keys] == keys
    raised = {
        **works[1],
        "metadata": works[1]["metadata"] | {"resourceVersion": "9"},
        "spec": works[1]["spec"] | {"priority": 5},
    }
    bench.manager.workloads.put(raised)
    bench.queue.added.clear()
    bench.waker.on_order_changed()
    assert [key for key in bench.queue.added if key in keys] == keys[::-1]


# --- Services --------------------------------------------------------------------------------------------------------

SERVING = make.make_serving()
ITS_COPY = make.make_serving_copy(SERVING)
SERVE = make.make_service()
SERVICE_KEY = (SERVICE, NAMESPACE, "chat-serve-svc")


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(SERVING, "metadata", "resourceVersion", to="2"), False, id="a new version"),
        pytest.param(changed(SERVING, "status", "startTime", to="x"), False, id="a time"),
        pytest.param(make.make_serving(ready=False), True, id="its proxy is gone"),
        pytest.param(make.make_serving(address="10.1.0.2"), True, id="another address"),
        pytest.param(make.make_serving(deleting=True), True, id="being deleted"),
        pytest.param(changed(SERVING, "spec", "schedulingGates", to=[]), True, id="not held any more"),
        pytest.param(changed(SERVING, "metadata", "ownerReferences", to=[]), True, id="nobody's"),
        pytest.param(None, True, id="gone"),
    ],
)
async def test_a_worker_wakes_the_services_that_lead_to_it_once_for_a_burst(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    bench.manager.services.replace([SERVE, make.make_service("other", selects="other")])
    bench.heard("pods", SERVING, after)
    services = {key: due for key, due in bench.queue.added.items() if key[0] == SERVICE}
    assert services == ({SERVICE_KEY: BURST_SECONDS} if matters else {})


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(ITS_COPY, "spec", "nodeName", to="n"), False, id="a node"),
        pytest.param(make.make_serving_copy(SERVING, deleting=True), True, id="being deleted"),
        pytest.param(make.make_serving_copy(SERVING, phase="Failed"), True, id="failed"),
        pytest.param(None, True, id="gone"),
    ],
)
async def test_a_copy_wakes_the_services_of_its_pod(bench: Bench, after: Raw | None, matters: bool) -> None:
    bench.manager.services.replace([SERVE])
    bench.manager.pods.replace([SERVING])
    bench.waker.on_pod("east", ITS_COPY, after)
    assert (SERVICE_KEY in bench.woken()) == matters


async def test_services_wake_for_themselves_their_slices_and_all_that_tells_of_their_workers(bench: Bench) -> None:
    bench.manager.services.replace([SERVE])
    ray_cluster = make.make_ray_cluster(owner="uid-of-chat")
    ours = {"metadata": {"namespace": NAMESPACE, "name": "s", "labels": {names.SERVICE_NAME_LABEL: "chat-serve-svc"}}}
    changes: list[Callable[[], None]] = [
        lambda: bench.heard("services", None, SERVE),
        lambda: bench.heard("services", None, None),
        lambda: bench.heard("services", SERVE, None),
        lambda: bench.heard("slices", ours, None),
        lambda: bench.heard("slices", None, ours),
        lambda: bench.heard("slices", None, None),
        lambda: bench.heard("ray_clusters", None, ray_cluster),
        lambda: bench.heard("worker_clusters", None, make.make_worker_cluster()),
        lambda: bench.waker.on_unreachable_pod(SERVING),
        lambda: bench.waker.on_contact("east"),
        bench.waker.resync_all,
    ]
    for tell in changes:
        bench.queue.added.clear()
        tell()
        assert SERVICE_KEY in bench.woken()
    bench.queue.added.clear()
    bench.heard("ray_clusters", ray_cluster, ray_cluster)
    assert SERVICE_KEY not in bench.woken()


async def test_a_slice_wakes_its_service_though_that_is_gone(bench: Bench) -> None:
    """It may have gone while nobody looked, or have lost the label by which it is followed."""
    ours = {"metadata": {"namespace": NAMESPACE, "name": "s", "labels": {names.SERVICE_NAME_LABEL: "chat-serve-svc"}}}
    bench.manager.slices.replace([ours])
    bench.waker.resync_all()
    assert SERVICE_KEY in bench.woken()


async def test_a_worker_of_another_raycluster_now_wakes_the_services_of_both(bench: Bench) -> None:
    bench.manager.services.replace([SERVE, make.make_service("other", selects="other")])
    bench.heard("pods", SERVING, changed(SERVING, "metadata", "labels", names.RAY_GCS_CLUSTER_LABEL, to="other"))
    assert {SERVICE_KEY, (SERVICE, NAMESPACE, "other")} <= bench.woken()


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(None, True, id="gone"),
        pytest.param(make.make_service("chat-0", selects="other"), True, id="of another RayCluster"),
        pytest.param(make.make_service("chat-0", owner=""), True, id="of nobody"),
        pytest.param(
            changed(make.make_service("chat-0"), "metadata", "resourceVersion", to="2"), False, id="a new version"
        ),
    ],
)
async def test_a_service_that_makes_room_wakes_the_next_one_that_is_led(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    """Of one RayCluster some are led straight, the oldest."""
    before = make.make_service("chat-0")
    bench.manager.ray_clusters.replace([make.make_ray_cluster(owner="uid-of-chat")])
    bench.manager.services.replace(
        [*([after] if after else ()), *(make.make_service(f"chat-{n}") for n in range(1, 9))]
    )
    bench.heard("services", before, after)
    woken = {name for what, _, name in bench.woken() if what == SERVICE}
    assert woken == {"chat-0", *(("chat-1", "chat-2", "chat-3", "chat-4") if matters else ())}
