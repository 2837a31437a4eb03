"""The plan server answers with a plan or a message and survives any request; metrics are served with or without TLS."""

import asyncio
import gzip
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from adapter import __version__
from adapter.objects.unstructured import Raw
from adapter.shell.admission import webhook_certificate as maker
from adapter.shell.certificate import Certificate
from adapter.shell.controller import http_servers
from adapter.shell.planning.preview import Preview
from tests.unit.builders import NAMESPACE
from tests.unit.stores import Sight, make_ray_job


def port_of(runner: web.AppRunner) -> int:
    """Of IPv4; port 0 gives IPv6 another."""
    return int(next(address[1] for address in runner.addresses if len(address) == 2))


@asynccontextmanager
async def served(ask: http_servers.PreviewSource) -> AsyncIterator[str]:
    runner = await http_servers.serve_plans(ask, 0)
    try:
        yield f"http://127.0.0.1:{port_of(runner)}/plan"
    finally:
        await runner.cleanup()


async def post(url: str, body: bytes) -> tuple[int, Raw]:
    async with aiohttp.ClientSession() as session, session.post(url, data=io.BytesIO(body)) as answer:
        return answer.status, await answer.json()


def question(**job: Any) -> bytes:
    return json.dumps({"namespace": NAMESPACE, "object": make_ray_job(**job)}).encode()


async def test_a_plan_request_is_answered() -> None:
    preview = Sight({"east": 9}).preview
    async with served(lambda: preview) as url:
        status, answer = await post(url, question())
    assert (status, answer["fits"], answer["sentence"]) == (200, True, "4 of 4 workers to east.")


async def test_the_version_is_served_before_plans() -> None:
    async with served(lambda: "It has just started.") as url:
        told = await post(url.replace("/plan", "/version"), b"{}")
    assert told == (200, {"version": __version__})


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        pytest.param(b"{", 400, "What was sent is not JSON.", id="half an object"),
        pytest.param(b"\xff\xfe", 400, "What was sent is not JSON.", id="no text"),
        pytest.param(b"[" * 100_000, 400, "What was sent is not JSON.", id="deeper than a parser goes"),
        pytest.param(b"9" * 5000, 400, "What was sent is not JSON.", id="a number with too many digits"),
        pytest.param(b"[]", 400, "What was sent has no namespace and no object.", id="no object"),
        pytest.param(
            b'{"namespace": 3}', 400, "What was sent has no namespace and no object.", id="an invalid namespace"
        ),
        pytest.param(
            b'{"namespace": "demo"}',
            422,
            "A plan is made for RayJob or RayCluster of ray.io, found no object.",
            id="nothing to plan",
        ),
        pytest.param(
            b" " * (2**20 + 1), 413, "The job is larger than 1 MiB; remove everything that is not the job.", id="large"
        ),
        pytest.param(
            question(queue=None),
            422,
            "RayJob train: metadata.labels has no kueue.x-k8s.io/queue-name; name a LocalQueue of namespace demo.",
            id="no queue",
        ),
        pytest.param(
            question(clusterSelector={"a": "b"}, rayClusterSpec={"headGroupSpec": {"rayStartParams": {}}}),
            422,
            "RayJob train: spec.clusterSelector names an existing RayCluster: Kueue does not queue such a job. RayJob "
            "train: spec.rayClusterSpec.headGroupSpec.template.spec.containers is empty; add the Ray container.",
            id="two problems",
        ),
    ],
)
async def test_an_invalid_request_gets_a_message(body: bytes, status: int, message: str) -> None:
    preview = Sight({"east": 9}).preview
    async with served(lambda: preview) as url:
        found, answer = await post(url, body)
        assert (found, answer["reason"], answer["message"]) == (status, "InvalidJob", message)
        assert (await post(url, question()))[0] == 200


async def test_a_controller_with_unsynced_caches_says_so() -> None:
    async with served(lambda: "The manager cluster is unreachable.") as url:
        status, answer = await post(url, question())
    assert (status, answer["reason"], answer["message"]) == (503, "NotReady", "The manager cluster is unreachable.")


async def test_an_internal_error_is_reported_and_affects_no_other_request() -> None:
    class Broken:
        async def preview_plan(self, *_: object) -> Raw:
            raise ZeroDivisionError("token abc")

    async with served(lambda: cast(Preview, Broken())) as url:
        for _ in range(2):
            status, answer = await post(url, question())
            assert (status, answer["reason"]) == (500, "InternalError")
            assert "abc" not in answer["message"]


async def test_requests_beyond_the_limit_get_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request beyond the limit gets an error; the waiting ones are answered."""
    monkeypatch.setattr(http_servers, "MOST_WAITING", 2)
    preview = Sight({"east": 9}).preview
    async with served(lambda: preview) as url:
        found = await asyncio.gather(*(post(url, question()) for _ in range(12)))
    statuses = [status for status, _ in found]
    assert set(statuses) == {200, 429} and statuses.count(200) >= 2


@asynccontextmanager
async def slow(url: str) -> AsyncIterator[asyncio.StreamReader]:
    """A client that has sent the beginning of a request and stops; it can read the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", URL(url).port)
    writer.write(b"POST /plan HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n{")
    await writer.drain()
    try:
        yield reader
    finally:
        writer.close()


async def test_an_incomplete_request_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_servers, "UPLOAD_SECONDS", 0.2)
    preview = Sight({"east": 9}).preview
    async with served(lambda: preview) as url, slow(url) as reader:
        assert b" 408 " in await reader.readline()
        assert (await post(url, question()))[0] == 200


async def test_a_slow_request_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_servers, "MOST_WAITING", 1)
    preview = Sight({"east": 9}).preview
    async with served(lambda: preview) as url, slow(url), slow(url):
        assert (await post(url, question()))[0] == 200


async def test_the_oldest_of_too_many_open_requests_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_servers, "MOST_UPLOADS", 1)
    preview = Sight({"east": 9}).preview
    async with asyncio.timeout(http_servers.UPLOAD_SECONDS / 2), served(lambda: preview) as url, slow(url) as first:
        async with slow(url) as second:
            assert b" 408 " in await first.readline()
            assert (await post(url, question()))[0] == 200
            assert b" 408 " in await second.readline()


async def test_a_compressed_request_is_not_decompressed() -> None:
    preview = Sight({"east": 9}).preview
    headers = {"Content-Encoding": "gzip"}
    async with served(lambda: preview) as url, aiohttp.ClientSession() as session:
        async with session.post(url, data=gzip.compress(question()), headers=headers) as answer:
            assert (answer.status, (await answer.json())["message"]) == (400, "What was sent is not JSON.")


@pytest.mark.parametrize("deadline", ["PLAN_SECONDS", "QUESTION_SECONDS"])
async def test_a_plan_that_takes_too_long_is_cancelled(deadline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PLAN_SECONDS": 60, "QUESTION_SECONDS": 60, "REST_FACTOR": 0, deadline: 0.01}.items():
        monkeypatch.setattr(http_servers, name, value)
    preview = Sight({"east": 9}).preview

    class Endless:
        async def preview_plan(self, *asked: Any, **options: Any) -> Raw:
            monkeypatch.undo()
            return dict(await asyncio.Event().wait() and {})

    able: list[Any] = [preview, Endless()]
    async with asyncio.timeout(30), served(lambda: cast(Preview, able.pop())) as url:
        status, answer = await post(url, question())
        assert (status, answer["reason"]) == (504, "Timeout")
        assert answer["message"] == (
            "No plan was made in time: many are asked for, or many jobs wait before this one; ask again later."
        )
        assert (await post(url, question()))[0] == 200


async def test_plan_requests_use_a_part_of_the_loops_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight questions that take 5 ms each last at least as long as they and their pauses."""
    preview = Sight({"east": 9}).preview
    loop = asyncio.get_running_loop()

    class Slow:
        async def preview_plan(self, *asked: Any, **options: Any) -> Raw:
            until = loop.time() + 0.005
            while loop.time() < until:
                pass
            return await preview.preview_plan(*asked, **options)

    async with served(lambda: cast(Preview, Slow())) as url:
        started = loop.time()
        await asyncio.gather(*(post(url, question()) for _ in range(8)))
        assert loop.time() - started > 8 * 0.005 + 7 * http_servers.REST_FACTOR * 0.005


async def test_metrics_use_at_most_a_fifth_of_the_loops_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every client that reaches the port may send requests, and all other tasks share the loop."""
    now, made = [100.0], list[float]()

    def counted() -> bytes:
        now[0] += 1.0
        made.append(now[0])
        return f"rayspan_made {len(made)}\n".encode()

    monkeypatch.setattr(http_servers, "generate_latest", counted)
    monkeypatch.setattr(http_servers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    runner = await http_servers.serve_health(lambda: "", 0)
    try:
        async with aiohttp.ClientSession() as session:

            async def numbers() -> str:
                async with session.get(f"http://127.0.0.1:{port_of(runner)}/metrics") as answer:
                    assert "version=" in answer.headers["Content-Type"]
                    return await answer.text()

            first = [await numbers() for _ in range(5)]
            now[0] += http_servers.REST_FACTOR - 0.5
            first.append(await numbers())
            now[0] += 0.5
            later = await numbers()
    finally:
        await runner.cleanup()
    assert first == ["rayspan_made 1\n"] * 6 and later == "rayspan_made 2\n"


# --- numbers over TLS ------------------------------------------------------------------------------------------------

HOST = "rayspan-admission.rayspan-system.svc"  # what the certificates here are made for
MADE, OTHER = maker.new_certificate(), maker.new_certificate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, MADE)
    return tmp_path


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


@asynccontextmanager
async def secured(folder: Path) -> AsyncIterator[int]:
    runner = await http_servers.serve_metrics(Certificate(folder), 0, reread=0.01)
    try:
        yield port_of(runner)
    finally:
        await runner.cleanup()


async def numbers(port: int, trusted: dict[str, bytes]) -> tuple[int, str]:
    """The answer on a new connection that trusts one authority."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=trusted["ca.crt"].decode()))
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.get(f"https://127.0.0.1:{port}/metrics", server_hostname=HOST) as answer:
            return answer.status, await answer.text()


async def test_only_metrics_are_served_over_tls(folder: Path) -> None:
    async with secured(folder) as port:
        status, text = await numbers(port, MADE)
        assert status == 200 and "\nrayspan_build_info{" in text
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await numbers(port, OTHER)
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{port}/metrics")
        assert (await numbers(port, MADE))[0] == 200


async def test_metrics_over_tls_are_not_served_without_it() -> None:
    runner = await http_servers.serve_health(lambda: "not yet", 0, metrics=False)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port_of(runner)}") as session:
            said = {path: (await session.get(path)).status for path in ("/healthz", "/readyz", "/metrics")}
    finally:
        await runner.cleanup()
    assert said == {"/healthz": 200, "/readyz": 503, "/metrics": 404}


async def test_a_renewed_certificate_is_used_without_a_restart(folder: Path) -> None:
    async with secured(folder) as port:
        assert (await numbers(port, MADE))[0] == 200
        put(folder, OTHER)
        async with asyncio.timeout(10):
            while await _refused(port, OTHER):
                pass
        assert await _refused(port, MADE)


async def test_an_unreadable_certificate_keeps_the_previous_one(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with secured(folder) as port:
        (folder / "tls.crt").write_bytes(OTHER["tls.crt"])
        async with asyncio.timeout(10):
            while not caplog.messages:
                assert (await numbers(port, MADE))[0] == 200
        assert (await numbers(port, MADE))[0] == 200
    assert "the certificate that was read before stays" in caplog.text


async def test_a_stopped_server_reads_no_certificate_any_more(folder: Path) -> None:
    before = asyncio.all_tasks()
    async with secured(folder):
        tasks = asyncio.all_tasks() - before
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert tasks and all(task.cancelled() for task in tasks)


async def _refused(port: int, trusted: dict[str, bytes]) -> bool:
    try:
        await numbers(port, trusted)
    except aiohttp.ClientConnectorCertificateError:
        return True
    return False
