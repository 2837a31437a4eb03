"""How fast are a gang's gated pods dispatched, beside the floor of our own protocol, and what does each cost?

Both begin with the same backlog: N pods that KubeRay made, gated, with room reserved and admitted in two clusters. Our
controller is let go on it, or a bare script (floor.py) that creates each copy and writes one status back; the same pods, the same
bytes, the same fake nodes, turn about. A by-line tells how a gang fares while KubeRay makes its pods, at its own pace.
The deployed controller and KubeRay are parked for moments, so nobody else may use the lab meanwhile.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adapter import names
from adapter.facts import Raw, annotation
from adapter.shell.resources import PODS, RAY_CLUSTERS, WORKLOADS
from hack.bench import audit, backlog, control, dispatchreport, figures, orders, spent, timeline
from hack.bench.backlog import PATIENCE
from hack.bench.dispatchreport import Figures
from hack.bench.recorder import Place, Recorder
from hack.clusters import Clusters, wait
from hack.lab import commands
from hack.lab import lab as definition
from hack.lab.paths import REPO
from hack.lab.progress import step
from tests.integration.stage import Stage

NAME = "dispatch"
HELP = "a backlog of gated pods until all of them run, beside a bare script that does the least there is to do"

_SIZES = (100, 300, 1000)
_TIMES = 3  # the median of so many; a gang of a thousand is long enough to be measured once
_LARGE = 1000
_FAKE_NODES = 4  # on each cluster: 500 workers of 200m ask for 100 CPUs, and a fake node has 32
_QUOTA = 128  # CPUs of each cluster, all that its fake nodes have
_SOON = 0.02  # seconds: CPU is counted from the first write on, give or take so much
_MEASURING = ("rayspan", "kubectl", "OpenAPI-Generator")  # ourselves: recorder, kubectl, reader, all as the lab's admin


@dataclass(frozen=True, slots=True)
class Start:
    """What is noted before anybody dispatches: where the audit logs end, and which processes the lab has."""

    logs: Mapping[str, audit.Log]
    lab: frozenset[int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backlogs", type=int, nargs="+", default=list(_SIZES), metavar="N",
                        help=f"how many pods wait, up to 1000 (default {' '.join(map(str, _SIZES))})")  # fmt: skip
    parser.add_argument("--times", type=int, default=_TIMES, metavar="N",
                        help=f"how often each is measured, below {_LARGE} pods (default {_TIMES})")  # fmt: skip


def run(asked: argparse.Namespace) -> list[str]:
    """Measure, print a table, and return the lines for programs; the last one has the ratios."""
    fleet = control.on_lab(renew=asked.renew, fake_nodes=_FAKE_NODES)
    rows = [_size(fleet, workers, asked.times if workers < _LARGE else 1) for workers in asked.backlogs]
    print("\n" + dispatchreport.table(rows))
    return [*(figures.line(NAME, row) for row in rows), figures.line(f"{NAME}-floor", dispatchreport.last_line(rows))]


def _size(fleet: Clusters, workers: int, times: int) -> dict[str, figures.Value]:
    ours, floor = [], []
    with _stage(fleet, workers) as stage:
        for number in range(times):
            with step(f"dispatch: {workers} pods, the floor ({number + 1} of {times})"):
                floor.append(_floor(stage, f"floor-{number}", workers))
            with step(f"dispatch: {workers} pods, our controller ({number + 1} of {times})"):
                ours.append(_ours(stage, f"ours-{number}", workers))
        with step(f"dispatch: {workers} pods while KubeRay makes them"):
            through = _through(stage, "through", workers)
    return dispatchreport.values(workers, ours, floor, through)


def _ours(stage: Stage, job: str, workers: int) -> Figures:
    with _recorder(stage) as seen:
        with backlog.standing(stage, seen, job, workers):
            start = _start()
        found = _measured(stage, seen, workers, start)
        stage.manager.delete("raycluster", job, stage.name, wait=False)
        _cleared(stage, seen)
    return found


def _floor(stage: Stage, job: str, workers: int) -> Figures:
    with _recorder(stage) as seen, tempfile.TemporaryDirectory() as place, ThreadPoolExecutor() as pool:
        with backlog.standing(stage, seen, job, workers):
            orders.write(stage, job, Path(place))
            start = _start()
            script = [sys.executable, "-m", "hack.bench.floor", place]
            done = pool.submit(commands.run, script, cwd=REPO, timeout=PATIENCE)
            found = _measured(stage, seen, workers, start, lambda: done.done() and bool(done.exception()))
            own = json.loads(done.result())
            stage.manager.delete("raycluster", job, stage.name, wait=False)
        _cleared(stage, seen)
    lab = found["lab_cpu_ms"] + own["cpu_s"] * 1000 / workers  # the script is no process of the lab
    return {**found, "cpu_ms": own["cpu_s"] * 1000 / workers, "lab_cpu_ms": lab, "rss_mb": own["rss_mb"]}


def _through(stage: Stage, job: str, workers: int) -> Figures:
    control.wait_for_it(stage.manager)
    with _recorder(stage) as seen:
        stage.ray_cluster(job, workers=workers, cpu=backlog.CPU)
        seen.poll(lambda now: _running(now, stage) == workers, PATIENCE, f"all of {workers} workers run")
        found = dispatchreport.through(seen.changes, stage.manager.name)
        stage.manager.delete("raycluster", job, stage.name, wait=False)
        _cleared(stage, seen)
    return found


def _measured(
    stage: Stage, seen: Recorder, workers: int, start: Start, failed: Callable[[], bool] = lambda: False
) -> Figures:
    """From the first write of whoever dispatches until the manager shows all pods Running, or until that one has failed."""
    manager = stage.manager.name
    seen.poll(lambda now: failed() or _begun(now, stage), PATIENCE, "the first pod is dispatched", every=_SOON)
    own = spent.controllers()
    lab = start.lab | own
    before, lab_before = spent.cpu(own), spent.cpu(lab)
    seen.poll(lambda now: failed() or _running(now, stage) == workers, PATIENCE, f"all of {workers} workers run")
    used, lab_used = spent.cpu(own) - before, spent.cpu(lab) - lab_before
    requests = {c: audit.about(log.take(), stage.name, without=_MEASURING) for c, log in start.logs.items()}
    spending = {"cpu_s": used, "lab_cpu_s": lab_used, "rss_mb": spent.memory(own)}
    return {
        **dispatchreport.pace(seen.changes, manager),
        **dispatchreport.cost(workers, manager, requests, **spending),
    }


def _start() -> Start:
    logs = {cluster.name: audit.Log(cluster.audit_log) for cluster in definition.load().clusters}
    return Start(logs, frozenset(spent.lab()))


def _recorder(stage: Stage) -> Recorder:
    what = {stage.manager: (RAY_CLUSTERS, WORKLOADS, PODS)}
    return Recorder(stage.name, {**what, **{stage.fleet.workers[name]: (PODS,) for name in stage.clusters}})


def _pods(now: Mapping[Place, Raw], stage: Stage, *, here: bool) -> list[Raw]:
    """The worker pods that the manager has (`here`), or their copies."""
    found = (raw for (c, kind, _), raw in now.items() if kind == PODS.plural and (c == stage.manager.name) is here)
    return [pod for pod in found if timeline.worker(pod)]


def _begun(now: Mapping[Place, Raw], stage: Stage) -> bool:
    slotted = any(annotation(pod, names.SLOT_ANNOTATION) for pod in _pods(now, stage, here=True))
    return slotted or bool(_pods(now, stage, here=False))


def _running(now: Mapping[Place, Raw], stage: Stage) -> int:
    return sum(map(timeline.runs, _pods(now, stage, here=True)))


def _cleared(stage: Stage, seen: Recorder) -> None:
    """Wait until nothing is left of a gang: the next one shall find the same clusters."""
    seen.poll(lambda now: not now, PATIENCE, "everything of the gang is gone")
    wait(lambda: not stage.reserving() and not stage.leftovers(), PATIENCE, "the worker clusters are empty again")


@contextmanager
def _stage(fleet: Clusters, workers: int) -> Iterator[Stage]:
    """Queues with ample quota in two clusters, each of which takes half of a gang."""
    with Stage(fleet, f"bench-{NAME}-{workers}", tuple(fleet.workers)[:2]) as stage:
        stage.build(dict.fromkeys(stage.clusters, _QUOTA), manager_cpu=1000, policy={"strategy": "Spread"})
        yield stage
