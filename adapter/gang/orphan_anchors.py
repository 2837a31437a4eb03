"""Does an anchor in a worker cluster stand for anything, and when is one looked for that does not?

An anchor is written before its group Workload, and deleted after it. One of which nobody knows any more holds no quota, so it is
looked for seldom; it is found by shell/write/anchors.py.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from adapter.objects.placement import Placement, PlacementState
from adapter.objects.unstructured import Raw, key_of, meta, parse_time

# Older than any write of ours that is still on its way (the client gives up after 10 s).
SETTLED_AFTER = timedelta(seconds=15)
# A cluster is swept when it comes into sight, and once more when what was written before that has settled. Then every five
# minutes: it takes a crash between two writes to leave an anchor behind, and a forgotten ConfigMap holds no quota.
TURNS_PER_SWEEP = 20


def is_in_use(anchor: Raw, cluster: str, share: Raw | None, placements: Iterable[Placement]) -> bool:
    """Whether there is a share of the anchor's name in its cluster, or one of the Placements of its Workload still wants it.

    `share` is the group Workload of that name there, None where there is none.
    """
    if share:
        return True
    name = key_of(anchor)[1]
    held = (place for place in placements if place.status.get("state") != PlacementState.ENDED)
    return any(
        place.name_of_share(one) == name for place in held for one in place.active_shares if one.cluster == cluster
    )


def is_settled(anchor: Raw, now: datetime) -> bool:
    """Whether whoever wrote it would have written its share by now; nothing is said of one without a time."""
    created = parse_time(meta(anchor).get("creationTimestamp"))
    return created is not None and now - created > SETTLED_AFTER


def is_sweep_due(turn: int) -> bool:
    """Whether a cluster is swept in this turn; 0 is when it came into sight, and one comes when the last has settled."""
    return turn == 1 or turn % TURNS_PER_SWEEP == 0
