"""Serves health, metrics and previews: GET /healthz, /readyz and /metrics; POST /plan and /version.

/healthz answers while the loop runs, /readyz while the manager cluster is synced. /plan takes a job and answers with
the plan, or a Status, as JSON. The API server in front (services/proxy) checks the right to ask, but the body is
untrusted. So its size is bounded, one preview runs at a time, and connections, previews and metrics each get only a
part of the loop's time, of which each peer gets as much. With a certificate the metrics have a TLS port of their own.
No port authenticates clients.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from adapter import __version__, names
from adapter.objects.job_manifest import MAX_JOB_BYTES, InvalidJob
from adapter.objects.unstructured import truncate
from adapter.shell import supervise
from adapter.shell.certificate import REREAD_SECONDS, Certificate
from adapter.shell.http.connections import peer_of
from adapter.shell.http.fair_places import FairPlaces, NoPlace
from adapter.shell.http.fair_queue import FairQueue
from adapter.shell.http.http_server import start_server
from adapter.shell.http.uploads import UploadLimiter, expire
from adapter.shell.planning.preview import Preview

log = logging.getLogger(__name__)

# The pause after a plan, in multiples of the plan's time. A plan of a large fleet takes up to 100 ms of the loop; with
# pauses four times as long, previews take at most a fifth. Without pauses, a script that always asks would slow down
# all jobs: the loop would turn once between two plans, and a pod needs many turns.
REST_FACTOR = 4
MOST_WAITING = 32  # more requests do not come from people; each costs memory
# The most uploads at once, and the time for one. The API server sends a request as a whole, so a slow upload comes from
# another client. Beyond the limit the newest upload replaces the oldest.
MOST_UPLOADS = 64
UPLOAD_SECONDS = 10.0
# Connections of each server. One that waits with a request takes up to 200 KiB, so all of them take at most 40 MiB.
MOST_CONNECTIONS, MOST_PLAN_CONNECTIONS = 64, 128
# Connections and requests together use at most a tenth of the loop's time.
SERVER_REST_FACTOR = 9
# The longest time for a request, because the API server in front gives up after a minute. One plan gets less, for the
# sake of the requests behind it.
QUESTION_SECONDS = 45.0
PLAN_SECONDS = 5.0

PreviewSource = Callable[[], Preview | str]  # the preview, or why there is none


class _PlanHandler:
    def __init__(self, preview_source: PreviewSource) -> None:
        self._preview_source = preview_source
        self._uploads = UploadLimiter(MOST_UPLOADS, UPLOAD_SECONDS)
        self._plan_queue = FairQueue(rest_factor=REST_FACTOR)
        self._waiting_requests = FairPlaces(MOST_WAITING)

    async def handle_plan(self, request: web.Request) -> web.Response:
        try:
            text = await self._uploads.read_body(request)
        except web.HTTPRequestEntityTooLarge:
            return _error_response(
                413,
                names.INVALID_JOB_REASON,
                f"The job is larger than {MAX_JOB_BYTES // 2**20} MiB; remove everything that is not the job.",
            )
        except TimeoutError:
            return _error_response(
                408, "RequestTimeout", f"The job did not come in whole within {UPLOAD_SECONDS:.0f} s; ask again."
            )
        return await self._wait_and_plan(peer_of(request), text)

    async def _wait_and_plan(self, peer: str, text: bytes) -> web.Response:
        try:
            async with asyncio.timeout(QUESTION_SECONDS) as deadline:
                place = self._waiting_requests.take(peer, lambda: expire(deadline), busy=True)
                try:
                    return await self._plan_in_turn(peer, text)
                finally:
                    self._waiting_requests.release(place)
        except NoPlace:
            return _error_response(
                429, "TooManyRequests", "Too many plans are asked for at once; ask again in a few seconds."
            )
        except TimeoutError:
            return _error_response(
                504,
                "Timeout",
                "No plan was made in time: many are asked for, or many jobs wait before this one; ask again later.",
            )

    async def _plan_in_turn(self, peer: str, text: bytes) -> web.Response:
        async with self._plan_queue.turn(peer), asyncio.timeout(PLAN_SECONDS):
            return await self._parse_and_plan(text)

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
            of_service = question.get("ofService") is True
            answer = await preview.preview_plan(question.get("object"), question["namespace"], of_service=of_service)
            return web.json_response(answer)
        except InvalidJob as error:
            return _error_response(422, names.INVALID_JOB_REASON, truncate(" ".join(error.messages)))
        except Exception:  # must not affect another request
            log.exception("a plan that was asked for")
            return _error_response(
                500, "InternalError", "The plan failed by a fault of Rayspan's own; the controller's log has it."
            )


def new_pace() -> FairQueue:
    """The pace of the servers of one process: connections and requests share it."""
    return FairQueue(rest_factor=SERVER_REST_FACTOR)


async def serve_plans(preview_source: PreviewSource, port: int, *, pace: FairQueue | None = None) -> web.AppRunner:
    """Serve /plan and /version on all addresses; the caller cleans the runner up."""
    app = web.Application(client_max_size=MAX_JOB_BYTES)
    app.add_routes(
        [
            web.post(names.PLAN_PATH, _PlanHandler(preview_source).handle_plan),
            web.post(names.VERSION_PATH, _handle_version),
        ]
    )
    return await start_server(app, port, most_connections=MOST_PLAN_CONNECTIONS, pace=pace or new_pace())


async def _handle_version(_: web.Request) -> web.Response:
    """Answer a POST, because the right to ask for plans is `create`."""
    return web.json_response({"version": __version__})


def _error_response(status: int, reason: str, message: str) -> web.Response:
    """An error as an API server's Status, which every client can read."""
    return web.json_response({"kind": "Status", "reason": reason, "message": message}, status=status)


class _MetricsText:
    """The metrics as text, cached after each scrape: any client that reaches the port may scrape."""

    def __init__(self) -> None:
        self._text, self._rest_until = b"", 0.0

    def latest_text(self) -> bytes:
        started = time.monotonic()
        if started >= self._rest_until:
            self._text = generate_latest()
            ended = time.monotonic()
            self._rest_until = ended + REST_FACTOR * (ended - started)
        return self._text


async def serve_health(
    not_ready_reason: Callable[[], str], port: int, *, metrics: bool = True, pace: FairQueue | None = None
) -> web.AppRunner:
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
    return await start_server(app, port, most_connections=MOST_CONNECTIONS, pace=pace or new_pace())


async def serve_metrics(
    certificate: Certificate, port: int, *, reread: float = REREAD_SECONDS, pace: FairQueue | None = None
) -> web.AppRunner:
    """Serve /metrics over TLS on all addresses, reloading the certificate; the caller cleans the runner up."""

    async def reload_certificate(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(
            supervise.run_with_restarts("certificate of metrics", lambda: certificate.reload_periodically(reread))
        )
        yield
        task.cancel()

    app = web.Application()
    app.add_routes([_metrics_route()])
    app.cleanup_ctx.append(reload_certificate)
    return await start_server(
        app, port, most_connections=MOST_CONNECTIONS, pace=pace or new_pace(), tls=lambda: certificate.tls
    )


def _metrics_route() -> web.RouteDef:
    metrics_text = _MetricsText()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics_text.latest_text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return web.get("/metrics", metrics)
