"""Reads a response of an API server within limits, as a whole or not at all.

The server behind a kubeconfig's URL is untrusted. A response is counted while it is unpacked, so that a few compressed
bytes cannot become many. A response larger than any valid one is dropped. Nothing is parsed here.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import aiohttp

from adapter.shell.kube import object_size

# etcd takes 1.5 MiB for an object. Objects stored as JSON, as all custom resources are, come at that size. Objects
# stored in a packed form, as pods are, become about twice as large.
OBJECT_BYTES = 4 * 2**20
# Two of the largest objects fit, so every list can be read (`pagination.PAGE_SIZES`).
PAGE_BYTES = 2 * OBJECT_BYTES
# A parsed response may weigh so many times the largest response (`object_size.py`). Pods, nodes and Workloads weigh
# seven to twelve times their bytes. Those of megabytes weigh less, because their size is in their texts. A forged
# object takes 24 times its bytes.
MEMORY_FACTOR = 8
# A Status, or a word such as "ok". A Status that names each invalid field of an object has a few kilobytes.
STATUS_BYTES = 256 * 2**10

_MIB = 2**20
_WORST_FACTOR = 40  # one byte of JSON takes at most so many of memory, so small responses need not be weighed


class UnreadableResponse(Exception):
    """The response is not an API server's; the text is a part of a sentence and follows "it"."""


class LimitExceeded(UnreadableResponse):
    """The response is larger than any valid one."""


async def read_body(
    answer: aiohttp.ClientResponse, most_bytes: int, large_answers_lock: asyncio.Lock | None = None
) -> bytearray:
    """The response's body, unpacked; raises UnreadableResponse, and LimitExceeded once it exceeds `most_bytes`.

    A body above STATUS_BYTES takes `large_answers_lock`, and the others wait, as does their sender by TCP's flow
    control. Otherwise all responses in flight would take their full size of memory at once.
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


async def read_lines(answer: aiohttp.ClientResponse, most_bytes: int = OBJECT_BYTES) -> AsyncIterator[bytes]:
    """The lines of a stream, each of at most `most_bytes`; they end with the stream, or when its read times out."""
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
            rest += incomplete  # grows in place: a sender of single bytes must not have the line copied for each
            _check_bytes(rest, most_bytes)
    except TimeoutError:
        return  # a quiet stream may be intact: the caller's next request shows whether the link is


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
    """A function that unpacks a chunk into at most a given number of bytes."""
    if encoding.lower() in ("", "identity"):
        return lambda chunk, _: chunk
    if encoding.lower() != "gzip":  # the only one requested: it shrinks a list to a tenth on a slow line
        raise UnreadableResponse("answers in an encoding that was not asked for")
    inflate = zlib.decompressobj(wbits=31)

    def unpack(chunk: bytes, most: int) -> bytes:
        try:
            return inflate.decompress(chunk, most)
        except zlib.error:
            raise UnreadableResponse("answers with what cannot be unpacked") from None

    return unpack
