"""The capacity of worker clusters for a gang: whether a cluster takes part, and which promised shares its figures lack.

A cluster's own figures are late. A promised share is deducted here until they contain it. This file reads no store and
chooses no cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from adapter.objects.placement import Placement, Share
from adapter.objects.specs import WorkerCluster
from adapter.planning import planner
from adapter.planning.plan_request import Candidate, GangRequest
from adapter.quota import tree

# Kueue writes a ClusterQueue's status a second late (docs/upstream.md, "A ClusterQueue's status lags"). Until then we
# count an admitted share ourselves. If it counts twice for two seconds, a plan is too careful but never wrong.
STATUS_LAG = timedelta(seconds=3)


class HeldShare(NamedTuple):
    """An existing share, with the age of the figures of its cluster."""

    reserved_at: datetime | None  # when it reserved quota; None: it holds none
    reserved_version: int  # first version of the cluster's objects that showed the reservation
    queue_version: int  # version of the observed ClusterQueue


def cluster_problem(name: str, unreachable_reason: str, spec: WorkerCluster | None, unmirrored_reason: str) -> str:
    """Why a cluster takes no new share now; empty if it does.

    `unreachable_reason` says why it is unreachable, `unmirrored_reason` why no head can be mirrored there; `spec` is
    None if it is not registered.
    """
    if spec is None:
        return unreachable_reason or f"there is no WorkerCluster {name}; create it"
    if spec.draining:
        return "it is draining"
    return "it is cordoned" if spec.cordoned else unreachable_reason or unmirrored_reason


_NO_QUOTA = tree.build((), (), ())  # a single tree, since trees are compared by identity


def absent_candidate(name: str, problem: str) -> Candidate:
    """A cluster that takes no part, so nothing of it is read."""
    return Candidate(name, problem, _NO_QUOTA, {}, {})


def promised_shares(placement: Placement) -> Sequence[Share]:
    """The shares of a Placement that need capacity: reserved, or about to be.

    Of a withdrawn round they are those of earlier rounds that stay. An elastic job may still wait for single workers of
    them.
    """
    return placement.active_shares


def is_counted(held_share: HeldShare | None, now: datetime) -> bool:
    """Whether a cluster's figures contain a share: its queue was written after the share, or STATUS_LAG has passed.

    Kueue writes a queue's status from what it has already assumed when it writes the Workload. The versions of one
    cluster's objects come from one counter; if they do not, the time decides. A share from the future shows that the
    cluster's clock is wrong. Then no share there may count twice for as long as that clock is ahead.
    """
    if held_share is None or held_share.reserved_at is None:
        return False
    return held_share.queue_version > held_share.reserved_version or abs(now - held_share.reserved_at) >= STATUS_LAG


def all_counted_at(shares: Iterable[HeldShare | None], now: datetime) -> datetime | None:
    """When the last share that may be deducted twice now is not deducted any more."""
    expiries = (
        share.reserved_at + STATUS_LAG for share in shares if share and share.reserved_at and not is_counted(share, now)
    )
    return max(expiries, default=None)


def uncounted_shares(shares: Iterable[tuple[Share, HeldShare | None]], now: datetime) -> list[Share]:
    """The shares to deduct from what their clusters show."""
    return [share for share, held_share in shares if not is_counted(held_share, now)]


def remaining_capacity(
    candidates: Iterable[Candidate],
    trees: Mapping[str, tree.QuotaTree],
    uncounted: Iterable[tuple[GangRequest, Sequence[Share]]],
) -> list[Candidate]:
    """The clusters less the shares promised to gangs there; `trees` are quota trees that replace the clusters' own."""
    remaining = [
        replace(candidate, quota_tree=trees[candidate.name]) if candidate.name in trees else candidate
        for candidate in candidates
    ]
    for request, shares in uncounted:
        if shares:
            remaining = planner.charge_shares(request, remaining, shares)
    return remaining
