"""One connection of a server: its place, and the deadline and size of a request's head.

aiohttp bounds one header and the number of headers, which together may be a megabyte, and gives a head no deadline.
"""

import asyncio
from typing import Any, Final

from aiohttp import web

from adapter.shell.http.fair_places import FairPlaces, Place

# From the connection, or from the first byte of a later request, to the end of the head.
HEAD_SECONDS: Final = 5.0
# An API server's proxy adds a few headers to those of kubectl, which are below 2 KiB.
MAX_HEAD_BYTES: Final = 16 * 1024
MAX_HEADERS, MAX_HEADER_BYTES, MAX_LINE_BYTES = 48, 8190, 4096
_PIECE_BYTES: Final = 4096  # a larger piece could have thousands of requests


class Connection(web.RequestHandler):
    """aiohttp's protocol for a connection that holds a place."""

    def __init__(self, server: web.Server, places: FairPlaces, place: Place, **options: Any) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            max_headers=MAX_HEADERS,
            max_field_size=MAX_HEADER_BYTES,
            max_line_size=MAX_LINE_BYTES,
            **options,
        )
        self._places, self.place = places, place
        self.is_verified = False
        self._has_request = False  # a whole head has come; before that, aiohttp may not have begun to wait for one
        self._head_bytes = 0
        self._head_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.place.give_up = self.abort
        self._start_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end_head()
        self._places.release(self.place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take the data in pieces, until a request is too many or its head is too long."""
        for start in range(0, len(data), _PIECE_BYTES):
            super().data_received(data[start : start + _PIECE_BYTES])
            if self.transport is None or not self._accept_head(min(_PIECE_BYTES, len(data) - start)):
                return
        if not data:  # aiohttp parses what it has stored
            super().data_received(data)

    def set_verified(self) -> None:
        """Give the place back: what the client has proved bounds its connection from now on."""
        self.is_verified = True
        self._places.release(self.place)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _accept_head(self, size: int) -> bool:
        """Whether the connection goes on; one that sends requests before it has an answer does not."""
        if len(self._messages) > 1:
            self.abort()
            return False
        self._has_request = self._has_request or bool(self._messages)
        if self._has_request and (self._waiter is None or self._waiter.done()):  # a request is being answered
            self._end_head()
            return True
        self._head_bytes += size
        if self._head_deadline is None:
            self._start_head()
        if self._head_bytes > MAX_HEAD_BYTES:
            self.abort()
        return self._head_bytes <= MAX_HEAD_BYTES

    def _start_head(self) -> None:
        self._head_deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.abort)

    def _end_head(self) -> None:
        self._head_bytes = 0
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None


def peer_of(request: web.Request) -> str:
    """The address of the peer."""
    return request.remote or ""


def connection_of(request: web.Request) -> Connection:
    connection = request.protocol
    assert isinstance(connection, Connection)
    return connection
