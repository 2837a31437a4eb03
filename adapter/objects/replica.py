"""Replicas of several hosts: the workers that KubeRay creates, deletes and replaces together, and the slots they take.

A replica takes a block: as many neighbouring slots of one share as the replica has hosts. A share has whole blocks, so
no replica is divided between two clusters. KubeRay writes the labels that tell the pods of a replica
(docs/upstream.md, "The hosts of a replica").
"""

from collections.abc import Collection, Iterator
from typing import Final

from adapter import names
from adapter.objects.placement import GroupShare, Placement, Share, ShareKey
from adapter.objects.unstructured import Raw, key_of, label, printable
from adapter.objects.worker_pod import Slot, group_shares, share_slots, worker_group_of

# The labels that KubeRay writes on each host.
HOST_LABELS: Final = (names.RAY_REPLICA_NAME_LABEL, names.RAY_HOST_INDEX_LABEL)
# The hosts of the largest slices in use. The cost of a pod grows with the hosts of its replica.
MAX_HOSTS = 256
# The label's value has at most so many digits; more are forged.
_MAX_DIGITS = 9


def host_index(pod: Raw) -> int | None:
    """The number of a pod among the hosts of its replica; None for a pod of one host."""
    text = label(pod, names.RAY_HOST_INDEX_LABEL)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def replica_name(pod: Raw) -> str:
    """The name of a pod's replica of several hosts; empty for a pod of one host."""
    return "" if host_index(pod) is None else label(pod, names.RAY_REPLICA_NAME_LABEL)


def hosts_of(placement: Placement, pod: Raw) -> int:
    """How many hosts a replica of the pod's group has by the plan."""
    return max((part.hosts for _, part in group_shares(placement, worker_group_of(pod))), default=1)


def hosts_needed(placement: Placement, pod: Raw) -> int:
    """How many slots the replica of a pod needs by the plan; 1 for a pod that no label tells to be a host."""
    return hosts_of(placement, pod) if replica_name(pod) else 1


def replica_key(pod: Raw) -> tuple[str, str, str]:
    """Identifies a pod's replica within its gang; a pod of one host is a replica of its own."""
    name = replica_name(pod)
    return ("replica", worker_group_of(pod), name) if name else ("pod", *key_of(pod))


def open_slots(placement: Placement, pod: Raw, taken: Collection[Slot], joined: Slot | None) -> Iterator[Slot]:
    """The planned slots that a pod may take, in the order of the plan.

    `taken`: those of other pods. `joined`: a slot of the replica's other pods, in whose block the pod belongs. Without
    one, the first pod of a replica needs a block that is free as a whole.
    """
    for share, part in group_shares(placement, worker_group_of(pod)):
        if part.hosts == 1 and not replica_name(pod):
            yield from (slot for slot in share_slots(placement, share, part) if slot not in taken)
        elif part.hosts > 1 and replica_name(pod):
            yield from _open_slots_of_host(placement.share_key(share), part, pod, taken, joined)


def _open_slots_of_host(
    key: ShareKey, part: GroupShare, pod: Raw, taken: Collection[Slot], joined: Slot | None
) -> Iterator[Slot]:
    host = host_index(pod)
    if host is None or host >= part.hosts:
        return
    for first in range(0, part.count - part.hosts + 1, part.hosts):
        block = [Slot(key, part.role, index) for index in range(first, first + part.hosts)]
        needed = block if joined is None else block[host : host + 1]
        if (joined is None or joined in block) and not any(slot in taken for slot in needed):
            yield block[host]


def block_slots(placement: Placement, pod: Raw, slot: Slot) -> list[Slot]:
    """All slots of the block that a slot is in; the slot alone for a group of one host."""
    share, block = _block_of(placement, pod, slot)
    hosts = hosts_of(placement, pod)
    return [Slot(share, slot.role, block * hosts + host) for host in range(hosts)] if hosts > 1 else [slot]


def leaves_replica(placement: Placement, pod: Raw, slot: Slot | None, joined: Slot | None) -> bool:
    """Whether a pod's slot is outside of the block that its replica's other pods are in."""
    return (
        slot is not None and joined is not None and _block_of(placement, pod, slot) != _block_of(placement, pod, joined)
    )


def _block_of(placement: Placement, pod: Raw, slot: Slot) -> tuple[ShareKey, int]:
    hosts = (
        part.hosts
        for share, part in group_shares(placement, worker_group_of(pod))
        if placement.share_key(share) == slot.share
    )
    return slot.share, slot.index // next(hosts, 1)


def count_free_slots(placement: Placement, share: Share, part: GroupShare, taken: Collection[Slot]) -> int:
    """How many slots of a group on a share further replicas may take: those in blocks that are free as a whole."""
    free = [slot not in taken for slot in share_slots(placement, share, part)]
    blocks = (free[first : first + part.hosts] for first in range(0, len(free), part.hosts))
    return sum(len(block) for block in blocks if all(block))


def mismatch_reason(placement: Placement, pod: Raw) -> str:
    """Why a pod can take none of its group's slots, whatever is free: its labels do not fit the plan; else empty."""
    hosts = {part.hosts for _, part in group_shares(placement, worker_group_of(pod))}
    index = host_index(pod) if replica_name(pod) else None
    group = f"the workers of group {printable(worker_group_of(pod))}"
    if not hosts or (1 in hosts if index is None else any(index < count > 1 for count in hosts)):
        return ""
    if index is None:
        return (
            f"{group} lack the label {names.RAY_REPLICA_NAME_LABEL}, so which of them are hosts of one replica is not "
            "known; turn on KubeRay's feature gate RayMultiHostIndexing, which is on by default since KubeRay 1.6, or "
            "set numOfHosts to 1"
        )
    return (
        f"{group} have the label {names.RAY_HOST_INDEX_LABEL}: {index}, and the job was placed with {max(hosts)} hosts "
        "a replica; do not change numOfHosts of a running job: delete the job and create it again"
    )
