"""Measures Ray over the relay against the same RayJob over a flat network, in one run on one lab.

A job has one worker in each of two clusters. It times calls and objects of 256 MB between its head and its workers,
first with both clusters flat, then with both relayed. Ray is real. All clusters share this machine's processors, so the
relay's connections take processor time from Ray: the rates are those of a machine that has nothing to spare.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from adapter import names
from hack.bench import crossing, promises
from hack.bench.container_usage import ContainerUsage, read_usage
from hack.bench.promises import Found
from hack.lab.base import lab as definition
from hack.lab.base.progress import step
from hack.testbed import deployment, figures, rayspec, relay
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import JOB_SECONDS, NAMESPACE, Job, removed
from hack.testbed.reader import Raw

NAME = "relay"
HELP = "calls and objects of 256 MB between clusters over the relay, against a flat network; with real Ray"
# How long the job does nothing before and after its transfers. Kubelets publish usage each 10 to 15 s.
IDLE_SECONDS = 40.0
_SIDECARS = (names.RELAY_CLIENT, names.RELAY_SERVER, names.RELAY_HOOK)
_ROUTER = "router"

Usage = Mapping[tuple[str, str, str], ContainerUsage]
"""Cluster, pod and container -> usage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(asked: argparse.Namespace) -> Found:
    """Measure, print tables, and return the line for programs, and what is judged."""
    fleet = deployment.on_lab(renew=asked.renew)
    with step("relay: flat clusters"):
        flat, _ = _measure(fleet, "bench-flat", _flat, idle_s=0.0)
    with step("relay: the same clusters, relayed"), _relayed(fleet):
        relayed, cost = _measure(fleet, "bench-relayed", _beside_sidecars, idle_s=IDLE_SECONDS)
    print("\n" + crossings_table(flat, relayed))
    print("\n" + figures.table(("container", "CPU s a GB"), [*cost.cpu_s_gb.items()]))
    values = relay_values(flat, relayed, cost)
    values["met"] = str(promises.met(values, promises.RELAY)).lower()
    rows = promises.rows(NAME, "", values, promises.RELAY | promises.RELAY_BESIDE)
    return Found([figures.line(NAME, values)], rows)


@dataclass(frozen=True, slots=True)
class Crossings:
    """The figures of a job, by way: `manager-east` is from the head to the worker in east."""

    call_ms: Mapping[str, float]
    mb_s: Mapping[str, float]
    gb: float  # moved in all

    @classmethod
    def parse(cls, result: Raw) -> "Crossings":
        return cls(result["call_ms"], result["mb_s"], result["gb"])


@dataclass(frozen=True, slots=True)
class RelayCost:
    """What the relay's containers use while a job is idle, and for its transfers. All zero without a relay."""

    sidecar_mb: float = 0.0
    sidecar_mcpu: float = 0.0
    cpu_s_gb: Mapping[str, float] = field(default_factory=dict)  # by the name of the container


def crossings_table(flat: Crossings, relayed: Crossings) -> str:
    rows = [
        (way, flat.mb_s[way], relayed.mb_s[way], flat.call_ms[way], relayed.call_ms[way]) for way in sorted(flat.mb_s)
    ]
    return figures.table(("way", "MB/s flat", "MB/s relayed", "call ms flat", "call ms relayed"), rows)


def relay_values(flat: Crossings, relayed: Crossings, cost: RelayCost) -> dict[str, figures.Value]:
    """The figures that are judged: the worst of all ways."""
    return {
        "rate_ratio": min(figures.ratio(relayed.mb_s[way], flat.mb_s[way]) for way in flat.mb_s),
        "call_more_ms": max(relayed.call_ms[way] - flat.call_ms[way] for way in flat.call_ms),
        "sidecar_mb": cost.sidecar_mb,
        "sidecar_mcpu": cost.sidecar_mcpu,
        "cpu_s_gb": sum(cost.cpu_s_gb.values()),
        "mb_s": min(relayed.mb_s.values()),
        "flat_mb_s": min(flat.mb_s.values()),
    }


def relay_cost(before: Usage, idle: Usage, after: Usage, gb: float) -> RelayCost:
    """Three reads: before and after some time without transfers, and after the transfers."""
    sidecars = {key: usage for key, usage in before.items() if key in idle and key[-1] in _SIDECARS}
    if not sidecars:
        return RelayCost()
    rates = [(idle[key].cpu_s - usage.cpu_s) / (idle[key].at - usage.at) for key, usage in sidecars.items()]
    cpu_s_gb = {container: seconds / gb for container, seconds in cpu_by_container(idle, after).items()}
    return RelayCost(max(idle[key].memory_mb for key in sidecars), 1000 * max(rates), cpu_s_gb)


def cpu_by_container(before: Usage, after: Usage) -> dict[str, float]:
    """Processor seconds between two reads, by the name of the container."""
    seconds = dict.fromkeys((*_SIDECARS, _ROUTER), 0.0)
    for key, usage in after.items():
        seconds[key[-1]] += usage.cpu_s - (before[key].cpu_s if key in before else 0.0)
    return seconds


def _measure(
    fleet: Clusters, name: str, change: Callable[[Raw], None], *, idle_s: float
) -> tuple[Crossings, RelayCost]:
    with removed(Job(fleet, name, 2)) as job:
        job.submit(program=crossing.PROGRAM, change=change, words=f"--idle {idle_s:g}")
        job.said("RAYSPAN-IDLE", JOB_SECONDS)
        before = _relay_usage(fleet)
        idle = _await_later_usage(fleet, before)
        crossings = Crossings.parse(job.said("RAYSPAN-RESULT", JOB_SECONDS))
        after = _await_later_usage(fleet, _relay_usage(fleet))
        return crossings, relay_cost(before, idle, after, crossings.gb)


def _await_later_usage(fleet: Clusters, before: Usage) -> Usage:
    """The usage once each kubelet has published it again; at once if there is no relay."""
    return wait(lambda: _later_usage(fleet, before), IDLE_SECONDS, "kubelets publish usage again") if before else {}


def _later_usage(fleet: Clusters, before: Usage) -> Usage:
    after = _relay_usage(fleet)
    is_later = all(key in after and after[key].at > usage.at for key, usage in before.items())
    return after if is_later else {}


def _relay_usage(fleet: Clusters) -> Usage:
    return {
        (cluster.name, *key): usage
        for cluster in (fleet.manager, *fleet.workers.values())
        for namespace in (NAMESPACE, names.SYSTEM_NAMESPACE)
        for key, usage in read_usage(cluster, namespace).items()
        if key[-1] in (*_SIDECARS, _ROUTER)
    }


@contextmanager
def _relayed(fleet: Clusters) -> Iterator[None]:
    try:
        relay.connect(definition.load(), fleet)
        yield
    finally:
        relay.disconnect(fleet)


def _flat(spec: Raw) -> None:
    rayspec.apart(spec)
    rayspec.soon_ready(spec)


def _beside_sidecars(spec: Raw) -> None:
    rayspec.beside_sidecars(spec)
    rayspec.soon_ready(spec)
