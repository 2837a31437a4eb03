"""How much is read of what an API server answers: all of it, within bounds, or nothing?

An answer may come from anybody who sits behind a kubeconfig's URL. It is counted as it is unpacked, so that a few packed bytes
cannot become many, and nothing is kept of what is larger than an API server can say. Nothing is understood here.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import aiohttp

from adapter.shell.kube import object_size

# etcd takes 1.5 MiB for an object. What is stored as JSON, as all custom resources are, comes as it is stored; what is stored
# packed, as pods are, unfolds to about twice as much.
OBJECT_BYTES = 4 * 2**20
# Two of the largest objects fit, so every list can be read (`pages.SIZES`).
PAGE_BYTES = 2 * OBJECT_BYTES
# So many times the largest answer one may weigh once it is read (`object_size.py`). Pods, nodes and Workloads weigh seven to twelve times
# their bytes, and those of megabytes less, for they are large by their texts; what is made up for it takes 24 times its bytes.
MEMORY_FACTOR = 8
# A refusal, or a word such as "ok". A Status that names each wrong field of an object has a few kilobytes.
STATUS_BYTES = 256 * 2**10

_MIB = 2**20
_WORST_FACTOR = 40  # of a byte of JSON no more memory comes than that: small answers are not weighed


class UnreadableResponse(Exception):
    """What came is not what an API server answers; the text goes on after "it": a part of a sentence."""


class LimitExceeded(UnreadableResponse):
    """It is larger than what was asked for can be."""


async def read_body(
    answer: aiohttp.ClientResponse, most_bytes: int, large_answers_lock: asyncio.Lock | None = None
) -> bytearray:
    """The answer's body, unpacked; raises Excess as soon as there is more of it than `most`, and Unreadable.

    One that is larger than a word takes its `turn`, and the others wait, as TCP lets whoever sends them wait: else each of those
    that are asked for at the same time would be held with all that it may have.
    """
    unpack, said = _decompressor(answer.headers.get("Content-Encoding", "")), bytearray()
    async with AsyncExitStack() as taken:
        async for chunk in answer.content.iter_any():
            said += unpack(chunk, most_bytes + 1 - len(said))
            _check_bytes(said, most_bytes)
            if large_answers_lock and len(said) > STATUS_BYTES:
                await taken.enter_async_context(large_answers_lock)
                large_answers_lock = None
        _check_memory(said, most_bytes)
        return said


async def read_lines(answer: aiohttp.ClientResponse, most_bytes: int = OBJECT_BYTES) -> AsyncIterator[bytes]:
    """The lines of a stream, each of `most` bytes; they end with it, or when nothing has come for too long."""
    rest = bytearray()
    try:
        async for chunk in answer.content.iter_any():
            *ended, begun = chunk.split(b"\n")
            for line in ended:
                rest += line
                _check_bytes(rest, most_bytes)
                _check_memory(rest, most_bytes)
                yield bytes(rest)
                rest.clear()
            rest += begun  # grows in place: who sends single bytes shall not have everything copied for each
            _check_bytes(rest, most_bytes)
    except TimeoutError:
        return  # quiet is no proof of a loss: whoever asks again finds out


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
    """What makes of some bytes that came no more than so many that were meant."""
    if encoding.lower() in ("", "identity"):
        return lambda chunk, _: chunk
    if encoding.lower() != "gzip":  # we ask for nothing else: it makes a list over a thin line a tenth
        raise UnreadableResponse("answers in an encoding that was not asked for")
    inflate = zlib.decompressobj(wbits=31)

    def unpack(chunk: bytes, most: int) -> bytes:
        try:
            return inflate.decompress(chunk, most)
        except zlib.error:
            raise UnreadableResponse("answers with what cannot be unpacked") from None

    return unpack
