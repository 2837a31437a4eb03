"""Who of those that want a plan is planned next? One at a time, so that no two gangs are promised the same room.

Whoever comes first in turn, and whoever has waited here for longest, alternately. For a thousand that are being told that nothing fits
take half a minute, and room that comes free meanwhile is for the first of them, who was told already and comes back behind all others.
And where room comes and goes all the time the first ones are back all the time, and the last one is to be told as well: it waits for no
more than two plans for each that was before it. In whatever order they are planned, each finds the same (shell/planning/plans.py).
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


class PlanQueue:
    """Lets in one at a time."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting_plans: list[_WaitingPlan] = []  # in the order in which they came
        self._chosen_by_order = False  # how the last one was chosen

    @asynccontextmanager
    async def admit(self, order_key: OrderKey) -> AsyncIterator[None]:
        """While this lasts nobody else is in."""
        if self._busy:
            await self._wait_for_admission(order_key)
        self._busy = True
        try:
            yield
        finally:
            self._admit_next()

    async def _wait_for_admission(self, order_key: OrderKey) -> None:
        me = _WaitingPlan(order_key, asyncio.get_running_loop().create_future())
        self._waiting_plans.append(me)
        try:
            await me.admission
        except asyncio.CancelledError:
            if me in self._waiting_plans:
                self._waiting_plans.remove(me)
            else:  # it was called, and never comes
                self._admit_next()
            raise

    def _admit_next(self) -> None:
        there = [
            one for one in self._waiting_plans if not one.admission.cancelled()
        ]  # who was cancelled has not run since
        self._busy, self._chosen_by_order = bool(there), not self._chosen_by_order
        if there:
            chosen = min(there, key=lambda one: one.order_key) if self._chosen_by_order else there[0]
            self._waiting_plans.remove(chosen)
            chosen.admission.set_result(None)
