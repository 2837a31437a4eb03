"""Whether an anchor in a worker cluster is in use, and when a cluster is swept for unused anchors.

An anchor is created before its group Workload and deleted after it (shell/write/anchors.py).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from adapter.objects.placement import Placement, PlacementState
from adapter.objects.unstructured import Raw, key_of, meta, parse_time

# After this time the creation of an anchor's group Workload is over: the client times out after 10 s.
SETTLED_AFTER = timedelta(seconds=15)
# Turns between two sweeps, five minutes. A cluster is also swept one turn after it became reachable, when earlier
# writes have settled. That suffices: only a crash between two writes leaves an anchor, and a ConfigMap holds no quota.
TURNS_PER_SWEEP = 20


def is_in_use(anchor: Raw, cluster: str, share: Raw | None, placements: Iterable[Placement]) -> bool:
    """Whether the anchor's group Workload (`share`) exists, or a Placement still wants it."""
    if share:
        return True
    name = key_of(anchor)[1]
    live = (placement for placement in placements if placement.status.get("state") != PlacementState.ENDED)
    return any(
        placement.name_of_share(planned) == name
        for placement in live
        for planned in placement.active_shares
        if planned.cluster == cluster
    )


def is_settled(anchor: Raw, now: datetime) -> bool:
    """Whether the creation of the anchor's share is over."""
    created = parse_time(meta(anchor).get("creationTimestamp"))
    return created is not None and now - created > SETTLED_AFTER


def is_sweep_due(turn: int) -> bool:
    """Whether a cluster is swept in this turn; it became reachable in turn 0."""
    return turn == 1 or turn % TURNS_PER_SWEEP == 0
