"""Waits until all is well after a fault: the clusters are whole and every invariant holds. It helps others on the way.

A violation that may never occur ends the wait at once. What our processes went through is noted before all else, since
deleting a pod deletes the evidence. Every help is counted, see hack/trials/chaos/helping.py.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from adapter import names
from adapter.objects.unstructured import condition, label, meta, parse_time
from adapter.objects.workload import parse_workload
from adapter.shell.observe.dry_run_answers import REFUSAL_VALID_FOR
from hack.testbed.reader import Unreachable
from hack.trials.chaos import clockjumps, invariants, sizes, snapshot
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Ground
from hack.trials.chaos.invariants import CRASH, LAB, Finding
from hack.trials.chaos.snapshot import Snapshot

Tell = Callable[[str], None]

PATIENCE = 60.0  # seconds for our controller once the clusters are whole: the project's promise
# More for faults whose documented reaction takes longer.
_LONGER: Mapping[str, float] = {
    "limit-range": REFUSAL_VALID_FOR.total_seconds(),  # a denied dry run counts for so long
    "clock-jumped": clockjumps.STEP,  # a timestamp that lies in the future delays what waits for its time
}
# For the clusters themselves: an API server takes ten seconds, and then operators that lost their Leases take half a
# minute.
_REPAIR = 240.0
# KubeRay expects pods that it made, though it deleted them itself because Kueue suspended their RayCluster in that
# moment (while it is scaled up, say). For thirty seconds it then makes no others, and afterwards it reconciles again
# only on a change, or after five minutes (kuberay:controllers/ray/expectations/scale_expectations.go). So the trial
# changes something.
_REMINDER = 35.0
_PAUSE = 0.2
_LOOKS = 2  # successive reads without a finding: the lists of one read are not of one instant


class Unsettled(Exception):
    """Not well, in a few words: the last findings, and the last read (None: no answer)."""

    def __init__(self, why: str, findings: Sequence[Finding], seen: Snapshot | None = None) -> None:
        super().__init__(why)
        self.why, self.findings, self.seen = why, findings, seen


def patience(struck: Iterable[Fault]) -> float:
    """How many seconds our controller has once the clusters are whole, after these faults."""
    return PATIENCE + max((_LONGER.get(fault.kind, 0.0) for fault in struck), default=0.0)


def settle(ground: Ground, tell: Tell, longest: float = PATIENCE) -> float:
    """Wait until the clusters are whole and every invariant holds; returns the seconds that it took.

    `longest`: how many seconds our controller has for that.

    KubeRay is reminded of workers that it does not make, and surplus ones are named to it; both are reported to `tell`.
    Raises Unsettled after the timeout, and at once for a violation that may never occur.
    """
    begun = whole = reminded = time.monotonic()
    well: list[float] = []
    while len(well) < _LOOKS:
        trouble, findings, seen = _judge(ground)
        now = time.monotonic()
        if trouble:
            whole = now
        else:
            ground.outages.over()
        if (trouble or findings) and (now - whole > longest or now - begun > _REPAIR):
            why = f"after {now - begun:.0f} s it is still not so that all is well"
            raise Unsettled(why, findings or [Finding(LAB, trouble)], seen)
        if seen and findings and now - reminded > _REMINDER:
            reminded = now
            _remind(ground, seen, tell)
        well = [] if trouble or findings else [*well, now]
        time.sleep(_PAUSE)
    return well[0] - begun


def forgotten(seen: Snapshot, scaled: set[str], since: datetime) -> list[str]:
    """The gangs whose workers KubeRay must make and may have forgotten: those scaled by the trial, or suspended by
    Kueue.

    Any other gang that lacks workers must get them by itself.
    """
    return [name for name in unmade(seen) if name in scaled or _suspended(seen, name, since)]


def unmade(seen: Snapshot) -> list[str]:
    """The gangs of which KubeRay has to make workers: they may run, and have too few."""
    there = Counter(label(pod, names.RAY_GCS_CLUSTER_LABEL) for pod in seen.workers)
    may_run = {meta(job)["name"] for job in seen.jobs if not (job.get("spec") or {}).get("suspend")}
    return [name for name, count in seen.wanted.items() if name in may_run and there[name] < count]


def _suspended(seen: Snapshot, gang: str, since: datetime) -> bool:
    """Whether its Workload was evicted since a time; on readmission Kueue keeps the condition and changes its time."""
    mine = [raw for raw in seen.workloads if (job := parse_workload(raw).job) and job.name == gang]
    times = [parse_time(condition(raw, names.EVICTED).get("lastTransitionTime")) for raw in mine]
    return any(at is not None and at >= since.replace(microsecond=0) for at in times)


def _remind(ground: Ground, seen: Snapshot, tell: Tell) -> None:
    for name in forgotten(seen, ground.load.scaled, ground.load.since):
        ground.touch(name)
        ground.help.reminders += 1
        tell(f"       KubeRay is reminded of {name}")
    for name in sizes.name_surplus(ground, seen):
        ground.help.surplus += 1
        tell(f"       {name} has too many workers, and who goes is named")


def _judge(ground: Ground) -> tuple[str, list[Finding], Snapshot | None]:
    """What the clusters lack, other violations, and the read."""
    silent = _evidence(ground)
    trouble = ground.trouble() or silent
    if trouble:
        return trouble, [], None
    try:
        seen = snapshot.take(ground.stage, ground.load.wanted, ground.load.rejected)
        contact = [Finding(LAB, one) for one in ground.estranged()]
    except Unreachable as silence:
        return _silence(silence), [], None
    broken = [*invariants.never(seen), *(Finding(CRASH, one) for one in ground.controller.crashes())]
    if broken:
        raise Unsettled("there is what must never be", broken, seen)
    return "", [*contact, *invariants.findings(seen)], seen


def _evidence(ground: Ground) -> str:
    """Note what our processes went through; returns why that cannot be done now, empty when it is done."""
    try:
        ground.controller.take_evidence()
    except Unreachable as silence:
        return _silence(silence)
    return ""


def _silence(silence: Unreachable) -> str:
    return f"an API server does not answer ({silence})"
