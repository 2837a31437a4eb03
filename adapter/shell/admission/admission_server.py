"""How does the API server's question come in, and the answer go out: over TLS, in a bounded time and space?

It stands in for kopf's own server, which takes one MiB at most and reads on while others wait. kopf copies each object that it is given, and
compares the two of an update: for one of 3 MB that takes seconds. So it gets of each question what tells the handler, and the object goes
around it (`OBJECT`). What comes in is anybody's text: whoever reaches the port may send
it, and whoever may create pods decides what the API server asks. The gate goes first: warnings get at most half of the loop's time, and
whoever would come too late with them gets none. They never deny: whatever goes wrong is an error to the API server, which goes on without
(failurePolicy Ignore). Of the gate an error means that the pod is refused (Fail), so that none slips through; one that is too large for it
is denied in a sentence.
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

# Of a pod its annotations are 256 KiB at most (k8s:apimachinery/pkg/api/validation/objectmeta.go), and the rest is as much again: a worker's
# question takes some 60 KB and a millisecond. Of what somebody applies and is stored, 1.5 MiB at most, both objects of an update come.
GATE_BYTES, WARNING_BYTES = 2**19, 4 * 2**20
# All that may be on its way at once, 16 MiB and 32; what is there and waits for its turn at the gate: the pods of a burst, or 64 of the
# largest. One that is read takes up to 25 times its size: only one is at a time at either path, and one more whose plan is asked for.
# That is 16 + 32 + 13 MiB for the gate and 32 + 200 for warnings, beside 100 for the process itself, of 512.
MOST_UPLOADS, MOST_WAITING, GATE_WAITING_BYTES = 32, 8, 32 * 2**20
UPLOAD_SECONDS = 1.5
# The API server waits for two, and the answer has to reach it.
WARNING_SECONDS = 1.5
LINGER_SECONDS = 1.0

_UID_PATTERN = re.compile(rb'"request":\s*\{\s*"uid":\s*"([0-9A-Za-z-]{1,64})"')
_HEAD_BYTES = 1024
_TOO_LARGE = (
    "This pod and what is asked about it are {} KiB of JSON, and the gate of worker pods takes {} KiB at most: move what is long in its env, args or "
    "annotations into a ConfigMap."
)

# What the question is about, for the handler that kopf calls.
REVIEWED_OBJECT: ContextVar[Raw] = ContextVar("object")
Review = dict[str, Any]
KopfHandler = Callable[..., Awaitable[Any]]  # kopf's: the question, and which handler is to answer it


class WebhookServer:
    """kopf's protocol for a server (`settings.admission.server`): called with who answers, it serves until it is closed."""

    def __init__(self, port: int, certificate: Certificate, *, reread: float = REREAD_SECONDS) -> None:
        """`reread`: after how many seconds the certificate is looked at again."""
        self._port, self._certificate, self._reread_seconds = port, certificate, reread
        self.listening = False

    async def __call__(self, answer: KopfHandler) -> AsyncIterator[Any]:
        desk = _ReviewHandler(answer)
        app = web.Application(client_max_size=WARNING_BYTES)
        app.add_routes(
            [web.post(names.GATE_PATH, desk.handle_gate), web.post(names.WARNINGS_PATH, desk.handle_warnings)]
        )
        # What is packed stays so, and is no JSON: a few KiB could become more than there is memory for.
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
    """Who is answered when."""

    def __init__(self, kopf_handler: KopfHandler) -> None:
        self._kopf_handler = kopf_handler
        self._gate_uploads, self._warning_uploads = (
            UploadLimiter(most, UPLOAD_SECONDS) for most in (MOST_UPLOADS, MOST_WAITING)
        )
        self._warnings_lock, self._gate_lock = asyncio.Lock(), asyncio.Lock()
        self._waiting_warnings, self._gate_bytes = 0, 0  # questions, and bytes
        self._rest_until = 0.0  # when the next warnings may be looked for

    async def handle_gate(self, request: web.Request) -> web.Response:
        """The gate, for one pod after the other."""
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
        """Warnings, in turn; none where that takes too long."""
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
        """Reading it is what takes long; what is said of it afterwards has bounds of its own."""
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
            question = _kopf_review(review, handler_view)
        except (*UNREADABLE, RecursionError):
            return _refusal_response(400)
        shown_to_handler = REVIEWED_OBJECT.set(review["request"]["object"])
        try:
            said = await self._kopf_handler(question, webhook=path.strip("/"))
        except Exception as error:  # a kind that kopf has no handler for, or a fault of ours
            supervise.report_failure(f"the webhook {path}", error)
            return _refusal_response(500)
        finally:
            REVIEWED_OBJECT.reset(shown_to_handler)  # the next question of this connection may be long in coming
        if not said["response"]["allowed"]:  # nobody here denies: a handler broke
            return _refusal_response(500)
        return web.Response(body=orjson.dumps(said), content_type="application/json")


def _refusal_response(status: int) -> web.Response:
    """Nothing more comes on this connection, which is said: what was sent may be on its way yet, and the next question could be the gate's."""
    answer = web.Response(status=status)
    answer.force_close()
    return answer


async def _deny_too_large(request: web.Request, size: int) -> web.Response:
    """Deny a pod by its uid, with which an API server's question begins; raises TimeoutError."""
    async with asyncio.timeout(UPLOAD_SECONDS):
        found = _UID_PATTERN.search(await request.content.read(_HEAD_BYTES))
    if not found:
        return _refusal_response(413)
    status = {"code": 413, "message": _TOO_LARGE.format(size // 1024, GATE_BYTES // 1024)}
    response = {"uid": found[1].decode(), "allowed": False, "status": status}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    answer = web.Response(body=orjson.dumps(body), content_type="application/json")
    answer.force_close()
    return answer


def _parse_review(text: bytes) -> Review | None:
    """What was sent, None where it is no object."""
    try:
        found = orjson.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _kopf_review(review: Review, handler_view: Callable[[Raw], Raw]) -> Review:
    """What kopf gets of it, as if it were of a create: of an update it would remember each object for good, to know it when it is deleted."""
    request = review["request"]
    asked = {"uid": request["uid"], "resource": request["resource"], "operation": "CREATE", "userInfo": {}}
    whole = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
    return {**whole, "request": {**asked, "object": handler_view(request["object"])}}


def _gated_fields(pod: Raw) -> Raw:
    """What the gate changes, in its place: the patch is the difference."""
    gates = pod["spec"].get("schedulingGates")
    return {"metadata": {}, "spec": {} if gates is None else {"schedulingGates": gates}}


def _kind_only(raw: Raw) -> Raw:
    return {"kind": raw["kind"], "metadata": {}}
