"""Accepts connections, each with a place and in its peer's turn, before its TLS handshake costs anything.

asyncio's own servers begin the handshake of any connection, and their protocols get the peer's address only after it.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from adapter.shell import supervise
from adapter.shell.http.connections import Connection
from adapter.shell.http.fair_places import FairPlaces, NoPlace, Place
from adapter.shell.http.fair_queue import FairQueue

HANDSHAKE_SECONDS: Final = 5.0
# What a connection takes of the loop, measured on one core: a handshake has 0.4 ms with an elliptic curve.
CONNECT_SECONDS, TLS_SECONDS = 0.0002, 0.001
BACKLOG: Final = 1024
# Connections that wait for a place, each for some seconds; such a one takes 8 KiB.
MOST_WAITING, WAIT_SECONDS = 1024, 10.0
_MOST_AT_ONCE: Final = 8  # then the loop goes on with others
_ACCEPT_PAUSE: Final = 0.1  # after an error, which is a lack of file descriptors

TlsSource = Callable[[], ssl.SSLContext]  # the context for the next connection
ConnectionFactory = Callable[[Place], Connection]


def bind(port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of IPv4 and IPv6."""
    sockets = [socket.create_server(("0.0.0.0", port), backlog=BACKLOG)]
    try:
        sockets.append(socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG))
    except OSError as error:  # this host has no IPv6
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
    for listening in sockets:
        listening.setblocking(False)
    return sockets


class Listener:
    def __init__(
        self, sockets: list[socket.socket], places: FairPlaces, pace: FairQueue, tls: TlsSource | None
    ) -> None:
        self.sockets = sockets
        self._places, self._pace, self._tls = places, pace, tls
        self._waiting = FairPlaces(MOST_WAITING)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, new_connection: ConnectionFactory) -> None:
        for listening in self.sockets:
            accept_all = partial(self._accept_all, listening, new_connection)
            self._run(supervise.run_with_restarts("listener", accept_all))

    def close(self) -> None:
        """Close the sockets and the connections that are not established yet."""
        for task in self._tasks:
            task.cancel()
        for listening in self.sockets:
            listening.close()
        self.sockets = []

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept_all(self, listening: socket.socket, new_connection: ConnectionFactory) -> None:
        loop, accepted = asyncio.get_running_loop(), 0
        while True:
            try:
                connected, address = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            self._admit(connected, address[0], new_connection)
            accepted += 1
            if accepted % _MOST_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _admit(self, connected: socket.socket, peer: str, new_connection: ConnectionFactory) -> None:
        try:
            waiting = self._waiting.take(peer, connected.close)
        except NoPlace:
            connected.close()
            return
        task = self._run(self._establish(connected, peer, new_connection))
        waiting.give_up = partial(_cancel, task)
        task.add_done_callback(lambda _: self._waiting.release(waiting))

    async def _establish(self, connected: socket.socket, peer: str, new_connection: ConnectionFactory) -> None:
        """Make the connection once its peer has a turn and a place; the connection then releases the place."""
        place = None
        try:
            place = await self._wait_for_place(peer)
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(new_connection, place),
                connected,
                ssl=self._tls() if self._tls else None,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
            )
        except BaseException as error:
            if place:
                self._places.release(place)
            connected.close()
            if not isinstance(error, OSError):  # the time is over, or the peer went away
                raise

    async def _wait_for_place(self, peer: str) -> Place:
        """A place, which may be taken from another peer; raises TimeoutError."""
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                async with self._pace.turn(peer, TLS_SECONDS if self._tls else CONNECT_SECONDS):
                    try:
                        return self._places.take(peer, partial(_cancel, task), busy=True)
                    except NoPlace:  # the peer has all of them, and each has a request
                        continue


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
