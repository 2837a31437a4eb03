"""Measures how fast a gang's gated pods are dispatched, beside the floor of our protocol, and what each costs.

Both runs begin with quota reserved and admitted in two clusters for N pods. In one, a bare script (floor.py) makes all
pods at once, creates each remote pod, and writes one status back. In the other, the script only makes the pods and our
controller does the rest, with the same bytes and fake nodes. The order alternates. Then the RayCluster and its remote
pods are deleted, by the script or by our controller.

Extra lines tell how a gang fares while KubeRay makes its pods at its own pace, and on request what one more write to
each manager pod costs the script. The deployed controller and KubeRay are parked at times, so the lab must have no
other user meanwhile.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adapter.objects.unstructured import Raw
from adapter.shell.kube.resources import PODS, RAY_CLUSTERS, WORKLOADS
from hack.bench import backlog, promises, report, timeline
from hack.bench.backlog import PATIENCE
from hack.bench.floor import END, EXTRA_PATCH, MAKE_ONLY, write_orders
from hack.bench.promises import Found
from hack.bench.report import Figures
from hack.lab.base import commands
from hack.lab.base import lab as definition
from hack.lab.base.paths import REPO
from hack.lab.base.progress import step
from hack.testbed import audit, deployment, figures, procstat
from hack.testbed.clusters import Clusters, wait
from hack.testbed.recorder import Place, Recorder
from hack.testbed.stage import Stage

NAME = "dispatch"
HELP = "gated pods until all of them run, beside a bare script that does the least there is to do"

_SIZES = (100, 300, 1000)
_TIMES = 3  # the median of so many
_LARGE, _TIMES_LARGE = 1000, 2  # a gang of a thousand takes minutes; twice, so that each side goes first once
_HOWS = {"floor": "", "ours": MAKE_ONLY, "extra": EXTRA_PATCH}  # who dispatches, and the script's option for it
_WHO = {"floor": "the floor", "ours": "our controller", "extra": "the floor with one more write"}
_FAKE_NODES = 4  # on each cluster: 500 workers of 200m ask for 100 CPUs; a fake node has 32
_QUOTA = 128  # CPUs of each cluster, all that its fake nodes have
_SOON = 0.02  # seconds: CPU is counted from the first write on, with this tolerance


@dataclass(frozen=True, slots=True)
class Start:
    """The state before the dispatch: the ends of the audit logs, and the lab's processes."""

    logs: Mapping[str, audit.Log]
    lab: frozenset[int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backlogs", type=int, nargs="+", default=list(_SIZES), metavar="N",
                        help=f"how many pods, up to 1000 (default {' '.join(map(str, _SIZES))})")  # fmt: skip
    parser.add_argument("--times", type=int, default=_TIMES, metavar="N",
                        help=f"how often each is measured (default {_TIMES}), from {_LARGE} pods on "
                             f"{_TIMES_LARGE} times at most")  # fmt: skip
    parser.add_argument("--extra-patch", action="store_true",
                        help="measure the floor with one more write to each of the manager's pods, too "
                             "(dispatch)")  # fmt: skip


def run(asked: argparse.Namespace) -> Found:
    """Measure, print a table, and return the `BENCH` lines; the last one has the ratios and is judged."""
    fleet = deployment.on_lab(renew=asked.renew, fake_nodes=_FAKE_NODES)
    who = ("floor", "ours", "extra") if asked.extra_patch else ("floor", "ours")
    rows = [_size(fleet, workers, asked.times, who) for workers in asked.backlogs]
    print("\n" + report.dispatch_table(rows))
    lines = [*(figures.line(NAME, row) for row in rows), figures.line(f"{NAME}-floor", report.dispatch_last_line(rows))]
    every = promises.DISPATCH | promises.DISPATCH_BESIDE
    judged = [promises.rows(NAME, f"{row['workers']} pods", row, every) for row in rows]
    return Found(lines, [one for each in judged for one in each])


def _size(fleet: Clusters, workers: int, times: int, who: Sequence[str]) -> dict[str, figures.Value]:
    found: dict[str, list[Figures]] = {one: [] for one in who}
    rounds = min(times, _TIMES_LARGE) if workers >= _LARGE else times
    with _stage(fleet, workers) as stage:
        for number in range(rounds):
            for one in who if number % 2 == 0 else reversed(who):
                with step(f"dispatch: {workers} pods, {_WHO[one]} ({number + 1} of {rounds})"):
                    found[one].append(_run(stage, f"{one}-{number}", workers, _HOWS[one]))
        with step(f"dispatch: {workers} pods while KubeRay makes them"):
            through = _through(stage, "through", workers)
    return report.dispatch_values(workers, found["ours"], found["floor"], through, found.get("extra", ()))


def _run(stage: Stage, job: str, workers: int, how: str) -> Figures:
    """Run one gang until all of it runs and all is gone, by the script alone or by our controller."""
    ours = how == MAKE_ONLY
    with _recorder(stage) as seen, tempfile.TemporaryDirectory() as place:
        with backlog.reserved(stage, seen, job, workers, controller=ours) as pods:
            write_orders(stage, job, pods, Path(place))
            found = _comes(stage, seen, workers, Path(place), how)
            if ours:
                stage.manager.delete("raycluster", job, stage.name, wait=False)
            else:
                _script(Path(place), END)
            seen.poll(_no_pods, PATIENCE, "all pods and copies are gone")
        _cleared(stage, seen)
    return {**found, **report.gone(seen.changes, stage.manager.name)}


def _comes(stage: Stage, seen: Recorder, workers: int, place: Path, how: str) -> Figures:
    """From the first pod until all run. What the script spent is the floor's own; it is no process of the lab."""
    with ThreadPoolExecutor() as pool:
        start = _start()
        done = pool.submit(_script, place, how)
        found = _measured(stage, seen, workers, start, lambda: done.done() and bool(done.exception()))
        own = json.loads(done.result())
    spent = own["cpu_s"] * 1000 / workers
    theirs = {} if how == MAKE_ONLY else {"cpu_ms": spent, "rss_mb": own["rss_mb"]}
    return {**found, "lab_cpu_ms": found["lab_cpu_ms"] + spent, **theirs}


def _script(place: Path, how: str) -> str:
    words = [sys.executable, "-m", "hack.bench.floor", str(place), *filter(None, [how])]
    return commands.run(words, cwd=REPO, timeout=PATIENCE)


def _through(stage: Stage, job: str, workers: int) -> Figures:
    deployment.wait_until_ready(stage.manager)
    with _recorder(stage) as seen:
        stage.ray_cluster(job, workers=workers, cpu=backlog.CPU)
        seen.poll(lambda now: _running(now, stage) == workers, PATIENCE, f"all of {workers} workers run")
        found = report.through(seen.changes, stage.manager.name)
        stage.manager.delete("raycluster", job, stage.name, wait=False)
        return {**found, "through_gone_s": _cleared(stage, seen)}


def _measured(stage: Stage, seen: Recorder, workers: int, start: Start, failed: Callable[[], bool]) -> Figures:
    """From the first pod until the manager shows all of them Running, or until the script has failed."""
    manager = stage.manager.name
    seen.poll(lambda now: failed() or bool(_pods(now, stage)), PATIENCE, "the first pod is there", every=_SOON)
    own = procstat.controllers()
    lab = start.lab | own
    before, lab_before = procstat.cpu(own), procstat.cpu(lab)
    seen.poll(lambda now: failed() or _running(now, stage) == workers, PATIENCE, f"all of {workers} workers run")
    used, lab_used = procstat.cpu(own) - before, procstat.cpu(lab) - lab_before
    requests = {c: audit.about(log.take(), stage.name, without=audit.MEASURING) for c, log in start.logs.items()}
    spending = {"cpu_s": used, "lab_cpu_s": lab_used, "rss_mb": procstat.memory(own)}
    return {
        **report.pace(seen.changes, manager),
        **report.cost(workers, manager, requests, **spending),
    }


def _start() -> Start:
    logs = {cluster.name: audit.Log(cluster.audit_log) for cluster in definition.load().clusters}
    return Start(logs, frozenset(procstat.lab()))


def _recorder(stage: Stage) -> Recorder:
    what = {stage.manager: (RAY_CLUSTERS, WORKLOADS, PODS)}
    return Recorder(stage.name, {**what, **{stage.fleet.workers[name]: (PODS,) for name in stage.clusters}})


def _pods(now: Mapping[Place, Raw], stage: Stage) -> list[Raw]:
    """The worker pods that the manager has."""
    here = (raw for (c, kind, _), raw in now.items() if kind == PODS.plural and c == stage.manager.name)
    return [pod for pod in here if timeline.worker(pod)]


def _running(now: Mapping[Place, Raw], stage: Stage) -> int:
    return sum(map(timeline.runs, _pods(now, stage)))


def _no_pods(now: Mapping[Place, Raw]) -> bool:
    return not any(kind == PODS.plural for _, kind, _ in now)


def _cleared(stage: Stage, seen: Recorder) -> float:
    """Wait until nothing is left of a gang, so that the next one finds the same clusters; returns the seconds it
    took."""
    began = time.monotonic()
    seen.poll(lambda now: not now, PATIENCE, "everything of the gang is gone")
    wait(lambda: not stage.reserving() and not stage.leftovers(), PATIENCE, "the worker clusters are empty again")
    return time.monotonic() - began


@contextmanager
def _stage(fleet: Clusters, workers: int) -> Iterator[Stage]:
    """Queues with ample quota in two clusters, each of which takes half of a gang."""
    with Stage(fleet, f"bench-{NAME}-{workers}", tuple(fleet.workers)[:2]) as stage:
        stage.build(dict.fromkeys(stage.clusters, _QUOTA), manager_cpu=1000, policy={"strategy": "Spread"})
        yield stage
