"""Whether an anchor in a worker cluster is in use, and when a cluster is swept for unused anchors.

An anchor is created before its group Workload, and deleted after it. An unused anchor holds no quota, so sweeps are
rare. shell/write/anchors.py makes them.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from adapter.objects.placement import Placement, PlacementState
from adapter.objects.unstructured import Raw, key_of, meta, parse_time

# Longer than any write of ours takes (the client times out after 10 s).
SETTLED_AFTER = timedelta(seconds=15)
# A cluster is swept when it becomes reachable, and once more when earlier writes have settled. After that it is swept
# every five minutes: only a crash between two writes leaves an anchor, and a ConfigMap holds no quota.
TURNS_PER_SWEEP = 20


def is_in_use(anchor: Raw, cluster: str, share: Raw | None, placements: Iterable[Placement]) -> bool:
    """Whether the anchor has a share in its cluster, or one of the Placements of its Workload still wants that share.

    `share` is the group Workload of the anchor's name there; None if there is none.
    """
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
    """Whether its share would exist by now; False for an anchor without a creation time."""
    created = parse_time(meta(anchor).get("creationTimestamp"))
    return created is not None and now - created > SETTLED_AFTER


def is_sweep_due(turn: int) -> bool:
    """Whether a cluster is swept in this turn. Turn 0 is when it became reachable; the next one is when earlier writes
    settled."""
    return turn == 1 or turn % TURNS_PER_SWEEP == 0
