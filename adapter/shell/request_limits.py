"""How is what anybody may send to a server of ours taken in: in a bounded time and space?

It knows nothing of what is sent. How large one of them may be, aiohttp is told by who serves (`client_max_size`).
"""

import asyncio

from aiohttp import web


class Uploads:
    """Takes in what is sent; when too many are on their way the oldest of them is given up for the newest."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._running: dict[asyncio.Timeout, None] = {}  # the oldest first

    async def read(self, request: web.Request) -> bytes:
        """What was sent, whole; raises TimeoutError, or HTTPRequestEntityTooLarge."""
        async with asyncio.timeout(self._seconds) as deadline:
            if len(self._running) >= self._most:
                self._give_up(next(iter(self._running)))
            self._running[deadline] = None
            try:
                return await request.read()
            finally:
                self._running.pop(deadline, None)

    def _give_up(self, oldest: asyncio.Timeout) -> None:
        del self._running[oldest]
        if not oldest.expired():
            oldest.reschedule(0.0)  # long ago
