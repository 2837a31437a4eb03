"""Bounds how many request bodies are read at once, and for how long."""

import asyncio

from aiohttp import web

from adapter.shell.http.connections import peer_of
from adapter.shell.http.fair_places import FairPlaces


class UploadLimiter:
    """Reads request bodies; beyond the limit the newest request replaces the oldest of the peer with most."""

    def __init__(self, most: int, seconds: float) -> None:
        self._places, self._seconds = FairPlaces(most), seconds

    async def read_body(self, request: web.Request) -> bytes:
        """The whole body; raises TimeoutError or HTTPRequestEntityTooLarge."""
        async with asyncio.timeout(self._seconds) as deadline:
            place = self._places.take(peer_of(request), lambda: expire(deadline))
            try:
                return await request.read()
            finally:
                self._places.release(place)


def expire(deadline: asyncio.Timeout) -> None:
    """Let a block time out now."""
    if not deadline.expired():
        deadline.reschedule(0.0)  # in the past: it expires now
