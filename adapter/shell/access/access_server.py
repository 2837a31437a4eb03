"""Serves logs, commands and ports of one worker to a user who shows the key of a grant for it.

Users reach it through the API server (services/proxy), with one address for all of them. So a connection has a place
of the API server's until its grant and key are verified, and from then on one of its namespace's (concurrency.py). A
connection that is not verified gives way to a newer one. URLs hold keys and are not logged.
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
from adapter.shell.http.connections import connection_of, peer_of
from adapter.shell.http.fair_queue import FairQueue
from adapter.shell.http.http_server import start_server
from adapter.shell.kube import resources, streams
from adapter.shell.kube.client import ApiError, Client, Unreachable

log = logging.getLogger(__name__)

# Idle connections are closed after this time. The API server sends the next request on a connection within seconds.
IDLE_SECONDS: Final = 30.0
# Connections without a verified grant: 96 take 36 of the pod's 320 MiB.
MOST_UNVERIFIED: Final = 96
# How many refusals are remembered. A failed request has used up its single-use grant, but kubectl retries with its
# older protocol and shows only the second answer. So that answer must repeat the first refusal.
MOST_REMEMBERED: Final = 200

_METHODS: Final = {False: ("GET",), True: ("GET", "POST")}  # kubectl's older protocol sends POST

_NOT_FOUND: Final = ErrorStatus(
    404, "NotFound", "Nothing is answered here but what `kubectl rayspan` asks: logs, exec, port-forward and cp."
)
_KUBECTL_TOO_OLD: Final = ErrorStatus(
    400,
    "BadRequest",
    "This needs a kubectl that speaks WebSocket to containers: version 1.31 or later, without "
    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false.",
)
_INTERNAL_ERROR: Final = ErrorStatus(
    500, "InternalError", "It failed by a fault of Rayspan's own; the log of Deployment rayspan-access has it."
)
_MANAGER_UNREACHABLE: Final = ErrorStatus(
    503, "ServiceUnavailable", "The manager's API server cannot be asked now; try again soon."
)


class AccessHandler:
    def __init__(self, manager: Client) -> None:
        self._resolver, self._limits = GrantResolver(manager), ConcurrencyLimits()
        self._refusals: dict[tuple[str, str, str], ErrorStatus] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request. With a grant it is the last one of its connection: the next may be without."""
        answer = await self._answer(request)
        if connection_of(request).is_verified:
            answer.force_close()
        return answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """The answer; every error is a Status with a sentence."""
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
        access_request = requests.parse_path(request.rel_url.raw_path)
        if access_request is None or request.method not in _METHODS[access_request.resource in (EXEC, PORT_FORWARD)]:
            raise AccessRefused(_NOT_FOUND)
        if refusal := self._refusals.get(_grant_key(access_request)):
            raise AccessRefused(refusal)
        # Discovery needs no grant: it is public, and kubectl would not show why it was refused.
        if not access_request.pod:
            return web.json_response(discovery.discovery_document(access_request.resource))
        return await self._handle_pod(request, access_request)

    async def _handle_pod(self, request: web.Request, access_request: AccessRequest) -> web.StreamResponse:
        async with self._limits.lookup(peer_of(request), access_request.namespace):
            grant = await self._resolver.read_grant(access_request)
        with self._limits.verified_request(grant.namespace):
            connection_of(request).set_verified()
            pod, cluster = await self._resolver.read_pod(access_request, grant)
        if access_request.resource == requests.POD:
            return web.json_response(discovery.visible_pod(pod))
        with self._limits.open_stream(grant.namespace):
            async with self._resolver.worker_cluster_client(grant, cluster) as client:
                target = (grant.namespace, grant.pod, cluster)
                log.info("%s of pod %s/%s in %s, by WorkerAccess %s", access_request.resource, *target, grant.name)
                stream = self._stream_log if grant.subresource == LOG else self._stream_websocket
                return await stream(request, access_request, grant, client)

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
            async with streams.open_websocket(
                client, _pod_path(grant), route.stream_query(grant), protocols
            ) as worker_socket:
                client_socket = stream_relay.socket_to_client(worker_socket)
                await client_socket.prepare(request)
                await stream_relay.relay_both_ways(client_socket, worker_socket)
                return client_socket
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
    """The WebSocket protocols that the client offers; none where it requests no WebSocket."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return []
    header = ",".join(request.headers.getall("Sec-WebSocket-Protocol", ()))
    return [protocol.strip() for protocol in header.split(",")]


def _status_response(refusal: ErrorStatus) -> web.Response:
    """An API server's Status, so that kubectl shows its message."""
    body: Mapping[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "code": refusal.status,
    }
    return web.json_response(body, status=refusal.status)


async def serve(manager: Client, context: ssl.SSLContext, port: int) -> web.AppRunner:
    """Serve on all addresses; the caller cleans the runner up."""
    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{rest:.*}", AccessHandler(manager).handle)
    return await start_server(
        app,
        port,
        most_connections=MOST_UNVERIFIED,
        pace=FairQueue(),
        tls=lambda: context,
        idle_seconds=IDLE_SECONDS,
        shutdown_timeout=stream_relay.CLOSING_SECONDS,
    )
