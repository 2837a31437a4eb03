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
MEMORY = 8
# A refusal, or a word such as "ok". A Status that names each wrong field of an object has a few kilobytes.
WORD_BYTES = 256 * 2**10

_MIB = 2**20
_WORST = 40  # of a byte of JSON no more memory comes than that: small answers are not weighed


class Unreadable(Exception):
    """What came is not what an API server answers; the text goes on after "it": a part of a sentence."""


class Excess(Unreadable):
    """It is larger than what was asked for can be."""


async def whole(answer: aiohttp.ClientResponse, most: int, turn: asyncio.Lock | None = None) -> bytearray:
    """The answer's body, unpacked; raises Excess as soon as there is more of it than `most`, and Unreadable.

    One that is larger than a word takes its `turn`, and the others wait, as TCP lets whoever sends them wait: else each of those
    that are asked for at the same time would be held with all that it may have.
    """
    unpack, said = _unpacking(answer.headers.get("Content-Encoding", "")), bytearray()
    async with AsyncExitStack() as taken:
        async for chunk in answer.content.iter_any():
            said += unpack(chunk, most + 1 - len(said))
            _bound(said, most)
            if turn and len(said) > WORD_BYTES:
                await taken.enter_async_context(turn)
                turn = None
        _bound_memory(said, most)
        return said


async def lines(answer: aiohttp.ClientResponse, most: int = OBJECT_BYTES) -> AsyncIterator[bytes]:
    """The lines of a stream, each of `most` bytes; they end with it, or when nothing has come for too long."""
    rest = bytearray()
    try:
        async for chunk in answer.content.iter_any():
            *ended, begun = chunk.split(b"\n")
            for line in ended:
                rest += line
                _bound(rest, most)
                _bound_memory(rest, most)
                yield bytes(rest)
                rest.clear()
            rest += begun  # grows in place: who sends single bytes shall not have everything copied for each
            _bound(rest, most)
    except TimeoutError:
        return  # quiet is no proof of a loss: whoever asks again finds out


def _bound(said: bytearray, most: int) -> None:
    if len(said) > most:
        raise Excess(f"answers with more than {most / _MIB:g} MiB at once")


def _bound_memory(said: bytearray, most: int) -> None:
    if len(said) * _WORST > most * MEMORY and object_size.of_text(said) > most * MEMORY:
        raise Excess(f"answers with what takes more than {most * MEMORY / _MIB:g} MiB of memory at once")


def _unpacking(encoding: str) -> Callable[[bytes, int], bytes]:
    """What makes of some bytes that came no more than so many that were meant."""
    if encoding.lower() in ("", "identity"):
        return lambda chunk, _: chunk
    if encoding.lower() != "gzip":  # we ask for nothing else: it makes a list over a thin line a tenth
        raise Unreadable("answers in an encoding that was not asked for")
    inflate = zlib.decompressobj(wbits=31)

    def unpack(chunk: bytes, most: int) -> bytes:
        try:
            return inflate.decompress(chunk, most)
        except zlib.error:
            raise Unreadable("answers with what cannot be unpacked") from None

    return unpack
