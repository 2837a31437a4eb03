"""Which places does a Placement have for worker pods, and which of them are taken?

A slot is `cluster/round/role/index`: a share, a worker group on it, and a number below the share's count of that group. It is
written into an annotation, which may say anything: of what is no slot, nothing is believed. Which pod gets which is decided
in dispatch.py.
"""

from collections.abc import Iterable, Mapping

from adapter import names
from adapter.facts import Raw, annotation, label, number, uid_of
from adapter.placement import GroupShare, Placement, Share
from adapter.worker import dispatched


def share_key(slot: str) -> tuple[str, int]:
    """Cluster and round of the share that a slot is on; a slot that says nothing is on none."""
    cluster, round_, *_ = *slot.split("/"), "", ""
    return cluster, number(round_)


def role_of(slot: str) -> str:
    """The role that a slot of a plan is for."""
    return slot.split("/")[2]


def slots(placement: Placement, pod: Raw) -> list[str]:
    """The slots of the wanted shares for the pod's worker group, in the order of the plan."""
    held = [(share, part) for share in placement.live for part in share.groups if part.name == group_of(pod)]
    return [slot for share, part in held for slot in slots_on(placement, share, part)]


def slots_on(placement: Placement, share: Share, group: GroupShare) -> list[str]:
    """The slots of one worker group on one share."""
    return [f"{share.cluster}/{placement.round_of(share)}/{group.role}/{index}" for index in range(group.count)]


def group_of(pod: Raw) -> str:
    """A pod's worker group as a Placement names it: Kueue lower-cases it for the podset's name."""
    return label(pod, names.RAY_GCS_GROUP_LABEL).lower()


def slots_taken(pods: Iterable[Raw], *, but: str | None = None) -> frozenset[str]:
    """The slots that these pods hold, without those of the pod with the uid `but` and of its copies; one that ended holds
    its slot until it is gone, for only then is its share of the reservation free again."""
    held = (
        annotation(pod, names.SLOT_ANNOTATION)
        for pod in pods
        if but is None or (uid_of(pod) != but and label(pod, names.POD_UID_LABEL) != but)
    )
    return frozenset(slot for slot in held if slot)


def wants_slot(pod: Raw, remotes: Mapping[str, Raw]) -> bool:
    """Whether a pod may get a slot, or another one: as long as nothing was made of it, and when it has none at all."""
    return not annotation(pod, names.SLOT_ANNOTATION) or not (remotes or dispatched(pod))
