"""Starts the HTTP servers, all with the same limits: nothing that a client has not proved is unbounded.

- Connections are bounded from the accept on. A new connection takes the place of the peer with most (fair_places.py).
- Heads and handshakes have deadlines, heads have a size (connections.py), and bodies have both (uploads.py).
- Connections and requests begin in their peer's turn, and use a share of the loop's time (fair_queue.py).
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from adapter.shell.http import listener
from adapter.shell.http.connections import Connection, connection_of, peer_of
from adapter.shell.http.fair_places import FairPlaces, Place
from adapter.shell.http.fair_queue import FairQueue
from adapter.shell.http.listener import Listener, TlsSource

# An API server closes its idle connections after 90 s. It repeats a request for which the server was first.
IDLE_SECONDS: Final = 120.0
# How long the rest of a rejected request is read: its sender reads the answer only after that.
LINGER_SECONDS: Final = 1.0
# What a request without a body takes of the loop, as measured.
REQUEST_SECONDS: Final = 0.0003

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def start_server(
    app: web.Application,
    port: int,
    *,
    most_connections: int,
    pace: FairQueue,
    tls: TlsSource | None = None,
    idle_seconds: float = IDLE_SECONDS,
    shutdown_timeout: float = 60.0,
) -> web.AppRunner:
    """Serve on all addresses; the caller cleans the runner up.

    A compressed body is not decompressed: a few KiB could exceed the memory.
    """
    places = FairPlaces(most_connections)
    app.middlewares.insert(0, _in_turn(pace))
    # A request whose client is gone stops waiting.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=shutdown_timeout)
    await runner.setup()
    server = runner.server
    assert server is not None

    def new_connection(place: Place) -> Connection:
        return Connection(
            server,
            places,
            place,
            access_log=None,
            keepalive_timeout=idle_seconds,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,
        )

    await _Site(runner, Listener(listener.bind(port), places, pace, tls), new_connection).start()
    return runner


class _Site(web.BaseSite):
    """What a runner stops before it ends the connections."""

    def __init__(self, runner: web.AppRunner, server: Listener, new_connection: listener.ConnectionFactory) -> None:
        super().__init__(runner)
        self._listener, self._new_connection = server, new_connection

    @property
    def name(self) -> str:
        return str(self._listener.sockets)

    async def start(self) -> None:
        await super().start()
        self._listener.start(self._new_connection)
        self._server = self._listener  # type: ignore[assignment]  # its sockets and close() are used


def _in_turn(pace: FairQueue) -> Any:
    @web.middleware
    async def handle_in_turn(request: web.Request, handler: _Handler) -> web.StreamResponse:
        place = connection_of(request).place
        place.busy = True
        try:
            async with pace.turn(peer_of(request), REQUEST_SECONDS):
                pass
            return await handler(request)
        finally:
            place.busy = False

    return handle_in_turn
