"""The sentences that explain a plan to people."""

from collections.abc import Collection, Sequence

from adapter.objects.placement import Verdict
from adapter.objects.reason import clause
from adapter.objects.unstructured import printable
from adapter.planning.plan_request import MAX_WORKERS_PER_CLUSTER, GangRequest, GroupRequest
from adapter.quota.flavorassigner import describe_uncovered

NOT_NEEDED = "not needed"
RECLAIMING_TEXT = "by taking back quota that others borrowed"
PREEMPTING_TEXT = "by preempting gangs of lower priority"


def placed_sentence(
    request: GangRequest, verdicts: Sequence[Verdict], preempting: Sequence[str] = (), how: str = RECLAIMING_TEXT
) -> str:
    """`2 of 4 workers to east, 2 to west; north passed over: …`; `how` says how `preempting` clusters free quota."""
    total = sum(verdict.chosen for verdict in verdicts)
    first, *others = [verdict for verdict in verdicts if verdict.chosen]
    parts = [f"{first.chosen} of {request.workers} {_worker_noun(request.workers)} to {first.cluster}"]
    parts += [f"{verdict.chosen} to {verdict.cluster}" for verdict in others]
    passed = [
        f"{verdict.cluster} passed over: {clause(verdict.reason)}"
        for verdict in verdicts
        if not verdict.chosen and verdict.reason and verdict.needed
    ]
    cause = (
        "for now"
        if any(verdict.chosen == MAX_WORKERS_PER_CLUSTER for verdict in verdicts)
        else ("for lack of capacity")
    )
    pending = [f"{request.workers - total} stay pending {cause}"] if total < request.workers else []
    freed = [f"in {' and '.join(preempting)} {how}"] if preempting else []
    return "; ".join([", ".join(parts), *freed, *pending, *passed]) + "."


def shortfall_sentence(
    request: GangRequest, fit: int, verdicts: Sequence[Verdict], most: int | None, divided: GroupRequest | None = None
) -> str:
    """What a gang waits for. `most` is how many workers empty clusters could hold; None if waiting may help.

    `divided`: a group of which no empty cluster holds a replica.
    """
    together = "at once in one cluster" if request.mode == "SameCluster" else "at once"
    clusters = [
        f"{verdict.cluster} has capacity for "
        f"{verdict.fitting_workers}{f' ({verdict.reason})' if verdict.reason else ''}"
        for verdict in verdicts
    ]
    listed = "; ".join(clusters) or "the policy selects no WorkerCluster; label or name one"
    advice = "" if most is None else f" {_replica_text(divided) if divided else _never_fits_text(request, most)}"
    return (
        f"{request.needed_workers} {_worker_noun(request.needed_workers)} needed {together}, {fit} fit now: "
        f"{listed}.{advice}"
    )


def _replica_text(group: GroupRequest) -> str:
    return (
        f"Even when empty, no cluster holds a replica of worker group {printable(group.name)}, whose {group.hosts} "
        "hosts must be in one cluster: raise a quota there, or set a smaller numOfHosts or smaller requests."
    )


def question_sentence(cluster: str, queue: str, uncovered: Collection[str]) -> str:
    """What the plan asks of a cluster's Kueue."""
    return f"{describe_uncovered(queue, uncovered)} in {cluster}: the share there shows whether Kueue counts that."


def _never_fits_text(request: GangRequest, most: int) -> str:
    if request.mode == "SameCluster" and most == MAX_WORKERS_PER_CLUSTER:
        return (
            f"A plan sends at most {most} workers to one cluster: request no more than that, or use a policy that "
            "divides the gang."
        )
    subject = "the largest cluster, when empty, holds" if request.mode == "SameCluster" else "empty clusters hold"
    remedy = "raise a quota, add a worker cluster," if request.workers > MAX_WORKERS_PER_CLUSTER else "raise a quota"
    return f"Even {subject} only {most}: {remedy} or request fewer workers."


def _worker_noun(count: int) -> str:
    return "worker" if count == 1 else "workers"
