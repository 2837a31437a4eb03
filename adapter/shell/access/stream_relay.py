"""Relays a worker's log or WebSocket to a client until either side ends it. Nothing is parsed, stored or logged."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web

from adapter.shell.kube import streams

# A stream ends after this time. A kubelet ends an idle stream after as long
# (k8s:pkg/kubelet/apis/config/v1beta1/defaults.go, StreamingConnectionIdleTimeout). Here a busy stream ends, too,
# because the user's rights may have been revoked.
LONGEST_SECONDS: Final = 4 * 3600.0
# How long the last messages may take after one side has ended.
CLOSING_SECONDS: Final = 5.0
_WebSocket = aiohttp.ClientWebSocketResponse | web.WebSocketResponse


async def relay_log(request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Answer with a log. If it breaks off, abort the connection, so that the client does not take it as complete."""
    answer = web.StreamResponse(
        headers={"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    )
    answer.force_close()  # the header says so, too: a client sends no further request
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
    return web.WebSocketResponse(
        protocols=[worker_socket.protocol] if worker_socket.protocol else [],
        compress=False,
        max_msg_size=streams.MOST_MESSAGE_BYTES,
        timeout=CLOSING_SECONDS,
    )


async def relay_both_ways(client_socket: web.WebSocketResponse, worker_socket: aiohttp.ClientWebSocketResponse) -> None:
    """Relay messages until one side ends; then close both.

    If the worker's side broke off, close with an error: kubectl takes a command without an exit code as a success.
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
    """Relay one direction; return the source's close code, or ABNORMAL_CLOSURE if its connection broke.

    The socket's `close_code` is not used: it also depends on a reply for which an API server does not wait.
    """
    while (message := await source.receive()).type is aiohttp.WSMsgType.BINARY:
        await goal.send_bytes(message.data)
    code = message.data if message.type is aiohttp.WSMsgType.CLOSE else None
    return code if isinstance(code, int) else aiohttp.WSCloseCode.ABNORMAL_CLOSURE
