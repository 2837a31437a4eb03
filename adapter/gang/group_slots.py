"""How many slots each worker group of a running gang has and lacks, and which shares no group needs.

Groups are counted one by one, because a worker takes a slot of its own group only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from adapter.gang.gang_facts import Gang
from adapter.gang.start_timeout import StartTimeouts, may_receive_worker
from adapter.objects.placement import Placement, Share


def slots_by_group(
    gang: Gang, placement: Placement, shares: Iterable[Share], start_timeouts: StartTimeouts
) -> Counter[str]:
    """Count each group's usable slots on shares in clusters that are not drained."""
    slots = Counter[str]()
    for share in undrained_shares(gang, shares):
        slots.update({group.name: group.count for group in share.groups})
        slots.subtract(start_timeouts.unusable_slots.get(placement.share_key(share), {}))
    return slots


def unplaced_by_group(gang: Gang, slots: Mapping[str, int]) -> dict[str, int]:
    """Count workers without a slot; `slots` are by group."""
    return {group: max(wanted - slots.get(group, 0), 0) for group, wanted in gang.workers_to_place.items()}


def lacking_slots(
    gang: Gang, placement: Placement, shares: Iterable[Share], start_timeouts: StartTimeouts
) -> dict[str, int]:
    """Count each group's workers that have no slot on these shares, or must leave theirs."""
    return unplaced_by_group(gang, slots_by_group(gang, placement, shares, start_timeouts))


def spare_shares(
    gang: Gang, placement: Placement, shares: Iterable[Share], start_timeouts: StartTimeouts, now: datetime
) -> tuple[Share, ...]:
    """The shares without pods that are drained or surplus.

    A share is not surplus while a worker between two slots may take a slot on it.
    """
    remaining = tuple(shares)
    empty = [share for share in remaining if placement.share_key(share) not in gang.pods.shares_with_pods]
    undrained = undrained_shares(gang, empty)
    unneeded = [share for share in undrained if not may_receive_worker(gang, share, now)]
    slots = slots_by_group(gang, placement, remaining, start_timeouts)
    drained = [share for share in empty if share not in undrained]
    return (*drained, *surplus_shares(gang, unneeded, slots))


def surplus_shares(gang: Gang, empty_shares: Iterable[Share], slots: Mapping[str, int]) -> tuple[Share, ...]:
    """The empty shares that no group needs, the latest first; `slots` are by group."""
    remaining, surplus = Counter(slots), list[Share]()
    for share in reversed(list(empty_shares)):
        counts = {group.name: group.count for group in share.groups}
        if all(remaining[name] - count >= gang.workers_to_place.get(name, 0) for name, count in counts.items()):
            surplus.append(share)
            remaining.subtract(counts)
    return tuple(surplus)


def undrained_shares(gang: Gang, shares: Iterable[Share]) -> list[Share]:
    return [share for share in shares if share.cluster not in gang.clusters.draining]
