"""Relays a worker's stream to a client until either side ends it.

A log is relayed in chunks, a command and ports as the messages of a WebSocket. They are not parsed, stored or logged.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web

from adapter.shell.kube import streams

# A kubelet ends an idle stream after this time (k8s:pkg/kubelet/apis/config/v1beta1/defaults.go,
# StreamingConnectionIdleTimeout). Here every stream ends, because the user's rights may have been revoked by then. A
# user who follows a log starts again.
LONGEST_SECONDS: Final = 4 * 3600.0
# For the last messages after one side has ended; a side that is cut off is not waited for.
CLOSING_SECONDS: Final = 5.0
_WebSocket = aiohttp.ClientWebSocketResponse | web.WebSocketResponse


async def relay_log(request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Answer with a log. If it breaks off, abort the connection, so that the client does not take it as complete."""
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
    """A socket to the client with the protocol of the worker's socket."""
    return web.WebSocketResponse(
        protocols=[worker_socket.protocol] if worker_socket.protocol else [],
        compress=False,
        max_msg_size=streams.MOST_MESSAGE_BYTES,
        timeout=CLOSING_SECONDS,
    )


async def relay_both_ways(client_socket: web.WebSocketResponse, worker_socket: aiohttp.ClientWebSocketResponse) -> None:
    """Relay messages in both directions until one side ends; then close both.

    If the worker's side broke off, the client's socket is closed with an error: kubectl takes a command without an exit
    code as a success.
    """
    to_worker, to_client = (
        asyncio.create_task(_relay_messages(client_socket, worker_socket)),
        asyncio.create_task(_relay_messages(worker_socket, client_socket)),
    )
    try:
        await asyncio.wait({to_worker, to_client}, timeout=LONGEST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not client_socket.closed:  # the worker's last messages may still be on their way
            await asyncio.wait({to_client}, timeout=CLOSING_SECONDS)
    finally:
        for task in (to_worker, to_client):
            task.cancel()
        _, code = await asyncio.gather(to_worker, to_client, return_exceptions=True)
    is_clean = code == aiohttp.WSCloseCode.OK
    await client_socket.close(code=aiohttp.WSCloseCode.OK if is_clean else aiohttp.WSCloseCode.INTERNAL_ERROR)
    await worker_socket.close()


async def _relay_messages(source: _WebSocket, goal: _WebSocket) -> int:
    """Relay messages in one direction; returns the source's close code, or that of a broken connection without one.

    The socket's `close_code` cannot be used: it also depends on the reply to the close message, for which an API server
    does not wait.
    """
    while (message := await source.receive()).type is aiohttp.WSMsgType.BINARY:
        await goal.send_bytes(message.data)
    code = message.data if message.type is aiohttp.WSMsgType.CLOSE else None
    return code if isinstance(code, int) else aiohttp.WSCloseCode.ABNORMAL_CLOSURE
