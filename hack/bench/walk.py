"""Measures a gang from the queue to mirrored Running and back to nothing, and the API requests of each worker.

One RayCluster runs twice: over two worker clusters, and with plain KubeRay and Kueue in the manager alone. Pods are on
fake nodes, so control planes are measured. The deployed controller is used as it is; a run in which it was replaced
does not count.
"""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from adapter import names
from adapter.objects.unstructured import Raw
from adapter.shell.kube.resources import PLACEMENTS, PODS, RAY_CLUSTERS, WORKLOADS
from hack.bench import promises, report, timeline
from hack.bench.promises import Found
from hack.bench.report import Run
from hack.lab.base import lab as definition
from hack.lab.base.progress import step
from hack.testbed import audit, clusters, deployment, figures
from hack.testbed.audit import Request
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.recorder import Place, Recorder
from hack.testbed.stage import Stage

NAME = "walk"
HELP = "a gang's way from the queue to Running and back, and its API requests, against plain KubeRay and Kueue"

_JOB = "gang"
_CPU = "500m"  # of each worker, so that 64 of them fit on the manager's two fake nodes as well
_PATIENCE = 120.0  # seconds; 3 to 10 on an idle machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=_gang, nargs="+", default=[4, 16], metavar="N",
                        help="sizes of the gangs, multiples of 4 up to 64 (default 4 16)")  # fmt: skip


def run(asked: argparse.Namespace) -> Found:
    """Measure, print tables, and return the lines for programs, and what is judged."""
    fleet = deployment.on_lab(renew=asked.renew)
    found = [_size(fleet, workers) for workers in asked.workers]
    return Found([line for each in found for line in each.lines], [row for each in found for row in each.rows])


def _size(fleet: Clusters, workers: int) -> Found:
    with deployment.undisturbed(fleet.manager) as spent:
        with step(f"walk: {workers} workers over two clusters"):
            spanning = _run(fleet, workers, spans=True)
    with step(f"walk: {workers} workers in one cluster, plain"):
        plain = _run(fleet, workers, spans=False)
    print("\n" + report.walk_text(workers, spanning, plain))
    values = report.walk_values(workers, spanning, plain)
    rows = promises.rows(NAME, f"{workers} workers", values, promises.WALK)
    return Found([figures.line(NAME, values | spent.per(workers))], rows)


def _run(fleet: Clusters, workers: int, *, spans: bool) -> Run:
    manager = fleet.manager.name
    what = {fleet.manager: (RAY_CLUSTERS, WORKLOADS, PODS, *([PLACEMENTS] if spans else []))}
    what |= {fleet.workers[name]: (WORKLOADS, PODS) for name in _two(fleet)} if spans else {}
    with _stage(fleet, workers, spans=spans) as stage, Recorder(stage.name, what) as seen:
        logs = {cluster.name: audit.Log(cluster.audit_log) for cluster in definition.load().clusters}
        stage.ray_cluster(_JOB, workers=workers, cpu=_CPU)
        seen.wait(lambda now: _whole(now, manager, workers), _PATIENCE, f"all of {workers} workers run")
        up = {c: _about(stage, log) for c, log in logs.items()}
        stage.manager.delete("raycluster", _JOB, stage.name, wait=False)
        seen.wait(lambda now: not now, _PATIENCE, "everything of the job is gone")
        down = {c: _about(stage, log) for c, log in logs.items()}
        rise, fall = timeline.rise(seen.changes, manager), timeline.fall(seen.changes, manager)
        return Run(manager, rise.figures() | fall, up, down)


def _about(stage: Stage, log: audit.Log) -> list[Request]:
    return audit.about(log.take(), stage.name, without=audit.MEASURING)


@contextmanager
def _stage(fleet: Clusters, workers: int, *, spans: bool) -> Iterator[Stage]:
    """Queues of our own; each of the two clusters has capacity for half of the gang and not for more."""
    stage = Stage(fleet, f"bench-{NAME}-{workers}-{'spans' if spans else 'plain'}", _two(fleet))
    try:
        stage.build(dict.fromkeys(_two(fleet), workers // 4) if spans else {})
        if not spans:
            stage.uncheck()
        for cluster in (fleet.manager, *(fleet.workers[name] for name in _two(fleet) if spans)):
            cluster.wait(partial(_open, cluster, stage.name), _PATIENCE, f"queue {stage.name} is open")
        yield stage
    finally:
        stage.clear()


def _two(fleet: Clusters) -> tuple[str, ...]:
    """The worker clusters that are spanned: room for half of the gang in each."""
    return tuple(fleet.workers)[:2]


def _open(cluster: Cluster, name: str) -> bool:
    found = (cluster.get("clusterqueue", name), *cluster.items("localqueues", name))
    return all(clusters.condition(one, names.ACTIVE).get("status") == "True" for one in found)


def _whole(now: Mapping[Place, Raw], manager: str, workers: int) -> bool:
    job = now.get((manager, RAY_CLUSTERS.plural, _JOB), {})
    pods = (raw for (cluster, kind, _), raw in now.items() if cluster == manager and kind == PODS.plural)
    return timeline.whole(job) and sum(timeline.worker(pod) and timeline.runs(pod) for pod in pods) == workers


def _gang(text: str) -> int:
    number = int(text)
    if number % 4 or not 4 <= number <= 64:
        raise argparse.ArgumentTypeError(f"{number} is not a multiple of 4 up to 64")
    return number
