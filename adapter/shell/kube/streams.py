"""Streams logs, exec and port-forward from an API server.

Bytes and messages pass unchanged, a bounded number at a time. Once a stream has begun, the reason for its end is not
reported.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from adapter.shell.kube.client import (
    CONNECTION_ERRORS,
    TIMEOUT_SECONDS,
    ApiError,
    Client,
    Unreachable,
    error_message,
    read_api_error,
)

QueryParams = Iterable[tuple[str, str]]
# The largest message. kubectl and the API server send at most 32 KiB at once; SPDY merges some of these into larger
# ones.
MOST_MESSAGE_BYTES: Final = 2**20
# How often a WebSocket is pinged: an idle shell sends nothing, so it would look like a cluster that is cut off.
HEARTBEAT_SECONDS: Final = 30.0
# A quiet log has no heartbeat, so the kernel sends keepalive probes, every ten seconds after thirty of silence. After a
# minute of silence it closes the connection.
IDLE_SECONDS, ASK_SECONDS, DEAD_SECONDS = 30, 10, 60


@asynccontextmanager
async def open_log(client: Client, path: str, params: QueryParams) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open a log, which arrives as chunks of bytes; raises ApiError or Unreachable."""
    session, url, options = await client.raw_request_parts(path)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):  # only for the headers
            answer = await session.get(url, params=[*params], timeout=timeout, **options)
        async with answer:
            if answer.status != 200:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    raise await read_api_error(answer)
            _watch_link(answer)
            yield answer.content.iter_any()
    except CONNECTION_ERRORS as error:
        raise Unreachable(error_message(error)) from None


@asynccontextmanager
async def open_websocket(
    client: Client, path: str, params: QueryParams, protocols: Sequence[str]
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Open a WebSocket; raises Unreachable, or ApiError without a message."""
    session, url, options = await client.raw_request_parts(path)
    options = {
        key: value for key, value in options.items() if key != "allow_redirects"
    }  # see `client.no_redirect_trace`
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            opened = await session.ws_connect(
                url,
                params=[*params],
                protocols=protocols,
                heartbeat=HEARTBEAT_SECONDS,
                max_msg_size=MOST_MESSAGE_BYTES,
                **options,
            )
    except aiohttp.WSServerHandshakeError as error:
        raise ApiError(error.status, "Refused", "") from None
    except CONNECTION_ERRORS as error:
        raise Unreachable(error_message(error)) from None
    async with opened:
        yield opened


def _watch_link(answer: aiohttp.ClientResponse) -> None:
    link: socket.socket | None = None
    if answer.connection and answer.connection.transport:  # otherwise the whole response has arrived
        link = answer.connection.transport.get_extra_info("socket")
    if link is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_SECONDS)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
