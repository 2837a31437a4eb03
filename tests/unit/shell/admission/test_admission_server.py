"""Webhook requests over real sockets and TLS: no request delays the next one or denies an object by accident.

Test functions answer here; tests/integration/test_admission.py covers kopf with its handlers.
"""

import asyncio
import gc
import io
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.objects.unstructured import Raw
from adapter.shell.admission import admission_server, webhook_certificate
from adapter.shell.admission.admission_server import REVIEWED_OBJECT, WebhookServer
from adapter.shell.certificate import Certificate

MANY = 125_000
HOST = "rayspan-admission.rayspan-system.svc"
POD = {"group": "", "version": "v1", "resource": "pods"}
MADE, OTHER = webhook_certificate.new_certificate(), webhook_certificate.new_certificate()


def review(raw: Raw, **more: Any) -> Raw:
    asked = {"uid": "7", "resource": POD, "operation": "UPDATE", "userInfo": {"username": "a"}, "object": raw, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


class Answers:
    """A handler that records its requests and answers as the test sets it."""

    def __init__(self, say: Callable[[], Awaitable[bool]] | None = None, *, keeps: bool = True) -> None:
        """`keeps`: the objects, too."""
        self.asked: list[Raw] = []
        self._say, self.keeps = say, keeps

    async def __call__(self, question: Raw, *, webhook: str) -> Raw:
        self.asked.append(
            {"webhook": webhook, **question["request"], **({"about": REVIEWED_OBJECT.get()} if self.keeps else {})}
        )
        allowed = await self._say() if self._say else True
        return {"response": {"uid": question["request"]["uid"], "allowed": allowed}}


class Asking:
    """The API server's side."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session, self.port = session, port

    async def post(self, path: str, body: bytes) -> tuple[int, Any]:
        url = f"https://127.0.0.1:{self.port}{path}"
        async with self._session.post(url, data=io.BytesIO(body), server_hostname=HOST) as answer:
            return answer.status, await answer.json() if answer.content_type == "application/json" else None

    async def ask(self, path: str, raw: Raw, **more: Any) -> tuple[int, Any]:
        return await self.post(path, json.dumps(review(raw, **more)).encode())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it takes is not asked: on a busy machine some would come too late."""
    for limit in ("WARNING_SECONDS", "UPLOAD_SECONDS"):
        monkeypatch.setattr(admission_server, limit, 60.0)


@asynccontextmanager
async def served(folder: Path, answer: Any, *, reread: float = 60.0) -> AsyncIterator[Asking]:
    for name, content in MADE.items():
        (folder / name).write_bytes(content)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = WebhookServer(port, Certificate(folder), reread=reread)(answer)
    await anext(serving)
    goes_on = asyncio.ensure_future(anext(serving))  # as kopf does
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            yield Asking(session, port)
    finally:
        goes_on.cancel()
        await asyncio.gather(goes_on, return_exceptions=True)


async def test_a_request_is_answered_over_tls(tmp_path: Path) -> None:
    answers = Answers()
    async with served(tmp_path, answers) as api:
        assert await api.ask("/warnings", {"kind": "RayJob", "spec": {"a": 1}, "status": {"b": 2}}) == (
            200,
            {"response": {"uid": "7", "allowed": True}},
        )
    (asked,) = answers.asked
    assert (asked["webhook"], asked["object"]) == ("warnings", {"kind": "RayJob", "metadata": {}})
    assert asked["about"] == {"kind": "RayJob", "spec": {"a": 1}, "status": {"b": 2}}, (
        "it goes around kopf, which would copy it"
    )


async def test_kopf_gets_a_create_without_the_old_object(tmp_path: Path) -> None:
    """Of an update it would keep something for each object for good, and compare both in full."""
    answers = Answers()
    async with served(tmp_path, answers) as api:
        await api.ask("/warnings", {"kind": "RayJob"}, oldObject={"kind": "RayJob"})
    assert answers.asked[0]["operation"] == "CREATE" and "oldObject" not in answers.asked[0]


async def test_only_the_changed_parts_of_a_pod_are_passed_on(tmp_path: Path) -> None:
    answers = Answers()
    pod = {
        "metadata": {"labels": {"a": "b"}, "name": "p"},
        "spec": {"schedulingGates": [{"name": "g"}], "containers": [{}]},
    }
    async with served(tmp_path, answers) as api:
        assert (await api.ask("/gate", pod))[0] == 200
    (asked,) = answers.asked
    assert asked["object"] == {"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}]}}
    assert asked["about"] == pod


@pytest.mark.parametrize("path", ["/gate", "/warnings"])
@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"null", b'{"request": 3}', b'{"request": {}}', b"[" * 100_000, json.dumps(review(None)).encode()],  # type: ignore[arg-type]
    ids=["no JSON", "a list", "null", "an invalid request", "an empty object", "deeply nested", "no object"],
)
async def test_an_invalid_request_is_an_error(tmp_path: Path, path: str, body: bytes) -> None:
    async with served(tmp_path, Answers()) as api:
        status, _ = await api.post(path, body)
        assert status == 400 if path == "/gate" or b"object" not in body else status in (200, 400)
        assert (await api.ask(path, {"kind": "Pod", "metadata": {}, "spec": {}}))[0] == 200


@pytest.mark.parametrize("path", ["/gate", "/warnings"])
async def test_an_exception_of_a_handler_denies_nothing(tmp_path: Path, path: str) -> None:
    """On an error the API server continues without warnings, and denies an ungated worker."""

    async def denied() -> bool:
        return False

    async def broke() -> bool:
        raise RuntimeError("secret")

    for say in (denied, broke):
        async with served(tmp_path, Answers(say)) as api:
            assert await api.ask(path, {"kind": "Pod", "metadata": {}, "spec": {}}) == (500, None)


async def test_late_warnings_are_left_out(tmp_path: Path) -> None:
    async def never() -> bool:
        await asyncio.Event().wait()
        return True

    async with served(tmp_path, Answers(never)) as api:
        async with asyncio.timeout(5):
            assert await api.ask("/warnings", {"kind": "RayJob"}) == (503, None)


async def test_requests_beyond_the_limit_get_an_error_and_the_gate_stays_open(tmp_path: Path) -> None:
    held = asyncio.Event()
    answers = Answers()

    async def waits() -> bool:
        if answers.asked[-1]["webhook"] == "warnings":
            await held.wait()
        return True

    answers._say = waits
    async with served(tmp_path, answers) as api:
        many = [
            asyncio.create_task(api.ask("/warnings", {"kind": "RayJob"}))
            for _ in range(admission_server.MOST_WAITING + 3)
        ]
        done, rest = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 3:
            more, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert {task.result()[0] for task in done} == {429}
        assert (await api.ask("/gate", {"kind": "Pod", "metadata": {}, "spec": {}}))[0] == 200
        held.set()
        assert [(await task)[0] for task in rest] == [200] * admission_server.MOST_WAITING


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        ("/gate", 500_000, 200),
        ("/warnings", admission_server.WARNING_BYTES + 1, 413),
        ("/warnings", 3_000_000, 200),
    ],
)
@pytest.mark.usefixtures("patient")
async def test_a_too_large_request_is_not_read(tmp_path: Path, path: str, size: int, status: int) -> None:
    async with served(tmp_path, Answers()) as api:
        assert (await api.post(path, _of_size(size)))[0] == status


def _of_size(size: int) -> bytes:
    raw: Raw = {"kind": "Pod", "metadata": {}, "spec": {"a": ""}}
    raw["spec"]["a"] = "x" * (size - len(json.dumps(review(raw)).encode()))
    return json.dumps(review(raw)).encode()


async def test_a_pod_too_large_for_the_gate_is_denied_with_a_message(tmp_path: Path) -> None:
    """An HTTP error would show only a number in KubeRay's events. The next pod of the same API server is answered."""
    async with served(tmp_path, answers := Answers()) as api:
        status, said = await api.post("/gate", _of_size(1_500_000))
        assert status == 200 and said["kind"] == "AdmissionReview" and said["apiVersion"] == "admission.k8s.io/v1"
        assert said["response"] == {
            "uid": "7",
            "allowed": False,
            "status": {
                "code": 413,
                "message": "The admission review of this pod has 1464 KiB of JSON, and the gate of worker pods "
                "takes 512 KiB at most: move what is long in its env, args or annotations into a ConfigMap.",
            },
        }
        assert answers.asked == []
        assert (await api.ask("/gate", {"kind": "Pod", "metadata": {}, "spec": {}}))[0] == 200


async def test_a_too_large_invalid_request_is_an_error(tmp_path: Path) -> None:
    async with served(tmp_path, Answers()) as api:
        assert await api.post("/gate", b" " * 1_500_000) == (413, None)


@pytest.mark.usefixtures("patient")
async def test_many_large_pods_at_once_take_the_memory_of_one(tmp_path: Path) -> None:
    """Ten pods with as many entries as fit, on open connections. Any pod creator may do so; a replica has 512 MiB."""
    body = json.dumps(review({"kind": "Pod", "metadata": {}, "spec": {"tolerations": [{}] * MANY}})).encode()
    assert 490_000 < len(body) < 512 * 1024
    most = 0

    async def slow() -> bool:
        nonlocal most
        most = max(most, sum(type(one) is list and len(one) == MANY for one in gc.get_objects()))
        for _ in range(100):  # others have their turn
            await asyncio.sleep(0)
        return True

    async with served(tmp_path, Answers(slow, keeps=False)) as api:
        said = await asyncio.gather(*(api.post("/gate", body) for _ in range(10)))
    assert [status for status, _ in said] == [200] * 10
    assert most == 1, "each takes 25 times its size"


@pytest.mark.usefixtures("patient")
async def test_pods_that_wait_for_the_gate_have_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pod is being answered, and a second one waits; a third exceeds the bytes of all that wait."""
    body = _of_size(100_000)
    monkeypatch.setattr(admission_server, "GATE_WAITING_BYTES", 2 * len(body))
    held, answers = asyncio.Event(), Answers()

    async def waits() -> bool:
        await held.wait()
        return True

    answers._say = waits
    async with asyncio.timeout(20), served(tmp_path, answers) as api:
        sent = [asyncio.create_task(api.post("/gate", body)) for _ in range(3)]
        done, waiting = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result()[0] for task in done] == [429]
        held.set()
        assert [(await task)[0] for task in waiting] == [200, 200]
        assert (await api.post("/gate", body))[0] == 200


@pytest.mark.usefixtures("patient")
async def test_a_large_object_delays_no_other_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three million bytes of the most entries, four times: between one and the next a pod gets its gate."""
    parsed: list[tuple[float, float]] = []

    def timed(text: bytes) -> Any:
        started = time.monotonic()
        parsed_review = parse(text)
        if len(text) > 2_900_000:
            parsed.append((started, time.monotonic()))
        return parsed_review

    parse = admission_server._parse_review
    monkeypatch.setattr(admission_server, "_parse_review", timed)
    body = json.dumps(review({"kind": "RayJob", "spec": {"a": [{} for _ in range(740_000)]}})).encode()
    assert 2_900_000 < len(body) < admission_server.WARNING_BYTES
    answers, gates = Answers(), 0
    async with served(tmp_path, answers) as api:
        large = [asyncio.create_task(api.post("/warnings", body)) for _ in range(4)]
        while not all(one.done() for one in large):
            assert (await api.ask("/gate", {"kind": "Pod", "metadata": {}, "spec": {}}))[0] == 200
            gates += 1
    assert [one.result()[0] for one in large] == [200] * 4
    assert gates > len(large) == len(parsed)
    for (started, ended), (next_started, _) in pairwise(parsed):
        assert next_started - ended >= (ended - started) * 0.9, "the loop is free for as long as it was taken"
    assert max(len(json.dumps(asked["object"])) for asked in answers.asked) < 100, "kopf copies what it gets"


async def test_a_renewed_certificate_is_reloaded(tmp_path: Path) -> None:
    """New connections get it."""
    async with served(tmp_path, Answers(), reread=0.01) as api:
        assert (await api.ask("/gate", {"kind": "Pod", "metadata": {}, "spec": {}}))[0] == 200
        for name, content in OTHER.items():
            (tmp_path / name).write_bytes(content)
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        async with asyncio.timeout(10):
            while not await _trusts(context, api.port):
                pass


async def _trusts(context: ssl.SSLContext, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    return True
