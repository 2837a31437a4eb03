"""Admits one plan at a time, so that no two gangs are promised the same capacity.

The plan that is first in scheduling order and the next namespace's plan that has waited longest are admitted
alternately. A thousand plans that find no capacity take half a minute; capacity freed meanwhile is for the first gang,
which is enqueued behind all others. Where capacity comes and goes, the first gangs return all the time; the last gang
still gets its turn. Namespaces take turns, so a gang waits for at most two plans for each other namespace that waits,
and for those of its own: a crowd of one tenant delays no other. The order does not change a plan's result
(shell/planning/plans.py).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapter.planning.ordering import OrderKey


@dataclass(eq=False, slots=True)
class _WaitingPlan:
    order_key: OrderKey
    admission: asyncio.Future[None]

    @property
    def namespace(self) -> str:
        return self.order_key[-1][0]


class PlanQueue:
    def __init__(self) -> None:
        self._busy = False
        # By namespace: the first one is next. Those of one namespace are in order of arrival.
        self._waiting_plans: dict[str, list[_WaitingPlan]] = {}
        self._chosen_by_order = False

    @asynccontextmanager
    async def admit(self, order_key: OrderKey) -> AsyncIterator[None]:
        if self._busy:
            await self._wait_for_admission(order_key)
        self._busy = True
        try:
            yield
        finally:
            self._admit_next()

    async def _wait_for_admission(self, order_key: OrderKey) -> None:
        waiting = _WaitingPlan(order_key, asyncio.get_running_loop().create_future())
        self._waiting_plans.setdefault(waiting.namespace, []).append(waiting)
        try:
            await waiting.admission
        except asyncio.CancelledError:
            if waiting in self._waiting_plans.get(waiting.namespace, ()):
                self._remove(waiting)
            else:  # admitted, but does not run
                self._admit_next()
            raise

    def _remove(self, plan: _WaitingPlan) -> None:
        plans = self._waiting_plans[plan.namespace]
        plans.remove(plan)
        if not plans:
            del self._waiting_plans[plan.namespace]

    def _admit_next(self) -> None:
        # A cancelled waiter that has not run since is still listed.
        waiting_plans = [
            plan for plans in self._waiting_plans.values() for plan in plans if not plan.admission.cancelled()
        ]
        self._busy, self._chosen_by_order = bool(waiting_plans), not self._chosen_by_order
        if not waiting_plans:
            return
        chosen = min(waiting_plans, key=lambda plan: plan.order_key) if self._chosen_by_order else waiting_plans[0]
        if not self._chosen_by_order:  # its namespace is the last one now
            self._waiting_plans[chosen.namespace] = self._waiting_plans.pop(chosen.namespace)
        self._remove(chosen)
        chosen.admission.set_result(None)
