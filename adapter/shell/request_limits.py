"""Bounds how many request bodies are read at once, and for how long.

It knows nothing of their content. The server bounds the size of one body by aiohttp's `client_max_size`.
"""

import asyncio

from aiohttp import web


class UploadLimiter:
    """Reads request bodies; when too many are being read, the oldest is aborted for the newest."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._deadlines: dict[asyncio.Timeout, None] = {}  # the oldest first

    async def read_body(self, request: web.Request) -> bytes:
        """The whole body; raises TimeoutError or HTTPRequestEntityTooLarge."""
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
            oldest.reschedule(0.0)  # in the past: it expires now
