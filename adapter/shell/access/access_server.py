"""What does the access server answer? Logs, commands and ports of one worker, to who shows the key of a grant for it.

The API server stands in front (services/proxy); whoever reaches the port may ask as well, and gets no further without a key. What is
asked is small and has no body; what is open at once is bounded in all and by namespace, and so is how many ask at once. Connections of
who shows no key are not: they have memory of this pod alone, which nothing else needs. No URL is logged: keys are in them.
"""

import logging
import ssl
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from adapter.access import access_request as requests
from adapter.access import discovery, route
from adapter.access.access_request import AccessRequest
from adapter.access.grant import EXEC, LOG, PORT_FORWARD, Grant
from adapter.access.route import ErrorStatus
from adapter.shell import supervise
from adapter.shell.access import stream_relay
from adapter.shell.access.concurrency import ConcurrencyLimits, TooManyStreams
from adapter.shell.access.grant_resolver import AccessRefused, GrantResolver
from adapter.shell.kube import resources, streams
from adapter.shell.kube.client import ApiError, Client, Unreachable

log = logging.getLogger(__name__)

# The API server keeps connections for what comes next; it comes within seconds.
IDLE_SECONDS: Final = 30.0
MOST_HEADERS, LONGEST_HEADER, LONGEST_LINE = 64, 8190, 4096
# Of a grant that served once, why its request was refused over there: kubectl tries again by its older protocol, and shows that answer.
MOST_REMEMBERED: Final = 200

_METHODS: Final = {False: ("GET",), True: ("GET", "POST")}  # the latter is what that protocol asks by

_NOT_FOUND: Final = ErrorStatus(
    404, "NotFound", "Nothing is answered here but what `kubectl rayspan` asks: logs, exec, port-forward and cp."
)
_KUBECTL_TOO_OLD: Final = ErrorStatus(
    400, "BadRequest", "This needs a kubectl that speaks WebSocket to containers: version 1.31 or later, without KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false."
)  # fmt: skip
_INTERNAL_ERROR: Final = ErrorStatus(
    500, "InternalError", "It failed by a fault of Rayspan's own; the log of Deployment rayspan-access has it."
)
_MANAGER_UNREACHABLE: Final = ErrorStatus(
    503, "ServiceUnavailable", "The manager's API server cannot be asked now; try again soon."
)


class AccessHandler:
    """Answers requests."""

    def __init__(self, manager: Client) -> None:
        self._resolver, self._limits = GrantResolver(manager), ConcurrencyLimits()
        self._refusals: dict[tuple[str, str, str], ErrorStatus] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request; whatever is wrong with it is a Status with a sentence."""
        try:
            return await self._handle(request)
        except (AccessRefused, TooManyStreams) as error:
            return _status_response(error.refusal)
        except (ApiError, Unreachable) as error:
            log.warning("the manager's API server: %s", type(error).__name__)
            return _status_response(_MANAGER_UNREACHABLE)
        except Exception as error:
            supervise.report_failure("access", error)
            return _status_response(_INTERNAL_ERROR)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = requests.parse_path(request.rel_url.raw_path)
        if asked is None or request.method not in _METHODS[asked.resource in (EXEC, PORT_FORWARD)]:
            raise AccessRefused(_NOT_FOUND)
        if said := self._refusals.get(_grant_key(asked)):
            raise AccessRefused(said)
        if not asked.pod:  # the same for everybody; of a refusal here kubectl would tell no word
            return web.json_response(discovery.discovery_document(asked.resource))
        return await self._handle_pod(request, asked)

    async def _handle_pod(self, request: web.Request, access_request: AccessRequest) -> web.StreamResponse:
        with self._limits.pending_request():
            grant = await self._resolver.read_grant(access_request)
            pod, cluster = await self._resolver.read_pod(access_request, grant)
        if access_request.resource == requests.POD:
            return web.json_response(discovery.visible_pod(pod))
        with self._limits.open_stream(grant.namespace):
            async with self._resolver.worker_cluster_client(grant, cluster) as client:
                place = (grant.namespace, grant.pod, cluster)
                log.info("%s of pod %s/%s in %s, by WorkerAccess %s", access_request.resource, *place, grant.name)
                passed = self._stream_log if grant.subresource == LOG else self._stream_websocket
                return await passed(request, access_request, grant, client)

    async def _stream_log(
        self, request: web.Request, _: AccessRequest, grant: Grant, client: Client
    ) -> web.StreamResponse:
        query = route.log_query(grant, request.query.items())
        if isinstance(query, ErrorStatus):
            raise AccessRefused(query)
        try:
            async with streams.open_log(client, _pod_path(grant), query) as pieces:
                return await stream_relay.relay_log(request, pieces)
        except ApiError as error:
            raise AccessRefused(route.worker_error(client.cluster, grant, error.status, error.message)) from None
        except Unreachable as error:
            raise AccessRefused(route.unreachable_error(client.cluster, str(error))) from None

    async def _stream_websocket(
        self, request: web.Request, access_request: AccessRequest, grant: Grant, client: Client
    ) -> web.StreamResponse:
        protocols = route.accepted_protocols(grant, _offered_protocols(request))
        if not protocols:
            raise AccessRefused(_KUBECTL_TOO_OLD)
        await self._resolver.consume_grant(grant)
        try:
            async with streams.open_websocket(client, _pod_path(grant), route.stream_query(grant), protocols) as there:
                here = stream_relay.socket_to_client(there)
                await here.prepare(request)
                await stream_relay.relay_both_ways(here, there)
                return here
        except ApiError as error:
            raise self._remember_refusal(
                access_request, route.worker_error(client.cluster, grant, error.status)
            ) from None
        except Unreachable as error:
            raise self._remember_refusal(access_request, route.unreachable_error(client.cluster, str(error))) from None

    def _remember_refusal(self, access_request: AccessRequest, refusal: ErrorStatus) -> AccessRefused:
        while len(self._refusals) >= MOST_REMEMBERED:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[_grant_key(access_request)] = refusal
        return AccessRefused(refusal)


def _grant_key(access_request: AccessRequest) -> tuple[str, str, str]:
    return access_request.namespace, access_request.grant, access_request.key


def _pod_path(grant: Grant) -> str:
    return resources.PODS.path(grant.namespace, grant.pod, grant.subresource)


def _offered_protocols(request: web.Request) -> list[str]:
    """The protocols of a WebSocket that a client names; none where it asks for no WebSocket."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return []
    named = ",".join(request.headers.getall("Sec-WebSocket-Protocol", ()))
    return [one.strip() for one in named.split(",")]


def _status_response(refusal: ErrorStatus) -> web.Response:
    """A sentence as an API server says it, so that kubectl shows it."""
    said: Mapping[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "code": refusal.status,
    }
    return web.json_response(said, status=refusal.status)


async def serve(manager: Client, context: ssl.SSLContext, port: int) -> web.AppRunner:
    """Serve on all addresses; the caller cleans the runner up."""
    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{rest:.*}", AccessHandler(manager).handle)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,  # who has gone away leaves his place
        keepalive_timeout=IDLE_SECONDS,
        max_headers=MOST_HEADERS,
        max_field_size=LONGEST_HEADER,
        max_line_size=LONGEST_LINE,
        shutdown_timeout=stream_relay.CLOSING_SECONDS,
        auto_decompress=False,
    )
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=context).start()
    return runner
