"""One controller process of the fleet's bench: the shipped engine, which reports what it spent when asked.

`python -m hack.bench.fleetprocess SOCKET [shipped]` logs in by $KUBECONFIG and takes part in the election. To each
connection to the socket it answers with its `Numbers` since the last one, after a resync if that is asked for. Unless
the shipped times are asked for, a busy machine costs it no Lease and it starts no resync itself. A stall is CPU time
that the loop's thread spent between two turns; time that others used the machine does not count.
"""

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import uvloop
from prometheus_client import REGISTRY

from adapter import leader_election
from adapter.shell import gc_tuning
from adapter.shell.controller import engine
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.lease import LeaderElector
from adapter.shell.kube import client
from adapter.shell.kube.client import Client
from hack.testbed import procstat

RESYNC, SHIPPED = b"resync\n", "shipped"
SPREAD_SECONDS = 20.0  # in place of a minute: a third of the time for as many reconciles
_TURN_SECONDS = 0.002
_LONG = 60.0  # seconds
_LATEST = "leads", "rss_mb", "peak_mb"
_WRITES = ("create", "patch", "update", "delete")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Since the process was asked last, but for what it holds now, and its peak."""

    leads: bool
    stall_ms: float
    cpu_s: float
    looks: float  # reconciles of pods
    others: float  # reconciles of all other keys
    manager: float  # writes, without those of Leases
    workers: float
    faults: float  # of tasks, which were contained; there must be none
    rss_mb: float
    peak_mb: float

    def __add__(self, more: "Numbers") -> "Numbers":
        """Both one after the other."""
        added = (field.name for field in fields(Numbers) if field.name not in (*_LATEST, "stall_ms"))
        both = {name: getattr(self, name) + getattr(more, name) for name in added}
        return replace(more, **both, stall_ms=max(self.stall_ms, more.stall_ms))


class _Meter:
    """Measures this process."""

    def __init__(self) -> None:
        self._stall = 0.0
        self._before = _spent()

    async def run(self) -> None:
        """Turn with the loop, until cancelled."""
        while True:
            began = time.thread_time()
            await asyncio.sleep(_TURN_SECONDS)
            self._stall = max(self._stall, time.thread_time() - began)

    def numbers(self) -> Numbers:
        """Return the numbers, and reset them."""
        now, before = _spent(), self._before
        spent = {name: now[name] - before[name] for name in now}
        self._before, stall, self._stall = now, self._stall, 0.0
        pid = os.getpid()
        return Numbers(
            leads=bool(REGISTRY.get_sample_value("rayspan_leader")),
            stall_ms=stall * 1000,
            rss_mb=procstat.memory([pid]),
            peak_mb=procstat.peak(pid),
            **spent,
        )


def counts(kind: str = "") -> dict[str, float]:
    """What this process reconciled, wrote and met since it began, see `Numbers`.

    `kind`: count writes of that kind and its subresources alone.
    """
    found = dict.fromkeys(("looks", "others", "manager", "workers", "faults"), 0.0)
    for one in (sample for family in REGISTRY.collect() for sample in family.samples):
        if one.name == "rayspan_reconciles_total":
            found["looks" if one.labels["kind"] == "pod" else "others"] += one.value
        elif one.name == "rayspan_task_failures_total":
            found["faults"] += one.value
        elif one.name == "rayspan_api_requests_total" and _writes(one.labels) and one.labels["kind"].startswith(kind):
            found["workers" if one.labels["cluster"] else "manager"] += one.value
    return found


def _spent() -> dict[str, float]:
    return {"cpu_s": time.process_time(), **counts()}


def _writes(request: Mapping[str, str]) -> bool:
    """Whether a request writes something that somebody waits for."""
    return request["verb"] in _WRITES and request["kind"] != "leases"


async def _run(at: Path) -> None:
    meter = _Meter()

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline() == RESYNC and (parts := running._parts):
            parts.event_handlers.resync_all(SPREAD_SECONDS)
        writer.write(json.dumps(asdict(meter.numbers())).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(tell, at), asyncio.TaskGroup() as tasks:
        lease = LeaderElector(await Client.in_cluster(), str(os.getpid()))
        tasks.create_task(meter.run())
        gc_tuning.collect_rarely()
        running = Engine(await Client.in_cluster(lease.may_write), lease, gc_tuning.freeze_objects)
        tasks.create_task(running.run())


def main() -> None:
    at, *asked = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    if SHIPPED not in asked:
        _calm()
    uvloop.run(_run(Path(at)))


def _calm() -> None:
    vars(engine)["RESYNC_SECONDS"] = 3600.0  # a resync comes only when it is asked for
    # There is no second leader here, and on a busy machine a process may not run for long.
    vars(leader_election).update(RENEW_DEADLINE_SECONDS=_LONG, REQUEST_TIMEOUT_SECONDS=_LONG / 2)
    vars(client)["TIMEOUT_SECONDS"] = _LONG / 2


if __name__ == "__main__":
    main()
