"""Sends requests to a RayService at a fixed rate from a pod in the manager, and records each second's results.

A late second still sends all of its requests, and an answer after the timeout is a failure: a slow service does not get
fewer. It judges nothing (report.py).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hack.testbed import rayservice
from hack.testbed.clusters import wait
from hack.testbed.rayservice import RayService

# Each request has its own connection, so that kube-proxy chooses again; a second's line is printed when the last of its
# requests has ended. Requests are sent whatever became of earlier ones. Each has its own source port: where a
# connection led to an unreachable address, the kernel remembers it for two minutes (nf_conntrack_tcp_timeout_syn_sent),
# and leads the next one from that port there, too, whatever the slices say by then. One address that opens 50 a second
# reuses such ports, many addresses hardly ever.
_PROGRAM = """
import asyncio, collections, itertools, json, random, socket, sys, time
import aiohttp

URL, RATE, TIMEOUT = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
first = random.randrange(10000, 60000)  # so that two that ask from one address do not begin at the same port
ports = itertools.cycle([*range(first, 60000), *range(10000, first)])

def from_next_port(address):
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("", next(ports)))
    except OSError:
        made.close()
        raise
    return made

def traced():
    trace = aiohttp.TraceConfig()
    def then(doing):
        async def begins(session, context, *args):
            context.trace_request_ctx["doing"] = doing
        return begins
    trace.on_dns_resolvehost_start.append(then("finding the name"))
    trace.on_dns_resolvehost_end.append(then("connecting"))
    trace.on_dns_cache_hit.append(then("connecting"))
    trace.on_connection_create_end.append(then("waiting for an answer"))
    return trace

async def ask(session, failed, zones, releases):
    seen = {"doing": "connecting"}
    try:
        async with session.get(URL, trace_request_ctx=seen) as answer:
            said = await answer.json() if answer.status == 200 else {}
            if answer.status != 200:
                failed[str(answer.status)] += 1
    except Exception as error:
        said = {}
        failed[f"{type(error).__name__} while {seen['doing']}"] += 1
    if said:
        zones[said["zone"]] += 1
        releases[said["release"]] += 1

async def second(session, at):
    found = failed, zones, releases = [collections.Counter() for _ in range(3)]
    asked = []
    for number in range(RATE):
        await asyncio.sleep(max(0.0, at + number / RATE - time.time()))
        asked.append(asyncio.create_task(ask(session, *found)))
    yield
    await asyncio.gather(*asked)
    print(json.dumps({"at": at, "asked": RATE, "failed": failed, "zones": zones, "releases": releases}), flush=True)

async def rest(one):
    async for _ in one:
        pass

async def main():
    timeout, ends = aiohttp.ClientTimeout(total=TIMEOUT), set()
    connector = aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=from_next_port)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trace_configs=[traced()]) as session:
        at = int(time.time()) + 1
        while True:
            one = second(session, at)
            await anext(one)
            ends.add(asyncio.create_task(rest(one)))
            at += 1

asyncio.run(main())
"""
TIMEOUT = 10.0  # seconds that a request may take: as long as a person waits for a page


@dataclass(frozen=True)
class Second:
    """One second of load; `at` is when it began, by the clock of the machine."""

    at: float
    asked: int
    failed: Counter[str] = field(default_factory=Counter)  # by error in place of an answer, and the action at that time
    zones: Counter[str] = field(default_factory=Counter)
    releases: Counter[str] = field(default_factory=Counter)


def read(text: str) -> list[Second]:
    """The pod's output."""
    return [_second(json.loads(line)) for line in text.splitlines() if line.startswith("{")]


def _second(raw: dict[str, Any]) -> Second:
    return Second(raw["at"], raw["asked"], *(Counter(raw[key]) for key in ("failed", "zones", "releases")))


@dataclass(frozen=True)
class Load:
    """A pod that asks."""

    service: RayService
    pod: str

    def seconds(self) -> list[Second]:
        """All that have ended."""
        return read(self.service.fleet.manager.log(self.pod))

    def wait(self, what: str, last: int, seen: Callable[[Sequence[Second]], bool], patience: float) -> None:
        """Wait until the last seconds say so."""

        def well() -> bool:
            found = self.seconds()[-last:]
            return len(found) == last and seen(found)

        wait(well, patience, what, lambda: f"{self.seconds()[-10:]}\n{self.service.dump()}")


@contextmanager
def on(service: RayService, rate: int) -> Iterator[Load]:
    """Somebody asks a RayService so many times a second, for a while."""
    with rayservice.running(service, "load", _PROGRAM, str(rate), str(TIMEOUT)) as pod:
        yield Load(service, pod)


def zones(found: Sequence[Second]) -> set[str]:
    return {zone for one in found for zone in one.zones}


def releases(found: Sequence[Second]) -> set[str]:
    return {release for one in found for release in one.releases}
