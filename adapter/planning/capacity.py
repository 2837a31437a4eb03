"""What does a worker cluster still have for a gang: does it take part, and what is promised there that its figures do not hold?

A cluster's own figures lag behind what was promised: until they hold a share it is deducted from them here. Nothing here reads a
store, and nothing chooses between clusters.
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

# Kueue writes a ClusterQueue's status a second late (docs/upstream.md, "A ClusterQueue's status lags"): until then an
# admitted share is counted by us. Counting it twice for two seconds makes a plan too careful, never wrong.
STATUS_LAG = timedelta(seconds=3)


class HeldShare(NamedTuple):
    """A share that stands in its cluster, and how old the figures are beside which it stands."""

    reserved_at: datetime | None  # holds quota since; None: it holds none
    reserved_version: int  # the version of the cluster's objects that told so first
    queue_version: int  # the version in which its ClusterQueue is seen


def cluster_problem(name: str, unreachable_reason: str, spec: WorkerCluster | None, unmirrored_reason: str) -> str:
    """Why a cluster takes no new share now, empty when it does.

    `silent` says why it cannot be seen, `unmirrored` why heads cannot be mirrored there; `spec` is None of one not registered.
    """
    if spec is None:
        return unreachable_reason or f"there is no WorkerCluster {name}; create it"
    if spec.draining:
        return "it is draining"
    return "it is cordoned" if spec.cordoned else unreachable_reason or unmirrored_reason


_NO_QUOTA = tree.build((), (), ())  # always the same one, for trees are compared by identity


def absent_candidate(name: str, problem: str) -> Candidate:
    """A cluster that takes no part: nothing of what it has is looked at."""
    return Candidate(name, problem, _NO_QUOTA, {}, {})


def promised_shares(placement: Placement) -> Sequence[Share]:
    """The shares of a Placement for which room is to be there, reserved or about to be: of a round that is withdrawn, those that earlier
    ones left in place, for an elastic job may still wait for single workers of them."""
    return placement.active_shares


def is_counted(held_share: HeldShare | None, now: datetime) -> bool:
    """Whether a cluster's figures hold a share: its queue was written after it, or it has had the time.

    Kueue writes a queue's status from what it has assumed already when it writes the Workload, and the versions of one
    cluster's objects come from one counter; where they do not, the time decides. A share from the future tells that the
    cluster's clock is wrong, and none there shall count twice for as long as that goes ahead.
    """
    if held_share is None or held_share.reserved_at is None:
        return False
    return held_share.queue_version > held_share.reserved_version or abs(now - held_share.reserved_at) >= STATUS_LAG


def all_counted_at(shares: Iterable[HeldShare | None], now: datetime) -> datetime | None:
    """When the last share that is deducted and may be counted already is deducted no more."""
    doubtful = (
        held.reserved_at + STATUS_LAG for held in shares if held and held.reserved_at and not is_counted(held, now)
    )
    return max(doubtful, default=None)


def uncounted_shares(shares: Iterable[tuple[Share, HeldShare | None]], now: datetime) -> list[Share]:
    """The shares that are to be deducted from what their clusters show."""
    return [share for share, held in shares if not is_counted(held, now)]


def remaining_capacity(
    candidates: Iterable[Candidate],
    trees: Mapping[str, tree.QuotaTree],
    uncounted: Iterable[tuple[GangRequest, Sequence[Share]]],
) -> list[Candidate]:
    """The clusters less what is owed to gangs there; `trees` are quotas to be reckoned with instead of their own."""
    found = [replace(one, quota_tree=trees[one.name]) if one.name in trees else one for one in candidates]
    for request, shares in uncounted:
        if shares:
            found = planner.charge_shares(request, found, shares)
    return found
