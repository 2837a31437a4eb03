"""Which sentence tells a person what was found about each cluster? Nothing here decides."""

from collections.abc import Sequence

from adapter.objects.placement import Verdict
from adapter.objects.reason import clause
from adapter.planning.plan_request import MAX_WORKERS_PER_CLUSTER, GangRequest

NOT_NEEDED = "not needed"
RECLAIMING_TEXT = "by taking back quota that others borrowed"
PREEMPTING_TEXT = "by preempting gangs of lower priority"


def placed_sentence(
    request: GangRequest, verdicts: Sequence[Verdict], preempting: Sequence[str] = (), how: str = RECLAIMING_TEXT
) -> str:
    """`2 of 4 workers to east, 2 to west; north passed over: …`: where the gang goes, and where `how` others give way."""
    total = sum(verdict.chosen for verdict in verdicts)
    first, *others = [verdict for verdict in verdicts if verdict.chosen]
    taken = [f"{first.chosen} of {request.workers} {_worker_noun(request.workers)} to {first.cluster}"]
    taken += [f"{verdict.chosen} to {verdict.cluster}" for verdict in others]
    passed = [
        f"{v.cluster} passed over: {clause(v.reason)}" for v in verdicts if not v.chosen and v.reason and v.needed
    ]
    why = "for now" if any(verdict.chosen == MAX_WORKERS_PER_CLUSTER for verdict in verdicts) else "for want of room"
    short = [f"{request.workers - total} stay pending {why}"] if total < request.workers else []
    back = [f"in {' and '.join(preempting)} {how}"] if preempting else []
    return "; ".join([", ".join(taken), *back, *short, *passed]) + "."


def shortfall_sentence(request: GangRequest, fit: int, verdicts: Sequence[Verdict], most: int | None) -> str:
    """What a gang waits for: what each cluster has room for, and what would help where waiting will not.

    `most` is how many workers even empty clusters could hold, None where waiting may help.
    """
    together = "at once in one cluster" if request.mode == "SameCluster" else "at once"
    each = [f"{v.cluster} has room for {v.fitting_workers}{f' ({v.reason})' if v.reason else ''}" for v in verdicts]
    listed = "; ".join(each) or "the policy chooses no WorkerCluster, label or name one"
    help_ = "" if most is None else f" {_never_fits_text(request, most)}"
    return f"{request.needed_workers} {_worker_noun(request.needed_workers)} needed {together}, {fit} fit now: {listed}.{help_}"


def _never_fits_text(request: GangRequest, most: int) -> str:
    if request.mode == "SameCluster" and most == MAX_WORKERS_PER_CLUSTER:
        return f"Even to an empty cluster a plan sends no more than {most}: ask for so many, or by a policy that divides the gang."
    whose = "the largest cluster, empty, holds" if request.mode == "SameCluster" else "empty clusters hold"
    more = "raise a quota, add a worker cluster," if request.workers > MAX_WORKERS_PER_CLUSTER else "raise a quota"
    return f"Even {whose} only {most}: {more} or ask for fewer workers."


def _worker_noun(count: int) -> str:
    return "worker" if count == 1 else "workers"
