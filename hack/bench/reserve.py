"""Measures how long it takes to reserve a gang in all clusters at once, and the writes of each worker.

It counts from the moment the manager's Kueue has reserved quota until the check is Ready: a plan, and a share in every
cluster, each admitted by its own Kueue. Quota is ample and the policy spreads, so every cluster takes an even part. The
clusters share one machine, so many of them slow each other down more than elsewhere.
"""

import argparse
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from adapter.objects.unstructured import Raw
from adapter.shell.kube.resources import PLACEMENTS, PODS, RAY_CLUSTERS, WORKLOADS
from hack.bench import promises, timeline
from hack.bench.promises import Found
from hack.bench.report import OURS
from hack.lab.base import lab as definition
from hack.lab.base.progress import step
from hack.testbed import audit, deployment, figures
from hack.testbed.audit import Kind, Request
from hack.testbed.clusters import Clusters, wait
from hack.testbed.recorder import Place, Recorder
from hack.testbed.stage import Stage
from hack.testbed.workerclusters import connected

NAME = "reserve"
HELP = "from the manager's quota to all reservations, and writes per worker, by size of the gang and number of clusters"

_SIZES, _OVER = (8, 64, 512), (2, 5, 10)
_CPU = "250m"  # of each worker, so that 256 of them fit on the two fake nodes of a cluster
_QUOTA = 64  # CPUs of each cluster, all that its fake nodes have
_TIMES = 3  # the median of so many; a gang of hundreds is long enough to be measured once
_LARGE = 256
_READS = ("get", "list", "watch")
_PATIENCE = 300.0  # seconds; 512 workers on two cores take a minute or two


@dataclass(frozen=True, slots=True)
class Outcome:
    """One gang: seconds from the manager's quota to a Placement, to all shares admitted, to all workers running; our
    writes.
    """

    planned: float
    ready: float
    running: float
    writes: Mapping[str, Counter[Kind]]  # by cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gangs", type=int, nargs="+", default=list(_SIZES), metavar="N",
                        help=f"sizes of the gangs (default {' '.join(map(str, _SIZES))})")  # fmt: skip
    parser.add_argument("--over", type=int, nargs="+", default=list(_OVER), metavar="N",
                        help="over how many clusters, as far as the lab has them (default 2 5 10)")  # fmt: skip


def run(asked: argparse.Namespace) -> Found:
    """Measure, print a table, and return the lines for programs, and what is judged."""
    fleet = deployment.on_lab(renew=asked.renew)
    rows = []
    with deployment.undisturbed(fleet.manager):
        for over in [number for number in asked.over if number <= len(fleet.workers)]:
            with connected(fleet, tuple(fleet.workers)[:over]):
                rows += [row(fleet, workers, over) for workers in asked.gangs if workers >= over]
    print("\n" + table(rows))
    judged = [
        promises.rows(NAME, f"{one['workers']} workers over {one['clusters']} clusters", one, promises.RESERVE)
        for one in rows
    ]
    lines = [figures.line(NAME, one) for one in rows]
    return Found(lines, [*(one for each in judged for one in each), *promises.growth(rows)])


def row(fleet: Clusters, workers: int, over: int) -> dict[str, figures.Value]:
    """Measure gangs of one size over so many clusters."""
    with step(f"reserve: {workers} workers over {over} clusters"), _stage(fleet, workers, over) as stage:
        times = 1 if workers >= _LARGE else _TIMES
        found = [_outcome(stage, f"gang-{number}", workers) for number in range(times)]
    manager = fleet.manager.name
    here = [sum(one.writes.get(manager, Counter()).values()) for one in found]
    there = [sum(count.total() for name, count in one.writes.items() if name != manager) for one in found]
    return {
        "workers": workers,
        "clusters": over,
        "planned_s": statistics.median(one.planned for one in found),
        "ready_s": statistics.median(one.ready for one in found),
        "running_s": statistics.median(one.running for one in found),
        "writes_manager": statistics.mean(here) / workers,
        "writes_workers": statistics.mean(there) / workers,
    }


def table(rows: list[dict[str, figures.Value]]) -> str:
    """All measurements; times begin when the manager's quota is reserved, writes are those of ours for each worker."""
    head = list(rows[0]) if rows else []
    return figures.table(head, [list(one.values()) for one in rows])


def _outcome(stage: Stage, job: str, workers: int) -> Outcome:
    fleet = stage.fleet
    manager = fleet.manager.name
    what = {fleet.manager: (RAY_CLUSTERS, WORKLOADS, PODS, PLACEMENTS)}
    with Recorder(stage.name, what) as seen:
        logs = {cluster.name: audit.Log(cluster.audit_log) for cluster in definition.load().clusters}
        stage.ray_cluster(job, workers=workers, cpu=_CPU)
        seen.wait(lambda now: _running(now) == workers, _PATIENCE, f"all of {workers} workers run")
        writes = {name: _writes(stage, log.take()) for name, log in logs.items()}
        rise = timeline.rise(seen.changes, manager)
        stage.manager.delete("raycluster", job, stage.name, wait=False)
        seen.wait(lambda now: not now, _PATIENCE, "everything of the gang is gone")
    wait(lambda: not stage.reserving() and not stage.leftovers(), _PATIENCE, "the worker clusters are empty again")
    last = figures.percentile(list(rise.running.values()), 100)
    return Outcome(_planned(seen) - rise.reserved, rise.ready - rise.reserved, last - rise.reserved, writes)


def _planned(seen: Recorder) -> float:
    """When the Placement came, in seconds after the RayCluster."""
    first = {
        kind: min(c.at for c in seen.changes if c.kind == kind) for kind in (RAY_CLUSTERS.plural, PLACEMENTS.plural)
    }
    return first[PLACEMENTS.plural] - first[RAY_CLUSTERS.plural]


def _writes(stage: Stage, requests: list[Request]) -> Counter[Kind]:
    found = audit.count(audit.about(requests, stage.name))
    return Counter({kind: n for kind, n in found.items() if kind.client in OURS and kind.verb not in _READS})


def _running(now: Mapping[Place, Raw]) -> int:
    pods = (raw for (_, kind, _), raw in now.items() if kind == PODS.plural)
    return sum(timeline.worker(pod) and timeline.runs(pod) for pod in pods)


@contextmanager
def _stage(fleet: Clusters, workers: int, over: int) -> Iterator[Stage]:
    stage = Stage(fleet, f"bench-{NAME}-{workers}-{over}", tuple(fleet.workers)[:over])
    try:
        stage.build(dict.fromkeys(stage.clusters, _QUOTA), manager_cpu=1000, policy={"strategy": "Spread"})
        yield stage
    finally:
        stage.clear()
