"""Floods of the servers over real sockets: a peer that proves nothing costs others no answer and little memory.

Peers are addresses of the loopback network: 127.0.0.1 asks as usual, and 127.0.0.2 floods.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web

from adapter.shell.admission import admission_server
from adapter.shell.controller import http_servers
from adapter.shell.http import connections, http_server
from adapter.shell.http.fair_queue import FairQueue
from tests.unit.shell.admission.test_admission_server import review
from tests.unit.shell.controller.test_http_servers import port_of

FLOODER = "127.0.0.2"
MOST = 4
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def serve_plans() -> web.AppRunner:
    return await http_servers.serve_plans(lambda: "not ready", 0)


async def serve_health() -> web.AppRunner:
    return await http_servers.serve_health(lambda: "", 0)


@asynccontextmanager
async def served(
    handler: Callable[[web.Request], Awaitable[web.Response]] | None = None, pace: FairQueue | None = None
) -> AsyncIterator[int]:
    """The port of a server with MOST connections."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.add_routes([web.get("/", handler or answer)])
    runner = await http_server.start_server(app, 0, most_connections=MOST, pace=pace or FairQueue())
    try:
        yield port_of(runner)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(port: int, peer: str = "127.0.0.1") -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(peer, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def status_of(port: int, peer: str = "127.0.0.1", request: bytes = REQUEST) -> bytes:
    async with asyncio.timeout(10), connected(port, peer) as (reader, writer):
        writer.write(request)
        return (await reader.readline()).strip()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(5):
            return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("serve", [serve_plans, serve_health])
async def test_a_head_that_is_too_long_ends_its_connection(serve: Callable[[], Awaitable[web.AppRunner]]) -> None:
    """A hundred headers of 8 KB fit aiohttp's limits; each connection would take two megabytes."""
    runner = await serve()
    try:
        async with connected(port_of(runner)) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: %s\r\n" % (n, b"b" * 8000) for n in range(100)))
            assert await is_closed(reader)
    finally:
        await runner.cleanup()


async def test_a_head_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    async with served() as port, connected(port) as (silent, _), connected(port) as (unfinished, writer):
        writer.write(REQUEST[:-2])
        assert await is_closed(silent) and await is_closed(unfinished)


async def test_a_later_head_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    async with served() as port, connected(port) as (reader, writer):
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
        writer.write(REQUEST[:-2])
        assert await is_closed(reader)


async def test_a_head_that_comes_with_the_handshake_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read before aiohttp waits for it, as after a TLS handshake whose last message came with it."""
    begin = connections.Connection.connection_made

    def begin_with_data(connection: connections.Connection, transport: asyncio.BaseTransport) -> None:
        begin(connection, transport)
        connection.data_received(REQUEST[:-2])

    monkeypatch.setattr(connections.Connection, "connection_made", begin_with_data)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    async with served() as port, connected(port) as (reader, _):
        assert await is_closed(reader)


async def test_requests_before_an_answer_end_their_connection() -> None:
    async with served() as port, connected(port) as (reader, writer):
        writer.write(REQUEST * 5000)
        assert await is_closed(reader)


async def test_a_peer_with_all_connections_gives_one_to_another_peer() -> None:
    async with served() as port, AsyncExitStack() as stack:
        flood = [await stack.enter_async_context(connected(port, FLOODER)) for _ in range(3 * MOST)]
        assert await status_of(port) == b"HTTP/1.1 200 OK"
        assert len(flood) == 3 * MOST


async def test_a_peer_whose_requests_take_all_connections_gives_one_to_another_peer() -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.remote == FLOODER:
            await asyncio.Event().wait()
        return web.Response(text="ok")

    async with served(answer) as port, AsyncExitStack() as stack:
        for _ in range(3 * MOST):
            _, writer = await stack.enter_async_context(connected(port, FLOODER))
            writer.write(REQUEST)
        assert await status_of(port) == b"HTTP/1.1 200 OK"


async def test_more_connections_of_one_peer_wait_for_a_place() -> None:
    async with served() as port:
        assert await asyncio.gather(*(status_of(port) for _ in range(10 * MOST))) == [b"HTTP/1.1 200 OK"] * 10 * MOST


@pytest.mark.parametrize(
    ("serve", "request_"),
    [
        pytest.param(serve_health, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", id="health"),
        pytest.param(serve_plans, b"POST /version HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", id="version"),
        pytest.param(serve_plans, b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n", id="a path that is not served"),
    ],
)
async def test_requests_of_all_paths_use_a_part_of_the_loops_time(
    serve: Callable[[], Awaitable[web.AppRunner]], request_: bytes
) -> None:
    """A hundred requests by one connection last as long as they and their rests; another peer's request waits once."""
    runner = await serve()
    loop = asyncio.get_running_loop()
    least = 100 * http_server.REQUEST_SECONDS * (1 + http_servers.SERVER_REST_FACTOR)
    try:
        started = loop.time()
        async with asyncio.timeout(30), connected(port_of(runner), FLOODER) as (reader, writer):
            for _ in range(100):
                writer.write(request_)
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
                await reader.readexactly(int(length.split(b":")[1]))
            assert loop.time() - started > 0.9 * least
            assert (await status_of(port_of(runner), request=request_)).startswith(b"HTTP/1.1 ")
    finally:
        await runner.cleanup()


async def test_reviews_of_the_gate_wait_for_no_other_peers_queue() -> None:
    """Thirty large reviews of a neighbour wait; the review of the API server's address is second."""
    order: list[str] = []
    begun, all_asked = asyncio.Event(), asyncio.Event()

    async def answer(question: dict[str, dict[str, str]], *, webhook: str) -> dict[str, dict[str, object]]:
        order.append(question["request"]["uid"])
        begun.set()
        await all_asked.wait()
        return {"response": {"uid": question["request"]["uid"], "allowed": True}}

    handler = admission_server._ReviewHandler(answer)
    large, small = (review({"metadata": {}, "spec": {}}, uid=uid) for uid in ("neighbour", "api-server"))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(30):
            tasks.create_task(handler._review_gate(FLOODER, json.dumps(large).encode()))
        await begun.wait()
        api_server = tasks.create_task(handler._review_gate("127.0.0.1", json.dumps(small).encode()))
        await asyncio.sleep(0)
        assert not api_server.done()
        all_asked.set()
    assert order.index("api-server") <= 2
