"""Responses are bounded in size and time, and the rest is an error with a message."""

import asyncio
import gzip
import itertools
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from adapter.shell.kube.client import (
    LONGEST_STREAM_SECONDS,
    TIMEOUT_SECONDS,
    ApiError,
    Client,
    ResponseTooLarge,
    Unreachable,
)
from adapter.shell.kube.response_limits import (
    EVENT_BEGINNING_BYTES,
    LINE_BYTES,
    OBJECT_BYTES,
    STATUS_BYTES,
    OversizedLine,
    _LineSplitter,
    parse_beginning,
)
from tests.unit import apiserver
from tests.unit.apiserver import Server, hurried, says, streams

PATH = "/api/v1/pods"
MIB = 2**20
JSON = "Content-Type: application/json"


@pytest.fixture(autouse=True)
def _real_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests end as in the product."""
    monkeypatch.setattr("adapter.shell.kube.client.TIMEOUT_SECONDS", TIMEOUT_SECONDS)


@asynccontextmanager
async def attacker(*said: bytes, drip: bytes = b"") -> AsyncIterator[Client]:
    """A client of a server that sends this to every connection, and then drips or stops."""
    over = asyncio.Event()

    async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for part in said:
                writer.write(part)
                await writer.drain()
            while drip and not over.is_set():
                writer.write(drip)
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.5)
            if not drip:
                writer.write_eof()
            await over.wait()
        except (OSError, asyncio.IncompleteReadError):
            pass  # it hung up, as it may
        finally:
            writer.close()

    server = await asyncio.start_server(attack, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with apiserver.connected(f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        over.set()
        server.close()
        await server.wait_closed()


def head(*headers: str, status: str = "200 OK", kind: str = JSON) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", kind, *headers, "", ""]).encode()


def answer(body: bytes, *headers: str, status: str = "200 OK", kind: str = JSON) -> bytes:
    return head(f"Content-Length: {len(body)}", *headers, status=status, kind=kind) + body


def packed(size: int) -> bytes:
    """An object of so many bytes, of which few go over the wire."""
    squeeze, filler = zlib.compressobj(9, wbits=31), b" " * MIB
    parts = [squeeze.compress(b'{"a": 1')]
    parts += [squeeze.compress(filler) for _ in range(size // MIB)]
    return b"".join([*parts, squeeze.compress(b"}"), squeeze.flush()])


BOMB = packed(150 * MIB)


async def test_a_compressed_answer_is_read() -> None:
    async with attacker(answer(gzip.compress(b'{"kind": "Pod"}'), "Content-Encoding: gzip")) as client:
        assert await client.get(PATH) == {"kind": "Pod"}


async def test_a_compressed_answer_counts_by_its_decompressed_size() -> None:
    assert len(BOMB) < 200_000
    async with attacker(answer(BOMB, "Content-Encoding: gzip")) as client:
        tracemalloc.start()
        try:
            with pytest.raises(ResponseTooLarge, match="it answers with more than 4 MiB at once"):
                await client.get(PATH)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 6 * OBJECT_BYTES


@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error", "403 Forbidden"])
async def test_an_endless_answer_is_cut(status: str) -> None:
    endless = [head("Content-Length: 99999999999", status=status), *([b'{"a": "' + b"x" * MIB] * 40)]
    async with attacker(*endless) as client:
        with pytest.raises((ResponseTooLarge, ApiError)) as found:
            await client.get(PATH)
    if isinstance(found.value, ApiError):
        assert str(found.value) == f"{status}: ", "its status counts, and not what it says with it"


async def test_a_long_error_is_shortened() -> None:
    body = json.dumps({"reason": "r" * 50_000, "message": "m" * 50_000}).encode()
    async with attacker(answer(body, status="403 Forbidden")) as client:
        with pytest.raises(ApiError) as found:
            await client.get(PATH)
    assert len(str(found.value)) < 20_000


async def test_an_error_is_one_line() -> None:
    """The error is logged, and no log line may begin with text of another server."""
    body = json.dumps({"reason": "r\nforged", "message": "m\r\x1b[2J\u2028forged\x00"}).encode()
    async with attacker(answer(body, status="403 Forbidden")) as client:
        with pytest.raises(ApiError) as found:
            await client.get(PATH)
    assert str(found.value).isprintable() and "forged" in str(found.value)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(
            answer(b'{"a": 1}', kind="Content-Type: text/html"), "no Kubernetes API server", id="another type"
        ),
        pytest.param(answer(b'{"a": 1}', kind="X: y"), "no Kubernetes API server", id="no type"),
        pytest.param(answer(b'{"a": 1}', kind="Content-Type: ;;=,;"), "no Kubernetes API server", id="an invalid type"),
        pytest.param(
            answer(b'{"a": 1}', "Content-Encoding: br"), "not asked for", id="an encoding that was not requested"
        ),
        pytest.param(answer(b'{"a": 1}', "Content-Encoding: gzip"), "cannot be unpacked", id="not compressed"),
        pytest.param(
            answer(packed(MIB)[:-50], "Content-Encoding: gzip"), "no Kubernetes API server", id="truncated compression"
        ),
        pytest.param(answer(b"[" * 100_000), "no Kubernetes API server", id="deeply nested lists"),
        pytest.param(answer(b'{"a":' * 100_000), "no Kubernetes API server", id="deeply nested objects"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "no Kubernetes API server", id="another protocol"),
        pytest.param(head("X: " + "y" * MIB), "", id="an endless header"),
        pytest.param(head("Content-Length: -5"), "", id="an invalid length"),
    ],
)
async def test_an_answer_of_another_server_is_an_error_with_a_message(said: bytes, why: str) -> None:
    async with attacker(said) as client:
        with pytest.raises(Unreachable) as found:
            await client.get(PATH)
        assert why in str(found.value) and len(str(found.value)) < 2000 and str(found.value).isprintable()
        with pytest.raises((Unreachable, ApiError)):
            await client.probe()
        with pytest.raises((Unreachable, ApiError)):
            async with client.stream(PATH, {}, 1.0) as lines:
                assert [line async for line in lines] == []
                raise Unreachable("it ended")


@hurried
async def test_a_slow_answer_times_out() -> None:
    clock = asyncio.get_running_loop().time
    for said in (head("Content-Length: 9999"), b"HTTP/1.1 200 OK\r\nX: "):
        async with attacker(said, drip=b" ") as client:
            begun = clock()
            with pytest.raises(Unreachable, match="no answer in time"):
                await client.get(PATH)
            assert clock() - begun < 2 * TIMEOUT_SECONDS


# --- streams ---------------------------------------------------------------------------------------------------------

WATCH = head("Transfer-Encoding: chunked")


def chunk(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


async def test_an_endless_line_is_cut() -> None:
    async with attacker(WATCH, chunk(b"one\n"), *([chunk(b"x" * MIB)] * (LINE_BYTES // MIB + 2))) as client:
        found: list[bytes] = []
        with pytest.raises(ResponseTooLarge, match="64 MiB"):
            async with client.stream(PATH, {}, 5.0) as lines:
                while True:
                    found.append(await anext(lines))
    assert found == [b"one", OversizedLine(b"x" * EVENT_BEGINNING_BYTES)]


async def test_a_line_that_is_too_large_is_skipped_without_keeping_it() -> None:
    large = [chunk(b"x" * MIB)] * 20
    tracemalloc.start()
    try:
        async with attacker(WATCH, *large, chunk(b"y\ntwo\n"), b"0\r\n\r\n") as client:
            async with client.stream(PATH, {}, 5.0) as lines:
                found = [line async for line in lines]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [b"x" * EVENT_BEGINNING_BYTES, b"two"]
    assert isinstance(found[0], OversizedLine) and not isinstance(found[1], OversizedLine)
    assert peak < 4 * OBJECT_BYTES


async def test_a_line_that_would_take_too_much_memory_is_not_kept() -> None:
    crafted = b"[" + b"{}," * MIB + b"{}]"
    assert len(crafted) < OBJECT_BYTES
    async with attacker(WATCH, chunk(crafted + b"\ntwo\n"), b"0\r\n\r\n") as client:
        async with client.stream(PATH, {}, 5.0) as lines:
            found = [line async for line in lines]
    assert found == [crafted[:EVENT_BEGINNING_BYTES], b"two"] and isinstance(found[0], OversizedLine)


@given(
    sizes=st.lists(st.integers(0, 30), max_size=8),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
def test_lines_do_not_depend_on_how_they_arrive(sizes: list[int], cuts: list[int]) -> None:
    sent = b"".join(bytes([ord("a") + index]) * size + b"\n" for index, size in enumerate(sizes))
    splitter, found, start = _LineSplitter(10), list[bytes](), 0
    for cut in itertools.chain(cuts, itertools.repeat(7)):
        if start >= len(sent):
            break
        found += splitter.split(sent[start : start + cut])
        start += cut
    lines = sent.split(b"\n")[:-1]
    # Of a line that is too large, the beginning is what had arrived of it.
    assert [line[:1] for line in found] == [line[:1] for line in lines]
    assert [isinstance(line, OversizedLine) for line in found] == [len(line) > 10 for line in lines]
    assert all(line.startswith(beginning) for line, beginning in zip(lines, found, strict=True))
    assert [line for line in found if len(line) <= 10] == [line for line in lines if len(line) <= 10]


@pytest.mark.parametrize("cut", range(0, 120, 3))
def test_a_beginning_has_whole_values_only(cut: int) -> None:
    whole = b'{"type":"ADDED","object":{"metadata":{"annotations":{"namespace":"x"},"namespace":"demo-production"}}}'
    found = parse_beginning(whole[:cut]).get("object", {}).get("metadata", {}).get("namespace")
    assert found == ("demo-production" if cut >= whole.index(b"production") + len(b'production"') else None)


@pytest.mark.parametrize("data", [b"", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 9_999])
def test_a_beginning_of_nonsense_is_empty(data: bytes) -> None:
    assert parse_beginning(data) in ({}, {"a": {}}) or "a" in parse_beginning(data)


async def test_a_large_event_is_read() -> None:
    large = b"x" * (OBJECT_BYTES - 1)
    async with attacker(WATCH, chunk(large[:MIB]), chunk(large[MIB:] + b"\ntwo\n"), b"0\r\n\r\n") as client:
        async with client.stream(PATH, {}, 5.0) as lines:
            assert [len(line) async for line in lines] == [len(large), 3]


@hurried
async def test_slow_headers_open_no_stream() -> None:
    async with attacker(b"HTTP/1.1 200 OK\r\nX: ", drip=b"y") as client:
        with pytest.raises(Unreachable, match="no answer in time"):
            async with client.stream(PATH, {}, 2.0):
                raise AssertionError("it opened")


async def test_a_stream_of_slow_empty_bytes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LONGEST_STREAM_SECONDS > 240, "the server is asked to end it sooner"
    monkeypatch.setattr("adapter.shell.kube.client.LONGEST_STREAM_SECONDS", 1.0)
    async with asyncio.timeout(apiserver.PATIENCE):
        async with attacker(WATCH, drip=chunk(b"\n")) as client, client.stream(PATH, {}, 20.0) as lines:
            assert {line async for line in lines} == {b""}


# --- lies ------------------------------------------------------------------------------------------------------------

LIES = st.binary(max_size=300) | st.builds(
    lambda kind, encoding, length, body: (
        (
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: {encoding}\r\n"
            f"Content-Length: {length}\r\n\r\n"
        ).encode()
        + body
    ),
    st.sampled_from(["application/json", "application/json; charset=\x00", ";"]),
    st.sampled_from(["gzip", "identity", "deflate"]),
    st.sampled_from(["9", "2", "99999999999999999999999", "x"]),
    st.binary(min_size=9, max_size=100) | st.binary(max_size=100).map(gzip.compress) | st.just(b'{"a": 12}'),
)


@given(said=LIES)
def test_any_answer_raises_only_documented_errors(said: bytes) -> None:
    async def ask() -> None:
        async with attacker(said) as client:
            for asked in (client.get(PATH), client.probe()):
                with suppress(ApiError, Unreachable):
                    await asked
            with suppress(ApiError, Unreachable):
                async with client.stream(PATH, {}, 0.2) as lines:
                    async for _ in lines:
                        pass

    asyncio.run(ask())


async def test_large_answers_of_a_cluster_are_read_one_by_one(server: Server, client: Client) -> None:
    """Thirty-two requests may be in flight, each answer as large as an object may be; small ones do not wait."""
    begun, goes_on = asyncio.Event(), asyncio.Event()
    large = json.dumps({"kind": "Pod", "text": "x" * (2 * STATUS_BYTES)})

    async def then(_: web.Request) -> None:
        begun.set()
        await goes_on.wait()

    server.lists = [streams(large[:-2], then=then), says({"kind": "Pod"}), streams(large)]
    async with asyncio.timeout(apiserver.PATIENCE):
        first = asyncio.create_task(client.get("/api/v1/pods"))
        await begun.wait()
        while not client._large_answers_lock.locked():  # noqa: ASYNC110 (a lock tells nobody that it is taken)
            await asyncio.sleep(0)
        assert await client.get("/api/v1/pods") == {"kind": "Pod"}
        second = asyncio.create_task(client.get("/api/v1/pods"))
        while not client._large_answers_lock._waiters:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not second.done()
    goes_on.set()
    with pytest.raises(Unreachable):  # it was cut short
        await first
    assert len((await second)["text"]) == 2 * STATUS_BYTES
