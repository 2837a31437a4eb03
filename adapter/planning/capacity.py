"""The capacity of worker clusters for a gang: which clusters take part, and which promised shares its figures lack."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from adapter.objects.placement import Placement, Share
from adapter.objects.specs import WorkerCluster
from adapter.planning import planner
from adapter.planning.plan_request import Candidate, GangRequest
from adapter.quota import tree

# Kueue writes a ClusterQueue's status a second late (docs/upstream.md, "A ClusterQueue's status lags"). An admitted
# share that counts twice until then makes a plan too careful, never wrong.
STATUS_LAG = timedelta(seconds=3)


class HeldShare(NamedTuple):
    reserved_at: datetime | None  # by the manager cluster's clock; None: it holds no quota
    reserved_version: int  # the first object version in the cluster that showed the quota
    queue_version: int  # the object version of the observed ClusterQueue


def cluster_problem(name: str, unreachable_reason: str, spec: WorkerCluster | None, unmirrored_reason: str) -> str:
    """Why a cluster takes no new share now; empty if it does. `spec` is None without a WorkerCluster."""
    if spec is None:
        return unreachable_reason or f"there is no WorkerCluster {name}; create it"
    if spec.draining:
        return "it is draining"
    return "it is cordoned" if spec.cordoned else unreachable_reason or unmirrored_reason


_NO_QUOTA = tree.build((), (), ())  # one object, because trees are compared by identity


def absent_candidate(name: str, problem: str) -> Candidate:
    return Candidate(name, problem, _NO_QUOTA, {}, {})


def promised_shares(placement: Placement) -> Sequence[Share]:
    """The shares of a Placement that need capacity: reserved, or about to be.

    While a round is withdrawn, those are the shares of earlier rounds: an elastic job may still wait for some of them.
    """
    return placement.active_shares


def is_counted(held_share: HeldShare | None, now: datetime) -> bool:
    """Whether a cluster's figures contain a share.

    Kueue writes a queue's status from what it has already assumed when it writes the Workload. The versions of one
    cluster's objects come from one counter, so a later version of the queue contains the share. If they do not, the
    time decides. A share from the future shows a clock that is ahead: without `abs`, shares there would count twice for
    as long as that clock is ahead.
    """
    if held_share is None or held_share.reserved_at is None:
        return False
    return held_share.queue_version > held_share.reserved_version or abs(now - held_share.reserved_at) >= STATUS_LAG


def all_counted_at(shares: Iterable[HeldShare | None], now: datetime) -> datetime | None:
    """When no share can be deducted twice any more; None if that is so now."""
    expiries = (
        share.reserved_at + STATUS_LAG for share in shares if share and share.reserved_at and not is_counted(share, now)
    )
    return max(expiries, default=None)


def uncounted_shares(shares: Iterable[tuple[Share, HeldShare | None]], now: datetime) -> list[Share]:
    return [share for share, held_share in shares if not is_counted(held_share, now)]


def remaining_capacity(
    candidates: Iterable[Candidate],
    trees: Mapping[str, tree.QuotaTree],
    uncounted: Iterable[tuple[GangRequest, Sequence[Share]]],
) -> list[Candidate]:
    """The clusters less promised shares; `trees` replace the clusters' own quota trees."""
    remaining = [
        replace(candidate, quota_tree=trees[candidate.name]) if candidate.name in trees else candidate
        for candidate in candidates
    ]
    for request, shares in uncounted:
        if shares:
            remaining = planner.charge_shares(request, remaining, shares)
    return remaining
