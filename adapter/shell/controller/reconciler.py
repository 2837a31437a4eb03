"""What is a look at a key: observe, decide, execute, and say when to look again unless something changes?

Keys: a gang (Workload), a worker pod (with its copies), a Service, a WorkerCluster, a DispatchPolicy, an AdmissionCheck, a ClusterQueue, an
anchor. What to do is recomputed from the stores each time. Actions on different clusters do not wait for each other, so a cluster that hangs delays
nobody else. A plan waits for those before it, so whether it is wanted, and of what, is decided once more when its turn has come.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from adapter.actions import Action, DryRunPod, EmitEvent, Plan, RequeueAfter, Reserve, describe, target_cluster
from adapter.gang import lifecycle
from adapter.objects.unstructured import Key
from adapter.objects.workload import Workload
from adapter.shell import metrics
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.controller import measurements
from adapter.shell.controller.enqueue import ANCHOR, CHECK, CLUSTER, GANG, POD, POLICY, SERVICE, QueueKey
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
from adapter.shell.write.execute import Executor
from adapter.shell.write.quotas import QuotaAggregator
from adapter.worker import dispatch, endpoint_objects

log = logging.getLogger(__name__)
# The shortest time after which a key is looked at again.
SHORTEST_REQUEUE_SECONDS = 0.05
# Shares of single workers that are asked for at a time in one cluster: a quarter of what a client sends there in parallel.
SINGLE_SHARE_LANES = PARALLEL_REQUESTS // 4


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Looks at keys, for a process that leads."""

    manager: ManagerCache
    fleet: Fleet
    gang_observer: GangObserver
    worker_observer: WorkerObserver
    service_observer: ServiceObserver
    assignments: PendingAssignments
    executor: Executor
    condition_writer: ConditionWriter
    quota_aggregator: QuotaAggregator
    event_handlers: EventHandlers
    _plan_queue: PlanQueue = field(default_factory=PlanQueue)

    async def reconcile(self, key: QueueKey) -> float | None:
        """Look at a key; returns the seconds after which to look again, if nothing changes. Raises Postpone for trouble that
        is not ours."""
        what, namespace, name = key
        metrics.RECONCILES.labels(what).inc()
        log.debug("looking at %s %s/%s", what, namespace, name)
        try:
            return await self._dispatch_key(what, namespace, name)
        except (ApiError, Unreachable) as trouble:
            if what == POD:
                self.event_handlers.on_pod_refused((namespace, name))
            raise Postpone(str(trouble)) from None

    async def _dispatch_key(self, kind: str, namespace: str, name: str) -> float | None:
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
        if self.manager.unreachable_reason:  # meanwhile
            raise Postpone(self.manager.unreachable_reason)
        now = datetime.now(UTC)
        actions = lifecycle.decide(self.gang_observer.facts(key, now), now)
        after = await self._execute_actions(key, actions)
        # A plan for which clusters are to be asked first wrote nothing, so nothing wakes its gang.
        planned = any(isinstance(action, Plan) for action in actions)
        return 0.0 if planned and self.gang_observer.waits_for_answers(key) else after

    async def _reconcile_pod(self, key: Key) -> float | None:
        # No await between the facts and the claim: else two pods could be given one slot.
        actions = dispatch.decide(self.worker_observer.facts(key), datetime.now(UTC))
        self.assignments.add(actions)
        try:
            return await self._execute_actions(key, actions)
        finally:
            self.assignments.remove(actions)

    async def _execute_actions(self, key: Key, actions: Sequence[Action]) -> float | None:
        """Do the actions in order, those of different clusters side by side; the first trouble is raised at the end."""
        try:
            found = (self._execute_in_order(key, part) for part in action_lanes(actions).values())
            done = await asyncio.gather(*found, return_exceptions=True)
        finally:
            self.event_handlers.after_actions(actions)
        for trouble in done:
            if isinstance(trouble, BaseException):
                raise trouble
        if not all(done):
            return SHORTEST_REQUEUE_SECONDS
        waits = [action.delay.total_seconds() for action in actions if isinstance(action, RequeueAfter)]
        return max(min(waits), SHORTEST_REQUEUE_SECONDS) if waits else None

    async def _execute_in_order(self, key: Key, actions: Sequence[Action]) -> bool:
        """Do actions one after the other; False when a plan is not wanted any more: something else is to be decided."""
        wanted = True
        for action in actions:
            if not isinstance(action, RequeueAfter | EmitEvent):  # what is said again every time is not done every time
                log.info("%s/%s %s", *key, describe(action))
            if isinstance(action, Plan):
                wanted = await self._make_plan(key, action.workload) and wanted
            else:
                await self.executor.execute(action)
                measurements.count_action(action, target_cluster(action), datetime.now(UTC))
        return wanted

    async def _make_plan(self, key: Key, workload: Workload) -> bool:
        """Make the plan that a gang wants when its turn has come; False when it wants none any more.

        Before it there may be hundreds, and meanwhile its Workload may have been evicted, another Placement have been written, a
        cluster be drained. What is decided now is done now, so nobody's news can put off a plan for ever.
        """
        async with self._plan_queue.admit(order_key(self.manager, aged_workload(self.manager, workload))):
            if self.manager.unreachable_reason:
                raise Postpone(self.manager.unreachable_reason)
            now = datetime.now(UTC)
            decided = lifecycle.decide(self.gang_observer.facts(key, now), now)
            plan = next((action for action in decided if isinstance(action, Plan)), None)
            if plan is None:
                log.info("%s/%s is not to be planned any more", *key)
                return False
            await self.executor.execute(plan)
        measurements.count_action(plan, target_cluster(plan), datetime.now(UTC))
        return True


def action_lanes(actions: Iterable[Action]) -> dict[tuple[str, str], list[Action]]:
    """What is done one after the other, and beside all else: by cluster, and by what needs no order beside the others there."""
    found: dict[tuple[str, str], list[Action]] = defaultdict(list)
    single = Counter[str]()  # shares of single workers by cluster
    for action in actions:
        cluster = target_cluster(action)
        found[cluster, _lane_name(action, single[cluster])].append(action)
        single[cluster] += isinstance(action, Reserve) and action.share.single_worker
    return found


def _lane_name(action: Action, number: int) -> str:
    """What needs no order beside the other actions on its cluster: what that is asked of each worker group, so that a webhook which hangs
    is waited for once; and the shares of single workers, of which there may be hundreds, by their `number`."""
    match action:
        case DryRunPod():
            return action.podset.name
        case Reserve() if action.share.single_worker:
            return str(number % SINGLE_SHARE_LANES)
        case _:
            return ""
