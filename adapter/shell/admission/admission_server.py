"""Serves admission reviews over TLS in bounded time and memory.

It replaces kopf's own server, which takes one MiB at most and reads on while others wait. kopf copies each object, and
compares both objects of an update, which takes seconds at 3 MB. So kopf gets only the fields that a handler changes,
and the object reaches the handler through `REVIEWED_OBJECT`.

Requests are untrusted: anybody who reaches the port may send them, and users who may create pods decide their content.
The gate has priority: warnings get at most half of the event loop's time, and late reviews get no warnings. Warnings
never deny: after an error, the API server continues without them (failurePolicy Ignore). After an error of the gate,
the API server denies the pod (Fail), so that no worker pod is created without a gate. A pod that is too large for the
gate is denied with a sentence.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import orjson
from aiohttp import web

from adapter import names
from adapter.objects.unstructured import UNREADABLE, Raw
from adapter.shell import supervise
from adapter.shell.certificate import REREAD_SECONDS, Certificate
from adapter.shell.request_limits import UploadLimiter

log = logging.getLogger(__name__)

# A pod's annotations have 256 KiB at most (k8s:apimachinery/pkg/api/validation/objectmeta.go), and the rest gets as
# much again. A worker's review takes some 60 KB and a millisecond. A review of an update has both objects, each of 1.5
# MiB at most.
GATE_BYTES, WARNING_BYTES = 2**19, 4 * 2**20
# Uploads at once take 16 MiB for the gate and 32 for warnings. Reviews that wait for the gate take 32 MiB: the pods of
# a burst, or 64 of the largest. A parsed review takes up to 25 times its size, so each path parses one at a time; one
# more may wait for its plan. That is 16 + 32 + 13 MiB for the gate and 32 + 200 for warnings, beside 100 for the
# process itself, of 512.
MOST_UPLOADS, MOST_WAITING, GATE_WAITING_BYTES = 32, 8, 32 * 2**20
UPLOAD_SECONDS = 1.5
# The API server waits for two seconds, including the response's way back.
WARNING_SECONDS = 1.5
LINGER_SECONDS = 1.0

_UID_PATTERN = re.compile(rb'"request":\s*\{\s*"uid":\s*"([0-9A-Za-z-]{1,64})"')
_HEAD_BYTES = 1024
_TOO_LARGE = (
    "This pod and what is asked about it are {} KiB of JSON, and the gate of worker pods takes {} KiB at most: move "
    "what is long in its env, args or annotations into a ConfigMap."
)

# The object under review, for the handler that kopf calls.
REVIEWED_OBJECT: ContextVar[Raw] = ContextVar("object")
Review = dict[str, Any]
KopfHandler = Callable[..., Awaitable[Any]]  # kopf's function: a review, and the handler's id


class WebhookServer:
    """A server for kopf (`settings.admission.server`): called with kopf's function, it serves until it is closed."""

    def __init__(self, port: int, certificate: Certificate, *, reread: float = REREAD_SECONDS) -> None:
        """`reread`: seconds between reads of the certificate."""
        self._port, self._certificate, self._reread_seconds = port, certificate, reread
        self.listening = False

    async def __call__(self, answer: KopfHandler) -> AsyncIterator[Any]:
        handler = _ReviewHandler(answer)
        app = web.Application(client_max_size=WARNING_BYTES)
        app.add_routes(
            [web.post(names.GATE_PATH, handler.handle_gate), web.post(names.WARNINGS_PATH, handler.handle_warnings)]
        )
        # A compressed body is not unpacked, and so is invalid JSON: a few KiB could become more than the memory.
        runner = web.AppRunner(app, access_log=None, auto_decompress=False, lingering_time=LINGER_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, port=self._port, ssl_context=self._certificate.tls).start()
            self.listening = True
            log.info("webhooks are served on port %d", self._port)
            yield {}
            await self._certificate.reload_periodically(self._reread_seconds)
        finally:
            self.listening = False
            await runner.cleanup()


class _ReviewHandler:
    """Answers reviews, within the limits of each path."""

    def __init__(self, kopf_handler: KopfHandler) -> None:
        self._kopf_handler = kopf_handler
        self._gate_uploads, self._warning_uploads = (
            UploadLimiter(most, UPLOAD_SECONDS) for most in (MOST_UPLOADS, MOST_WAITING)
        )
        self._warnings_lock, self._gate_lock = asyncio.Lock(), asyncio.Lock()
        self._waiting_warnings, self._gate_bytes = 0, 0  # reviews, and bytes
        self._rest_until = 0.0  # when the next review for warnings may be parsed

    async def handle_gate(self, request: web.Request) -> web.Response:
        """Gate one pod at a time."""
        size = request.content_length or 0
        try:
            if not 0 < size <= GATE_BYTES:
                return await _deny_too_large(request, size)
            text = await self._gate_uploads.read_body(request)
        except TimeoutError:
            return _refusal_response(408)
        if self._gate_bytes + size > GATE_WAITING_BYTES:
            return _refusal_response(429)
        self._gate_bytes += size
        try:
            async with self._gate_lock:
                return await self._review_response(_parse_review(text), names.GATE_PATH, _gated_fields)
        finally:
            self._gate_bytes -= size

    async def handle_warnings(self, request: web.Request) -> web.Response:
        """Answer with warnings, within WARNING_SECONDS."""
        if self._waiting_warnings >= MOST_WAITING:
            return _refusal_response(429)
        self._waiting_warnings += 1
        try:
            async with asyncio.timeout(WARNING_SECONDS):
                review = await self._parse_in_turn(await self._warning_uploads.read_body(request))
                return await self._review_response(review, names.WARNINGS_PATH, _kind_only)
        except TimeoutError:
            return _refusal_response(503)
        finally:
            self._waiting_warnings -= 1

    async def _parse_in_turn(self, text: bytes) -> Review | None:
        """Parse a review, then pause as long as that took. Parsing takes long; later steps have their own bounds."""
        async with self._warnings_lock:
            started = max(self._rest_until, time.monotonic())
            await asyncio.sleep(started - time.monotonic())
            review = _parse_review(text)
            ended = time.monotonic()
            self._rest_until = ended + ended - started
            return review

    async def _review_response(
        self, review: Review | None, path: str, handler_view: Callable[[Raw], Raw]
    ) -> web.Response:
        if review is None:
            return _refusal_response(400)
        try:
            kopf_review = _kopf_review(review, handler_view)
        except (*UNREADABLE, RecursionError):
            return _refusal_response(400)
        token = REVIEWED_OBJECT.set(review["request"]["object"])
        try:
            response = await self._kopf_handler(kopf_review, webhook=path.strip("/"))
        except Exception as error:  # a kind without a handler in kopf, or a fault of ours
            supervise.report_failure(f"the webhook {path}", error)
            return _refusal_response(500)
        finally:
            REVIEWED_OBJECT.reset(token)  # else it is in memory until the next review of this connection
        if not response["response"]["allowed"]:  # handlers never deny, so one has failed
            return _refusal_response(500)
        return web.Response(body=orjson.dumps(response), content_type="application/json")


def _refusal_response(status: int) -> web.Response:
    """A response that closes the connection, since unread bytes may be on their way before the next review."""
    answer = web.Response(status=status)
    answer.force_close()
    return answer


async def _deny_too_large(request: web.Request, size: int) -> web.Response:
    """Deny a pod by the review's uid, with which an API server's review begins; raises TimeoutError."""
    async with asyncio.timeout(UPLOAD_SECONDS):
        match = _UID_PATTERN.search(await request.content.read(_HEAD_BYTES))
    if not match:
        return _refusal_response(413)
    status = {"code": 413, "message": _TOO_LARGE.format(size // 1024, GATE_BYTES // 1024)}
    response = {"uid": match[1].decode(), "allowed": False, "status": status}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    answer = web.Response(body=orjson.dumps(body), content_type="application/json")
    answer.force_close()
    return answer


def _parse_review(text: bytes) -> Review | None:
    """The review, None where the text is no JSON object."""
    try:
        review = orjson.loads(text)
    except (ValueError, RecursionError):
        return None
    return review if isinstance(review, dict) else None


def _kopf_review(review: Review, handler_view: Callable[[Raw], Raw]) -> Review:
    """The review for kopf, as of a create: of an update, kopf would store the object to match its deletion."""
    request = review["request"]
    fields = {"uid": request["uid"], "resource": request["resource"], "operation": "CREATE", "userInfo": {}}
    type_meta = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
    return {**type_meta, "request": {**fields, "object": handler_view(request["object"])}}


def _gated_fields(pod: Raw) -> Raw:
    """The fields that the gate changes, in their places: kopf computes the patch as a difference."""
    gates = pod["spec"].get("schedulingGates")
    return {"metadata": {}, "spec": {} if gates is None else {"schedulingGates": gates}}


def _kind_only(raw: Raw) -> Raw:
    return {"kind": raw["kind"], "metadata": {}}
