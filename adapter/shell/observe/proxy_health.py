"""Which workers that get requests straight, in worker clusters that cannot be seen, have a proxy that does not answer?

Asked are the endpoints that stand in our slices, and nobody else: once when they come, and again and again while their cluster is silent
(worker/proxy_polling.py). An address is what a worker cluster said, so no more is sent than a question without a body, nothing is followed,
and of the answer the status alone is read.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Iterator
from contextlib import suppress

import aiohttp

from adapter import names
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.objects.worker_pod import slot_cluster
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.supervise import contain_errors
from adapter.worker import proxy_polling
from adapter.worker.proxy_polling import ProxyId, ProxyPollState

# Between two looks at who is to be asked.
REFRESH_SECONDS = 1.0

ProxyListener = Callable[[Raw], None]


class ProxyHealth:
    """What is known of the proxies of workers elsewhere."""

    def __init__(self, manager: ManagerCache, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet
        self._pods_by_proxy: dict[ProxyId, Raw] = {}
        self._unreachable_proxies: set[ProxyId] = set()
        self._poll_schedule: dict[ProxyId, ProxyPollState] = {}
        self._in_flight: set[ProxyId] = set()
        self._poll_done = asyncio.Event()  # one of the latter is done
        self._read_versions: tuple[object, ...] = ()  # what the endpoints were read from

    def is_unresponsive(self, pod: Raw) -> bool:
        """Whether a worker's proxy answered once, and does not now that its cluster cannot be seen."""
        return any(turn.is_unresponsive for one, turn in self._poll_schedule.items() if one[1] == uid_of(pod))

    async def run(self, listener: ProxyListener) -> None:
        """Ask proxies until cancelled; `heard` is told of each pod with news."""
        loop = asyncio.get_running_loop()
        self._in_flight.clear()  # of an earlier run, which a fault has ended
        async with _new_session() as session, asyncio.TaskGroup() as tasks:
            while True:
                self._refresh_endpoints()
                again = loop.time() + REFRESH_SECONDS
                while loop.time() < again:
                    for one in proxy_polling.proxies_to_poll(
                        self._poll_schedule, self._unreachable_proxies, self._in_flight, loop.time()
                    ):
                        self._in_flight.add(one)
                        tasks.create_task(self._poll_proxy(session, one, listener))
                    self._poll_done.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(again):
                            await self._poll_done.wait()

    def _refresh_endpoints(self) -> None:
        """See who is an endpoint now, and forget all others; a look that finds nothing changed costs nothing."""
        silent = self._fleet.unreachable().keys()
        as_of = self._manager.endpoints_readable, self._manager.slices.change_count, frozenset(silent)
        if as_of == self._read_versions:
            return
        self._read_versions, self._pods_by_proxy = as_of, dict(self._listed_endpoints())
        self._unreachable_proxies = {one for one, pod in self._pods_by_proxy.items() if slot_cluster(pod) in silent}
        turns = {one: self._poll_schedule.get(one, ProxyPollState()) for one in self._pods_by_proxy}
        self._poll_schedule = {
            one: turn if one in self._unreachable_proxies else proxy_polling.without_failures(turn)
            for one, turn in turns.items()
        }

    def _listed_endpoints(self) -> Iterator[tuple[ProxyId, Raw]]:
        for found in self._manager.slices if self._manager.endpoints_readable else ():
            with contain_errors("proxies", key_of(found)):
                yield from [each for one in found.get("endpoints") or () for each in self._endpoint_proxies(found, one)]

    def _endpoint_proxies(self, endpoint_slice: Raw, endpoint: Raw) -> Iterator[tuple[ProxyId, Raw]]:
        """One that gets requests, or would if its proxy answered."""
        target, namespace = endpoint.get("targetRef") or {}, key_of(endpoint_slice)[0]
        pod, port = self._manager.pods.get((namespace, str(target.get("name")))), _serve_port(endpoint_slice)
        if pod is None or uid_of(pod) != target.get("uid") or not (endpoint.get("conditions") or {}).get("serving"):
            return
        for address in (endpoint.get("addresses") or ()) if port else ():
            host = ipaddress.ip_address(address)  # a name would lead wherever somebody likes
            yield (namespace, uid_of(pod), f"{f'[{host}]' if host.version == 6 else host}:{port}"), pod

    async def _poll_proxy(self, session: aiohttp.ClientSession, proxy: ProxyId, listener: ProxyListener) -> None:
        """Ask one, and note what comes of it."""
        well = False
        try:
            async with session.get(f"http://{proxy[2]}{proxy_polling.HEALTH_PATH}", allow_redirects=False) as answer:
                well = answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            pass  # no answer, or none that HTTP knows
        finally:
            self._in_flight.discard(proxy)
            self._poll_done.set()
        if (before := self._poll_schedule.get(proxy)) is None:
            return  # it is no endpoint any more
        self._poll_schedule[proxy] = now = proxy_polling.state_after_poll(
            before, well, asyncio.get_running_loop().time()
        )
        if now.is_unresponsive != before.is_unresponsive:
            listener(self._pods_by_proxy[proxy])


def _serve_port(endpoint_slice: Raw) -> int:
    """Where the proxies of a slice listen for HTTP: at KubeRay's port for Serve, or the only one there is; 0 where that is not known."""
    ports = endpoint_slice.get("ports") or ()
    named = [one for one in ports if one.get("name") == names.SERVE_PORT_NAME] or (ports if len(ports) == 1 else ())
    return int(next((one.get("port") for one in named), 0) or 0)


def _new_session() -> aiohttp.ClientSession:
    """It keeps no connection and no cookie: the next pod of an address is another."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=proxy_polling.DEADLINE_SECONDS),
        auto_decompress=False,
    )
