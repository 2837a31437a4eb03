"""A gang without capacity is replanned when a plan could find some, and not for unrelated changes."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter import names
from adapter.actions import Plan
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of, uid_of
from adapter.objects.workload import parse_workload
from adapter.planning import ordering
from adapter.shell.controller import wiring
from adapter.shell.controller.enqueue import GANG, QueueKey
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.transient_state import PLAN_VALID_FOR
from adapter.shell.planning.plans import GangPlanner, PlannedRound
from adapter.shell.rate_limit import TokenBucket
from tests.unit import builders
from tests.unit.builders import make_cluster_queue, make_placement, make_reservation, make_workload
from tests.unit.stores import Sight, fill, make_local_queue, make_template

CORES = {"east": 6, "west": 4}
OWN, MATE, OTHER = "team-a", "mate", "other"  # ClusterQueues: two in one tree of cohorts, one in another


class Queue:
    """Records the enqueued keys."""

    def __init__(self) -> None:
        self.added: set[QueueKey] = set()

    def add(self, key: QueueKey, after: float = 0.0) -> None:
        self.added.add(key)


class Still(asyncio.SelectorEventLoop):
    """No plan takes any time, however busy the machine is."""

    def time(self) -> float:
        return 0.0


class World:
    """Gangs of one queue on two clusters. In each, it shares a cohort tree with one queue but not with another."""

    def __init__(self) -> None:
        self.sight, self.queue, self.now = Sight(CORES), Queue(), builders.START
        self.versions = itertools.count(10)
        self.used = dict.fromkeys(CORES, 0)  # of the gangs' own queue, as each cluster's Kueue counts
        self.uncounted = dict.fromkeys(CORES, 0)  # reserved there, and not counted yet
        for name, member in self.sight.members.items():
            fill(member.cluster_queues, *(self._cluster_queue(name, queue, 0) for queue in (OWN, MATE, OTHER)))
        manager, seen = self.sight.manager, self.sight.facts.replan_check
        self.waker = EventHandlers(cast(WorkQueue[QueueKey], self.queue), manager, self.sight.fleet, seen)
        self.waker._enqueue._wake_limit = TokenBucket(1, 0.0)
        for store, handle in self.waker.store_handlers():
            store.set_handler(handle)

    def _cluster_queue(self, cluster: str, name: str, used: int) -> Raw:
        cohort: Raw = {} if name == OTHER else {"cohortName": "all"}
        found = make_cluster_queue(CORES[cluster] if name != MATE else 2, used=used, name=name, **cohort)
        return self._versioned(found)

    def _versioned(self, raw: Raw) -> Raw:
        return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(next(self.versions))}}

    def uses(self, cluster: str, queue: str, cores: int) -> None:
        """So much is in use of a queue now."""
        if queue == OWN:
            self.used[cluster], self.uncounted[cluster] = cores, 0
        store = self.sight.members[cluster].cluster_queues
        before, after = store.by_name(queue), self._cluster_queue(cluster, queue, cores)
        store.put(after)
        self.waker.on_capacity(cluster, before, after)

    def comes(self, name: str, workers: int, priority: int = 0, age: float = 0) -> None:
        raw = make_workload(name=name, groups={"workers": workers})
        raw["metadata"]["creationTimestamp"] = builders.stamp(-age)
        raw["spec"]["priority"] = priority
        raw["spec"]["podSets"][1]["template"] = make_template("1")
        self.sight.manager.workloads.put(self._versioned(raw))

    def leaves(self, name: str) -> None:
        """A gang gives the manager's quota back, and its Placement goes."""
        manager = self.sight.manager
        if raw := manager.workloads.get((builders.NAMESPACE, name)):
            status: Raw = {**raw["status"], "conditions": []}
            manager.workloads.put(self._versioned({**raw, "status": status}))
            manager.workloads.remove(self._versioned(cast(Raw, manager.workloads.get(key_of(raw)))))
        if place := self.place(name):
            manager.placements.remove(self._versioned(cast(Raw, place)))

    def place(self, name: str) -> Any:
        return next(iter(self.sight.manager.placements.by_index(f"{builders.NAMESPACE}/{name}")), None)

    def plan(self, name: str) -> PlannedRound:
        """Plan a gang, and write what comes of it."""
        manager, version = self.sight.manager, self.sight.fleet.capacity_versions.version
        made, place = self.planned(name), self.place(name)
        if place is None:
            place = {**made.body, "metadata": {**made.body["metadata"], "uid": f"place-of-{name}", "name": f"p-{name}"}}
        manager.placements.put(self._versioned({**place, "spec": made.body["spec"]}))
        self.sight.memory.note_plan(uid_of(place), version, made.replan_at, self.now if made.independent else None)
        return made

    def fresh(self, name: str) -> PlannedRound:
        """What a plan would be for whom no other was made before."""
        sight = self.sight
        return self.planned(name, wiring.build_planner(sight.manager, sight.fleet, sight.facts, sight.memory))

    def planned(self, name: str, planning: GangPlanner | None = None) -> PlannedRound:
        work, place = (
            parse_workload(self.sight.manager.workloads.get((builders.NAMESPACE, name)) or {}),
            self.place(name),
        )
        action = Plan(work, parse_placement(place) if place else None, ())
        with asyncio.Runner(loop_factory=Still) as runner:
            return runner.run((planning or self.sight.planning).plan_round(action, self.now))

    def reserved(self, name: str) -> None:
        """What a gang was promised is reserved in its clusters."""
        place, seconds = self.place(name), (self.now - builders.START).total_seconds()
        for cluster in {share["cluster"] for share in place["spec"]["shares"]} if place else ():
            share = make_reservation(place)
            share["status"]["conditions"] = [builders.make_condition(names.QUOTA_RESERVED, since=seconds)]
            self.sight.members[cluster].workloads.put(self._versioned(share))
        for share in place["spec"]["shares"] if place else ():
            self.uncounted[share["cluster"]] += sum(group["count"] for group in share["groups"])

    def pass_time(self, seconds: float) -> None:
        """Kueue counts by then what it has reserved."""
        self.now += timedelta(seconds=seconds)
        for cluster, cores in self.uncounted.items():
            if cores:
                self.uses(cluster, OWN, self.used[cluster] + cores)

    def outdated(self, name: str) -> bool:
        place = self.place(name)
        return place is not None and self.sight.facts.replan_check.is_affected(place)

    def woken(self, of: Callable[[], None]) -> bool:
        """Whether something wakes the gang `me`."""
        self.queue.added.clear()
        of()
        return (GANG, builders.NAMESPACE, "me") in self.queue.added


def waiting(*others: tuple[str, int, float]) -> World:
    """A gang that is too large was planned behind others, which have not been."""
    world = World()
    for name, workers, age in others:
        world.comes(name, workers, age=age)
    world.comes("me", 16)
    assert not world.plan("me").plan.shares
    return world


# --- what is news ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "matters"),
    [
        pytest.param(OWN, True, id="the gang's own queue"),
        pytest.param(MATE, True, id="a queue of the same cohort tree"),
        pytest.param(OTHER, False, id="a queue of another cohort tree"),
    ],
)
def test_usage_replans_gangs_of_the_same_cohort_tree(queue: str, matters: bool) -> None:
    world = waiting()
    assert world.woken(lambda: world.uses("west", queue, 1)) is matters
    assert world.outdated("me") is matters


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.leaves("small"), id="a gang without shares is deleted"),
        pytest.param(lambda world: world.waker.on_order_changed(), id="a gang lacks a Secret"),
        pytest.param(lambda world: world.comes("late", 1, age=-60), id="a gang is created"),
    ],
)
def test_waiting_gangs_do_not_replan_a_gang_that_was_planned_on_the_clusters_usage(
    change: Callable[[World], None],
) -> None:
    world = waiting()
    world.comes("small", 20, age=-60)
    assert not world.woken(lambda: change(world)) and not world.outdated("me")


@pytest.mark.parametrize(
    ("others", "alone"),
    [
        pytest.param([], True, id="no other gang"),
        pytest.param([("first", 20, 60.0)], True, id="a gang that does not fit"),
        pytest.param([("first", 2, 60.0)], False, id="a gang that takes the missing capacity"),
        pytest.param(
            [("first", 12, ordering.STARVED_AFTER.total_seconds() + 60)], False, id="a gang that holds capacity"
        ),
    ],
)
def test_a_plan_depends_on_other_gangs_that_take_capacity(others: list[tuple[str, int, float]], alone: bool) -> None:
    world = World()
    world.uses("east", OWN, 1)
    for name, workers, age in others:
        world.comes(name, workers, age=age)
        if age > 60:
            world.uses("east", OWN, 4)  # it fits when that ends
    world.comes("me", 14)
    assert world.plan("me").independent is alone
    if others and not alone:
        assert world.woken(lambda: world.leaves("first")) and world.outdated("me")


@pytest.mark.parametrize(("tree", "alone"), [(OWN, False), (MATE, False), (OTHER, True)])
def test_a_plan_depends_on_pending_shares_in_the_same_cohort_tree(tree: str, alone: bool) -> None:
    """A share that its cluster does not count yet is deducted: in another tree that is nothing to anybody here."""
    world = World()
    manager, queue = world.sight.manager, "another"
    for member, target in (*((m, tree) for m in world.sight.members.values()), (None, "all")):
        local = make_local_queue(target)
        local["metadata"]["name"] = queue
        (member or manager).local_queues.put(world._versioned(local))
    other = make_workload(name="other", groups={"workers": 1})
    other["spec"]["queueName"] = queue
    other["spec"]["podSets"][1]["template"] = make_template("1")
    manager.workloads.put(world._versioned(other))
    manager.placements.put(world._versioned(make_placement(other, shares={"east": {"workers": 1}})))
    world.comes("me", 20)
    assert world.plan("me").independent is alone


def test_a_plan_with_capacity_depends_on_it() -> None:
    world = World()
    world.comes("me", 2)
    made = world.plan("me")
    assert made.plan.shares and not made.independent


def test_a_running_gang_without_all_workers_is_replanned_for_any_change() -> None:
    """Its missing workers change with its own pods, which no cluster's capacity shows."""
    world = World()
    world.comes("me", 4)
    world.plan("me")
    world.uses("east", OWN, 8)
    world.uses("west", OWN, 6)
    work = parse_workload(world.sight.manager.workloads.get((builders.NAMESPACE, "me")) or {})
    place = parse_placement(world.place("me"))
    kept = place.shares[:0]
    made = asyncio.run(world.sight.planning.plan_round(Plan(work, place, (), kept), world.now))
    assert not made.plan.shares and not made.independent
    assert asyncio.run(world.sight.planning.plan_round(Plan(work, place, ()), world.now)).independent


def test_another_priority_replans_the_gang() -> None:
    """It may preempt others now."""
    world = waiting()
    assert world.woken(lambda: world.comes("me", 16, priority=5)) and world.outdated("me")


def test_a_change_for_all_replans_every_gang() -> None:
    world = waiting()
    assert world.woken(lambda: world.waker.on_contact("north")) and world.outdated("me")


def test_every_gang_is_replanned_at_an_interval() -> None:
    """By its own look, which comes anyhow; and not where nothing at all has changed."""
    world = waiting()
    work, seen = (
        parse_workload(world.sight.manager.workloads.get((builders.NAMESPACE, "me")) or {}),
        world.sight.facts.replan_check,
    )
    chosen, _ = world.sight.facts.policies.policy_of(builders.CHECK)

    def changed(after: timedelta) -> bool:
        return seen.is_needed([uid_of(world.place("me"))], work, chosen, world.now + after)

    assert not changed(PLAN_VALID_FOR)
    world.uses("east", OTHER, 1)
    assert not changed(PLAN_VALID_FOR / 2)
    assert changed(PLAN_VALID_FOR)


# --- the rule behind it ----------------------------------------------------------------------------------------------

GANGS = ("a", "b", "c", "d")
AGES = st.sampled_from((0.0, 60.0, 120.0, ordering.STARVED_AFTER.total_seconds() + 60))
COMING = st.tuples(st.integers(2, 14), st.integers(0, 1), AGES)
USES = st.tuples(
    st.just("uses"), st.sampled_from(sorted(CORES)), st.sampled_from((OWN, OWN, MATE, OTHER)), st.integers(0, 6)
)
OPS = st.one_of(
    USES,
    st.tuples(st.sampled_from(("plan", "plan", "plan", "leaves", "reserved")), st.sampled_from(GANGS)),
    st.tuples(st.just("later"), st.sampled_from((1, 4, 400))),
)


@given(st.lists(COMING, min_size=4, max_size=4), st.lists(USES, max_size=3), st.lists(OPS, min_size=4, max_size=12))
@example(
    [(2, 0, 0.0), (2, 0, 60.0), (2, 0, 60.0), (9, 0, 0.0)],
    [],
    [("plan", "a"), ("plan", "b"), ("reserved", "b"), ("later", 4)],
)
def test_a_gang_that_is_not_replanned_would_find_no_capacity(
    coming: list[tuple[int, int, float]], uses: list[tuple[Any, ...]], ops: list[tuple[Any, ...]]
) -> None:
    """For any later changes; a gang that must be replanned is enqueued by them."""
    world = World()
    for name, (workers, priority, age) in zip(GANGS, coming, strict=True):
        world.comes(name, workers, priority, age)
    for what, *how in (*uses, *ops):
        before = {name: world.outdated(name) for name in GANGS}
        world.queue.added.clear()
        _done(world, what, how)
        for name in filter(lambda name: _waits(world, name), GANGS):
            if world.outdated(name):
                assert before[name] or (GANG, builders.NAMESPACE, name) in world.queue.added
            elif not _is_due(world, name):
                assert not world.fresh(name).plan.shares, f"{name} was not planned again after {what} {how}"


def _done(world: World, what: str, how: list[Any]) -> None:
    """Let something happen, where it can."""
    if what == "uses":
        world.uses(*how)
    elif what == "later":
        world.pass_time(how[0])
    elif world.sight.manager.workloads.get((builders.NAMESPACE, how[0])):
        holds = world.place(how[0]) and not _waits(world, how[0])
        if what == "leaves":
            world.leaves(how[0])
        elif what == "reserved" and holds:
            world.reserved(how[0])
        elif what == "plan" and not holds:
            fresh = world.fresh(how[0])
            assert world.plan(how[0]) == fresh, "what an earlier plan left behind changes nothing"


def _waits(world: World, name: str) -> bool:
    """Whether a gang was planned, and found no room."""
    place = world.place(name)
    return place is not None and not place["spec"]["shares"]


def _is_due(world: World, name: str) -> bool:
    settles = world.sight.memory.replan_at.get(uid_of(world.place(name)))
    return settles is not None and world.now >= settles
