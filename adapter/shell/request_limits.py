"""How is what anybody may send to a server of ours taken in: in a bounded time and space?

It knows nothing of what is sent. How large one of them may be, aiohttp is told by who serves (`client_max_size`).
"""

import asyncio

from aiohttp import web


class UploadLimiter:
    """Takes in what is sent; when too many are on their way the oldest of them is given up for the newest."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._deadlines: dict[asyncio.Timeout, None] = {}  # the oldest first

    async def read_body(self, request: web.Request) -> bytes:
        """What was sent, whole; raises TimeoutError, or HTTPRequestEntityTooLarge."""
        async with asyncio.timeout(self._seconds) as deadline:
            if len(self._deadlines) >= self._most:
                self._abort_upload(next(iter(self._deadlines)))
            self._deadlines[deadline] = None
            try:
                return await request.read()
            finally:
                self._deadlines.pop(deadline, None)

    def _abort_upload(self, oldest: asyncio.Timeout) -> None:
        del self._deadlines[oldest]
        if not oldest.expired():
            oldest.reschedule(0.0)  # long ago
