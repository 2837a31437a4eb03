"""Reads a response of an untrusted API server within limits, as a whole or not at all.

The bytes are counted while they are unpacked, so a few compressed ones cannot become many.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

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
# The beginning of an event that is kept when the rest is too large. It holds the namespace: a pod's comes first, a
# custom resource's after its annotations and managedFields (docs/upstream.md, "The order of an object's fields").
EVENT_BEGINNING_BYTES = 256 * 2**10
# The longest line that is skipped. The largest object that etcd takes has some 9 MiB when each character is escaped.
LINE_BYTES = 64 * 2**20

_MIB = 2**20
_WORST_FACTOR = 40  # bytes of memory for one of JSON, at most


class UnreadableResponse(Exception):
    """The response is not an API server's; the text continues a sentence whose subject is "it"."""


class LimitExceeded(UnreadableResponse):
    """The response is larger than any valid one."""


class OversizedLine(bytes):
    """The first EVENT_BEGINNING_BYTES of a line that is too large to be read."""


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
    """The lines of a stream; an OversizedLine for one of more than `most_bytes`, whose rest is skipped.

    Raises LimitExceeded beyond LINE_BYTES.
    """
    splitter = _LineSplitter(most_bytes)
    try:
        async for chunk in answer.content.iter_any():
            for line in splitter.split(chunk):
                yield line
    except TimeoutError:
        return  # a quiet stream may be intact; the caller's next request shows whether it is


class _LineSplitter:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._rest = bytearray()  # of the line whose end has not arrived
        self._skipped_bytes = 0  # of a line that is too large; 0 for any other

    def split(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in this chunk; one that is too large comes before its end."""
        *ends, incomplete = chunk.split(b"\n")
        for end in ends:
            if not self._skipped_bytes:
                yield self._line(end)
            self._rest.clear()
            self._skipped_bytes = 0
        if self._skipped_bytes:
            self._skip(len(incomplete))
            return
        self._rest += incomplete  # grows in place; a new object would copy the line for each byte of a slow sender
        if len(self._rest) > self._most_bytes:
            yield self._beginning()
            self._skip(len(self._rest))
            self._rest = bytearray()

    def _line(self, end: bytes) -> bytes:
        self._rest += end
        try:
            _check_bytes(self._rest, self._most_bytes)
            _check_memory(self._rest, self._most_bytes)
        except LimitExceeded:
            return self._beginning()
        return bytes(self._rest)

    def _beginning(self) -> OversizedLine:
        return OversizedLine(self._rest[:EVENT_BEGINNING_BYTES])

    def _skip(self, size: int) -> None:
        self._skipped_bytes += size
        if self._skipped_bytes > LINE_BYTES:
            raise LimitExceeded(f"sends a line of more than {LINE_BYTES / _MIB:g} MiB")


def parse_beginning(data: bytes | bytearray) -> dict[str, Any]:
    """The whole values of an object whose text is cut off; empty for what is no object."""
    from pydantic_core import from_json  # hardly any process needs it

    try:
        content: object = from_json(bytes(data), allow_partial=True)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


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
