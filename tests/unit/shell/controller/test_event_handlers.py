"""A change enqueues the keys whose decision depends on it, and no others; constant changes enqueue nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import pairwise
from typing import Any, cast

import pytest

from adapter import names
from adapter.actions import DryRunPod, Reactivate, Reserve
from adapter.objects import trim
from adapter.objects.placement import PlacementState, parse_placement
from adapter.objects.unstructured import Key, controller_uid, key_of
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import gang_key, parse_workload
from adapter.planning import ordering
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.controller import enqueue, event_handlers
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
    WAKE,
    QueueKey,
)
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.reconciler import Reconciler
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.kube.store import Store
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.write.anchors import RECHECK_SECONDS
from adapter.worker import manager_pod_status
from tests.unit import apiserver
from tests.unit import builders as make
from tests.unit.builders import NAMESPACE, make_placement, make_pod, make_reservation, make_target, make_workload
from tests.unit.stores import make_local_queue, make_member, make_template

WORKLOAD = make_workload()
PLACEMENT, NO_CAPACITY = make_placement(WORKLOAD), make_placement(WORKLOAD, shares={})
WAITING = {**NO_CAPACITY, "metadata": NO_CAPACITY["metadata"] | {"resourceVersion": "2"}}
NAME = PLACEMENT["metadata"]["name"]
SLOTTED = make_pod("slotted", placement=NAME, slot="east/1/role-workers/0")
FREE = make_pod("free", placement=NAME)
SHARE, CLUSTER_QUEUE = make_reservation(PLACEMENT), make.make_cluster_queue(8)
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
POD_ON_SHARE = {(POD, NAMESPACE, "slotted")}
PODS = POD_ON_SHARE | {(POD, NAMESPACE, "free")}


class Queue(WorkQueue[QueueKey]):
    """Records the added keys and their delays."""

    def __init__(self) -> None:
        super().__init__(_handle)
        self.added: dict[QueueKey, float] = {}

    def add(self, key: QueueKey, after: float = 0.0) -> None:
        self.added[key] = min(after, self.added.get(key, after))
        super().add(key, after)


async def _handle(_: QueueKey) -> float | None:
    return None


class Bench:
    """Event handlers over a manager cluster with one gang and two of its pods."""

    def __init__(self, manager: ManagerCache, fleet: Fleet) -> None:
        self.manager, self.fleet, self.queue = manager, fleet, Queue()
        self.memory = TransientState()
        self.handlers = EventHandlers(
            self.queue, manager, fleet, ReplanCheck(manager, fleet, PolicyObserver(manager), self.memory)
        )
        for store, objects in (
            (manager.workloads, [WORKLOAD]),
            (manager.placements, [PLACEMENT]),
            (manager.pods, [SLOTTED, FREE]),
            (manager.checks, [make.make_check()]),
        ):
            store.replace(objects)

    def notify(self, store: str, before: Raw | None, after: Raw | None) -> None:
        """Notify of a change in the manager cluster."""
        (handle,) = (
            handle for watched, handle in self.handlers.store_handlers() if watched is getattr(self.manager, store)
        )
        handle(before, after)

    def enqueued(self) -> set[QueueKey]:
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
        pytest.param(make_reservation(PLACEMENT, message="Quota reserved"), False, id="another message"),
        pytest.param(make_reservation(PLACEMENT, admitted=False), True, id="not admitted any more"),
        pytest.param(make_reservation(PLACEMENT, conditions=[names.FINISHED]), True, id="finished"),
        pytest.param(make_reservation(PLACEMENT, active=False), True, id="deactivated"),
        pytest.param(make_reservation(PLACEMENT, round=2), True, id="another round"),
        pytest.param(changed(SHARE, "metadata", "ownerReferences", to=[]), True, id="another anchor"),
    ],
)
async def test_a_share_enqueues_its_gang_and_its_pods_if_relevant(bench: Bench, after: Raw, pods: bool) -> None:
    bench.handlers.on_reservation("east", SHARE, after)
    assert bench.enqueued() == {GANG_KEY} | (POD_ON_SHARE if pods else set())


async def test_a_share_enqueues_no_worker_of_another_share(bench: Bench) -> None:
    bench.handlers.on_reservation("east", None, make_reservation(PLACEMENT, round=2))
    assert bench.enqueued() == {GANG_KEY}


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(changed(SHARE, "metadata", "resourceVersion", to="2"), id="a new version"),
        pytest.param(changed(SHARE, "status", "requeueState", to={"count": 1}), id="a requeue count"),
        pytest.param(
            changed(SHARE, "metadata", "ownerReferences", to=[*SHARE["metadata"]["ownerReferences"], {"kind": "Pod"}]),
            id="a pod as an owner",
        ),
    ],
)
async def test_kueues_own_fields_of_a_share_enqueue_nothing(bench: Bench, after: Raw) -> None:
    bench.handlers.on_reservation("east", SHARE, after)
    assert bench.enqueued() == set()


async def test_a_new_share_enqueues_its_gang_and_pods(bench: Bench) -> None:
    bench.handlers.on_reservation("east", None, SHARE)
    assert bench.enqueued() == {GANG_KEY} | POD_ON_SHARE


async def test_a_deleted_share_enqueues_its_gang_pods_anchor_and_cluster(bench: Bench) -> None:
    """Its anchor may be left over, and its cluster may have no workers any more."""
    bench.handlers.on_reservation("east", SHARE, None)
    also = {(ANCHOR, NAMESPACE, f"east/{SHARE['metadata']['name']}"), (CLUSTER, "", "east")}
    assert bench.enqueued() == {GANG_KEY} | also | POD_ON_SHARE


async def test_a_create_of_a_share_enqueues_its_anchor_later(bench: Bench) -> None:
    """The anchor is checked later, when its share exists, without a request."""
    work, place = parse_workload(WORKLOAD), parse_placement(PLACEMENT)
    bench.handlers.after_actions(
        [Reserve(place, place.shares[0], make_target("east"), (), None, True), Reactivate(work)]
    )
    assert bench.queue.added == {(ANCHOR, NAMESPACE, f"east/{SHARE['metadata']['name']}"): RECHECK_SECONDS}


# --- capacity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(CLUSTER_QUEUE, "metadata", "resourceVersion", to="2"), False, id="a new version"),
        pytest.param(changed(CLUSTER_QUEUE, "status", "pendingWorkloads", to=7), False, id="pending Workloads"),
        pytest.param(changed(CLUSTER_QUEUE, "status", "admittedWorkloads", to=7), False, id="admitted Workloads"),
        pytest.param(make.make_cluster_queue(8, used=1), True, id="usage"),
        pytest.param(make.make_cluster_queue(9), True, id="quota"),
        pytest.param(make.make_cluster_queue(8, stopPolicy="Hold"), True, id="stopped"),
        pytest.param(
            changed(CLUSTER_QUEUE, "status", "conditions", to=[make.make_condition(names.ACTIVE)]), True, id="active"
        ),
        pytest.param(changed(CLUSTER_QUEUE, "metadata", "labels", to={"a": "b"}), True, id="a label"),
        pytest.param(None, True, id="deleted"),
    ],
)
async def test_only_relevant_changes_of_capacity_enqueue_waiting_gangs(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    bench.manager.placements.put(WAITING)
    before = bench.fleet.capacity_versions.version
    bench.handlers.on_capacity("east", CLUSTER_QUEUE, after)
    assert bench.queue.added == ({GANG_KEY: CAPACITY_SECONDS} if matters else {})
    assert bench.fleet.capacity_versions.version == before + matters


async def test_a_pending_workload_enqueues_waiting_gangs(bench: Bench) -> None:
    """Only the pending counter of the manager's queue shows a gang that its quota keeps another Workload waiting."""
    bench.manager.placements.put(WAITING)
    bench.notify("cluster_queues", CLUSTER_QUEUE, changed(CLUSTER_QUEUE, "status", "pendingWorkloads", to=1))
    assert bench.queue.added == {GANG_KEY: CAPACITY_SECONDS}


async def test_an_answer_of_a_worker_clusters_kueue_enqueues_waiting_gangs(bench: Bench) -> None:
    bench.manager.placements.put(WAITING)
    bench.handlers.on_kueue_answer("east", "team-a")
    assert bench.queue.added == {GANG_KEY: CAPACITY_SECONDS}


async def test_a_repeated_condition_enqueues_nothing(bench: Bench) -> None:
    bench.manager.placements.put(WAITING)
    conditions = [[make.make_condition(names.ACTIVE, since=since, message=str(since))] for since in (1, 2)]
    bench.handlers.on_capacity(
        "east", *(changed(CLUSTER_QUEUE, "status", "conditions", to=rows) for rows in conditions)
    )
    assert bench.enqueued() == set()


async def test_the_usage_of_a_local_queue_enqueues_nothing(bench: Bench) -> None:
    """The LocalQueue's usage changes with each share, and its name may be that of a ClusterQueue of another tree."""
    bench.manager.placements.put(WAITING)
    version = bench.fleet.capacity_versions.version
    before = make_local_queue("team-a")
    bench.handlers.on_capacity(
        "east", before, {**before, "status": CLUSTER_QUEUE["status"] | {"flavorsReservation": [{"name": "any"}]}}
    )
    assert (bench.enqueued(), bench.fleet.capacity_versions.version) == (set(), version)


async def test_a_dry_run_enqueues_waiting_gangs(bench: Bench) -> None:
    """They were planned as if the gang fitted by its template. Only the dry run shows that it does not."""
    work, version = parse_workload(WORKLOAD), bench.fleet.capacity_versions.version
    bench.manager.placements.put(WAITING)
    bench.handlers.after_actions([DryRunPod(work, work.podsets[1], make_target("east"), {})])
    assert (bench.queue.added, bench.fleet.capacity_versions.version) == ({GANG_KEY: CAPACITY_SECONDS}, version + 1)


@pytest.mark.parametrize(
    ("queue_at", "before", "matters"),
    [
        pytest.param("7", None, True, id="the ClusterQueue counts the new share already"),
        pytest.param(
            "7",
            changed(RESERVED, "status", "conditions", to=[]),
            True,
            id="the ClusterQueue counts the newly reserved share already",
        ),
        pytest.param("3", None, False, id="the ClusterQueue does not count the share yet"),
        pytest.param(
            "7", changed(RESERVED, "status", "admission", "more", to=1), False, id="the share had quota before"
        ),
    ],
)
async def test_a_share_counted_before_it_was_observed_changes_the_capacity(
    bench: Bench, queue_at: str, before: Raw | None, matters: bool
) -> None:
    """A gang planned in between had the share deducted twice."""
    member = make_member("east", 8)
    member.cluster_queues.put(changed(CLUSTER_QUEUE, "metadata", "resourceVersion", to=queue_at))
    member.workloads.put(RESERVED)
    bench.fleet._caches = {"east": member}
    bench.manager.placements.put(WAITING)
    version = bench.fleet.capacity_versions.version
    bench.handlers.on_reservation("east", before, RESERVED)
    assert (bench.fleet.capacity_versions.version > version) is matters


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        pytest.param(NEVER, TAKEN, True, id="quota may help now"),
        pytest.param(NEVER, "", True, id="the Workload is evaluated again"),
        pytest.param(NEVER, f"{NEVER}, still", False, id="quota never helps"),
        pytest.param(TAKEN, f"{TAKEN}, still", False, id="another message"),
        pytest.param(TAKEN, NEVER, False, id="quota does not help any more"),
    ],
)
async def test_a_workload_that_quota_may_help_enqueues_waiting_gangs(
    bench: Bench, before: str, after: str, matters: bool
) -> None:
    """No counter of the queue shows this."""
    works = []
    for text in (before, after):
        work = make_workload(name="behind", reserved=None)
        work["status"]["conditions"] = [make.make_condition(names.QUOTA_RESERVED, False, message=text)]
        works.append(work)
    bench.manager.placements.put(WAITING)
    bench.notify("workloads", *works)
    assert (GANG_KEY in bench.enqueued()) is matters


async def test_a_queue_that_starts_borrowing_enqueues_waiting_gangs(bench: Bench) -> None:
    """A borrowing queue delays its whole cohort, whose queues need not change."""
    bench.manager.placements.put(WAITING)
    rows = [[{"name": "any", "resources": [{"name": "cpu", "borrowed": borrowed}]}] for borrowed in ("0", "2", "3")]
    mine, borrows, more = (changed(CLUSTER_QUEUE, "status", "flavorsReservation", to=row) for row in rows)
    bench.notify("cluster_queues", borrows, more)
    assert bench.enqueued() == set()
    bench.notify("cluster_queues", mine, borrows)
    assert bench.queue.added == {GANG_KEY: CAPACITY_SECONDS}


async def test_a_changed_order_enqueues_waiting_gangs(bench: Bench) -> None:
    version = bench.fleet.capacity_versions.version
    bench.manager.placements.replace([WAITING])
    bench.handlers.on_order_changed()
    assert (bench.queue.added, bench.fleet.capacity_versions.version) == ({GANG_KEY: CAPACITY_SECONDS}, version + 1)


async def test_a_gang_with_shares_is_not_enqueued_by_capacity(bench: Bench) -> None:
    bench.handlers.on_capacity("east", CLUSTER_QUEUE, None)
    assert bench.enqueued() == set()


def waiting_gangs(*gangs: tuple[str, float, int, int]) -> tuple[list[Raw], list[Raw]]:
    """Gangs that were planned without capacity, each with its age, priority and size."""
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
        pytest.param([("b", 120, 0, 1), ("a", 0, 0, 1)], ["a", "b"], id="the older gang is first"),
        pytest.param([("a", 0, 0, 1), ("b", 120, 5, 1)], ["b", "a"], id="priority precedes age"),
        pytest.param([("a", 0, 0, 1), ("b", 30, 0, 8)], ["b", "a"], id="the larger gang of the same minute is first"),
        pytest.param([("b", 0, 0, 1), ("a", 0, 0, 1)], ["a", "b"], id="gangs of the same second by name"),
    ],
)  # fmt: skip
async def test_waiting_gangs_are_enqueued_in_scheduling_order(
    bench: Bench, gangs: list[tuple[str, float, int, int]], want: list[str]
) -> None:
    """Otherwise each plan would repeat the plans of the gangs before it."""
    works, places = waiting_gangs(*gangs)
    bench.manager.workloads.replace(works)
    bench.manager.placements.replace(places)
    bench.handlers.on_order_changed()
    assert [name for _, _, name in bench.queue.added] == want


@pytest.mark.parametrize("suspended", [True, False], ids=["it waits for its start", "it runs and grows"])
async def test_an_elastic_job_is_enqueued_by_the_age_of_its_job_until_it_runs(bench: Bench, suspended: bool) -> None:
    """As it is planned: its Workload is as old as its last growth."""
    works, places = waiting_gangs(("behind", 0, 0, 1), ("grown", 600, 0, 1))
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "pi", "uid": "uid-of-pi", "controller": True}
    works[1]["metadata"] |= {"ownerReferences": [owner], "annotations": {names.ELASTIC_ANNOTATION: "true"}}
    gang = parse_workload(works[1]).gang_name
    places[1]["spec"]["job"] = owner
    job = make.make_meta("pi", creationTimestamp=make.stamp(-600)) | {"uid": "uid-of-pi"}
    bench.manager.ray_clusters.put({"metadata": job, "spec": {"suspend": suspended}})
    bench.manager.workloads.replace(works)
    bench.manager.placements.replace(places)
    bench.queue.added.clear()
    bench.handlers.on_order_changed()
    assert [name for _, _, name in bench.queue.added] == ([gang, "behind"] if suspended else ["behind", gang])


async def test_a_gang_whose_workers_did_not_start_in_time_is_enqueued_when_capacity_changes(bench: Bench) -> None:
    """It has a slot for each worker, and looks for other ones."""
    uid = PLACEMENT["metadata"]["uid"]
    for unusable_slots, want in ({"workers": 1}, {GANG_KEY}), ({}, set()):
        bench.queue.added.clear()
        bench.memory.note_plan(uid, bench.fleet.capacity_versions.version, None, None, unusable_slots)
        bench.handlers.on_capacity("east", CLUSTER_QUEUE, None)
        assert bench.enqueued() == want


@pytest.mark.parametrize("since", [make.stamp(0), None], ids=["it still waits", "it waits no more"])
async def test_gangs_behind_a_running_one_are_enqueued_when_it_waits_no_more(bench: Bench, since: str | None) -> None:
    """They were planned as if it took or held capacity for its missing workers."""
    bench.manager.placements.put(WAITING)
    bench.queue.added.clear()
    version = bench.fleet.capacity_versions.version
    waits = changed(PLACEMENT, "spec", "waitingSince", to=make.stamp(0))
    bench.notify("placements", waits, changed(waits, "spec", "waitingSince", to=since))
    assert bench.fleet.capacity_versions.version == version + (since is None)


async def test_a_placement_without_its_workload_comes_last(bench: Bench) -> None:
    works, places = waiting_gangs(("gone", 0, 9, 1), ("here", 120, 0, 1))
    bench.manager.workloads.replace(works[1:])
    bench.manager.placements.replace(places)
    bench.handlers.on_order_changed()
    assert [name for _, _, name in bench.queue.added] == ["here", "gone"]


BEHIND = (GANG, NAMESPACE, "behind")


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(None, True, id="deleted"),
        pytest.param(make_workload(deleting=True), True, id="being deleted"),
        pytest.param(make_workload(active=False), True, id="deactivated"),
        pytest.param(make_workload(conditions=[names.EVICTED]), True, id="evicted"),
        pytest.param(make_workload(conditions=[names.FINISHED]), True, id="finished"),
        pytest.param(changed(WORKLOAD, "spec", "priority", to=-1), True, id="a lower priority"),
        pytest.param(make_workload(check=names.CHECK_READY), False, id="admission check ready"),
        pytest.param(make_workload(message="2 fit now"), False, id="another message"),
    ],
)
async def test_a_gang_that_leaves_the_order_enqueues_those_after_it(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    """They were planned as if it took or held capacity. No change in a worker cluster shows that it does not."""
    work = make_workload(name="behind")
    place = make_placement(work, shares={})
    bench.manager.placements.put(
        changed(place, "metadata", to=place["metadata"] | {"name": "b", "resourceVersion": "2"})
    )
    version = bench.fleet.capacity_versions.version
    bench.notify("workloads", WORKLOAD, after)
    assert bench.queue.added == {GANG_KEY: 0} | ({BEHIND: CAPACITY_SECONDS} if matters else {})
    assert bench.fleet.capacity_versions.version == version + matters


async def test_a_workload_without_our_check_does_not_change_the_capacity(bench: Bench) -> None:
    version = bench.fleet.capacity_versions.version
    bench.notify("workloads", make_workload(checks=["another"]), None)
    assert bench.fleet.capacity_versions.version == version


async def test_a_reactivated_gang_keeps_the_order_of_its_age(bench: Bench) -> None:
    """Its new Placement is younger than those of gangs created after it."""
    for name, created, placed in (("old", 1, 9), ("young", 5, 6)):
        work = make_workload(name=name)
        metadata = work["metadata"] | {"creationTimestamp": make.stamp(created)}
        place = make_placement(work, shares={})
        placed_at = {"name": name, "creationTimestamp": make.stamp(placed)}
        bench.manager.workloads.put(changed(work, "metadata", to=metadata | {"resourceVersion": "2"}))
        bench.manager.placements.put(
            changed(place, "metadata", to=place["metadata"] | placed_at | {"resourceVersion": "2"})
        )
    bench.handlers.on_capacity("east", CLUSTER_QUEUE, None)
    assert [name for _, _, name in bench.queue.added] == ["old", "young"]


# --- the manager's objects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "pods"),
    [
        pytest.param(make_placement(WORKLOAD, state="Placed"), False, id="a status that we wrote"),
        pytest.param(make_placement(WORKLOAD, round=2), True, id="another round"),
        pytest.param(NO_CAPACITY, True, id="other shares"),
        pytest.param(None, True, id="deleted"),
    ],
)
async def test_a_placement_enqueues_its_gang_and_with_another_plan_its_pods(
    bench: Bench, after: Raw | None, pods: bool
) -> None:
    bench.notify("placements", PLACEMENT, after)
    clusters = {(CLUSTER, "", "east"), (CLUSTER, "", "west")}  # their status has the number of workers with quota
    assert bench.enqueued() - clusters == {GANG_KEY} | (PODS if pods else set())
    assert (clusters <= bench.enqueued()) is (after in (NO_CAPACITY, None))


@pytest.mark.parametrize("created", [False, True], ids=["without a remote pod", "with a remote pod"])
async def test_a_further_round_that_is_placed_enqueues_its_pods_without_a_remote_pod(
    bench: Bench, created: bool
) -> None:
    """A remote pod is created once the round is placed."""
    bench.manager.pods.replace([make_pod("slotted", placement=NAME, slot="east/1/role-workers/0", dispatched=created)])
    further = changed(PLACEMENT, "spec", "since", to=1)
    bench.notify("placements", further, {**further, "status": {"state": "Placed", "placedRound": 1}})
    assert bench.enqueued() == {GANG_KEY} | (set() if created else POD_ON_SHARE)


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(HEAD, "status", "phase", to="Running"), False, id="another phase"),
        pytest.param(changed(HEAD, "metadata", "resourceVersion", to="2"), False, id="a new version"),
        pytest.param(changed(HEAD, "status", "podIP", to="10.12.0.6"), True, id="another address"),
        pytest.param(changed(HEAD, "metadata", "deletionTimestamp", to=make.stamp()), True, id="being deleted"),
        pytest.param(changed(HEAD, "metadata", "uid", to="another"), True, id="another head"),
        pytest.param(None, True, id="deleted"),
    ],
)
async def test_a_head_enqueues_its_workers_if_relevant(bench: Bench, after: Raw | None, matters: bool) -> None:
    bench.notify("heads", HEAD, after)
    assert bench.enqueued() == (PODS if matters else set())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, HEAD_MIRROR, id="created"),
        pytest.param(HEAD_MIRROR, None, id="deleted"),
        pytest.param(HEAD_MIRROR, changed(HEAD_MIRROR, "spec", to={"selector": {"a": "b"}}), id="edited"),
        pytest.param(HEAD_MIRROR, changed(HEAD_MIRROR, "metadata", "labels", to={}), id="its label was removed"),
    ],
)
async def test_a_head_mirror_enqueues_the_workers_of_its_head(
    bench: Bench, before: Raw | None, after: Raw | None
) -> None:
    bench.handlers.on_head_mirror(before, after)
    assert bench.queue.added == dict.fromkeys(PODS, BURST_SECONDS)


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        pytest.param(None, RAY_CLUSTER, True, id="created, so the owner of its pods is known"),
        pytest.param(RAY_CLUSTER, changed(RAY_CLUSTER, "status", "state", to="ready"), False, id="another state"),
        pytest.param(
            RAY_CLUSTER,
            changed(RAY_CLUSTER, "metadata", "uid", to="another"),
            True,
            id="another RayCluster of that name",
        ),
        pytest.param(RAY_CLUSTER, None, True, id="deleted"),
    ],
)
async def test_a_created_or_deleted_ray_cluster_enqueues_its_workers(
    bench: Bench, before: Raw | None, after: Raw | None, matters: bool
) -> None:
    bench.notify("ray_clusters", before, after)
    assert bench.enqueued() == (PODS if matters else set())


@pytest.mark.parametrize("store", ["ray_jobs", "ray_clusters"])
@pytest.mark.parametrize(
    ("change", "matters"),
    [
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True, id="being deleted"),
        pytest.param({"uid": "another"}, True, id="another job of that name"),
        pytest.param({"generation": 2}, False, id="another spec"),
    ],
)
async def test_a_deleted_job_enqueues_its_gang(
    bench: Bench, store: str, change: Mapping[str, object], matters: bool
) -> None:
    job: Raw = {"metadata": {"name": make.JOB, "namespace": make.NAMESPACE, "uid": "uid-of-job"}}
    bench.notify(store, job, {"metadata": {**job["metadata"], **change}})
    assert (GANG_KEY in bench.enqueued()) is matters


def slice_of(number: int, kind: str = "RayCluster") -> Raw:
    made = make_workload(name=f"train-{number}", owner=kind)
    made["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
    return made


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
async def test_every_object_of_an_elastic_job_enqueues_its_gang(bench: Bench, kind: str) -> None:
    """Its slices, its Placement, the shares of earlier slices, and its job when it is resumed."""
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
    changes: list[Callable[[], object]] = [
        lambda: bench.notify("workloads", first, None),
        lambda: bench.notify("workloads", None, second),
        lambda: bench.notify("placements", None, place),
        lambda: bench.notify("ray_jobs" if kind == "RayJob" else "ray_clusters", job, running),
        lambda: bench.handlers.on_reservation("east", None, share),
        lambda: bench.handlers.resync_all(),
    ]
    for change in changes:
        bench.queue.added.clear()
        change()
        assert gang in bench.enqueued()
        assert not {(GANG, NAMESPACE, "train-1"), (GANG, NAMESPACE, "train-2")} & bench.enqueued()


def rejection_event(reason: str = "InvalidRayClusterSpec", uid: str = "", version: int = 9) -> Raw:
    return {
        "metadata": {"namespace": NAMESPACE, "name": "e", "resourceVersion": str(version)},
        "involvedObject": {"name": "train-abc", "uid": uid or RAY_CLUSTER["metadata"]["uid"]},
        "reason": reason,
    }


@pytest.mark.parametrize(
    ("reason", "matters"), [("InvalidRayClusterSpec", True), ("InvalidRayClusterMetadata", True), ("Failed", False)]
)
async def test_a_rejection_by_kuberay_enqueues_the_gang_of_the_job(bench: Bench, reason: str, matters: bool) -> None:
    """Also when the event is repeated, and when it expires."""
    uid = controller_uid(WORKLOAD)
    event, repeated = rejection_event(reason, uid), rejection_event(reason, uid, version=10)
    for change in ((None, event), (event, repeated), (repeated, None)):
        bench.queue.added.clear()
        bench.notify("kuberay_events", *change)
        assert (GANG_KEY in bench.enqueued()) is matters
    bench.queue.added.clear()
    bench.notify("kuberay_events", event, event)
    assert bench.enqueued() == set()


async def test_a_rejection_of_a_ray_jobs_ray_cluster_enqueues_the_ray_job(bench: Bench) -> None:
    """Whichever is observed first."""
    uid = controller_uid(WORKLOAD)
    child = changed(RAY_CLUSTER, "metadata", "ownerReferences", to=[{"uid": uid, "controller": True}])
    child["metadata"]["resourceVersion"] = "8"
    child["metadata"]["generation"] = 1
    bench.manager.kuberay_events.put(rejection_event())
    bench.notify("ray_clusters", None, child)
    assert GANG_KEY in bench.enqueued()
    bench.queue.added.clear()
    bench.manager.ray_clusters.put(child)
    bench.notify("kuberay_events", None, rejection_event())
    assert GANG_KEY in bench.enqueued()


@pytest.mark.parametrize(
    ("path", "to"),
    [
        pytest.param(("metadata", "generation"), 2, id="an edit"),
        pytest.param(("status", "observedGeneration"), 1, id="KubeRay accepts it"),
    ],
)
async def test_an_edit_enqueues_the_gang_of_a_rejected_job(bench: Bench, path: tuple[str, str], to: int) -> None:
    uid = controller_uid(WORKLOAD)
    metadata = {"namespace": NAMESPACE, "name": "train", "uid": uid, "generation": 1}
    before: Raw = {"metadata": metadata, "spec": {"suspend": True}}
    bench.notify("ray_clusters", before, changed(before, *path, to=to))
    assert bench.enqueued() == set(), "KubeRay has not rejected it"
    bench.manager.kuberay_events.put(rejection_event(uid=uid))
    bench.notify("ray_clusters", before, changed(before, *path, to=to))
    assert GANG_KEY in bench.enqueued()


async def test_the_status_of_a_rejected_ray_job_enqueues_its_gang(bench: Bench) -> None:
    before: Raw = {"metadata": {"namespace": NAMESPACE, "name": "train", "uid": controller_uid(WORKLOAD)}}
    bench.notify("ray_jobs", before, {**before, "status": {"jobDeploymentStatus": "ValidationFailed"}})
    assert GANG_KEY in bench.enqueued()


async def test_a_storm_of_events_reads_the_workloads_of_its_own_job_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [make_workload(name=f"other-{number}") for number in range(50)]
    for number, other in enumerate(others):
        other["metadata"]["ownerReferences"][0]["uid"] = f"other-{number}"
    bench.manager.workloads.replace([WORKLOAD, *others])
    read: list[Key] = []

    def counted_key(raw: Raw) -> Key:
        read.append(key_of(raw))
        return gang_key(raw)

    monkeypatch.setattr(enqueue, "gang_key", counted_key)
    monkeypatch.setattr(Store, "__iter__", lambda _: pytest.fail("an event goes through all objects"))
    uid = controller_uid(WORKLOAD)
    for version in range(100):
        before, after = (rejection_event(uid=uid, version=each) for each in (version, version + 1))
        bench.notify("kuberay_events", before, after)
    bench.notify("kuberay_events", None, rejection_event(uid="of-no-job"))
    assert set(read) == {key_of(WORKLOAD)}
    assert len(read) <= 200
    assert bench.queue.added == {GANG_KEY: BURST_SECONDS}, "and the gang is reconciled once for many events"


async def test_events_that_can_be_read_again_enqueue_all_gangs(bench: Bench) -> None:
    bench.notify("kuberay_events", None, None)
    assert GANG_KEY in bench.enqueued()


async def test_a_ray_cluster_of_another_name_enqueues_nothing(bench: Bench) -> None:
    bench.notify("ray_clusters", None, make.make_ray_cluster(name="other"))
    assert bench.enqueued() == set()


async def test_a_deleted_pod_enqueues_pods_without_a_slot(bench: Bench) -> None:
    bench.manager.pods.remove(SLOTTED)
    bench.notify("pods", SLOTTED, None)
    assert bench.enqueued() == {*PODS, GANG_KEY}, "the gang too: the pod may have been the last one on its share"
    assert {bench.queue.added[pod] for pod in PODS} == {0}


async def test_a_deleted_pod_enqueues_pods_with_an_unverified_template_slot(bench: Bench) -> None:
    """A pod that lost its template slot has none, and would wait for the next resync."""
    doubted = make_pod("doubted", placement=NAME, index="7", listed="north/1/role-workers/9")
    sure = make_pod("sure", placement=NAME, index="8", listed="north/1/role-workers/9", dispatched=True)
    bench.manager.pods.replace([SLOTTED, FREE, doubted, sure])
    changes: list[Callable[[], object]] = [
        lambda: bench.notify("pods", SLOTTED, None),
        lambda: bench.handlers.on_contact("east"),
        lambda: bench.notify("pods", make_pod("slotted", placement=NAME), None),  # a pod with a pending assignment
    ]
    for change in changes:
        bench.queue.added.clear()
        change()
        assert {name for what, _, name in bench.enqueued() if what == POD} == {"slotted", "free", "doubted"}


async def test_a_pod_that_changes_its_slot_enqueues_pods_without_one(bench: Bench) -> None:
    bench.notify("pods", SLOTTED, changed(SLOTTED, "metadata", "annotations", names.SLOT_ANNOTATION, to="west/1/x/0"))
    assert bench.enqueued() >= set(PODS)


async def test_a_deleted_pod_of_a_thousand_enqueues_only_pods_that_may_take_its_slot(bench: Bench) -> None:
    """A gang that ends has as many deletions as pods, and the cost of each must not grow with the gang."""
    placed = [make_pod(f"p-{n}", placement=NAME, slot=f"east/1/role-workers/{n}") for n in range(1, 1000)]
    twin = make_pod("twin", placement=NAME, slot="east/1/role-workers/0")
    bench.manager.pods.replace([FREE, twin, *placed])
    bench.notify("pods", SLOTTED, None)
    assert bench.enqueued() == {*PODS, (POD, NAMESPACE, "twin"), GANG_KEY}


async def test_a_deleted_pod_without_a_slot_enqueues_few_others(bench: Bench) -> None:
    without = [make_pod(f"p-{n}", placement=NAME) for n in range(1000)]
    bench.manager.pods.replace(without)
    bench.notify("pods", FREE, None)
    assert 0 < len(bench.enqueued() - {(POD, NAMESPACE, "free"), GANG_KEY}) <= event_handlers.MOST_CANDIDATES
    bench.notify("pods", SLOTTED, None)
    assert len(bench.enqueued()) > 1000, "a freed slot enqueues every pod that may take it"


async def test_a_pod_that_may_take_a_pending_assignment_is_among_those_few(bench: Bench) -> None:
    """Pods of other worker groups and pods being deleted cannot take the slot, and do not use up the limit."""
    others = [make_pod(f"g-{n}", placement=NAME, group="gpus") for n in range(event_handlers.MOST_CANDIDATES)]
    leaving = [make_pod(f"l-{n}", placement=NAME, deleting=True) for n in range(event_handlers.MOST_CANDIDATES)]
    bench.manager.pods.replace([*others, *leaving, FREE])
    bench.notify("pods", make_pod("gone", placement=NAME), None)
    assert bench.enqueued() == {(POD, NAMESPACE, "gone"), (POD, NAMESPACE, "free"), GANG_KEY}


async def test_a_changed_pod_enqueues_itself_only(bench: Bench) -> None:
    bench.notify("pods", SLOTTED, changed(SLOTTED, "status", "podIP", to="10.12.0.9"))
    assert bench.enqueued() == {(POD, NAMESPACE, "slotted")}
    bench.notify("pods", SLOTTED, changed(SLOTTED, "status", "phase", to="Failed"))
    assert bench.enqueued() == {(POD, NAMESPACE, "slotted"), GANG_KEY}, "a share may have lost its last worker"


WITH_TEMPLATE_SLOT = make_pod("slotted", placement=NAME, index="0", listed="east/1/role-workers/2")
PATCH = manager_pod_status.status_patch(WITH_TEMPLATE_SLOT, make.make_copy(WITH_TEMPLATE_SLOT), "east") or {}
AS_PATCHED = {
    **trim.manager_pod({**WITH_TEMPLATE_SLOT, "status": {**WITH_TEMPLATE_SLOT["status"], **PATCH["status"]}}),
    "metadata": {
        **WITH_TEMPLATE_SLOT["metadata"],
        "resourceVersion": "2",
        "labels": {**WITH_TEMPLATE_SLOT["metadata"]["labels"], names.CLUSTER_LABEL: "east"},
        "annotations": {
            **WITH_TEMPLATE_SLOT["metadata"]["annotations"],
            names.SLOT_ANNOTATION: "east/1/role-workers/0",
        },
    },
}


@pytest.mark.parametrize(
    ("after", "enqueued"),
    [
        pytest.param(AS_PATCHED, False, id="the patched status"),
        pytest.param(
            changed(
                AS_PATCHED, "status", "conditions",
                to=[{**row, "lastProbeTime": None} for row in AS_PATCHED["status"]["conditions"]],
            ),
            False,
            id="the patched status with the API server's defaults",
        ),
        pytest.param(changed(AS_PATCHED, "metadata", "deletionTimestamp", to="2026-01-01T00:00:00Z"), True,
                     id="a deletion beside the patched status"),
        pytest.param(changed(AS_PATCHED, "metadata", "uid", to="another"), True, id="another pod of that name"),
        pytest.param(changed(AS_PATCHED, "metadata", "labels", names.PLACEMENT_LABEL, to="other"), True,
                     id="another label"),
        pytest.param(changed(AS_PATCHED, "spec", "schedulingGates", to=[]), True, id="no scheduling gates"),
        pytest.param(changed(AS_PATCHED, "status", "podIP", to="10.12.0.77"), True, id="another address"),
        pytest.param(changed(AS_PATCHED, "status", "phase", to="Failed"), True, id="a failed pod"),
        pytest.param(None, True, id="a deleted pod"),
    ],
)  # fmt: skip
async def test_a_status_patch_of_ours_enqueues_the_pod_only_if_it_differs(
    bench: Bench, after: Raw | None, *, enqueued: bool
) -> None:
    bench.manager.pending_status_patches[key_of(WITH_TEMPLATE_SLOT)] = PATCH
    bench.notify("pods", WITH_TEMPLATE_SLOT, after)
    assert ((POD, NAMESPACE, "slotted") in bench.enqueued()) == enqueued
    assert enqueued or GANG_KEY in bench.enqueued(), "the gang waits for running workers"
    bench.manager.pending_status_patches.clear()
    bench.notify("pods", WITH_TEMPLATE_SLOT, after)
    assert (POD, NAMESPACE, "slotted") in bench.enqueued(), "a change by another writer enqueues the pod"


async def test_a_pod_that_we_fail_enqueues_itself(bench: Bench) -> None:
    """Its remote pod must be deleted."""
    patch = manager_pod_status.failed_patch(SLOTTED, reason="Lost", message="", now="2026-01-01T00:00:00Z") or {}
    bench.manager.pending_status_patches[key_of(SLOTTED)] = patch
    bench.notify("pods", SLOTTED, {**SLOTTED, "status": {**SLOTTED["status"], **patch["status"]}})
    assert bench.enqueued() >= POD_ON_SHARE


async def test_a_changed_remote_pod_waits_for_the_burst_and_a_deleted_one_does_not(bench: Bench) -> None:
    copy = make.make_copy(SLOTTED)
    bench.handlers.on_pod("east", copy, copy)
    assert bench.queue.added == {(POD, NAMESPACE, "slotted"): BURST_SECONDS}
    bench.handlers.on_pod("east", copy, None)
    assert bench.queue.added[POD, NAMESPACE, "slotted"] == 0


COPY = make.make_copy(SLOTTED)
ANOTHER = make.make_copy(make_pod("another", placement=NAME, slot="east/1/role-workers/1"))
OVER = make.make_copy(SLOTTED, phase="Succeeded")


@pytest.mark.parametrize(
    ("before", "after", "others", "want"),
    [
        pytest.param(COPY, None, [], 0, id="the last remote pod is deleted"),
        pytest.param(COPY, None, [ANOTHER], BURST_SECONDS, id="one of many remote pods is deleted"),
        pytest.param(COPY, OVER, [OVER], BURST_SECONDS, id="the remote pod ended"),
        pytest.param(OVER, OVER, [OVER], None, id="the remote pod had ended before"),
        pytest.param(COPY, make.make_copy(SLOTTED, deleting=True), [COPY], None, id="the remote pod is being deleted"),
    ],
)
@pytest.mark.parametrize("places", [[PLACEMENT], []], ids=["a placed job", "a deleted job"])
async def test_a_remote_pod_that_releases_quota_enqueues_its_gang(
    bench: Bench,
    before: Raw,
    after: Raw | None,
    others: list[Raw],
    want: float | None,
    places: list[Raw],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when the manager has nothing of the job any more: the remote pod's labels name it."""
    east = make_member("east", 8)
    east.pods.replace(others)
    monkeypatch.setattr(bench.fleet, "caches", lambda: {"east": east})
    bench.manager.placements.replace(places)
    bench.manager.pods.replace([])
    bench.handlers.on_pod("east", before, after)
    assert bench.queue.added.get(GANG_KEY) == want


def waiting(reason: str) -> Raw:
    status = {"containerStatuses": [{"name": "ray", "state": {"waiting": {"reason": reason}}}]}
    return {**COPY, "status": {"conditions": [make.make_condition("PodScheduled")], **status}}


NO_NODE = {**COPY, "status": {"conditions": [make.make_condition("PodScheduled", False, reason="Unschedulable")]}}


@pytest.mark.parametrize(
    ("before", "after", "enqueued"),
    [
        pytest.param(COPY, NO_NODE, True, id="no node takes it"),
        pytest.param(NO_NODE, COPY, True, id="a node takes it"),
        pytest.param(None, NO_NODE, True, id="it is first observed when no node takes it"),
        pytest.param(COPY, waiting("ErrImagePull"), True, id="its image cannot be pulled"),
        pytest.param(waiting("ErrImagePull"), waiting("ImagePullBackOff"), False, id="its image is still not pulled"),
        pytest.param(None, COPY, False, id="it is created"),
    ],
)
async def test_a_remote_pod_that_cannot_start_enqueues_its_gang(
    bench: Bench, before: Raw | None, after: Raw, enqueued: bool
) -> None:
    """The gang measures since when; no other change would enqueue it."""
    bench.handlers.on_pod("east", before, after)
    assert bench.queue.added.get(GANG_KEY) == (BURST_SECONDS if enqueued else None)


async def test_a_changed_gate_enqueues_checks_and_gangs(bench: Bench) -> None:
    for store in ("gate_policies", "gate_bindings", "gate_webhooks"):
        bench.queue.added.clear()
        bench.notify(store, None, {"metadata": {"name": "x"}})
        assert bench.enqueued() == {(CHECK, "", make.CHECK), GANG_KEY}


POLICY_OF_ALL = make.make_policy("all")


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(POLICY_OF_ALL, "status", "observedGeneration", to=1), False, id="a status that we wrote"),
        pytest.param(changed(POLICY_OF_ALL, "spec", "strategy", to="Spread"), True, id="another spec"),
        pytest.param(None, True, id="deleted"),
    ],
)
async def test_a_policy_enqueues_itself_and_with_its_spec_all_others(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    """A status that enqueued every gang would replan each of them for nothing."""
    bench.manager.policies.replace([make.make_policy("other")])
    bench.notify("policies", POLICY_OF_ALL, after)
    more = {(POLICY, "", "other"), (CHECK, "", make.CHECK), GANG_KEY} if matters else set()
    assert bench.enqueued() == {(POLICY, "", "all")} | more


@pytest.mark.parametrize(
    ("store", "before"),
    [("worker_clusters", make.make_worker_cluster("north")), ("multikueue_configs", {"metadata": {"name": "x"}})],
)
async def test_an_object_that_a_policy_names_enqueues_it(bench: Bench, store: str, before: Raw) -> None:
    bench.manager.policies.replace([POLICY_OF_ALL])
    for change in ((None, before), (before, None)):
        bench.queue.added.clear()
        bench.notify(store, *change)
        assert (POLICY, "", "all") in bench.enqueued()


# --- MultiKueue's objects --------------------------------------------------------------------------------------------

CONFIG = {"metadata": {"name": "all"}, "spec": {"clusters": ["east"]}}


async def test_a_changed_multikueuecluster_or_secret_enqueues_worker_clusters(bench: Bench) -> None:
    bench.manager.worker_clusters.replace([make.make_worker_cluster("east")])
    for store, before, after in (
        ("multikueue_clusters", None, {"metadata": {"name": "x"}}),
        ("multikueue_clusters", None, None),  # whether they can be read has changed
        ("secrets", {"metadata": {"name": "x"}}, None),
    ):
        bench.queue.added.clear()
        bench.notify(store, before, after)
        assert bench.enqueued() == {(CLUSTER, "", "east")}


async def test_the_relays_key_enqueues_what_waits_for_it(bench: Bench) -> None:
    version = bench.fleet.capacity_versions.version
    bench.notify("secrets", make.make_relay_key(), make.make_relay_key(b"o"))
    assert bench.enqueued() >= PODS
    assert bench.fleet.capacity_versions.version > version


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        pytest.param(None, CONFIG, True, id="created"),
        pytest.param(CONFIG, changed(CONFIG, "spec", "clusters", to=["west"]), True, id="another list of clusters"),
        pytest.param(CONFIG, changed(CONFIG, "metadata", "resourceVersion", to="2"), False, id="a new version"),
        pytest.param(CONFIG, None, True, id="deleted"),
        pytest.param(None, None, True, id="MultiKueueConfigs can be read now"),
    ],
)
async def test_a_changed_multikueueconfig_enqueues_checks_and_gangs(
    bench: Bench, before: Raw | None, after: Raw | None, matters: bool
) -> None:
    version = bench.fleet.capacity_versions.version
    bench.notify("multikueue_configs", before, after)
    assert bench.enqueued() == ({(CHECK, "", make.CHECK), GANG_KEY} if matters else set())
    assert bench.fleet.capacity_versions.version == version + matters


# --- quota that follows the worker clusters' -------------------------------------------------------------------------

OPTED = changed(
    make.make_cluster_queue(8, name="summed"), "metadata", "annotations", to={names.QUOTA_ANNOTATION: "true"}
)
SUMMED = (QUEUE, "", "summed")


async def test_summed_quota_is_reconciled_when_a_part_may_have_changed(bench: Bench) -> None:
    bench.manager.cluster_queues.replace([OPTED, CLUSTER_QUEUE])
    changes: list[Callable[[], None]] = [
        lambda: bench.handlers.on_capacity("east", CLUSTER_QUEUE, make.make_cluster_queue(9)),
        lambda: bench.handlers.on_capacity("east", CLUSTER_QUEUE, None),
        lambda: bench.handlers.on_contact("east"),
        lambda: bench.notify("local_queues", None, {"metadata": {"name": "x"}}),
        lambda: bench.notify("cluster_queues", None, OPTED),
        lambda: bench.notify("cluster_queues", OPTED, changed(OPTED, "spec", "cohortName", to="all")),
        lambda: bench.notify("policies", None, {"metadata": {"name": "x"}}),
        lambda: bench.notify("checks", None, make.make_check()),
        lambda: bench.notify("multikueue_configs", None, CONFIG),
    ]
    for change in changes:
        bench.queue.added.clear()
        change()
        assert bench.queue.added.get(SUMMED) == CAPACITY_SECONDS
        assert (QUEUE, "", "team-a") not in bench.enqueued(), "its admin did not set the annotation"


async def test_constant_changes_do_not_reconcile_summed_quota(bench: Bench) -> None:
    bench.manager.cluster_queues.replace([OPTED])
    bench.handlers.on_capacity("east", CLUSTER_QUEUE, make.make_cluster_queue(8, used=1))
    bench.notify("cluster_queues", OPTED, changed(OPTED, "status", "pendingWorkloads", to=7))
    assert SUMMED not in bench.enqueued()


FLAVOR = {"metadata": {"name": "remote"}, "spec": {"nodeLabels": {"rayspan.dev/pool": "remote"}}}


@pytest.mark.parametrize("store", ["cluster_queues", "local_queues", "flavors"])
@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(FLAVOR, "status", "pendingWorkloads", to=7), False, id="a counter"),
        pytest.param(changed(FLAVOR, "spec", "nodeLabels", to={}), True, id="another spec"),
        pytest.param(changed(FLAVOR, "metadata", "labels", to={"a": "b"}), True, id="other labels"),
        pytest.param(None, True, id="deleted"),
    ],
)
async def test_the_layout_of_a_manager_queue_enqueues_checks_and_gangs(
    bench: Bench, store: str, after: Raw | None, matters: bool
) -> None:
    bench.notify(store, FLAVOR, after)
    assert bench.enqueued() == ({(CHECK, "", make.CHECK), GANG_KEY} if matters else set())


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
async def test_waiting_gangs_are_replanned_when_their_plan_may_differ(
    bench: Bench, store: str, before: Raw, after: Raw
) -> None:
    version = bench.fleet.capacity_versions.version
    bench.notify(store, before, after)
    assert bench.fleet.capacity_versions.version > version and GANG_KEY in bench.enqueued()


@pytest.mark.parametrize(
    ("wanted", "shares", "matters"),
    [
        pytest.param((4, 6), 1, False, id="the job scales up"),
        pytest.param((4, 3), 1, False, id="the job scales down from its shares"),
        pytest.param((6, 5), 1, True, id="the job requests less beyond its shares"),
        pytest.param((4, 4), 0, True, id="the next round has no shares"),
    ],
)
async def test_a_placement_replans_others_when_it_frees_capacity(
    bench: Bench, wanted: tuple[int, int], shares: int, matters: bool
) -> None:
    raw = make_placement(make.make_workload(), shares={"east": {"workers": 4}})
    before, after = (changed(raw, "spec", "wanted", to=number) for number in wanted)
    after = changed(changed(after, "spec", "shares", to=after["spec"]["shares"][:shares]), "spec", "attempt", to="next")
    version = bench.fleet.capacity_versions.version
    bench.notify("placements", before, after)
    assert (bench.fleet.capacity_versions.version > version) is matters


async def test_a_waiting_worker_group_that_wants_fewer_workers_replans_others(bench: Bench) -> None:
    """The four slots are of another group, so the job was promised capacity for workers that it wants no more."""
    raw = make_placement(make.make_workload(), shares={"east": {"others": 4}})
    before = changed(raw, "spec", "waitingSince", to=make.stamp())
    version = bench.fleet.capacity_versions.version
    bench.notify("placements", before, changed(before, "spec", "wanted", to=3))
    assert bench.fleet.capacity_versions.version > version


async def test_a_withdrawn_round_replans_others(bench: Bench) -> None:
    """Its shares may never have had quota in their clusters, so nothing changes there."""
    raw = make_placement(make.make_workload(), shares={"east": {"workers": 4}})
    given_up, version = changed(raw, "status", to={"withdrawnRound": 1}), bench.fleet.capacity_versions.version
    bench.notify("placements", raw, given_up)
    assert bench.fleet.capacity_versions.version == version + 1
    bench.notify("placements", given_up, changed(given_up, "status", "message", to="it waits"))
    bench.notify("placements", raw, changed(raw, "status", to={"state": PlacementState.PLACED}))
    assert bench.fleet.capacity_versions.version == version + 1


@pytest.mark.parametrize(
    ("after", "matters"),
    [("east", False), ("east,,east ", False), ("east,west", True), ("", True)],
    ids=["the same", "other text", "one more", "none"],
)
async def test_other_clusters_to_leave_enqueue_a_gang_and_its_workers_and_replan(
    bench: Bench, after: str, matters: bool
) -> None:
    job = make_job(names.MOVE_FROM_ANNOTATION, "east")
    pod = make_pod(placement=PLACEMENT["metadata"]["name"])
    bench.manager.pods.put(changed(pod, "metadata", "resourceVersion", to="9"))
    version = bench.fleet.capacity_versions.version
    bench.queue.added.clear()
    bench.notify("ray_jobs", job, make_job(names.MOVE_FROM_ANNOTATION, after))
    assert {GANG_KEY, (POD, *key_of(pod))} <= bench.enqueued() if matters else not bench.enqueued()
    assert (bench.fleet.capacity_versions.version > version) is matters


@pytest.mark.parametrize(("move_from", "matters"), [("east", True), ("north", False), ("", False)])
async def test_a_change_of_capacity_enqueues_a_gang_that_leaves_a_cluster(
    bench: Bench, move_from: str, matters: bool
) -> None:
    bench.fleet._caches = {"east": make_member("east", 8)}
    bench.manager.ray_jobs.replace([make_job(names.MOVE_FROM_ANNOTATION, move_from)])
    bench.handlers.on_capacity("east", CLUSTER_QUEUE, None)
    assert (GANG_KEY in bench.enqueued()) is matters


async def test_other_clusters_to_leave_outdate_the_plan_of_the_job_and_none_that_stands_alone(bench: Bench) -> None:
    """A user may change the annotation at any time: plans that depend on no other gang stay."""
    uid, transient = PLACEMENT["metadata"]["uid"], bench.handlers._replan_check._transient
    before = bench.fleet.capacity_versions.latest_change([])
    transient.planned_versions[uid] = bench.fleet.capacity_versions.version
    bench.notify("ray_jobs", make_job(names.MOVE_FROM_ANNOTATION, "east"), make_job(names.MOVE_FROM_ANNOTATION, ""))
    assert uid not in transient.planned_versions
    assert bench.fleet.capacity_versions.latest_change([]) == before


async def test_a_ray_cluster_that_is_no_job_of_its_own_replans_nothing(bench: Bench) -> None:
    """KubeRay copies a RayJob's annotations to it."""
    version = bench.fleet.capacity_versions.version
    changes = (make_job(names.MOVE_FROM_ANNOTATION, text, uid="uid-of-train-abc") for text in ("", "east"))
    bench.notify("ray_clusters", *changes)
    assert bench.fleet.capacity_versions.version == version and not bench.enqueued()


def make_job(annotation: str, text: str, uid: str = "uid-of-job") -> Raw:
    return {"metadata": make.make_meta(make.JOB, uid=uid, annotations={annotation: text}), "spec": {}}


@pytest.mark.parametrize(("after", "matters"), [(False, True), (True, False)])
async def test_a_resumed_job_replans_others(bench: Bench, after: bool, matters: bool) -> None:
    """A running elastic job scales up by itself; gangs after it were planned as if it took everything first."""
    job: Raw = {"metadata": {"name": make.JOB, "namespace": NAMESPACE, "uid": "uid-of-job"}, "spec": {"suspend": True}}
    version = bench.fleet.capacity_versions.version
    bench.notify("ray_jobs", job, changed(job, "spec", "suspend", to=after))
    assert (bench.fleet.capacity_versions.version > version) is matters


async def test_our_condition_of_a_check_replans_nothing(bench: Bench) -> None:
    version = bench.fleet.capacity_versions.version
    bench.notify("checks", make.make_check(), make.make_check(conditions=[make.make_condition(names.ACTIVE)]))
    assert bench.fleet.capacity_versions.version == version


async def test_another_check_enqueues_ours_when_its_controller_may_have_changed(bench: Bench) -> None:
    other = make.make_check() | {"metadata": {"name": "other"}}
    bench.notify("checks", other, changed(other, "status", "conditions", to=[]))
    assert bench.enqueued() == {(CHECK, "", "other"), GANG_KEY}
    bench.notify("checks", other, None)
    assert bench.enqueued() == {(CHECK, "", "other"), (CHECK, "", make.CHECK), GANG_KEY}


EAST = make.make_worker_cluster("east")


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(EAST, "status", "clusterUID", to="u1"), True, id="the cluster identity is recorded"),
        pytest.param(None, True, id="deleted"),
        pytest.param(changed(EAST, "status", "workers", to=5), False, id="another number of workers"),
    ],
)
async def test_a_changed_cluster_identity_enqueues_other_clusters(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    """The cluster may be registered twice, or not twice any more."""
    bench.manager.worker_clusters.replace([make.make_worker_cluster("west")])
    bench.notify("worker_clusters", EAST, after)
    assert (("cluster", "", "west") in bench.enqueued()) is matters


REACHED = make.make_worker_cluster(conditions=[make.make_condition(names.REACHABLE)])


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(make.make_worker_cluster(), True, id="no preflight"),
        pytest.param(
            changed(REACHED, "status", "conditions", to=[{"type": names.REACHABLE}]),
            True,
            id="not reachable by the preflight",
        ),
        pytest.param(
            changed(REACHED, "status", "triedSource", to="Secret other"), True, id="preflight with another Secret"
        ),
        pytest.param(changed(REACHED, "status", "workers", to=7), False, id="another number of workers"),
    ],
)
async def test_a_changed_preflight_enqueues_waiting_gangs(bench: Bench, after: Raw, matters: bool) -> None:
    fill = [make_placement(WORKLOAD, shares={})]
    bench.manager.placements.replace([])
    bench.manager.placements.replace(fill)
    bench.notify("worker_clusters", REACHED, after)
    assert bench.enqueued() == {(CLUSTER, "", "east")} | ({GANG_KEY} if matters else set())


# --- invalid objects ------------------------------------------------------------------------------------------------


async def test_an_unreadable_object_breaks_no_watch(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Watches fill the stores of all clusters, and an exception of a handler would count as a broken watch."""
    bench.handlers.register()
    bench.manager.workloads.notify({"metadata": {"name": "x", "labels": 7}, "status": {"admissionChecks": 7}}, None)
    invalid: Raw = {"metadata": 7}
    bench.manager.ray_clusters.notify(invalid, None)
    listeners = bench.fleet._listeners
    for listener in (listeners.on_reservation, listeners.on_pod, listeners.on_capacity):
        listener("east", invalid, None)
    listeners.on_head_mirror(invalid, None)
    bench.manager.flavors.notify([], [])  # type: ignore[arg-type]
    assert "hear failed at _on_workload by " in caplog.text and "hear failed at _on_layout by " in caplog.text


async def test_an_unreadable_object_does_not_prevent_enqueueing_others(bench: Bench) -> None:
    """An API server with wrong types, or another server."""
    invalid = [
        {"metadata": {"name": {"a": 1}, "namespace": 5, "uid": {"a": 1}, "labels": ["x"]}, "spec": 7, "status": ["x"]}
    ]
    for store in (bench.manager.placements, bench.manager.workloads, bench.manager.pods, bench.manager.worker_clusters):
        store._objects = {("", "odd"): invalid[0], **store._objects}  # without validation
    bench.handlers.resync_all()
    bench.handlers.on_order_changed()
    bench.handlers.on_contact("east")
    assert {
        (GANG, NAMESPACE, WORKLOAD["metadata"]["name"]),
        (POD, NAMESPACE, FREE["metadata"]["name"]),
    } <= bench.enqueued()


async def test_a_resync_is_spread_over_time_and_a_start_is_not(bench: Bench) -> None:
    pods = [make_pod(f"p-{n}", placement=NAME, slot=f"east/1/role-workers/{n}") for n in range(100)]
    bench.manager.pods.replace([*pods, FREE])
    bench.handlers.resync_all(50.0)
    due = sorted(bench.queue.added[POD, NAMESPACE, key_of(pod)[1]] for pod in [*pods, FREE])
    assert due[0] == 0 and 49 <= due[-1] < 50 and max(b - a for a, b in pairwise(due)) < 1
    assert bench.queue.added[POD, NAMESPACE, "free"] == 0, "waiting pods come first"
    bench.queue.added.clear()
    bench.handlers.resync_all()
    assert {bench.queue.added[POD, NAMESPACE, key_of(pod)[1]] for pod in pods} == {0}


async def test_a_resync_enqueues_remote_objects_unknown_to_the_manager(bench: Bench) -> None:
    """A remote pod without its manager pod, and a share without its gang; the others are enqueued anyway."""
    member, orphan = make_member("east", 8), make_pod("orphan", placement=NAME, slot="east/1/role-workers/1")
    member.pods.replace([SLOTTED, orphan])
    member.workloads.replace([SHARE])
    bench.fleet._caches = {"east": member}
    bench.manager.workloads.replace([])
    bench.handlers.resync_all(50.0)
    assert {(POD, NAMESPACE, "orphan"), *PODS, GANG_KEY} <= bench.enqueued()
    assert max(bench.queue.added[POD, NAMESPACE, name] for name in ("orphan", "slotted")) <= 50


async def test_a_resync_spreads_gangs_of_shares_and_services_of_slices(bench: Bench) -> None:
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
    bench.handlers.resync_all(50.0)
    for what, name in ((GANG, "g"), (SERVICE, "svc")):
        due = [bench.queue.added[what, NAMESPACE, f"{name}-{number}"] for number in range(10)]
        assert due == [5.0 * number for number in range(10)]


# --- contact ---------------------------------------------------------------------------------------------------------


async def test_a_lost_contact_enqueues_the_keys_of_that_cluster(bench: Bench) -> None:
    """At a start a hundred clusters become reachable, and enqueueing all pods each time would do so a hundred times."""
    elsewhere = make_pod("elsewhere", placement=NAME, slot="west/1/role-workers/0")
    moved = make_pod("moved", placement=NAME, slot="east/1/role-workers/7")
    others = make_pod("others", placement="another", slot="east/4/role-workers/0"), make_pod("without a placement")
    bench.manager.pods.replace([SLOTTED, FREE, elsewhere, moved, *others])
    there = make_pod("moved", placement=NAME, slot="west/1/role-workers/7")
    bench.manager.pods.put({**there, "metadata": {**there["metadata"], "resourceVersion": "9000"}})
    east = make.make_worker_cluster("east")
    changes: list[Callable[[], object]] = [
        lambda: bench.handlers.on_contact("east"),
        lambda: bench.notify("worker_clusters", east, {**east, "status": {"lostSince": make.stamp()}}),
    ]
    for change in changes:
        bench.queue.added.clear()
        change()
        assert {key for key in bench.enqueued() if key[0] == POD} == PODS | {(POD, *key_of(pod)) for pod in others}
        assert GANG_KEY in bench.enqueued()


async def test_a_flapping_cluster_enqueues_the_fleet_at_a_limited_rate(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster whose watches fail and open in turn changes twice a second."""
    now, at_once = 1000.0, 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pod = (POD, NAMESPACE, FREE["metadata"]["name"])
    for _ in range(600):
        bench.queue.added.clear()
        bench.handlers.on_contact("east")
        at_once += bench.queue.added[pod] == 0.0
        assert all(after <= event_handlers.CONTACT_SECONDS for after in bench.queue.added.values()), (
            "every key is enqueued in time"
        )
        now += 0.5
    assert at_once == event_handlers.CONTACT_BURST + 300 / event_handlers.CONTACT_SECONDS - 1
    bench.queue.added.clear()
    bench.handlers.on_contact("west")
    assert bench.queue.added[pod] == 0.0, "another cluster is not delayed"


async def test_a_writable_cluster_enqueues_failed_keys_at_a_limited_rate(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker cluster itself decides who holds the claim."""
    now, at_once = 1000.0, 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    bench.handlers.register()
    bench.queue._failures[GANG_KEY] = 7
    for _ in range(150):
        bench.queue.added.clear()
        bench.fleet._listeners.on_writable("east")
        assert bench.enqueued() == {GANG_KEY}
        at_once += bench.queue.added[GANG_KEY] == 0.0
        now += 2
    assert at_once == event_handlers.CONTACT_BURST + 300 / event_handlers.CONTACT_SECONDS - 1


async def test_the_order_of_a_gang_is_that_of_its_newest_version(bench: Bench) -> None:
    """It is computed once for each version, not for each change of capacity."""
    works = [make.make_workload(name=name) for name in ("a", "b")]
    places = [make_placement(work, shares={}) for work in works]
    bench.manager.workloads.replace(works)
    bench.manager.placements.replace(places)
    keys = [(GANG, NAMESPACE, work["metadata"]["name"]) for work in works]
    bench.handlers.on_order_changed()
    assert [key for key in bench.queue.added if key in keys] == keys
    raised = {
        **works[1],
        "metadata": works[1]["metadata"] | {"resourceVersion": "9"},
        "spec": works[1]["spec"] | {"priority": 5},
    }
    bench.manager.workloads.put(raised)
    bench.queue.added.clear()
    bench.handlers.on_order_changed()
    assert [key for key in bench.queue.added if key in keys] == keys[::-1]


async def test_a_burst_of_changes_goes_through_other_tenants_gangs_a_few_times(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any tenant's pods change the usage of a ClusterQueue, as fast as they come and go. The last change counts."""
    now, visits = 1000.0, 0
    wants_capacity = ordering.wants_capacity

    def count_visit(*facts: Any) -> bool:
        nonlocal visits
        visits += 1
        return wants_capacity(*facts)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(ordering, "wants_capacity", count_visit)
    works = [make_workload(name=f"waits-{number}") for number in range(100)]
    bench.manager.workloads.replace(works)
    bench.manager.placements.replace([make_placement(work, shares={}) for work in works])
    for number in range(1000):
        usages = (make.make_cluster_queue(2000, used=number + step) for step in (0, 1))
        bench.handlers.on_capacity("east", *usages)
        now += 0.001
    assert visits <= (enqueue.WAKE_BURST + 1 / CAPACITY_SECONDS) * len(works)
    assert bench.fleet.capacity_versions.version >= 1000
    assert 0 < bench.queue.added[WAKE, "", "outdated"] <= CAPACITY_SECONDS
    unused = cast(Any, None)
    reconciler = Reconciler(*[bench.manager, *[unused] * 9, bench.handlers])
    assert await reconciler.reconcile((WAKE, "", "outdated")), "it is too early"
    bench.queue.added.clear()
    now += CAPACITY_SECONDS
    assert await reconciler.reconcile((WAKE, "", "outdated")) is None
    assert bench.enqueued() == {(GANG, NAMESPACE, f"waits-{number}") for number in range(100)}


# --- Services --------------------------------------------------------------------------------------------------------

SERVING = make.make_serving()
ITS_COPY = make.make_serving_copy(SERVING)
SERVE = make.make_service()
SERVICE_KEY = (SERVICE, NAMESPACE, "chat-serve-svc")


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(SERVING, "metadata", "resourceVersion", to="2"), False, id="a new version"),
        pytest.param(changed(SERVING, "status", "startTime", to="x"), False, id="a start time"),
        pytest.param(make.make_serving(ready=False), True, id="no ready proxy"),
        pytest.param(make.make_serving(address="10.1.0.2"), True, id="another address"),
        pytest.param(make.make_serving(deleting=True), True, id="being deleted"),
        pytest.param(changed(SERVING, "spec", "schedulingGates", to=[]), True, id="no scheduling gates"),
        pytest.param(changed(SERVING, "metadata", "ownerReferences", to=[]), True, id="no owner"),
        pytest.param(None, True, id="deleted"),
    ],
)
async def test_a_worker_enqueues_its_services_once_for_a_burst(bench: Bench, after: Raw | None, matters: bool) -> None:
    bench.manager.services.replace([SERVE, make.make_service("other", selects="other")])
    bench.notify("pods", SERVING, after)
    services = {key: due for key, due in bench.queue.added.items() if key[0] == SERVICE}
    assert services == ({SERVICE_KEY: BURST_SECONDS} if matters else {})


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(changed(ITS_COPY, "spec", "nodeName", to="n"), False, id="a node"),
        pytest.param(make.make_serving_copy(SERVING, deleting=True), True, id="being deleted"),
        pytest.param(make.make_serving_copy(SERVING, phase="Failed"), True, id="failed"),
        pytest.param(None, True, id="deleted"),
    ],
)
async def test_a_remote_pod_enqueues_the_services_of_its_manager_pod(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    bench.manager.services.replace([SERVE])
    bench.manager.pods.replace([SERVING])
    bench.handlers.on_pod("east", ITS_COPY, after)
    assert (SERVICE_KEY in bench.enqueued()) == matters


async def test_services_are_enqueued_by_themselves_their_slices_and_their_workers(bench: Bench) -> None:
    bench.manager.services.replace([SERVE])
    ray_cluster = make.make_ray_cluster(owner="uid-of-chat")
    ours = {"metadata": {"namespace": NAMESPACE, "name": "s", "labels": {names.SERVICE_NAME_LABEL: "chat-serve-svc"}}}
    changes: list[Callable[[], None]] = [
        lambda: bench.notify("services", None, SERVE),
        lambda: bench.notify("services", None, None),
        lambda: bench.notify("services", SERVE, None),
        lambda: bench.notify("slices", ours, None),
        lambda: bench.notify("slices", None, ours),
        lambda: bench.notify("slices", None, None),
        lambda: bench.notify("ray_clusters", None, ray_cluster),
        lambda: bench.notify("worker_clusters", None, make.make_worker_cluster()),
        lambda: bench.handlers.on_unreachable_pod(SERVING),
        lambda: bench.handlers.on_contact("east"),
        bench.handlers.resync_all,
    ]
    for change in changes:
        bench.queue.added.clear()
        change()
        assert SERVICE_KEY in bench.enqueued()
    bench.queue.added.clear()
    bench.notify("ray_clusters", ray_cluster, ray_cluster)
    assert SERVICE_KEY not in bench.enqueued()


async def test_a_slice_enqueues_its_deleted_service(bench: Bench) -> None:
    """The Service may have been deleted unnoticed, or have lost the label that it is watched by."""
    ours = {"metadata": {"namespace": NAMESPACE, "name": "s", "labels": {names.SERVICE_NAME_LABEL: "chat-serve-svc"}}}
    bench.manager.slices.replace([ours])
    bench.handlers.resync_all()
    assert SERVICE_KEY in bench.enqueued()


async def test_a_worker_that_changes_its_raycluster_enqueues_the_services_of_both(bench: Bench) -> None:
    bench.manager.services.replace([SERVE, make.make_service("other", selects="other")])
    bench.notify("pods", SERVING, changed(SERVING, "metadata", "labels", names.RAY_GCS_CLUSTER_LABEL, to="other"))
    assert {SERVICE_KEY, (SERVICE, NAMESPACE, "other")} <= bench.enqueued()


@pytest.mark.parametrize(
    ("after", "matters"),
    [
        pytest.param(None, True, id="deleted"),
        pytest.param(make.make_service("chat-0", selects="other"), True, id="another RayCluster"),
        pytest.param(make.make_service("chat-0", owner=""), True, id="no owner"),
        pytest.param(
            changed(make.make_service("chat-0"), "metadata", "resourceVersion", to="2"), False, id="a new version"
        ),
    ],
)
async def test_a_service_that_leaves_the_limit_enqueues_the_next_ones(
    bench: Bench, after: Raw | None, matters: bool
) -> None:
    """Only the oldest Services of a RayCluster have EndpointSlices."""
    before = make.make_service("chat-0")
    bench.manager.ray_clusters.replace([make.make_ray_cluster(owner="uid-of-chat")])
    bench.manager.services.replace(
        [*([after] if after else ()), *(make.make_service(f"chat-{n}") for n in range(1, 9))]
    )
    bench.notify("services", before, after)
    woken = {name for what, _, name in bench.enqueued() if what == SERVICE}
    assert woken == {"chat-0", *(("chat-1", "chat-2", "chat-3", "chat-4") if matters else ())}
