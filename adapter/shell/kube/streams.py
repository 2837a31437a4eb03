"""How is what is no object passed on from an API server: a pod's log, and what kubectl says to a container and hears of it?

Bytes and messages go through as they are, a bounded number at a time: who sends waits for who reads. When a stream has begun nothing is
said of its end but that it ends.
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
# Of one message. kubectl and the API server say no more than 32 KiB at once; the rest is room for what SPDY makes of some of them.
MOST_MESSAGE_BYTES: Final = 2**20
# A cluster that is cut off says nothing, and so does a shell in which nobody types. What is upgraded is asked for a sign of life.
HEARTBEAT_SECONDS: Final = 30.0
# A log says nothing while its worker does not, and nothing is asked on its connection: whether the other side is there, the kernel asks,
# every ten seconds once nothing has come for thirty, and gives it up after a minute.
IDLE_SECONDS, ASK_SECONDS, DEAD_SECONDS = 30, 10, 60


@asynccontextmanager
async def open_log(client: Client, path: str, params: QueryParams) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open a log, which comes in pieces until it ends; raises ApiError or Unreachable."""
    session, url, how = await client.raw_request_parts(path)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):  # for the headers
            answer = await session.get(url, params=[*params], timeout=timeout, **how)
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
    """Open a WebSocket to what takes one of the protocols; raises ApiError, without words, or Unreachable."""
    session, url, how = await client.raw_request_parts(path)
    how = {key: value for key, value in how.items() if key != "allow_redirects"}  # see `client.unredirected`
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            opened = await session.ws_connect(
                url,
                params=[*params],
                protocols=protocols,
                heartbeat=HEARTBEAT_SECONDS,
                max_msg_size=MOST_MESSAGE_BYTES,
                **how,
            )
    except aiohttp.WSServerHandshakeError as error:
        raise ApiError(error.status, "Refused", "") from None
    except CONNECTION_ERRORS as error:
        raise Unreachable(error_message(error)) from None
    async with opened:
        yield opened


def _watch_link(answer: aiohttp.ClientResponse) -> None:
    link: socket.socket | None = None
    if answer.connection and answer.connection.transport:  # else it has come whole
        link = answer.connection.transport.get_extra_info("socket")
    if link is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_SECONDS)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
