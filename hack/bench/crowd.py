"""Measures what a crowd of waiting gangs costs: plans and milliseconds of CPU time a gang. It needs no cluster.

The controller's own reconcilers, plans and stores run over API servers in memory. A worker cluster changes, and every
gang that this enqueues is reconciled in order until the queue is empty. Counts are the same on every machine. A crowd
is doubled, so that a quadratic cost shows.
"""

import argparse
import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from prometheus_client import REGISTRY

from adapter.objects.unstructured import Raw
from adapter.shell.controller import wiring
from adapter.shell.controller.enqueue import GANG, QueueKey
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.reconciler import Reconciler
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.shell.observe.slots import PendingAssignments
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.rate_limit import TokenBucket
from adapter.shell.write.copies import ObjectCopier
from adapter.shell.write.events import EventRecorder
from adapter.shell.write.relay_writer import RelayWriter
from hack.bench import crowdinput, promises
from hack.bench.crowdinput import Crowd, Size
from hack.bench.promises import Found
from hack.lab.base.progress import LabError, step
from hack.testbed import figures

NAME = "crowd"
HELP = "gangs that wait for room: plans and milliseconds for each when something changes"
_REPEATS = 3  # the best of so many: disturbances only add
_ROUNDS = 20  # of reconciles that enqueue others: more would have no end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its size."""
    usual = Size()
    parser.add_argument("--crowd", type=int, default=usual.gangs, help="gangs that wait (crowd; default %(default)s)")
    parser.add_argument(
        "--crowd-clusters", type=int, default=usual.clusters, help="worker clusters (crowd; default %(default)s)"
    )
    parser.add_argument(
        "--crowd-queues", type=int, default=usual.queues, help="queues in each (crowd; default %(default)s)"
    )


def run(asked: argparse.Namespace) -> Found:
    """Measure, print a table, and return the line for programs, and what is judged."""
    size = Size(asked.crowd, asked.crowd_clusters, asked.crowd_queues)
    with step(f"crowd: {size.gangs} gangs over {size.clusters} clusters, {size.queues} queues in each"):
        found = asyncio.run(measured(size))
    with step(f"crowd: half of them, {size.gangs // 2}"):
        half = asyncio.run(measured(replace(size, gangs=size.gangs // 2)))
    rows = [(what, one.plans, one.ms, one.ms / size.gangs) for what, one in found.items()]
    print("\n" + figures.table(("what changes", "plans", "ms", "ms a gang"), rows))
    values: dict[str, figures.Value] = {
        "gangs": size.gangs,
        "clusters": size.clusters,
        "queues": size.queues,
        "gang_ms": found[_OWN].ms / size.gangs,
        "gang_plans": found[_OWN].plans / size.gangs,
        "others_plans": found[_OTHER].plans,
        "others_ms": found[_OTHER].ms / size.gangs,
        "new_ms": found[_NEW].ms,
        "doubled": figures.ratio(found[_OWN].ms, half[_OWN].ms),
    }
    values["met"] = str(promises.met(values, promises.CROWD)).lower()
    about = f"{size.gangs} gangs, {size.clusters} clusters, {size.queues} queues"
    return Found([figures.line(NAME, values)], promises.rows(NAME, about, values, promises.CROWD))


_FIRST, _OWN, _OTHER, _NEW = "they come", "more is used in their tree", "in another tree", "one more comes"


@dataclass(frozen=True, slots=True)
class Cost:
    """How often was planned, and milliseconds of CPU time in all."""

    plans: float
    ms: float


class _Queue:
    """Stands in for the work queue: records the enqueued gangs in order."""

    def __init__(self) -> None:
        self.woken: dict[QueueKey, None] = {}

    def add(self, key: QueueKey, delay: float = 0.0) -> None:
        self.woken[key] = None


class Stand:
    """The controller's parts over a crowd."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd, self.queue, self._nobody = crowd, _Queue(), cast(Any, None)
        manager, fleet, memory, assignments = crowd.manager, crowd.fleet, TransientState(), PendingAssignments()
        facts = wiring.build_observers(
            manager, fleet, assignments, ClusterLosses(manager, fleet), ProxyHealth(manager, fleet), memory, "mgr"
        )
        planning = wiring.build_planner(manager, fleet, facts, memory)
        copier, announcer = (
            ObjectCopier(manager, fleet, facts.sources, facts.worker_observer),
            EventRecorder(manager.client),
        )
        self.waker = EventHandlers(cast(WorkQueue[QueueKey], self.queue), manager, fleet, facts.replan_check)
        self.waker._enqueue._wake_limit = TokenBucket(1, 0.0)  # each change is measured, also those of one moment
        self.looks = Reconciler(
            manager=manager,
            fleet=fleet,
            gang_observer=facts.gang_observer,
            worker_observer=facts.worker_observer,
            service_observer=facts.service_observer,
            assignments=assignments,
            executor=wiring.build_executor(
                manager, fleet, facts, planning, announcer, memory, copier, RelayWriter(manager, facts.policies)
            ),
            condition_writer=self._nobody,
            quota_aggregator=self._nobody,
            ended_gangs=self._nobody,
            event_handlers=self.waker,
        )
        for store, handle in self.waker.store_handlers():
            store.set_handler(handle)

    async def after(self, change: Callable[[], None]) -> Cost:
        """The cost of reconciling all gangs that a change enqueues, directly or through others."""
        plans, began = _plans(), time.process_time()
        change()
        for _ in range(_ROUNDS):
            gangs = [(namespace, name) for what, namespace, name in self.queue.woken if what == GANG]
            self.queue.woken.clear()
            if not gangs:
                return Cost(_plans() - plans, (time.process_time() - began) * 1000)
            for namespace, name in gangs:
                await self.looks.reconcile((GANG, namespace, name))
        raise LabError(f"Gangs wake one another without an end after {change}.")

    def come(self) -> None:
        """Nothing has been heard of them yet."""
        for raw in self.crowd.manager.workloads:
            self.queue.add((GANG, crowdinput.NAMESPACE, raw["metadata"]["name"]))

    def one_more(self) -> None:
        """A new gang arrives."""
        size, number = self.crowd.size, len(self.crowd.manager.workloads)
        work = crowdinput.gang(size, number)
        crowdinput.hold(self.crowd.api, work)
        self.crowd.manager.ray_jobs.put(crowdinput.job(number))
        self.crowd.manager.workloads.put(work)

    def uses(self, queue: str, cores: int) -> None:
        """Another amount is in use of a queue of the first cluster."""
        member = next(iter(self.crowd.fleet.caches().values()))
        before = member.cluster_queues.by_name(queue) or {}
        after: Raw = crowdinput.used(before, cores)
        member.cluster_queues.put(after)
        self.waker.on_capacity(member.name, before, after)


async def measured(size: Size) -> dict[str, Cost]:
    """The cost of each kind of change, in the order in which they happen."""
    stand = Stand(crowdinput.make(size))
    found = {_FIRST: await stand.after(stand.come)}
    for what, queue in (_OWN, "team-1"), (_OTHER, crowdinput.APART):
        costs = [await stand.after(functools.partial(stand.uses, queue, 1 + n % 2)) for n in range(_REPEATS)]
        found[what] = min(costs, key=lambda cost: cost.ms)
    costs = [await stand.after(stand.one_more) for _ in range(_REPEATS)]
    return {**found, _NEW: min(costs, key=lambda cost: cost.ms)}


def _plans() -> float:
    """How many plans this process has made."""
    return REGISTRY.get_sample_value("rayspan_plan_duration_seconds_count") or 0.0
