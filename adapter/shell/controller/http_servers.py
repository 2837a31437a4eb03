"""Serves health, metrics and previews: GET /healthz, /readyz and /metrics; POST /plan and /version.

/healthz answers while the loop runs, /readyz while the manager cluster is synced. /plan takes a job and answers with
the plan, or a Status, as JSON. The API server in front (services/proxy) checks the right to ask. The request body is
still untrusted. So its size is bounded, one preview runs at a time, and previews and metrics get only a part of the
loop's time. A slow, large or expensive request delays no other client.

Nothing is written. With a certificate the metrics are served over TLS on a port of their own; that port, too,
authenticates no client.
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

# A plan of a large fleet takes up to 100 ms of the loop in which everything else runs. After each preview the next one
# waits four times as long as it took, so previews take at most a fifth of the loop. Otherwise a script that always asks
# would slow down all jobs: the loop would turn once between two plans, and a pod needs many turns.
REST_FACTOR = 4
MOST_WAITING = 32  # more than this many clients at once are not people; each waiting request costs memory
# An upload costs memory, too. The API server sends a request as a whole, so a slow upload comes from another client. It
# does not count as a waiting request. Beyond the limit the oldest upload is aborted for the newest.
MOST_UPLOADS = 64
UPLOAD_SECONDS = 10.0
# How long the rest of an answered request is read, so that its sender reads the answer.
LINGER_SECONDS = 1.0
# A preview that is not answered by then is given up: the API server in front gives up after a minute. One plan gets
# less time, so that the requests behind it can still be answered.
QUESTION_SECONDS = 45.0
PLAN_SECONDS = 5.0

PreviewSource = Callable[[], Preview | str]  # the preview, or the reason why it cannot answer now


class _PlanHandler:
    """Handles /plan, one request at a time."""

    def __init__(self, preview_source: PreviewSource) -> None:
        self._preview_source = preview_source
        self._uploads = UploadLimiter(MOST_UPLOADS, UPLOAD_SECONDS)
        self._plan_lock = asyncio.Lock()
        self._waiting_requests = 0
        self._rest_until = 0.0  # when the next request may be answered

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
        except Exception:  # a request must not affect another one
            log.exception("a plan that was asked for")
            return _error_response(
                500, "InternalError", "The plan failed by a fault of Rayspan's own; the controller's log has it."
            )


async def serve_plans(preview_source: PreviewSource, port: int) -> web.AppRunner:
    """Serve /plan and /version on all addresses; the caller cleans the runner up."""
    app = web.Application(client_max_size=MAX_JOB_BYTES)
    app.add_routes(
        [
            web.post(names.PLAN_PATH, _PlanHandler(preview_source).handle_plan),
            web.post(names.VERSION_PATH, _handle_version),
        ]
    )
    # A compressed body stays compressed, and is then no JSON: a few KiB could expand to more than the memory.
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, lingering_time=LINGER_SECONDS)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


async def _handle_version(_: web.Request) -> web.Response:
    """Answer with the version. It is a POST, because the right to ask for plans is `create`."""
    return web.json_response({"version": __version__})


def _error_response(status: int, reason: str, message: str) -> web.Response:
    """An error in the form of an API server's Status, which every client can read."""
    return web.json_response({"kind": "Status", "reason": reason, "message": message}, status=status)


class _MetricsText:
    """The metrics as text, cached for a while after each scrape: every client that reaches the port may scrape."""

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
    """Serve /healthz, /readyz and optionally /metrics on all addresses; the caller cleans the runner up."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        message = not_ready_reason()
        return web.Response(status=503, text=message) if message else web.Response(text="ok")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    if metrics:
        app.add_routes([_metrics_route()])
    return await _start_server(app, port)


async def serve_metrics(certificate: Certificate, port: int, *, reread: float = REREAD_SECONDS) -> web.AppRunner:
    """Serve /metrics over TLS on all addresses, and reload the certificate periodically; the caller cleans the runner
    up."""

    async def reload_certificate(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(
            supervise.run_with_restarts("certificate of metrics", lambda: certificate.reload_periodically(reread))
        )
        yield
        task.cancel()

    app = web.Application()
    app.add_routes([_metrics_route()])
    app.cleanup_ctx.append(reload_certificate)
    return await _start_server(app, port, certificate.tls)


def _metrics_route() -> web.RouteDef:
    metrics_text = _MetricsText()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics_text.latest_text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return web.get("/metrics", metrics)


async def _start_server(app: web.Application, port: int, tls: ssl.SSLContext | None = None) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=tls).start()
    return runner
