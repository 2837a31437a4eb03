"""Reconciling a gang collects facts that no store holds, and other changes may happen meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from adapter.actions import Action, DeletePod, Plan, Reserve
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import GroupShare, Share, parse_placement
from adapter.shell.clusters.cluster_cache import PROBE
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.enqueue import ANCHOR, CHECK, CLUSTER, GANG, POD, POLICY, QUEUE, SERVICE
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.reconciler import SHORTEST_REQUEUE_SECONDS, SINGLE_SHARE_LANES, Reconciler, action_lanes
from adapter.shell.controller.workqueue import Postpone
from adapter.shell.kube.client import Client, Unreachable
from adapter.shell.observe.gang_observer import GangObserver
from adapter.shell.write.execute import Executor
from tests.unit import apiserver, builders
from tests.unit.gang.test_lifecycle import gang
from tests.unit.shell.controller.test_workqueue import play


@dataclass
class ControllerParts:
    """A fake of the engine's parts for a reconcile; it records what is reconciled, and when."""

    looked: list[tuple[str, float]] = field(default_factory=list)

    @property
    def reconciler(self) -> "ControllerParts":
        return self

    async def reconcile(self, key: tuple[str, str, str]) -> None:
        self.looked.append((key[0], asyncio.get_running_loop().time()))


@dataclass
class Looked:
    """A fake of the observers and the writers that records the calls."""

    manager: ManagerCache
    news: bool = False
    loses: bool = False
    told: list[str] = field(default_factory=list)

    async def read_uncached(self, _: object) -> bool:
        if self.loses:
            self.manager._note_error(PROBE, Unreachable("no answer in time"))
        return self.news

    def facts(self, *_: object) -> Gang:
        self.told.append("decided")
        return gang(None)

    def on_order_changed(self) -> None:
        self.told.append("turns")

    def after_actions(self, _: object) -> None:
        """The actions done are notified too; there were none."""


@pytest.mark.parametrize(
    ("news", "loses", "told"),
    [(False, False, ["decided"]), (True, False, ["turns", "decided"]), (False, True, [])],
)
async def test_the_result_of_a_reconcile(news: bool, loses: bool, told: list[str]) -> None:
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        looked = Looked(ManagerCache(nobody), news, loses)
        unasked: Any = None
        looks = Reconciler(
            manager=looked.manager,
            fleet=unasked,
            gang_observer=cast(GangObserver, looked),
            worker_observer=unasked,
            service_observer=unasked,
            assignments=unasked,
            executor=unasked,
            condition_writer=unasked,
            quota_aggregator=unasked,
            ended_gangs=unasked,
            event_handlers=cast(EventHandlers, looked),
        )
        try:
            await looks.reconcile((GANG, "demo", "train"))
        except Postpone as lost:
            assert loses and "the manager cluster is unreachable" in str(lost)
        assert looked.told == told


def test_single_worker_shares_are_created_concurrently_in_each_cluster_and_the_rest_in_order() -> None:
    """However they alternate in the plan: a lane is one request after the other."""
    work = builders.make_workload()
    place, group = parse_placement(builders.make_placement(work)), GroupShare("workers", "role-workers", 1)
    several, asked = Share("east", (replace(group, count=4),)), list[Action]()
    for number in range(4 * SINGLE_SHARE_LANES):
        share = Share(("east", "west")[number % 2], (group,), round=number + 1, single_worker=True)
        asked.append(Reserve(place, share, builders.make_target(share.cluster), (), None, False, {}))
    whole: list[Action] = [Reserve(place, several, builders.make_target("east"), (), None, False, {})] * 2
    found = action_lanes([*whole, *asked])
    assert sorted(len(one) for one in found.values()) == [2] * (2 * SINGLE_SHARE_LANES + 1)
    assert found["east", ""] == whole


@pytest.mark.parametrize("what", [GANG, POD, SERVICE, CLUSTER, POLICY, CHECK, QUEUE, ANCHOR])
async def test_nothing_is_reconciled_while_the_manager_is_unreachable(what: str) -> None:
    """What a cut link hides must not be taken for gone: the key comes back when it can be."""
    parts = ControllerParts()
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        engine = Engine(nobody, None)
        engine._parts, engine._leading = cast(Any, parts), True
        engine.manager._note_error(PROBE, None)
        await engine._handle_key((what, "demo", "train"))
        assert [key for key, _ in parts.looked] == [what]
        engine.manager._note_error(PROBE, Unreachable("no answer in time"))
        with pytest.raises(Postpone, match="the manager cluster is unreachable: no answer in time"):
            await engine._handle_key((what, "demo", "train"))
        assert len(parts.looked) == 1


def test_postponed_keys_are_reconciled_when_the_manager_is_reachable() -> None:
    """It has waited for longer and longer meanwhile."""
    parts = ControllerParts()

    async def test() -> None:
        engine = Engine(cast(Client, None), None)
        engine._parts, engine._leading = cast(Any, parts), True
        engine.manager._note_error(PROBE, Unreachable("no answer in time"))
        engine._queue.add((GANG, "demo", "train"))
        running = asyncio.create_task(engine._queue.run())
        asyncio.get_running_loop().call_later(1000, engine.manager._note_error, PROBE, None)
        await asyncio.wait([running], timeout=1100)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    play(test)
    assert [(key, round(when, 2)) for key, when in parts.looked] == [(GANG, 1000)]


class Queued:
    """Two gangs that are planned one at a time, with their facts and the actions done."""

    def __init__(self, manager: ManagerCache) -> None:
        self.seen: dict[str, Gang] = {name: gang(builders.make_workload(name=name)) for name in ("first", "second")}
        self.done: list[Plan] = []
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        unasked: Any = None
        self.looks = Reconciler(
            manager=manager,
            fleet=unasked,
            gang_observer=cast(GangObserver, self),
            worker_observer=unasked,
            service_observer=unasked,
            assignments=unasked,
            executor=cast(Executor, self),
            condition_writer=unasked,
            quota_aggregator=unasked,
            ended_gangs=unasked,
            event_handlers=cast(EventHandlers, self),
        )

    async def read_uncached(self, _: object) -> bool:
        return False

    def facts(self, key: tuple[str, str], _: object) -> Gang:
        return self.seen[key[1]]

    def waits_for_answers(self, _: object) -> bool:
        return False

    def after_actions(self, _: object) -> None:
        """Nothing waits for it."""

    async def execute(self, action: object) -> None:
        assert isinstance(action, Plan)
        self.begun.set()
        await self.goes_on.wait()
        self.done.append(action)

    async def both(self, meanwhile: Callable[[], None]) -> list[float | None]:
        """Look at both, of which the second waits for the first one's plan; `meanwhile` something happens."""
        looks = [asyncio.create_task(self.looks.reconcile((GANG, "demo", name))) for name in ("first", "second")]
        await self.begun.wait()
        for _ in range(5):
            await asyncio.sleep(0)  # the second one has decided, and waits
        meanwhile()
        self.goes_on.set()
        return await asyncio.gather(*looks)


async def test_a_plan_uses_the_facts_at_its_time_in_the_plan_queue() -> None:
    """Its Workload was evicted and got quota again: a Placement for the first attempt would hold unused quota."""
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        queued = Queued(_seen(nobody))
        before = queued.seen["second"].workload
        again = builders.make_workload(name="second", reserved=60, version=9)
        assert await queued.both(lambda: queued.seen.update(second=gang(again))) == [None, None]
        first, second = queued.done
        assert before and (first.workload.name, second.workload.name) == ("first", "second")
        assert second.workload.resource_version == "9" and second.workload.attempt != before.attempt


async def test_an_unneeded_plan_is_not_made() -> None:
    """Another reconcile follows at once and decides."""
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        queued = Queued(_seen(nobody))
        assert await queued.both(lambda: queued.seen.update(second=gang(None))) == [None, SHORTEST_REQUEUE_SECONDS]
        assert [plan.workload.name for plan in queued.done] == ["first"]


async def test_nothing_is_planned_once_the_manager_is_unreachable() -> None:
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        manager = _seen(nobody)
        queued = Queued(manager)
        with pytest.raises(Postpone, match="the manager cluster is unreachable"):
            await queued.both(lambda: manager._note_error(PROBE, Unreachable("no answer in time")))
        assert [plan.workload.name for plan in queued.done] == ["first"]


@dataclass
class Hangs:
    """A fake executor whose actions in east and west do not end by themselves."""

    parts: dict[str, asyncio.Task[Any] | None] = field(default_factory=dict)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list[str] = field(default_factory=list)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def execute(self, action: DeletePod) -> None:
        self.parts[action.cluster] = asyncio.current_task()
        if len(self.parts) == 2:
            self.begun.set()
        try:
            await self.goes_on.wait()
        finally:
            self.ended.append(action.cluster)


@pytest.mark.parametrize("cancelled", ["the reconcile", "one part"])
async def test_a_cancelled_reconcile_cancels_its_parts_but_not_the_reverse(cancelled: str) -> None:
    """The work queue decides about the key, as it knows what was cancelled."""
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        hangs = Hangs()
        looks = replace(Queued(_seen(nobody)).looks, executor=cast(Executor, hangs))
        actions = [DeletePod(cluster, builders.make_pod(), "why") for cluster in ("east", "west")]
        look = asyncio.create_task(looks._execute_actions(("demo", "train"), actions))
        await asyncio.wait_for(hangs.begun.wait(), apiserver.PATIENCE)
        if cancelled == "the reconcile":
            look.cancel()
        elif east := hangs.parts["east"]:
            east.cancel()
            await asyncio.sleep(0)
            assert hangs.ended == ["east"] and not look.done()
            hangs.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await look
        assert hangs.ended == ["east", "west"] and look.cancelling() == (cancelled == "the reconcile")


def _seen(client: Client) -> ManagerCache:
    manager = ManagerCache(client)
    manager._note_error(PROBE, None)
    return manager


@dataclass
class Breaks:
    """Stands in for the parts that a resync and a first contact call: each of them breaks, and is noted."""

    called: list[str] = field(default_factory=list)
    event_handlers = transient = fleet = condition_writer = property(lambda self: self)

    def reachable(self) -> dict[str, object]:
        return {}

    def resync_all(self, over: float) -> None:
        self._break("everything")

    def keep_only(self, *_: object) -> None:
        self._break("memory")

    async def engage_cluster(self, name: str) -> None:
        self._break(name)

    def _break(self, what: str) -> None:
        self.called.append(what)
        raise RuntimeError


async def test_no_part_of_a_resync_delays_another() -> None:
    breaks, engine = Breaks(), Engine(cast(Client, None), None)
    parts = cast(Any, breaks)
    await engine._engage_cluster(parts, "east", asyncio.Semaphore())
    resync = asyncio.create_task(engine._resync(parts))
    await asyncio.sleep(0)
    assert breaks.called == ["east", "everything", "memory"] and not resync.done(), "it waits for the next one"
    resync.cancel()
    await asyncio.gather(resync, return_exceptions=True)
