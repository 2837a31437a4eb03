"""Reconciles a key: observe, decide, execute, and return the delay of a requeue.

Actions on different clusters do not wait for each other. A plan waits for the plans before it. When it is admitted, it
is decided again whether the plan is wanted.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from adapter.actions import Action, DryRunPod, EmitEvent, Plan, RequeueAfter, Reserve, describe, target_cluster
from adapter.gang import lifecycle
from adapter.objects.unstructured import Key
from adapter.objects.workload import Workload
from adapter.shell import metrics
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.controller import measurements
from adapter.shell.controller.enqueue import (
    ANCHOR,
    CHECK,
    CLUSTER,
    GANG,
    NAMESPACE,
    POD,
    POLICY,
    SERVICE,
    WAKE,
    QueueKey,
)
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.plan_queue import PlanQueue
from adapter.shell.controller.workqueue import Postpone
from adapter.shell.kube.client import PARALLEL_REQUESTS, ApiError, Unreachable
from adapter.shell.observe.gang_observer import GangObserver
from adapter.shell.observe.planning_order import aged_workload, order_key
from adapter.shell.observe.service_observer import ServiceObserver
from adapter.shell.observe.slots import PendingAssignments
from adapter.shell.observe.worker_observer import WorkerObserver
from adapter.shell.write import anchors
from adapter.shell.write.conditions import ConditionWriter
from adapter.shell.write.ended_gangs import EndedGangs
from adapter.shell.write.execute import Executor
from adapter.shell.write.quotas import QuotaAggregator
from adapter.worker import dispatch, endpoint_objects

log = logging.getLogger(__name__)
SHORTEST_REQUEUE_SECONDS = 0.05
# The lanes of single-worker and borrowing shares in one cluster: a quarter of a client's parallel requests.
SINGLE_SHARE_LANES = PARALLEL_REQUESTS // 4


@dataclass(frozen=True, slots=True)
class Reconciler:
    manager: ManagerCache
    fleet: Fleet
    gang_observer: GangObserver
    worker_observer: WorkerObserver
    service_observer: ServiceObserver
    assignments: PendingAssignments
    executor: Executor
    condition_writer: ConditionWriter
    quota_aggregator: QuotaAggregator
    ended_gangs: EndedGangs
    event_handlers: EventHandlers
    _plan_queue: PlanQueue = field(default_factory=PlanQueue)

    async def reconcile(self, key: QueueKey) -> float | None:
        """Reconcile a key; returns the delay of its requeue. Raises Postpone when an API server fails."""
        kind, namespace, name = key
        metrics.RECONCILES.labels(kind).inc()
        log.debug("looking at %s %s/%s", kind, namespace, name)
        if kind == WAKE:
            return self.event_handlers.wake_gangs("waiting" if name == "waiting" else "outdated")
        try:
            return await self._dispatch_key(kind, namespace, name)
        except (ApiError, Unreachable) as trouble:
            if kind == POD:
                self.event_handlers.on_pod_refused((namespace, name))
            raise Postpone(str(trouble)) from None

    async def _dispatch_key(self, kind: str, namespace: str, name: str) -> float | None:
        if kind == NAMESPACE:
            return await self.ended_gangs.reconcile_namespace(namespace)
        if not self.manager.namespace_shares.is_complete(namespace):
            return None  # its keys are enqueued once it is complete
        if kind == CLUSTER:
            return await self.condition_writer.reconcile_cluster(name)
        if kind == ANCHOR:
            cluster, _, share = name.partition("/")
            return await anchors.reconcile_anchor(self.fleet.caches().get(cluster), namespace, share, self.manager)
        if kind == GANG:
            return await self._reconcile_gang((namespace, name))
        if kind == POD:
            return await self._reconcile_pod((namespace, name))
        if kind == SERVICE:
            return await self._execute_actions(
                (namespace, name), endpoint_objects.decide(self.service_observer.facts((namespace, name)))
            )
        if kind == POLICY:
            await self.condition_writer.reconcile_policy(name)
        elif kind == CHECK:
            return await self.condition_writer.reconcile_check(name)
        else:
            await self.quota_aggregator.reconcile_queue(name)
        return None

    async def _reconcile_gang(self, key: Key) -> float | None:
        if await self.gang_observer.read_uncached(key):
            self.event_handlers.on_order_changed()
        if self.manager.unreachable_reason:  # it may have become so during the reads
            raise Postpone(self.manager.unreachable_reason)
        if not self.manager.namespace_shares.is_complete(key[0]):
            return None
        now = self.manager.clock.now()
        actions = lifecycle.decide(self.gang_observer.facts(key, now), now)
        after = await self._execute_actions(key, actions)
        # A plan that must wait for dry runs wrote nothing, so no event enqueues its gang.
        has_plan = any(isinstance(action, Plan) for action in actions)
        return 0.0 if has_plan and self.gang_observer.waits_for_answers(key) else after

    async def _reconcile_pod(self, key: Key) -> float | None:
        # No await between facts and assignment: otherwise two pods could get one slot.
        actions = dispatch.decide(self.worker_observer.facts(key), self.manager.clock.now())
        self.assignments.add(actions)
        try:
            return await self._execute_actions(key, actions)
        finally:
            self.assignments.remove(actions)

    async def _execute_actions(self, key: Key, actions: Sequence[Action]) -> float | None:
        try:
            lanes = (self._execute_in_order(key, part) for part in action_lanes(actions).values())
            results = await asyncio.gather(*lanes, return_exceptions=True)
        finally:
            self.event_handlers.after_actions(actions)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if not all(results):
            return SHORTEST_REQUEUE_SECONDS
        delays = [action.delay.total_seconds() for action in actions if isinstance(action, RequeueAfter)]
        return max(min(delays), SHORTEST_REQUEUE_SECONDS) if delays else None

    async def _execute_in_order(self, key: Key, actions: Sequence[Action]) -> bool:
        """Execute actions one by one; False if a plan is not wanted any more and the key must be decided again."""
        is_wanted = True
        for action in actions:
            # These two are repeated at every reconcile.
            if not isinstance(action, RequeueAfter | EmitEvent):
                log.info("%s/%s %s", *key, describe(action))
            if isinstance(action, Plan):
                is_wanted = await self._make_plan(key, action.workload) and is_wanted
            else:
                await self.executor.execute(action)
                measurements.count_action(action, target_cluster(action), self.manager.clock.now())
        return is_wanted

    async def _make_plan(self, key: Key, workload: Workload) -> bool:
        """Make a gang's plan once it is admitted; False if the gang wants none any more.

        While the plan waits, the Workload may be evicted, another Placement written, or a cluster drained. Decide and
        execute in one step, so that no stream of changes delays the plan for ever.
        """
        async with self._plan_queue.admit(order_key(self.manager, aged_workload(self.manager, workload))):
            if self.manager.unreachable_reason:
                raise Postpone(self.manager.unreachable_reason)
            if not self.manager.namespace_shares.is_complete(key[0]):
                return False
            now = self.manager.clock.now()
            actions = lifecycle.decide(self.gang_observer.facts(key, now), now)
            plan = next((action for action in actions if isinstance(action, Plan)), None)
            if plan is None:
                log.info("%s/%s is not to be planned any more", *key)
                return False
            await self.executor.execute(plan)
        measurements.count_action(plan, target_cluster(plan), self.manager.clock.now())
        return True


def action_lanes(actions: Iterable[Action]) -> dict[tuple[str, str], list[Action]]:
    """Actions by cluster and lane: a lane runs in order, lanes run in parallel."""
    lanes: dict[tuple[str, str], list[Action]] = defaultdict(list)
    small_shares = Counter[str]()  # by cluster
    for action in actions:
        cluster = target_cluster(action)
        lanes[cluster, _lane_name(action, small_shares[cluster])].append(action)
        small_shares[cluster] += isinstance(action, Reserve) and action.share.has_own_round
    return lanes


def _lane_name(action: Action, number: int) -> str:
    """An action's lane within its cluster, empty for the common lane.

    Dry runs have a lane for each worker group, so a hanging webhook is waited for once per group. Single-worker and
    borrowing shares have several lanes, because there may be hundreds of them.
    """
    match action:
        case DryRunPod():
            return action.podset.name
        case Reserve() if action.share.has_own_round:
            return str(number % SINGLE_SHARE_LANES)
        case _:
            return ""
