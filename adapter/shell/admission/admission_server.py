"""Serves admission reviews over TLS in bounded time and memory.

kopf's own server takes bodies of one MiB at most, and goes on reading bodies while other reviews wait. kopf copies each
object and compares both objects of an update, which takes seconds at 3 MB. So kopf gets only the fields that a handler
changes; the handler reads the object itself from `REVIEWED_OBJECT`.

Requests are untrusted. The gate has priority: warnings get at most half of the event loop's time, and a review that is
late gets no warnings. Of the peers whose reviews wait, the one whose reviews took the least time is next. After an
error of the warnings the API server continues (failurePolicy Ignore). After an error of the gate it denies the pod
(Fail), so that no worker pod is created without a gate.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import orjson
from aiohttp import web

from adapter import names
from adapter.objects.unstructured import UNREADABLE, Raw
from adapter.shell import supervise
from adapter.shell.certificate import REREAD_SECONDS, Certificate
from adapter.shell.http.connections import peer_of
from adapter.shell.http.fair_places import FairPlaces, NoPlace
from adapter.shell.http.fair_queue import FairQueue
from adapter.shell.http.http_server import start_server
from adapter.shell.http.uploads import UploadLimiter, expire

log = logging.getLogger(__name__)

# The largest review of each webhook. A pod's annotations have 256 KiB at most
# (k8s:apimachinery/pkg/api/validation/objectmeta.go), and the rest of its review may have as much. A worker's review
# takes some 60 KB and a millisecond. For warnings, the review of an update has both objects, each of 1.5 MiB at most.
GATE_BYTES, WARNING_BYTES = 2**19, 4 * 2**20
# These limits keep the process below 512 MiB. Uploads take 16 MiB for the gate and 32 for warnings. Reviews that wait
# for the gate take 16 MiB: the pods of a burst, or 32 of the largest reviews. A parsed review takes up to 25 times its
# size, so each path parses one review at a time. One more for warnings may wait for its plan. A connection takes 256
# KiB for TLS and 128 for what is received. The sum is 16 + 16 + 13 MiB for the gate, 32 + 200 for warnings, 72 for
# connections, and 100 for the process. An API server has 200 requests that write at a time, of which few create pods.
MOST_UPLOADS, MOST_WAITING, GATE_WAITING_BYTES, MOST_CONNECTIONS = 32, 8, 16 * 2**20, 192
UPLOAD_SECONDS = 1.5
# The API server waits for two seconds, including the way back.
WARNING_SECONDS = 1.5

_UID_PATTERN = re.compile(rb'"request":\s*\{\s*"uid":\s*"([0-9A-Za-z-]{1,64})"')
_HEAD_BYTES = 1024
_TOO_LARGE = (
    "The admission review of this pod has {} KiB of JSON, and the gate of worker pods takes {} KiB at most: move "
    "what is long in its env, args or annotations into a ConfigMap."
)

# The whole object of a review, for the handler that kopf calls.
REVIEWED_OBJECT: ContextVar[Raw] = ContextVar("object")
Review = dict[str, Any]
KopfHandler = Callable[..., Awaitable[Any]]  # a review, and the handler's id


class WebhookServer:
    """A server for kopf (`settings.admission.server`)."""

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
        runner = await start_server(
            app, self._port, most_connections=MOST_CONNECTIONS, pace=FairQueue(), tls=lambda: self._certificate.tls
        )
        try:
            self.listening = True
            log.info("webhooks are served on port %d", self._port)
            yield {}
            await self._certificate.reload_periodically(self._reread_seconds)
        finally:
            self.listening = False
            await runner.cleanup()


class _ReviewHandler:
    def __init__(self, kopf_handler: KopfHandler) -> None:
        self._kopf_handler = kopf_handler
        self._gate_uploads, self._warning_uploads = (
            UploadLimiter(most, UPLOAD_SECONDS) for most in (MOST_UPLOADS, MOST_WAITING)
        )
        self._gate_queue, self._warnings_queue = FairQueue(), FairQueue(rest_factor=1)
        self._waiting_warnings, self._gate_bytes = FairPlaces(MOST_WAITING), FairPlaces(GATE_WAITING_BYTES)

    async def handle_gate(self, request: web.Request) -> web.Response:
        size = request.content_length or 0
        try:
            if not 0 < size <= GATE_BYTES:
                return await _deny_too_large(request, size)
            text = await self._gate_uploads.read_body(request)
            return await self._review_gate(peer_of(request), text)
        except TimeoutError:
            return _refusal_response(408)
        except NoPlace:
            return _refusal_response(429)

    async def _review_gate(self, peer: str, text: bytes) -> web.Response:
        """Review in turn; raises TimeoutError if a peer with fewer reviews needs the memory, or NoPlace."""
        async with asyncio.timeout(None) as deadline:
            place = self._gate_bytes.take(peer, lambda: expire(deadline), weight=len(text), busy=True)
            try:
                async with self._gate_queue.turn(peer):
                    return await self._review_response(_parse_review(text), names.GATE_PATH, _gated_fields)
            finally:
                self._gate_bytes.release(place)

    async def handle_warnings(self, request: web.Request) -> web.Response:
        peer = peer_of(request)
        try:
            async with asyncio.timeout(WARNING_SECONDS) as deadline:
                place = self._waiting_warnings.take(peer, lambda: expire(deadline), busy=True)
                try:
                    review = await self._parse_in_turn(peer, await self._warning_uploads.read_body(request))
                    return await self._review_response(review, names.WARNINGS_PATH, _kind_only)
                finally:
                    self._waiting_warnings.release(place)
        except TimeoutError:
            return _refusal_response(503)
        except NoPlace:
            return _refusal_response(429)

    async def _parse_in_turn(self, peer: str, text: bytes) -> Review | None:
        """Parse one review at a time; the next waits as long as this one took."""
        async with self._warnings_queue.turn(peer):
            return _parse_review(text)

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
            REVIEWED_OBJECT.reset(token)  # otherwise the object stays in memory until this connection's next review
        if not response["response"]["allowed"]:  # handlers never deny, so one has failed
            return _refusal_response(500)
        return web.Response(body=orjson.dumps(response), content_type="application/json")


def _refusal_response(status: int) -> web.Response:
    """A response that closes the connection: unread bytes may precede the next review."""
    answer = web.Response(status=status)
    answer.force_close()
    return answer


async def _deny_too_large(request: web.Request, size: int) -> web.Response:
    """Deny a pod unread, by the uid with which an API server's review begins; raises TimeoutError."""
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
    try:
        review = orjson.loads(text)
    except (ValueError, RecursionError):
        return None
    return review if isinstance(review, dict) else None


def _kopf_review(review: Review, handler_view: Callable[[Raw], Raw]) -> Review:
    """The review for kopf, in the form of a creation: kopf would store the object of an update."""
    request = review["request"]
    fields = {"uid": request["uid"], "resource": request["resource"], "operation": "CREATE", "userInfo": {}}
    type_meta = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
    return {**type_meta, "request": {**fields, "object": handler_view(request["object"])}}


def _gated_fields(pod: Raw) -> Raw:
    """The fields that the gate changes, at their paths in the pod: kopf computes the patch as a difference."""
    gates = pod["spec"].get("schedulingGates")
    return {"metadata": {}, "spec": {} if gates is None else {"schedulingGates": gates}}


def _kind_only(raw: Raw) -> Raw:
    return {"kind": raw["kind"], "metadata": {}}
