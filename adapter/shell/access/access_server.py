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
from adapter.access.access_request import Asked
from adapter.access.grant import EXEC, LOG, PORT_FORWARD, Grant
from adapter.access.route import Refusal
from adapter.shell import supervise
from adapter.shell.access import stream_relay
from adapter.shell.access.concurrency import Full, Places
from adapter.shell.access.grant_resolver import Door, Refused
from adapter.shell.kube import resources, streams
from adapter.shell.kube.client import ApiError, Client, Unreachable

log = logging.getLogger(__name__)

# The API server keeps connections for what comes next; it comes within seconds.
IDLE_SECONDS: Final = 30.0
MOST_HEADERS, LONGEST_HEADER, LONGEST_LINE = 64, 8190, 4096
# Of a grant that served once, why its request was refused over there: kubectl tries again by its older protocol, and shows that answer.
MOST_REMEMBERED: Final = 200

_METHODS: Final = {False: ("GET",), True: ("GET", "POST")}  # the latter is what that protocol asks by

_NOTHING: Final = Refusal(
    404, "NotFound", "Nothing is answered here but what `kubectl rayspan` asks: logs, exec, port-forward and cp."
)
_TOO_OLD: Final = Refusal(
    400, "BadRequest", "This needs a kubectl that speaks WebSocket to containers: version 1.31 or later, without KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false."
)  # fmt: skip
_BROKE: Final = Refusal(
    500, "InternalError", "It failed by a fault of Rayspan's own; the log of Deployment rayspan-access has it."
)
_MANAGER: Final = Refusal(503, "ServiceUnavailable", "The manager's API server cannot be asked now; try again soon.")


class Desk:
    """Answers requests."""

    def __init__(self, manager: Client) -> None:
        self._door, self._places = Door(manager), Places()
        self._refused: dict[tuple[str, str, str], Refusal] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request; whatever is wrong with it is a Status with a sentence."""
        try:
            return await self._answer(request)
        except (Refused, Full) as error:
            return _status(error.refusal)
        except (ApiError, Unreachable) as error:
            log.warning("the manager's API server: %s", type(error).__name__)
            return _status(_MANAGER)
        except Exception as error:
            supervise.failed("access", error)
            return _status(_BROKE)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = requests.asked(request.rel_url.raw_path)
        if asked is None or request.method not in _METHODS[asked.what in (EXEC, PORT_FORWARD)]:
            raise Refused(_NOTHING)
        if said := self._refused.get(_whose(asked)):
            raise Refused(said)
        if not asked.pod:  # the same for everybody; of a refusal here kubectl would tell no word
            return web.json_response(discovery.discovery(asked.what))
        return await self._of_pod(request, asked)

    async def _of_pod(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        with self._places.asking():
            grant = await self._door.grant(asked)
            pod, cluster = await self._door.pod(asked, grant)
        if asked.what == requests.POD:
            return web.json_response(discovery.shown(pod))
        with self._places.one(grant.namespace):
            async with self._door.there(grant, cluster) as client:
                place = (grant.namespace, grant.pod, cluster)
                log.info("%s of pod %s/%s in %s, by WorkerAccess %s", asked.what, *place, grant.name)
                passed = self._log if grant.subresource == LOG else self._upgrade
                return await passed(request, asked, grant, client)

    async def _log(self, request: web.Request, _: Asked, grant: Grant, client: Client) -> web.StreamResponse:
        query = route.log_query(grant, request.query.items())
        if isinstance(query, Refusal):
            raise Refused(query)
        try:
            async with streams.log(client, _path(grant), query) as pieces:
                return await stream_relay.log(request, pieces)
        except ApiError as error:
            raise Refused(route.refused_there(client.cluster, grant, error.status, error.message)) from None
        except Unreachable as error:
            raise Refused(route.unreached(client.cluster, str(error))) from None

    async def _upgrade(self, request: web.Request, asked: Asked, grant: Grant, client: Client) -> web.StreamResponse:
        protocols = route.protocols(grant, _offered(request))
        if not protocols:
            raise Refused(_TOO_OLD)
        await self._door.consume(grant)
        try:
            async with streams.upgraded(client, _path(grant), route.stream_query(grant), protocols) as there:
                here = stream_relay.here(there)
                await here.prepare(request)
                await stream_relay.both_ways(here, there)
                return here
        except ApiError as error:
            raise self._remembered(asked, route.refused_there(client.cluster, grant, error.status)) from None
        except Unreachable as error:
            raise self._remembered(asked, route.unreached(client.cluster, str(error))) from None

    def _remembered(self, asked: Asked, refusal: Refusal) -> Refused:
        while len(self._refused) >= MOST_REMEMBERED:
            del self._refused[next(iter(self._refused))]
        self._refused[_whose(asked)] = refusal
        return Refused(refusal)


def _whose(asked: Asked) -> tuple[str, str, str]:
    return asked.namespace, asked.grant, asked.key


def _path(grant: Grant) -> str:
    return resources.PODS.path(grant.namespace, grant.pod, grant.subresource)


def _offered(request: web.Request) -> list[str]:
    """The protocols of a WebSocket that a client names; none where it asks for no WebSocket."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return []
    named = ",".join(request.headers.getall("Sec-WebSocket-Protocol", ()))
    return [one.strip() for one in named.split(",")]


def _status(refusal: Refusal) -> web.Response:
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
    app.router.add_route("*", "/{rest:.*}", Desk(manager).answer)
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
