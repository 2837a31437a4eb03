"""What does the controller answer over the network: whether it is well, its numbers, and what would be planned for a job?

/healthz while its loop turns, /readyz while the manager cluster is read, /metrics for numbers; POST /plan with a job, and the
answer or a sentence comes back as JSON; POST /version, and the version does. The API server stands in front of that
(services/proxy) and says who may ask; what comes in is anybody's text nevertheless. So it is small, one question is answered at a
time, and questions get a part of the loop's time only, as numbers do. Somebody who sends slowly, or much, or who asks what takes
long, is in nobody's way. Nothing is written. With a certificate the numbers are told over TLS, on a port of their own; who asks for
them is not asked for his name there either.
"""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from adapter import __version__, names
from adapter.objects.rayjob import MAX_JOB_BYTES, InvalidJob
from adapter.objects.unstructured import truncate
from adapter.shell import supervise
from adapter.shell.certificate import REREAD_SECONDS, Certificate
from adapter.shell.planning.preview import Preview
from adapter.shell.request_limits import UploadLimiter

log = logging.getLogger(__name__)

# A plan of a large fleet takes up to 100 ms of the loop in which everything else runs. After each question the next one
# waits four times as long as it took, so questions never take more than a fifth of it. All jobs would miss that once somebody's
# script asks in a loop: everybody may ask, and between two plans the loop else turns once, while a pod's way through it takes many.
REST_FACTOR = 4
MOST_WAITING = 32  # more than this many people at once do not ask by hand; what waits here costs memory
# What is on its way in costs memory, too. The API server sends a question whole, so one that takes long is sent by somebody else:
# it takes no place from those that wait, and when too many are on their way the oldest of them is given up for the newest.
MOST_UPLOADS = 64
UPLOAD_SECONDS = 10.0
LINGER_SECONDS = 1.0  # for which more is read of what is answered already, so that its sender gets to read the answer
# A question that is not answered by then is not waited for: the API server in front gives up after a minute. One plan is never
# given so long that all who wait behind it miss theirs.
QUESTION_SECONDS = 45.0
PLAN_SECONDS = 5.0

PreviewSource = Callable[[], Preview | str]  # who answers, or why nobody can now


class _PlanHandler:
    """One question at a time."""

    def __init__(self, preview_source: PreviewSource) -> None:
        self._preview_source = preview_source
        self._uploads = UploadLimiter(MOST_UPLOADS, UPLOAD_SECONDS)
        self._plan_lock = asyncio.Lock()
        self._waiting_requests = 0
        self._rest_until = 0.0  # when the next question may be answered

    async def handle_plan(self, request: web.Request) -> web.Response:
        try:
            text = await self._uploads.read_body(request)
        except web.HTTPRequestEntityTooLarge:
            return _error_response(
                413,
                names.INVALID_JOB_REASON,
                f"The job is larger than {MAX_JOB_BYTES // 2**20} MiB; leave out what is not the job.",
            )
        except TimeoutError:
            return _error_response(
                408, "RequestTimeout", f"The job did not come in whole within {UPLOAD_SECONDS:.0f} s; ask again."
            )
        if self._waiting_requests >= MOST_WAITING:
            return _error_response(
                429, "TooManyRequests", "Too many plans are asked for at once; ask again in a few seconds."
            )
        self._waiting_requests += 1
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                return await self._plan_in_turn(text)
        except TimeoutError:
            return _error_response(
                504,
                "Timeout",
                "No plan was made in time: many are asked for, or many jobs wait before this one; ask again later.",
            )
        finally:
            self._waiting_requests -= 1

    async def _plan_in_turn(self, text: bytes) -> web.Response:
        async with self._plan_lock:
            started = max(self._rest_until, time.monotonic())
            await asyncio.sleep(started - time.monotonic())
            try:
                async with asyncio.timeout(PLAN_SECONDS):
                    return await self._parse_and_plan(text)
            finally:
                ended = time.monotonic()
                self._rest_until = ended + REST_FACTOR * (ended - started)

    async def _parse_and_plan(self, text: bytes) -> web.Response:
        try:
            question = json.loads(text)
        except (ValueError, RecursionError):
            return _error_response(400, names.INVALID_JOB_REASON, "What was sent is not JSON.")
        return await self._preview_response(question)

    async def _preview_response(self, question: Any) -> web.Response:
        preview = self._preview_source()
        if isinstance(preview, str):
            return _error_response(503, names.NOT_READY_REASON, preview)
        if not isinstance(question, dict) or not isinstance(question.get("namespace"), str):
            return _error_response(400, names.INVALID_JOB_REASON, "What was sent has no namespace and no object.")
        try:
            answer = await preview.preview_plan(question.get("object"), question["namespace"], datetime.now(UTC))
            return web.json_response(answer)
        except InvalidJob as error:
            return _error_response(422, names.INVALID_JOB_REASON, truncate(" ".join(error.messages)))
        except Exception:  # a question must cost nobody else anything
            log.exception("a plan that was asked for")
            return _error_response(
                500, "InternalError", "The plan failed by a fault of Rayspan's own; the controller's log has it."
            )


async def serve_plans(preview_source: PreviewSource, port: int) -> web.AppRunner:
    """Serve on all addresses; the caller cleans the runner up."""
    app = web.Application(client_max_size=MAX_JOB_BYTES)
    app.add_routes(
        [
            web.post(names.PLAN_PATH, _PlanHandler(preview_source).handle_plan),
            web.post(names.VERSION_PATH, _handle_version),
        ]
    )
    # What is packed stays so, and is no JSON: a few KiB could become more than there is memory for.
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, lingering_time=LINGER_SECONDS)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


async def _handle_version(_: web.Request) -> web.Response:
    """A POST, because the right to ask for plans is that to create."""
    return web.json_response({"version": __version__})


def _error_response(status: int, reason: str, message: str) -> web.Response:
    """A sentence in the form in which API servers say theirs, so that every client knows how to read it."""
    return web.json_response({"kind": "Status", "reason": reason, "message": message}, status=status)


class _MetricsText:
    """The metrics as text. What was counted last is said again while the loop has a rest of it: everybody who reaches the port may ask."""

    def __init__(self) -> None:
        self._text, self._rest_until = b"", 0.0

    def latest_text(self) -> bytes:
        started = time.monotonic()
        if started >= self._rest_until:
            self._text = generate_latest()
            ended = time.monotonic()
            self._rest_until = ended + REST_FACTOR * (ended - started)
        return self._text


async def serve_health(not_ready_reason: Callable[[], str], port: int, *, metrics: bool = True) -> web.AppRunner:
    """Serve on all addresses, with or without the metrics; the caller cleans the runner up."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        why = not_ready_reason()
        return web.Response(status=503, text=why) if why else web.Response(text="ok")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    if metrics:
        app.add_routes([_metrics_route()])
    return await _start_server(app, port)


async def serve_metrics(certificate: Certificate, port: int, *, reread: float = REREAD_SECONDS) -> web.AppRunner:
    """Serve over TLS on all addresses, and look at the certificate again and again; the caller cleans the runner up."""

    async def renewed(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(
            supervise.run_with_restarts("certificate of metrics", lambda: certificate.reload_periodically(reread))
        )
        yield
        task.cancel()

    app = web.Application()
    app.add_routes([_metrics_route()])
    app.cleanup_ctx.append(renewed)
    return await _start_server(app, port, certificate.tls)


def _metrics_route() -> web.RouteDef:
    numbers = _MetricsText()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=numbers.latest_text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return web.get("/metrics", metrics)


async def _start_server(app: web.Application, port: int, tls: ssl.SSLContext | None = None) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=tls).start()
    return runner
