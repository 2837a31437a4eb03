"""When is all well again after a fault, how long did that take, and what if it never is?"""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from adapter import names
from adapter.objects.raw import label, meta
from hack.testbed.reader import Unreachable
from hack.trials.chaos import accounts, invariants, look
from hack.trials.chaos.finding import CRASH, LAB, Finding
from hack.trials.chaos.ground import Ground
from hack.trials.chaos.look import Sight

PATIENCE = 60.0  # seconds that our controller has from when the clusters are whole: what the project promises
# For the clusters themselves: an API server takes ten seconds, and then operators that lost their leases take half a minute.
_REPAIR = 240.0
# KubeRay expects pods that it made, though it deleted them itself because Kueue suspended their RayCluster in that moment (a
# RayCluster that is scaled up, say). For thirty seconds it then makes no others, and afterwards it looks again only when
# something changes, or after five minutes (kuberay:controllers/ray/expectations/scale_expectations.go). So something changes.
_REMINDER = 35.0
_PAUSE = 0.2
_LOOKS = 2  # in a row that must find nothing: the lists of one look are not of one instant


class Unsettled(Exception):
    """It is not well, in a few words: what was found at last, and what was seen then (None: nobody answered)."""

    def __init__(self, why: str, findings: Sequence[Finding], seen: Sight | None = None) -> None:
        super().__init__(why)
        self.why, self.findings, self.seen = why, findings, seen


def settle(ground: Ground, tell: Callable[[str], None]) -> float:
    """Wait until the clusters are whole and every invariant holds; returns after how many seconds it was so.

    KubeRay is reminded of workers that it does not make, and `tell` hears of it. Raises Unsettled when it takes too long, and
    at once where something was that must never be.
    """
    begun = whole = reminded = time.monotonic()
    well: list[float] = []
    while len(well) < _LOOKS:
        trouble, findings, seen = _judge(ground)
        now = time.monotonic()
        if trouble:
            whole = now
        if (trouble or findings) and (now - whole > PATIENCE or now - begun > _REPAIR):
            why = f"after {now - begun:.0f} s it is still not so that all is well"
            raise Unsettled(why, findings or [Finding(LAB, trouble)], seen)
        if seen and findings and now - reminded > _REMINDER:
            reminded = now
            _remind(ground, seen, tell)
        well = [] if trouble or findings else [*well, now]
        time.sleep(_PAUSE)
    return well[0] - begun


def _remind(ground: Ground, seen: Sight, tell: Callable[[str], None]) -> None:
    for name in unmade(seen):
        ground.touch(name)
        tell(f"       KubeRay is reminded of {name}")


def unmade(sight: Sight) -> list[str]:
    """The gangs of which KubeRay has to make workers: they may run, and have too few."""
    there = Counter(label(pod, names.RAY_GCS_CLUSTER_LABEL) for pod in sight.workers)
    may_run = {meta(job)["name"] for job in sight.jobs if not (job.get("spec") or {}).get("suspend")}
    return [name for name, count in sight.wanted.items() if name in may_run and there[name] < count]


def _judge(ground: Ground) -> tuple[str, list[Finding], Sight | None]:
    """What of the clusters is missing, what else is wrong, and what was seen."""
    trouble = ground.trouble()
    if trouble:
        return trouble, [], None
    try:
        seen = look.look(ground.stage, ground.load.wanted)
        contact = [Finding(LAB, one) for one in ground.estranged()]
        crashed = ground.controller.ended_by_itself()
    except Unreachable as silence:
        return f"an API server does not answer ({silence})", [], None
    broken = accounts.never(seen) + ([Finding(CRASH, crashed)] if crashed else [])
    if broken:
        raise Unsettled("there is what must never be", broken, seen)
    return "", [*contact, *invariants.findings(seen)], seen
