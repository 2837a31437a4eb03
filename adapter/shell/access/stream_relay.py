"""How is a worker's answer passed on to who asked, until one of the two ends it?

A log goes through in pieces, a command and ports as the messages of a WebSocket. Neither is looked into, kept or logged.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web

from adapter.shell.kube import streams

# As a kubelet ends what nobody uses (k8s:pkg/kubelet/apis/config/v1beta1/defaults.go, StreamingConnectionIdleTimeout), and here in any
# case: the rights that a grant was given for may be gone by then. Who follows a log begins anew.
LONGEST_SECONDS: Final = 4 * 3600.0
# For the last words after an end: that of a side that is cut off is not waited for.
CLOSING_SECONDS: Final = 5.0
_WebSocket = aiohttp.ClientWebSocketResponse | web.WebSocketResponse


async def relay_log(request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Answer with a log. One that breaks off is cut off here, too, so that nobody takes what came for all of it."""
    answer = web.StreamResponse(
        headers={"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    )
    await answer.prepare(request)
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            async for piece in pieces:
                await answer.write(piece)
    except (aiohttp.ClientError, TimeoutError, OSError):
        answer.force_close()
        if request.transport:
            request.transport.abort()
    return answer


def socket_to_client(worker_socket: aiohttp.ClientWebSocketResponse) -> web.WebSocketResponse:
    """The socket to who asked, which speaks what the one to the worker speaks."""
    return web.WebSocketResponse(
        protocols=[worker_socket.protocol] if worker_socket.protocol else [],
        compress=False,
        max_msg_size=streams.MOST_MESSAGE_BYTES,
        timeout=CLOSING_SECONDS,
    )


async def relay_both_ways(client_socket: web.WebSocketResponse, worker_socket: aiohttp.ClientWebSocketResponse) -> None:
    """Pass messages on in both directions until one side ends; then both are closed.

    A worker that did not say that it ends is told of as such: kubectl takes a command without an exit code for one that succeeded.
    """
    heard, said = (
        asyncio.create_task(_relay_messages(client_socket, worker_socket)),
        asyncio.create_task(_relay_messages(worker_socket, client_socket)),
    )
    try:
        await asyncio.wait({heard, said}, timeout=LONGEST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not client_socket.closed:  # what the worker said last is still on its way, though it hears nothing any more
            await asyncio.wait({said}, timeout=CLOSING_SECONDS)
    finally:
        for way in (heard, said):
            way.cancel()
        _, code = await asyncio.gather(heard, said, return_exceptions=True)
    ended = code == aiohttp.WSCloseCode.OK
    await client_socket.close(code=aiohttp.WSCloseCode.OK if ended else aiohttp.WSCloseCode.INTERNAL_ERROR)
    await worker_socket.close()


async def _relay_messages(source: _WebSocket, goal: _WebSocket) -> int:
    """The code with which the source said that it ends; one of a broken connection where it did not.

    Its own `close_code` is none: it is of the answer to that, too, and an API server does not wait for one.
    """
    while (message := await source.receive()).type is aiohttp.WSMsgType.BINARY:
        await goal.send_bytes(message.data)
    said = message.data if message.type is aiohttp.WSMsgType.CLOSE else None
    return said if isinstance(said, int) else aiohttp.WSCloseCode.ABNORMAL_CLOSURE
