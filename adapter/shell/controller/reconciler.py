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

from adapter.actions import Action, LookAgain, Plan, Reserve, Say, TryCopy, cluster_of, describe
from adapter.gang import lifecycle
from adapter.objects.unstructured import Key
from adapter.objects.workload import Workload
from adapter.shell import metrics
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.controller import measurements
from adapter.shell.controller.enqueue import ANCHOR, CHECK, CLUSTER, GANG, POD, POLICY, SERVICE, QueueKey
from adapter.shell.controller.event_handlers import Waker
from adapter.shell.controller.plan_queue import PlanQueue
from adapter.shell.controller.workqueue import Postpone
from adapter.shell.kube.client import PARALLEL, ApiError, Unreachable
from adapter.shell.observe.gang_observer import Gangs
from adapter.shell.observe.planning_order import aged, turn
from adapter.shell.observe.service_observer import Services
from adapter.shell.observe.slots import PendingAssignments
from adapter.shell.observe.worker_observer import Workers
from adapter.shell.write import anchors
from adapter.shell.write.conditions import Conditions
from adapter.shell.write.execute import Executor
from adapter.shell.write.quotas import Aggregator
from adapter.worker import dispatch, endpoint_objects

log = logging.getLogger(__name__)
# The shortest time after which a key is looked at again.
SOONEST_SECONDS = 0.05
# Shares of single workers that are asked for at a time in one cluster: a quarter of what a client sends there in parallel.
LANES = PARALLEL // 4


@dataclass(frozen=True, slots=True)
class Looks:
    """Looks at keys, for a process that leads."""

    manager: Manager
    fleet: Fleet
    gangs: Gangs
    workers: Workers
    services: Services
    assignments: PendingAssignments
    executor: Executor
    conditions: Conditions
    aggregator: Aggregator
    waker: Waker
    _plans: PlanQueue = field(default_factory=PlanQueue)

    async def look(self, key: QueueKey) -> float | None:
        """Look at a key; returns the seconds after which to look again, if nothing changes. Raises Postpone for trouble that
        is not ours."""
        what, namespace, name = key
        metrics.LOOKS.labels(what).inc()
        log.debug("looking at %s %s/%s", what, namespace, name)
        try:
            return await self._at(what, namespace, name)
        except (ApiError, Unreachable) as trouble:
            if what == POD:
                self.waker.refused((namespace, name))
            raise Postpone(str(trouble)) from None

    async def _at(self, what: str, namespace: str, name: str) -> float | None:
        if what == CLUSTER:
            return await self.conditions.cluster(name)
        if what == ANCHOR:
            cluster, _, share = name.partition("/")
            return await anchors.look(self.fleet.members().get(cluster), namespace, share, self.manager)
        if what == GANG:
            return await self._gang((namespace, name))
        if what == POD:
            return await self._pod((namespace, name))
        if what == SERVICE:
            return await self._execute(
                (namespace, name), endpoint_objects.decide(self.services.facts((namespace, name)))
            )
        if what == POLICY:
            await self.conditions.policy(name)
        elif what == CHECK:
            return await self.conditions.check(name)
        else:
            await self.aggregator.look(name)
        return None

    async def _gang(self, key: Key) -> float | None:
        if await self.gangs.look(key):
            self.waker.turns()
        if self.manager.lost:  # meanwhile
            raise Postpone(self.manager.lost)
        now = datetime.now(UTC)
        actions = lifecycle.decide(self.gangs.facts(key, now), now)
        after = await self._execute(key, actions)
        # A plan for which clusters are to be asked first wrote nothing, so nothing wakes its gang.
        planned = any(isinstance(action, Plan) for action in actions)
        return 0.0 if planned and self.gangs.waits_for_answers(key) else after

    async def _pod(self, key: Key) -> float | None:
        # No await between the facts and the claim: else two pods could be given one slot.
        actions = dispatch.decide(self.workers.facts(key), datetime.now(UTC))
        self.assignments.add(actions)
        try:
            return await self._execute(key, actions)
        finally:
            self.assignments.remove(actions)

    async def _execute(self, key: Key, actions: Sequence[Action]) -> float | None:
        """Do the actions in order, those of different clusters side by side; the first trouble is raised at the end."""
        try:
            found = (self._in_order(key, part) for part in lanes(actions).values())
            done = await asyncio.gather(*found, return_exceptions=True)
        finally:
            self.waker.tried(actions)
        for trouble in done:
            if isinstance(trouble, BaseException):
                raise trouble
        if not all(done):
            return SOONEST_SECONDS
        waits = [action.after.total_seconds() for action in actions if isinstance(action, LookAgain)]
        return max(min(waits), SOONEST_SECONDS) if waits else None

    async def _in_order(self, key: Key, actions: Sequence[Action]) -> bool:
        """Do actions one after the other; False when a plan is not wanted any more: something else is to be decided."""
        wanted = True
        for action in actions:
            if not isinstance(action, LookAgain | Say):  # what is said again every time is not done every time
                log.info("%s/%s %s", *key, describe(action))
            if isinstance(action, Plan):
                wanted = await self._plan(key, action.workload) and wanted
            else:
                await self.executor.do(action)
                measurements.done(action, cluster_of(action), datetime.now(UTC))
        return wanted

    async def _plan(self, key: Key, work: Workload) -> bool:
        """Make the plan that a gang wants when its turn has come; False when it wants none any more.

        Before it there may be hundreds, and meanwhile its Workload may have been evicted, another Placement have been written, a
        cluster be drained. What is decided now is done now, so nobody's news can put off a plan for ever.
        """
        async with self._plans.admitted(turn(self.manager, aged(self.manager, work))):
            if self.manager.lost:
                raise Postpone(self.manager.lost)
            now = datetime.now(UTC)
            decided = lifecycle.decide(self.gangs.facts(key, now), now)
            plan = next((action for action in decided if isinstance(action, Plan)), None)
            if plan is None:
                log.info("%s/%s is not to be planned any more", *key)
                return False
            await self.executor.do(plan)
        measurements.done(plan, cluster_of(plan), datetime.now(UTC))
        return True


def lanes(actions: Iterable[Action]) -> dict[tuple[str, str], list[Action]]:
    """What is done one after the other, and beside all else: by cluster, and by what needs no order beside the others there."""
    found: dict[tuple[str, str], list[Action]] = defaultdict(list)
    single = Counter[str]()  # shares of single workers by cluster
    for action in actions:
        cluster = cluster_of(action)
        found[cluster, _lane(action, single[cluster])].append(action)
        single[cluster] += isinstance(action, Reserve) and action.share.single
    return found


def _lane(action: Action, number: int) -> str:
    """What needs no order beside the other actions on its cluster: what that is asked of each worker group, so that a webhook which hangs
    is waited for once; and the shares of single workers, of which there may be hundreds, by their `number`."""
    match action:
        case TryCopy():
            return action.podset.name
        case Reserve() if action.share.single:
            return str(number % LANES)
        case _:
            return ""
