"""Measures how a worker waits that does not fit. If the first choice is full, the next cluster has it soon.

If no cluster has capacity, it stays one pod, its job says that it waits, and it runs soon after capacity is freed. The
stage is its own, with a policy that fills one cluster before the next. A recorder gives the time when workers run.
Capacity counts as freed when the quota is ordered, so kubectl's own time is included.
"""

import time
from collections.abc import Mapping, Sequence

from adapter import names
from adapter.objects.unstructured import label, meta
from adapter.shell.kube.resources import PODS
from hack.testbed.figures import Value
from hack.testbed.recorder import Change, Recorder
from hack.trials.bursts import steps
from hack.trials.bursts.job import NAME, PATIENCE, Job
from hack.trials.bursts.steps import State, Tell
from hack.trials.chaos.invariants import Finding

ROOM = 2  # workers that each of two clusters has room for
SOON = 5.0  # seconds for a start in the next cluster, and for a waiting worker once there is capacity
WAITED = 300.0  # seconds: longer than all timeouts and backoffs on the way, but for the hour of Ray's autoscaler
LATE, ANEW, UNSAID = "late", "made anew", "unsaid"


def run(job: Job, seconds: float, values: dict[str, Value], tell: Tell) -> list[Finding]:
    """Let it grow into the second cluster, then beyond both, for so many seconds, then free capacity.

    Notes how long each took; returns what was wrong.
    """
    stage, manager = job.stage, job.stage.manager.name
    tell(f"a worker for which there is no room, in {' and '.join(stage.clusters)}:")
    with steps.recorder(stage, spans=True) as seen:
        steps.step(job, seen, ROOM, spans=True)
        values["next_s"] = steps.step(job, seen, 2 * ROOM, spans=True).seconds
        tell(f"  the first choice is full: all run after {values['next_s']:.2f} s")
        wrong, waits = _waits(job, seen, seconds), len(seen.changes)
        tell(f"  {seconds:.0f} s without room: {len(wrong)} wrong")
        begun = time.monotonic()
        stage.set_quota(stage.fleet.workers[stage.clusters[-1]], ROOM + 1)
        stage.manager.wait(lambda: _all(seen.now(), manager), PATIENCE, "the one that waited runs", job.told)
        values["room_s"] = steps.first(seen.changes, waits, lambda now: _all(now, manager)) - begun
        tell(f"  room came: it runs after {values['room_s']:.2f} s")
        wrong += made_anew(seen.changes, waits, manager)
    return [*wrong, *late(values)]


def late(values: Mapping[str, Value]) -> list[Finding]:
    """Waits that took longer than promised."""
    took = {
        "next_s": "the next cluster, where the first choice is full,",
        "room_s": "the one that waited, once room came,",
    }
    late = {key: float(values[key]) for key in took if float(values[key]) > SOON}
    return [
        Finding(LATE, f"{took[key]} took {seconds:.2f} s, and shall take {SOON:g} at most")
        for key, seconds in late.items()
    ]


def _waits(job: Job, seen: Recorder, seconds: float) -> list[Finding]:
    stage, manager, wanted = job.stage, job.stage.manager.name, 2 * ROOM + 1
    job.resize(wanted)
    seen.poll(
        lambda now: len(steps.pods(now, manager, True)) == wanted, PATIENCE, "the worker is made that has no place"
    )
    said = f"{2 * ROOM} of {wanted} workers are placed"
    stage.manager.wait(lambda: stage.reason(NAME).startswith(said), PATIENCE, f"its job says: {said}", job.told)
    before = len(seen.changes)
    time.sleep(seconds)  # this wait is the test: nothing may happen
    wrong = made_anew(seen.changes, before, manager)
    without, told = nowhere(seen.now(), manager), stage.reason(NAME)
    if len(without) != 1 or not told.startswith(said):
        wrong.append(Finding(UNSAID, f"{len(without)} workers are in no cluster, and the job says: {told}"))
    return wrong


def made_anew(changes: Sequence[Change], before: int, manager: str) -> list[Finding]:
    """The pods of the manager that came or went after so many changes, none of which should."""
    known: dict[str, str] = {}
    found = []
    for number, change in enumerate(changes):
        if (change.cluster, change.kind) != (manager, PODS.plural):
            continue
        uid = str(meta(change.after or {}).get("uid") or "")
        if number >= before and known.get(change.name, "") != uid:
            found.append(Finding(ANEW, f"{change.name} {'went' if change.after is None else 'came'} meanwhile"))
        known[change.name] = uid
    return found


def nowhere(now: State, manager: str) -> list[str]:
    """The names of those that no cluster was given; their gate tells nothing, for all of them keep it."""
    found = (pod for pod in steps.pods(now, manager, True) if not label(pod, names.CLUSTER_LABEL))
    return [str(meta(pod).get("name")) for pod in found]


def _all(now: State, manager: str) -> bool:
    return steps.settled(now, manager, 2 * ROOM + 1, spans=True)
