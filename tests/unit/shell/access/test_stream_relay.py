"""Streams from and to a worker are relayed completely and end with either side, over real sockets and TLS."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import yaml
from aiohttp import web

from adapter.shell.access import self_signed, stream_relay
from adapter.shell.kube import streams
from adapter.shell.kube.client import ApiError, Client, Unreachable
from tests.unit.apiserver import PATIENCE, kubeconfig

PROTOCOL = "v5.channel.k8s.io"
MESSAGES, PIECE = 300, 32 * 1024  # far more than all buffers between the two hold
LEFT = web.AppKey("left", asyncio.Event)  # set when a command has nobody any more who hears it


async def echo(request: web.Request) -> web.StreamResponse:
    """A container that echoes its input, and at `end` writes a last line and ends without waiting for an answer."""
    socket = web.WebSocketResponse(protocols=[PROTOCOL], max_msg_size=streams.MOST_MESSAGE_BYTES, timeout=0.0)
    await socket.prepare(request)
    await socket.send_bytes(b"&".join(word.encode() for word in request.query.getall("command")))
    async for message in socket:
        if message.data in (b"die", b"leave"):
            assert request.transport is not None
            (request.transport.abort if message.data == b"die" else request.transport.close)()
        if message.data == b"much":
            for _ in range(MESSAGES):
                await socket.send_bytes(bytes(PIECE))
            break
        if message.data == b"end":
            await socket.send_bytes(b"last word")
            break
        await socket.send_bytes(message.data)
    request.app[LEFT].set()
    await socket.close()
    return socket


async def endless(request: web.Request) -> web.StreamResponse:
    """A log that breaks off."""
    answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await answer.prepare(request)
    await answer.write(b"one\n")
    assert request.transport is not None
    request.transport.abort()
    return answer


async def lines(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.query_string}\n" * 3)


async def moved(_: web.Request) -> web.Response:
    raise web.HTTPFound("/exec?command=x")  # which would be open


async def held(request: web.Request) -> web.StreamResponse:
    """A log, or a refusal, of which nothing comes any more: as over a link that is dead."""
    answer = web.StreamResponse(status=403 if "refuse" in request.query else 200, headers={"Content-Length": "100"})
    await answer.prepare(request)
    await request.app[LEFT].wait()
    return answer


async def refused(_: web.Request) -> web.Response:
    return web.json_response({"reason": "Forbidden", "message": "no"}, status=403)


@asynccontextmanager
async def _running(app: web.Application, context: ssl.SSLContext) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def left() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def worker(left: asyncio.Event) -> AsyncIterator[Client]:
    """A client of what stands for a worker cluster's API server."""
    app = web.Application()
    app[LEFT] = left
    for path, answer in (
        ("/exec", echo),
        ("/endless", endless),
        ("/log", lines),
        ("/moved", moved),
        ("/no", refused),
        ("/held", held),
    ):
        app.router.add_get(path, answer)
    async with _running(app, await self_signed.self_signed_context()) as url:
        login = kubeconfig(url, cluster={"insecure-skip-tls-verify": True})
        client = await Client.from_kubeconfig(yaml.safe_dump(login), "east")
        yield client
        await client.close()
        left.set()


@pytest.fixture
async def front(worker: Client) -> AsyncIterator[aiohttp.ClientSession]:
    """A relay like the API server's proxy: it passes everything on and checks no certificate."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/exec":
            params = [("command", "a b"), ("command", "c")]
            async with streams.open_websocket(worker, "/exec", params, [PROTOCOL]) as there:
                here = stream_relay.socket_to_client(there)
                await here.prepare(request)
                await stream_relay.relay_both_ways(here, there)
                return here
        async with streams.open_log(worker, request.path, request.query.items()) as pieces:
            return await stream_relay.relay_log(request, pieces)

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    async with (
        _running(app, await self_signed.self_signed_context()) as url,
        aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=False)) as session,
    ):
        yield session


async def test_a_log_is_relayed_completely_with_its_query(front: aiohttp.ClientSession) -> None:
    async with front.get("/log", params={"tailLines": "3"}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/plain")
        assert await answer.text() == "tailLines=3\n" * 3


async def test_an_interrupted_log_is_not_relayed_as_complete(front: aiohttp.ClientSession) -> None:
    async with front.get("/endless") as answer:
        with pytest.raises(aiohttp.ClientError):
            await answer.text()


async def test_a_command_is_relayed_in_both_directions(front: aiohttp.ClientSession) -> None:
    """The grant's command runs, whatever the request says; a large message and the last one arrive completely."""
    async with asyncio.timeout(PATIENCE), front.ws_connect("/exec?command=rm", protocols=[PROTOCOL]) as socket:
        assert socket.protocol == PROTOCOL
        assert await socket.receive_bytes() == b"a b&c"
        large = bytes(range(256)) * 2_000
        await socket.send_bytes(large)
        assert await socket.receive_bytes() == large
        await socket.send_bytes(b"end")
        assert await socket.receive_bytes() == b"last word"
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1000


async def test_much_output_at_the_end_reaches_a_slow_client(front: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(PATIENCE), front.ws_connect("/exec", protocols=[PROTOCOL]) as socket:
        await socket.receive_bytes()
        await socket.send_bytes(b"much")
        for _ in range(MESSAGES):
            await asyncio.sleep(0)  # others have their turn
            assert len(await socket.receive_bytes()) == PIECE
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.OK


async def test_a_stream_ends_after_the_longest_time(
    front: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, left: asyncio.Event
) -> None:
    """Its user's rights may have been revoked. docs/logs.md says four hours."""
    assert stream_relay.LONGEST_SECONDS == 4 * 3600
    monkeypatch.setattr(stream_relay, "LONGEST_SECONDS", 0.2)
    monkeypatch.setattr(stream_relay, "CLOSING_SECONDS", 0.2)
    async with asyncio.timeout(PATIENCE), front.get("/held") as answer:
        with pytest.raises(aiohttp.ClientError):
            await answer.text()
    async with asyncio.timeout(PATIENCE), front.ws_connect("/exec", protocols=[PROTOCOL]) as socket:
        await socket.receive_bytes()
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.INTERNAL_ERROR
        await left.wait()


@pytest.mark.parametrize("word", [b"die", b"leave"])
async def test_an_interrupted_command_is_no_success(front: aiohttp.ClientSession, word: bytes) -> None:
    async with asyncio.timeout(PATIENCE), front.ws_connect("/exec", protocols=[PROTOCOL]) as socket:
        await socket.receive_bytes()
        await socket.send_bytes(word)
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.INTERNAL_ERROR


async def test_a_client_that_disconnects_ends_the_command(front: aiohttp.ClientSession, left: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE), front.ws_connect("/exec", protocols=[PROTOCOL]) as socket:
        await socket.receive_bytes()
        assert not left.is_set()
    async with asyncio.timeout(PATIENCE):
        await left.wait()


async def test_a_log_over_a_dead_link_ends_within_a_minute(worker: Client) -> None:
    """Only the kernel's keepalive distinguishes a dead link from a worker that prints nothing for hours."""
    async with streams.open_log(worker, "/held", []):
        assert isinstance(worker._session.connector, aiohttp.TCPConnector)
        (used,) = worker._session.connector._acquired
        assert used.transport is not None
        found = used.transport.get_extra_info("socket")
        kept = {
            option: found.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        }
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000, "milliseconds"
        assert max(kept.values()) <= 30


async def test_an_endless_error_is_no_answer(worker: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "TIMEOUT_SECONDS", 0.3)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Unreachable, match="no answer in time"):
            async with streams.open_log(worker, "/held", [("refuse", "yes")]):
                pass


@pytest.mark.parametrize("path", ["/moved", "/no"])
async def test_an_error_is_relayed_and_a_redirect_is_not_followed(worker: Client, path: str) -> None:
    wanted = {"/moved": Unreachable, "/no": ApiError}[path]
    with pytest.raises(wanted) as told:
        async with streams.open_websocket(worker, path, [], [PROTOCOL]):
            pass
    assert not isinstance(told.value, ApiError) or told.value.status == 403
    with pytest.raises(ApiError) as said:
        async with streams.open_log(worker, path, []):
            pass
    assert said.value.status == (403 if path == "/no" else 302)
