"""Measures how long a running job takes to get one worker more, fifty more, or one fewer; also without us in one
cluster.

It counts from the patch of its replicas until all workers run, or until the leaving ones are gone with their quota: in
the manager's Workload, and with us in the shares. A worker that goes unnamed and is replaced ends the trial. In one
cluster the RayCluster runs in the manager, in a queue without our check. Times come from a recorder. Beside each stands
the CPU that the clusters' processes spent: where that is all of the processors, the step is slow for lack of them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from adapter import names
from adapter.objects.unstructured import Raw, label
from adapter.objects.workload import active_slice
from adapter.shell.kube.resources import PODS, RAY_CLUSTERS, WORKLOADS
from hack.lab.base.progress import LabError
from hack.testbed import procstat
from hack.testbed.recorder import Change, Place, Recorder
from hack.testbed.stage import Stage
from hack.trials.bursts.job import NAME, PATIENCE, Job, workers_of

BASE = 4  # workers from which each step goes, and to which it returns
ONE, MANY = 1, 50
TIMES = {ONE: 10, MANY: 3}
_LOOK = 0.05  # seconds between two reads of the record; the times are the events' own

Tell = Callable[[str], None]
State = Mapping[Place, Raw]


class Taken(NamedTuple):
    """The cost of one step: seconds, and seconds of CPU of all clusters' processes from just before it to its end."""

    seconds: float
    cpu_s: float


def run(job: Job, found: dict[str, list[Taken]], tell: Tell, *, spans: bool) -> None:
    """Take every step, and note its cost by kind, such as `+1`.

    The job runs already; in the end it has BASE workers.
    """
    stage, manager = job.stage, job.stage.manager.name
    with recorder(stage, spans=spans) as seen:
        step(job, seen, BASE, spans=spans)
        for by, times in TIMES.items():
            for _ in range(times):
                for way, count in ((f"+{by}", BASE + by), (f"-{by}", BASE)):
                    taken = step(job, seen, count, spans=spans)
                    found.setdefault(way, []).append(taken)
                    where = "over two clusters" if spans else f"in {manager} alone"
                    tell(f"  {way:>3} {where}: {taken.seconds:.2f} s, {taken.cpu_s:.1f} s of CPU")


def recorder(stage: Stage, *, spans: bool) -> Recorder:
    """A recorder of all that a step changes."""
    what = {stage.manager: (RAY_CLUSTERS, WORKLOADS, PODS)}
    there = {stage.fleet.workers[name]: (WORKLOADS, PODS) for name in stage.clusters} if spans else {}
    return Recorder(stage.name, {**what, **there})


def step(job: Job, seen: Recorder, count: int, *, spans: bool) -> Taken:
    """Let it have so many workers, and wait until all is so."""
    manager, before, spent = job.stage.manager.name, len(seen.changes), procstat.cpu(procstat.lab())

    def done(now: State) -> bool:
        return settled(now, manager, count, spans=spans)

    going = job.resize(count)
    try:
        seen.poll(
            lambda now: _asked(now, manager) == count and done(now), PATIENCE, f"{count} workers, no other", _LOOK
        )
    except LabError as late:
        raise LabError(f"{late}\n{job.told()}") from late
    if lost := strays(list(seen.changes), before, manager, going):
        raise LabError(f"On the way to {count} workers {', '.join(lost)} went, whom nobody named.\n{job.told()}")
    spent = procstat.cpu(procstat.lab()) - spent
    return Taken(took(list(seen.changes), before, manager, count, done), spent)


def took(changes: Sequence[Change], before: int, manager: str, count: int, done: Callable[[State], bool]) -> float:
    """Seconds from when a number of workers was asked for until all is so; of `changes` so many came `before`."""

    def asked(now: State) -> bool:
        return _asked(now, manager) == count

    return first(changes, before, lambda now: asked(now) and done(now)) - first(changes, before, asked)


def first(changes: Sequence[Change], before: int, done: Callable[[State], bool]) -> float:
    """When something was so for the first time after so many changes; nan if it never was."""
    now: dict[Place, Raw] = {}
    for number, change in enumerate(changes):
        place = change.cluster, change.kind, change.name
        if change.after is None:
            now.pop(place, None)
        else:
            now[place] = change.after
        if number >= before and done(now):
            return change.at
    return float("nan")


def strays(changes: Sequence[Change], before: int, manager: str, going: Collection[str]) -> list[str]:
    """The workers that went since so many changes without being named: later only their replacements would show."""
    workers, gone = set[str](), list[str]()
    for number, change in enumerate(changes):
        if (change.cluster, change.kind) != (manager, PODS.plural):
            continue
        if change.after is not None:
            workers |= {change.name} if label(change.after, names.RAY_NODE_TYPE_LABEL) == "worker" else set()
        elif number >= before and change.name in workers and change.name not in going:
            gone.append(change.name)
    return gone


def settled(now: State, manager: str, count: int, *, spans: bool) -> bool:
    """Whether so many workers run and all others are gone, and quota is held for as many."""
    here, there = pods(now, manager, True), pods(now, manager, False)
    slices = [raw for (cluster, kind, _), raw in now.items() if cluster == manager and kind == WORKLOADS.plural]
    run = sum((pod.get("status") or {}).get("phase") == "Running" for pod in here)
    if (len(here), run, workers_of(active_slice(slices) or {})) != (count, count, count):
        return False
    return not spans or (len(there) == count and _shared(now, manager) == count)


def pods(now: State, manager: str, here: bool) -> list[Raw]:
    """The workers in the manager (`here`), or their copies."""
    found = (raw for (cluster, kind, _), raw in now.items() if kind == PODS.plural and (cluster == manager) is here)
    # KubeRay's labels are not on a remote pod.
    return [
        pod for pod in found if label(pod, names.RAY_NODE_TYPE_LABEL) == "worker" or label(pod, names.POD_UID_LABEL)
    ]


def _shared(now: State, manager: str) -> int:
    """For how many workers there are shares."""
    shares = (raw for (cluster, kind, _), raw in now.items() if kind == WORKLOADS.plural and cluster != manager)
    return sum(workers_of(share) for share in shares if label(share, names.MANAGER_LABEL))


def _asked(now: State, manager: str) -> int:
    """How many replicas the RayCluster asks for, -1 while it is not known."""
    groups = (now.get((manager, RAY_CLUSTERS.plural, NAME), {}).get("spec") or {}).get("workerGroupSpecs") or ()
    return next((int(group.get("replicas") or 0) for group in groups), -1)
