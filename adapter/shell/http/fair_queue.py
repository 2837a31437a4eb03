"""Turns for clients that wait: the client whose turns took the least time is next.

So a client that asks much waits for itself, and a client that asks little waits for one turn of each other client.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

# How many clients are remembered. Clients that wait are remembered in any case, and connections bound their number.
MOST_REMEMBERED = 1024


class FairQueue:
    """`parallel` turns at once; after a turn, `rest_factor` times its seconds pass before the next one."""

    def __init__(self, parallel: int = 1, rest_factor: float = 0.0, *, newest_first: bool = False) -> None:
        """`newest_first`: the order of turns of one client."""
        self._free, self._rest_factor, self._newest_first = parallel, rest_factor, newest_first
        self._waiting: dict[Hashable, dict[asyncio.Future[None], None]] = {}
        self._used_seconds: dict[Hashable, float] = {}
        self._least_used = 0.0  # what a client has used that has not waited before
        self._rest_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, client: Hashable, seconds: float = 0.0) -> AsyncIterator[None]:
        """A turn, as the block; it counts as `seconds` at least."""
        await self._wait_turn(client)
        self._count_seconds(client, seconds)
        started = time.monotonic()
        try:
            yield
        finally:
            self._end_turn(client, seconds, time.monotonic() - started)

    async def _wait_turn(self, client: Hashable) -> None:
        if len(self._used_seconds) >= MOST_REMEMBERED:
            self._used_seconds = {name: used for name, used in self._used_seconds.items() if name in self._waiting}
        self._used_seconds[client] = max(self._used_seconds.get(client, 0.0), self._least_used)
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, {})[future] = None
        self._start_turns()
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._stop_waiting(client, future)
            else:  # the turn began meanwhile
                self._end_turn(client, 0.0, 0.0)
            raise

    def _stop_waiting(self, client: Hashable, future: asyncio.Future[None]) -> None:
        futures = self._waiting.get(client, {})
        futures.pop(future, None)
        if not futures:
            self._waiting.pop(client, None)

    def _start_turns(self) -> None:
        while self._waiting and self._free:
            if (rest := self._rest_until - time.monotonic()) > 0:
                self._timer = self._timer or asyncio.get_running_loop().call_later(rest, self._end_rest)
                return
            client = min(self._waiting, key=self._used_seconds.__getitem__)
            futures = self._waiting[client]
            future = next(reversed(futures) if self._newest_first else iter(futures))
            self._stop_waiting(client, future)
            if future.cancelled():
                continue
            self._least_used = max(self._least_used, self._used_seconds[client])
            self._free -= 1
            future.set_result(None)

    def _end_rest(self) -> None:
        self._timer = None
        self._start_turns()

    def _end_turn(self, client: Hashable, counted: float, took: float) -> None:
        seconds = max(counted, took)
        self._count_seconds(client, seconds - counted)
        self._rest_until = max(self._rest_until, time.monotonic() + seconds - took + self._rest_factor * seconds)
        self._free += 1
        self._start_turns()

    def _count_seconds(self, client: Hashable, seconds: float) -> None:
        self._used_seconds[client] = self._used_seconds.get(client, self._least_used) + seconds
