"""Reads a response of an untrusted API server within limits, as a whole or not at all.

The bytes are counted while they are unpacked, so a few compressed ones cannot become many.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import aiohttp

from adapter.shell.kube import object_size

# The largest object in a response. etcd takes 1.5 MiB for an object. Custom resources, stored as JSON, arrive at that
# size; packed objects, such as pods, arrive at about twice that size.
OBJECT_BYTES = 4 * 2**20
# The largest page: two of the largest objects, so that every list can be read (`pagination.PAGE_SIZES`).
PAGE_BYTES = 2 * OBJECT_BYTES
# A parsed response may weigh this many times the largest response. Pods, nodes and Workloads weigh seven to twelve
# times their bytes; objects of megabytes weigh less, because they are mostly text. A forged object takes 24 times its
# bytes.
MEMORY_FACTOR = 8
# The beginning of a list's metadata that holds its continue token, of some hundred bytes, and its first object's name
# and namespace, of 253 each.
BEGINNING_BYTES = 32 * 2**10
# The largest Status: one that names each invalid field has a few kilobytes.
STATUS_BYTES = 256 * 2**10

_MIB = 2**20
_WORST_FACTOR = 40  # bytes of memory for one of JSON, at most


class UnreadableResponse(Exception):
    """The response is not an API server's; the text continues a sentence whose subject is "it"."""


class LimitExceeded(UnreadableResponse):
    """The response is larger than any valid one."""


async def read_body(
    answer: aiohttp.ClientResponse, most_bytes: int, large_answers_lock: asyncio.Lock | None = None
) -> bytearray:
    """The body, unpacked; raises UnreadableResponse, and LimitExceeded beyond `most_bytes`.

    Bodies above STATUS_BYTES take `large_answers_lock` one by one; TCP's flow control makes their senders wait.
    Otherwise all responses in flight would take their full size at once.
    """
    unpack, body = _decompressor(answer.headers.get("Content-Encoding", "")), bytearray()
    async with AsyncExitStack() as locks:
        async for chunk in answer.content.iter_any():
            body += unpack(chunk, most_bytes + 1 - len(body))
            _check_bytes(body, most_bytes)
            if large_answers_lock and len(body) > STATUS_BYTES:
                await locks.enter_async_context(large_answers_lock)
                large_answers_lock = None
        _check_memory(body, most_bytes)
        return body


async def read_beginning(answer: aiohttp.ClientResponse) -> bytearray:
    """The first BEGINNING_BYTES of the body, unpacked; raises UnreadableResponse."""
    unpack, body = _decompressor(answer.headers.get("Content-Encoding", "")), bytearray()
    async for chunk in answer.content.iter_any():
        body += unpack(chunk, BEGINNING_BYTES + 1 - len(body))
        if len(body) > BEGINNING_BYTES:
            break
    return body[:BEGINNING_BYTES]


async def read_lines(answer: aiohttp.ClientResponse, most_bytes: int = OBJECT_BYTES) -> AsyncIterator[bytes]:
    """The lines of a stream, each of at most `most_bytes`."""
    rest = bytearray()
    try:
        async for chunk in answer.content.iter_any():
            *lines, incomplete = chunk.split(b"\n")
            for line in lines:
                rest += line
                _check_bytes(rest, most_bytes)
                _check_memory(rest, most_bytes)
                yield bytes(rest)
                rest.clear()
            rest += incomplete  # grows in place; a new object would copy the line for each byte of a slow sender
            _check_bytes(rest, most_bytes)
    except TimeoutError:
        return  # a quiet stream may be intact; the caller's next request shows whether it is


def _check_bytes(data: bytearray, most_bytes: int) -> None:
    if len(data) > most_bytes:
        raise LimitExceeded(f"answers with more than {most_bytes / _MIB:g} MiB at once")


def _check_memory(data: bytearray, most_bytes: int) -> None:
    if (
        len(data) * _WORST_FACTOR > most_bytes * MEMORY_FACTOR
        and object_size.weigh_json(data) > most_bytes * MEMORY_FACTOR
    ):
        raise LimitExceeded(
            f"answers with what takes more than {most_bytes * MEMORY_FACTOR / _MIB:g} MiB of memory at once"
        )


def _decompressor(encoding: str) -> Callable[[bytes, int], bytes]:
    if encoding.lower() in ("", "identity"):
        return lambda chunk, _: chunk
    if encoding.lower() != "gzip":  # gzip shrinks a list to a tenth
        raise UnreadableResponse("answers in an encoding that was not asked for")
    inflate = zlib.decompressobj(wbits=31)

    def unpack(chunk: bytes, most: int) -> bytes:
        try:
            return inflate.decompress(chunk, most)
        except zlib.error:
            raise UnreadableResponse("answers with what cannot be unpacked") from None

    return unpack
