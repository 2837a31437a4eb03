"""What is a look at a key: observe, decide, execute, and say when to look again unless something changes?

Keys: a gang (Workload), a worker pod (with its copies), a WorkerCluster, an AdmissionCheck, a ClusterQueue, an anchor. What to do
is recomputed from the stores each time. Actions on different clusters do not wait for each other, so a cluster that hangs delays
nobody else.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from adapter.actions import Action, LookAgain, Plan, Say, cluster_of, describe
from adapter.gang import lifecycle
from adapter.objects.raw import Key
from adapter.shell import metrics
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager import Manager
from adapter.shell.controller import measure
from adapter.shell.controller.handlers import Waker
from adapter.shell.controller.keys import ANCHOR, CHECK, CLUSTER, GANG, POD, QueueKey
from adapter.shell.controller.workqueue import Postpone
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.gangs import Gangs
from adapter.shell.observe.slots import Claims
from adapter.shell.observe.workers import Workers
from adapter.shell.write import anchors
from adapter.shell.write.conditions import Conditions
from adapter.shell.write.execute import Executor
from adapter.shell.write.quotas import Aggregator
from adapter.worker import dispatch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Looks:
    """Looks at keys, for a process that leads."""

    manager: Manager
    fleet: Fleet
    gangs: Gangs
    workers: Workers
    claims: Claims
    executor: Executor
    conditions: Conditions
    aggregator: Aggregator
    waker: Waker
    _one_plan: asyncio.Lock = field(default_factory=asyncio.Lock)  # at a time: the next one sees what it promised

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
        await (self.conditions.check(name) if what == CHECK else self.aggregator.look(name))
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
        self.claims.take(actions)
        try:
            return await self._execute(key, actions)
        finally:
            self.claims.release(actions)

    async def _execute(self, key: Key, actions: Sequence[Action]) -> float | None:
        """Do the actions in order, those of different clusters side by side; the first trouble is raised at the end."""
        parts: dict[str, list[Action]] = defaultdict(list)
        for action in actions:
            parts[cluster_of(action)].append(action)
        try:
            done = await asyncio.gather(*(self._in_order(key, part) for part in parts.values()), return_exceptions=True)
        finally:
            self.waker.tried(actions)
        for trouble in done:
            if isinstance(trouble, BaseException):
                raise trouble
        waits = [action.after.total_seconds() for action in actions if isinstance(action, LookAgain)]
        return max(min(waits), 0.05) if waits else None

    async def _in_order(self, key: Key, actions: Sequence[Action]) -> None:
        for action in actions:
            if not isinstance(action, LookAgain | Say):  # what is said again every time is not done every time
                log.info("%s/%s %s", *key, describe(action))
            if isinstance(action, Plan):
                async with self._one_plan:
                    await self.executor.do(action)
            else:
                await self.executor.do(action)
            measure.done(action, cluster_of(action), datetime.now(UTC))
