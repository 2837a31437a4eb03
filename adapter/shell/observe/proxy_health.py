"""Finds workers in unreachable clusters that get requests directly and whose proxy does not answer.

Endpoints in our slices are polled once when they appear, and repeatedly while their cluster is unreachable
(worker/proxy_polling.py). The address is untrusted, so a poll is a GET without a body or redirects, and only the status
is read.
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

REFRESH_SECONDS = 1.0

ProxyListener = Callable[[Raw], None]


class ProxyHealth:
    def __init__(self, manager: ManagerCache, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet
        self._pods_by_proxy: dict[ProxyId, Raw] = {}
        self._unreachable_proxies: set[ProxyId] = set()
        self._poll_schedule: dict[ProxyId, ProxyPollState] = {}
        self._in_flight: set[ProxyId] = set()
        self._poll_done = asyncio.Event()
        self._read_versions: tuple[object, ...] = ()

    def is_unresponsive(self, pod: Raw) -> bool:
        """Whether a worker's proxy answered before, and does not while its cluster is unreachable."""
        return any(state.is_unresponsive for proxy, state in self._poll_schedule.items() if proxy[1] == uid_of(pod))

    async def run(self, listener: ProxyListener) -> None:
        """Poll proxies; `listener` gets each pod whose state changed."""
        loop = asyncio.get_running_loop()
        self._in_flight.clear()  # of an earlier run that failed
        async with _new_session() as session, asyncio.TaskGroup() as tasks:
            while True:
                self._refresh_endpoints()
                refresh_at = loop.time() + REFRESH_SECONDS
                while loop.time() < refresh_at:
                    for proxy in proxy_polling.proxies_to_poll(
                        self._poll_schedule, self._unreachable_proxies, self._in_flight, loop.time()
                    ):
                        self._in_flight.add(proxy)
                        tasks.create_task(self._poll_proxy(session, proxy, listener))
                    self._poll_done.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(refresh_at):
                            await self._poll_done.wait()

    def _refresh_endpoints(self) -> None:
        unreachable = self._fleet.unreachable().keys()
        versions = self._manager.endpoints_readable, self._manager.slices.change_count, frozenset(unreachable)
        if versions == self._read_versions:
            return
        self._read_versions, self._pods_by_proxy = versions, dict(self._listed_endpoints())
        self._unreachable_proxies = {
            proxy for proxy, pod in self._pods_by_proxy.items() if slot_cluster(pod) in unreachable
        }
        states = {proxy: self._poll_schedule.get(proxy, ProxyPollState()) for proxy in self._pods_by_proxy}
        self._poll_schedule = {
            proxy: state if proxy in self._unreachable_proxies else proxy_polling.without_failures(state)
            for proxy, state in states.items()
        }

    def _listed_endpoints(self) -> Iterator[tuple[ProxyId, Raw]]:
        for endpoint_slice in self._manager.slices if self._manager.endpoints_readable else ():
            with contain_errors("proxies", key_of(endpoint_slice)):
                yield from [
                    proxy
                    for endpoint in endpoint_slice.get("endpoints") or ()
                    for proxy in self._endpoint_proxies(endpoint_slice, endpoint)
                ]

    def _endpoint_proxies(self, endpoint_slice: Raw, endpoint: Raw) -> Iterator[tuple[ProxyId, Raw]]:
        target, namespace = endpoint.get("targetRef") or {}, key_of(endpoint_slice)[0]
        pod, port = self._manager.pods.get((namespace, str(target.get("name")))), _serve_port(endpoint_slice)
        if pod is None or uid_of(pod) != target.get("uid") or not (endpoint.get("conditions") or {}).get("serving"):
            return
        for address in (endpoint.get("addresses") or ()) if port else ():
            host = ipaddress.ip_address(address)  # rejects a host name, which could resolve to any target
            yield (namespace, uid_of(pod), f"{f'[{host}]' if host.version == 6 else host}:{port}"), pod

    async def _poll_proxy(self, session: aiohttp.ClientSession, proxy: ProxyId, listener: ProxyListener) -> None:
        is_healthy = False
        try:
            async with session.get(f"http://{proxy[2]}{proxy_polling.HEALTH_PATH}", allow_redirects=False) as answer:
                is_healthy = answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            pass  # no answer, or not HTTP
        finally:
            self._in_flight.discard(proxy)
            self._poll_done.set()
        if (before := self._poll_schedule.get(proxy)) is None:
            return  # no endpoint any more
        self._poll_schedule[proxy] = now = proxy_polling.state_after_poll(
            before, is_healthy, asyncio.get_running_loop().time()
        )
        if now.is_unresponsive != before.is_unresponsive:
            listener(self._pods_by_proxy[proxy])


def _serve_port(endpoint_slice: Raw) -> int:
    """The port of a slice's proxies: KubeRay's Serve port, or the only one; 0 if unknown."""
    ports = endpoint_slice.get("ports") or ()
    serve_ports = [port for port in ports if port.get("name") == names.SERVE_PORT_NAME] or (
        ports if len(ports) == 1 else ()
    )
    return int(next((port.get("port") for port in serve_ports), 0) or 0)


def _new_session() -> aiohttp.ClientSession:
    """A session that keeps no connections and cookies, because the next pod at an address is another pod."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=proxy_polling.DEADLINE_SECONDS),
        auto_decompress=False,
    )
