"""The sentences that explain a plan to people. Nothing is decided here."""

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
    """`2 of 4 workers to east, 2 to west; north passed over: …`: where the gang goes.

    `how` says how quota is freed in the `preempting` clusters.
    """
    total = sum(verdict.chosen for verdict in verdicts)
    first, *others = [verdict for verdict in verdicts if verdict.chosen]
    parts = [f"{first.chosen} of {request.workers} {_worker_noun(request.workers)} to {first.cluster}"]
    parts += [f"{verdict.chosen} to {verdict.cluster}" for verdict in others]
    passed = [
        f"{verdict.cluster} passed over: {clause(verdict.reason)}"
        for verdict in verdicts
        if not verdict.chosen and verdict.reason and verdict.needed
    ]
    cause = "for now" if any(verdict.chosen == MAX_WORKERS_PER_CLUSTER for verdict in verdicts) else "for want of room"
    pending = [f"{request.workers - total} stay pending {cause}"] if total < request.workers else []
    freed = [f"in {' and '.join(preempting)} {how}"] if preempting else []
    return "; ".join([", ".join(parts), *freed, *pending, *passed]) + "."


def shortfall_sentence(request: GangRequest, fit: int, verdicts: Sequence[Verdict], most: int | None) -> str:
    """What a gang waits for: the capacity of each cluster, and what would help if waiting does not.

    `most` is the number of workers that empty clusters could hold; None if waiting may help.
    """
    together = "at once in one cluster" if request.mode == "SameCluster" else "at once"
    clusters = [
        f"{verdict.cluster} has room for {verdict.fitting_workers}{f' ({verdict.reason})' if verdict.reason else ''}"
        for verdict in verdicts
    ]
    listed = "; ".join(clusters) or "the policy chooses no WorkerCluster, label or name one"
    advice = "" if most is None else f" {_never_fits_text(request, most)}"
    return (
        f"{request.needed_workers} {_worker_noun(request.needed_workers)} needed {together}, {fit} fit now: "
        f"{listed}.{advice}"
    )


def _never_fits_text(request: GangRequest, most: int) -> str:
    if request.mode == "SameCluster" and most == MAX_WORKERS_PER_CLUSTER:
        return (
            f"Even to an empty cluster a plan sends no more than {most}: ask for so many, or by a policy that divides "
            "the gang."
        )
    subject = "the largest cluster, empty, holds" if request.mode == "SameCluster" else "empty clusters hold"
    remedy = "raise a quota, add a worker cluster," if request.workers > MAX_WORKERS_PER_CLUSTER else "raise a quota"
    return f"Even {subject} only {most}: {remedy} or ask for fewer workers."


def _worker_noun(count: int) -> str:
    return "worker" if count == 1 else "workers"
