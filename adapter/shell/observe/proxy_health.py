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
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.supervise import contained
from adapter.worker import proxy_polling
from adapter.worker.proxy_polling import Proxy, Turn

# Between two looks at who is to be asked.
LOOK_SECONDS = 1.0

Tell = Callable[[Raw], None]


class Proxies:
    """What is known of the proxies of workers elsewhere."""

    def __init__(self, manager: Manager, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet
        self._pods: dict[Proxy, Raw] = {}
        self._unseen: set[Proxy] = set()
        self._turns: dict[Proxy, Turn] = {}
        self._flying: set[Proxy] = set()
        self._landed = asyncio.Event()  # one of the latter is done
        self._as_of: tuple[object, ...] = ()  # what the endpoints were read from

    def silent(self, pod: Raw) -> bool:
        """Whether a worker's proxy answered once, and does not now that its cluster cannot be seen."""
        return any(turn.silent for one, turn in self._turns.items() if one[1] == uid_of(pod))

    async def run(self, heard: Tell) -> None:
        """Ask proxies until cancelled; `heard` is told of each pod with news."""
        loop = asyncio.get_running_loop()
        self._flying.clear()  # of an earlier run, which a fault has ended
        async with _session() as session, asyncio.TaskGroup() as tasks:
            while True:
                self._follow()
                again = loop.time() + LOOK_SECONDS
                while loop.time() < again:
                    for one in proxy_polling.chosen(self._turns, self._unseen, self._flying, loop.time()):
                        self._flying.add(one)
                        tasks.create_task(self._ask(session, one, heard))
                    self._landed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(again):
                            await self._landed.wait()

    def _follow(self) -> None:
        """See who is an endpoint now, and forget all others; a look that finds nothing changed costs nothing."""
        silent = self._fleet.silent().keys()
        as_of = self._manager.serves, self._manager.slices.changes, frozenset(silent)
        if as_of == self._as_of:
            return
        self._as_of, self._pods = as_of, dict(self._endpoints())
        self._unseen = {one for one, pod in self._pods.items() if slot_cluster(pod) in silent}
        turns = {one: self._turns.get(one, Turn()) for one in self._pods}
        self._turns = {one: turn if one in self._unseen else proxy_polling.seen(turn) for one, turn in turns.items()}

    def _endpoints(self) -> Iterator[tuple[Proxy, Raw]]:
        for found in self._manager.slices if self._manager.serves else ():
            with contained("proxies", key_of(found)):
                yield from [each for one in found.get("endpoints") or () for each in self._endpoint(found, one)]

    def _endpoint(self, found: Raw, endpoint: Raw) -> Iterator[tuple[Proxy, Raw]]:
        """One that gets requests, or would if its proxy answered."""
        target, namespace = endpoint.get("targetRef") or {}, key_of(found)[0]
        pod, port = self._manager.pods.get((namespace, str(target.get("name")))), _port(found)
        if pod is None or uid_of(pod) != target.get("uid") or not (endpoint.get("conditions") or {}).get("serving"):
            return
        for address in (endpoint.get("addresses") or ()) if port else ():
            host = ipaddress.ip_address(address)  # a name would lead wherever somebody likes
            yield (namespace, uid_of(pod), f"{f'[{host}]' if host.version == 6 else host}:{port}"), pod

    async def _ask(self, session: aiohttp.ClientSession, one: Proxy, heard: Tell) -> None:
        """Ask one, and note what comes of it."""
        well = False
        try:
            async with session.get(f"http://{one[2]}{proxy_polling.PATH}", allow_redirects=False) as answer:
                well = answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            pass  # no answer, or none that HTTP knows
        finally:
            self._flying.discard(one)
            self._landed.set()
        if (before := self._turns.get(one)) is None:
            return  # it is no endpoint any more
        self._turns[one] = now = proxy_polling.after(before, well, asyncio.get_running_loop().time())
        if now.silent != before.silent:
            heard(self._pods[one])


def _port(found: Raw) -> int:
    """Where the proxies of a slice listen for HTTP: at KubeRay's port for Serve, or the only one there is; 0 where that is not known."""
    ports = found.get("ports") or ()
    named = [one for one in ports if one.get("name") == names.SERVE_PORT_NAME] or (ports if len(ports) == 1 else ())
    return int(next((one.get("port") for one in named), 0) or 0)


def _session() -> aiohttp.ClientSession:
    """It keeps no connection and no cookie: the next pod of an address is another."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=proxy_polling.DEADLINE_SECONDS),
        auto_decompress=False,
    )
