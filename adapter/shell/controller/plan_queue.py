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

from adapter.planning.ordering import Turn


@dataclass(eq=False, slots=True)
class _Waiting:
    turn: Turn
    called: asyncio.Future[None]


class PlanQueue:
    """Lets in one at a time."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: list[_Waiting] = []  # in the order in which they came
        self._by_turn = False  # how the last one was chosen

    @asynccontextmanager
    async def admitted(self, turn: Turn) -> AsyncIterator[None]:
        """While this lasts nobody else is in."""
        if self._busy:
            await self._wait(turn)
        self._busy = True
        try:
            yield
        finally:
            self._next()

    async def _wait(self, turn: Turn) -> None:
        me = _Waiting(turn, asyncio.get_running_loop().create_future())
        self._waiting.append(me)
        try:
            await me.called
        except asyncio.CancelledError:
            if me in self._waiting:
                self._waiting.remove(me)
            else:  # it was called, and never comes
                self._next()
            raise

    def _next(self) -> None:
        there = [one for one in self._waiting if not one.called.cancelled()]  # who was cancelled has not run since
        self._busy, self._by_turn = bool(there), not self._by_turn
        if there:
            chosen = min(there, key=lambda one: one.turn) if self._by_turn else there[0]
            self._waiting.remove(chosen)
            chosen.called.set_result(None)
