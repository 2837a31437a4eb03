"""Which places does a Placement have for worker pods, and which of them are taken?

A slot is `cluster/round/role/index`: a share, a worker group on it, and a number below the share's count of that group. It is
written into an annotation, which may say anything: of what is no slot, nothing is believed. Which pod gets which is decided
in worker/dispatch.py.

A pod may come with one, so that nobody has to write it before its copy is made: its template lists the slots of its group, and KubeRay
numbers the pods. Both stand in the pod from its creation on, and neither moves when its gang is planned anew. What was written into
the pod itself counts for more. Whether the slot that it came with is its own is asked in worker/template_slots.py.
"""

import functools
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from adapter import names
from adapter.objects.placement import GroupShare, Placement, Share, ShareKey
from adapter.objects.unstructured import Key, Raw, annotation, condition, is_true, key_of, label, meta, moment
from adapter.objects.workload import Workload

# A pod that should have ended by then counts as gone, though its cluster still shows it: its node is lost, and nobody may ever say
# that it has ended. As long as Kubernetes waits for a node before it gives its pods up (tolerationSeconds of 300 by default).
GONE_AFTER = timedelta(minutes=5)


# Slots are listed for no more shares, and read of no longer list: it stands in each pod of the group, and an annotation may say anything.
# Twenty shares take about a kilobyte, a tenth of what a worker pod has; a gang in more pieces has its slots written one by one.
_MOST_LISTED, _LONGEST_LIST = 20, 4096
# A cluster's name has up to 253 characters and a role 8. Longer texts are forged, and none is kept in the cache of parsed slots.
_LONGEST_SLOT = 512


class Slot(NamedTuple):
    """A place for one worker on a share."""

    share: ShareKey
    role: str
    index: int  # type: ignore[assignment]  # The field hides tuple.index, which nothing calls.

    @property
    def cluster(self) -> str:
        return self.share.cluster

    @staticmethod
    def parse(text: str) -> "Slot | None":
        """Read `cluster/round/role/index`; None for every text that `str` does not write."""
        return _parse(text) if len(text) <= _LONGEST_SLOT else None

    def __str__(self) -> str:
        return f"{self.share.cluster}/{self.share.round}/{self.role}/{self.index}"


@functools.lru_cache(maxsize=16384)  # Each reconcile reads the slots of all pods of a gang again.
def _parse(text: str) -> Slot | None:
    parts = text.split("/", 4)
    if len(parts) != 4:
        return None
    cluster, round_, role, index = parts
    if not (cluster and _is_canonical(round_) and _is_canonical(index)):
        return None
    return Slot(ShareKey(cluster, int(round_)), role, int(index))


def slot_of(pod: Raw) -> Slot | None:
    """The slot that is written in a manager pod or a remote pod, else its template slot."""
    written = annotation(pod, names.SLOT_ANNOTATION)
    return Slot.parse(written) if written else _template_slot(pod)


def slot_cluster(pod: Raw) -> str:
    """The cluster of a pod's slot, empty when it has none."""
    slot = slot_of(pod)
    return slot.cluster if slot else ""


def slot_share(pod: Raw) -> ShareKey | None:
    """The key of the share that a pod's slot is on."""
    slot = slot_of(pod)
    return slot.share if slot else None


def place_of(pod: Raw) -> Key:
    """Namespace and name of the Placement that a pod is labelled with."""
    return key_of(pod)[0], label(pod, names.PLACEMENT_LABEL)


def is_preassigned(pod: Raw) -> bool:
    """Whether a pod has no other slot than the one that it came with, of which nothing is written in it."""
    return not annotation(pod, names.SLOT_ANNOTATION) and _template_slot(pod) is not None


def without_slot(pod: Raw) -> Raw:
    """The pod as if it had come with no slot."""
    left = {key: value for key, value in (meta(pod).get("annotations") or {}).items() if key != names.SLOTS_ANNOTATION}
    return {**pod, "metadata": {**meta(pod), "annotations": left}}


def as_planned(pod: Raw, place: Placement | None) -> Raw:
    """A pod as it looks from the manager alone: without the slot that it came with, where its plan does not have that any more. Of a plan
    that is not known (None) nothing is said. Whether it has the slot in fact, the controller alone can say (worker/template_slots.py)."""
    astray = place is not None and is_preassigned(pod) and not is_slot(place, pod, slot_of(pod))
    return without_slot(pod) if astray else pod


def cluster_of(pod: Raw, place: Placement | None) -> str:
    """The worker cluster in which a pod has its place, likewise; empty when it has none."""
    return label(pod, names.CLUSTER_LABEL) or slot_cluster(as_planned(pod, place))


def _template_slot(pod: Raw) -> Slot | None:
    """KubeRay's number of the pod counts through the listed slots, whoever wrote either."""
    index, listed = label(pod, names.RAY_REPLICA_INDEX_LABEL), annotation(pod, names.SLOTS_ANNOTATION)
    return _nth(listed, int(index)) if _is_number(index) and 0 < len(listed) <= _LONGEST_LIST else None


@functools.lru_cache(maxsize=4096)  # a look at a gang asks it again and again of each of its pods
def _nth(listed: str, index: int) -> Slot | None:
    left = index
    for part in listed.split(" "):
        prefix, _, count = part.rpartition("/")
        if not _is_number(count):
            return None
        if left < int(count):
            return Slot.parse(f"{prefix}/{left}")
        left -= int(count)
    return None


def listed(placement: Placement, group: str) -> str:
    """What the template of a worker group lists: its slots, in the order of the plan; empty when they are too many shares."""
    parts = [(share, part) for share in placement.live for part in share.groups if part.name == group]
    found = " ".join(f"{share.cluster}/{placement.round_of(share)}/{part.role}/{part.count}" for share, part in parts)
    return found if len(parts) <= _MOST_LISTED and len(found) <= _LONGEST_LIST else ""


def slots(placement: Placement, pod: Raw) -> Iterator[Slot]:
    """The slots of the wanted shares for the pod's worker group, in the order of the plan."""
    for share, part in _parts(placement, pod):
        yield from slots_on(placement, share, part)


def is_slot(placement: Placement, pod: Raw, slot: Slot | None) -> bool:
    """Whether this is one of `slots`, which are not listed to find out: a gang may have thousands."""
    return slot is not None and any(
        slot.share == placement.key_of(share) and slot.role == part.role and slot.index < part.count
        for share, part in _parts(placement, pod)
    )


def slots_on(placement: Placement, share: Share, group: GroupShare) -> Iterator[Slot]:
    """The slots of one worker group on one share."""
    key = placement.key_of(share)
    return (Slot(key, group.role, index) for index in range(group.count))


def _parts(placement: Placement, pod: Raw) -> Iterator[tuple[Share, GroupShare]]:
    group = group_of(pod)
    return ((share, part) for share in placement.live for part in share.groups if part.name == group)


def _is_number(text: str) -> bool:
    """Whether this is a count or an index. It has no more digits than a count can have: an annotation may hold thousands, which Python
    refuses to read."""
    return text.isascii() and text.isdecimal() and len(text) < 10


def _is_canonical(text: str) -> bool:
    return _is_number(text) and (text == "0" or not text.startswith("0"))


def group_of(pod: Raw) -> str:
    """A pod's worker group as a Placement names it: Kueue lower-cases it for the podset's name."""
    return label(pod, names.RAY_GCS_GROUP_LABEL).lower()


def pull_secrets(pod: Raw, work: Workload) -> tuple[Raw, ...]:
    """Those that the pod's template names, as written there: admission gives a pod that has none those of its account, so the pod
    itself does not tell."""
    specs = [podset.template.get("spec") or {} for podset in work.podsets if podset.name == group_of(pod)]
    return tuple(one for spec in specs for one in spec.get("imagePullSecrets") or ())


def wants_slot(pod: Raw, remotes: Mapping[str, Raw]) -> bool:
    """Whether a pod may get a slot, or another one: as long as nothing was made of it, and when it has none at all."""
    return not slot_of(pod) or not (remotes or dispatched(pod))


def unheld(pod: Raw) -> str:
    """Why the manager may run a pod itself, a fragment; empty while our gate and the lock keep it from its nodes."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return f"spec.nodeName is {spec['nodeName']}"
    if names.GATE not in {gate.get("name") for gate in spec.get("schedulingGates") or ()}:
        return f"spec.schedulingGates lacks {names.GATE}"
    if (spec.get("nodeSelector") or {}).get(names.LOCK_NODE_SELECTOR) != names.LOCK_NODE_SELECTOR_VALUE:
        return f"spec.nodeSelector lacks {names.LOCK_NODE_SELECTOR}: {names.LOCK_NODE_SELECTOR_VALUE}"
    return ""


def waits_for_quota(pod: Raw) -> bool:
    """Whether the manager has no quota for a pod of an elastic job yet: Kueue holds it by a gate of its own."""
    return names.ELASTIC_GATE in {gate.get("name") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()}


def leaving(raw: Raw) -> bool:
    """Whether a pod is being deleted."""
    return bool(meta(raw).get("deletionTimestamp"))


def gone(raw: Raw, now: datetime) -> bool:
    """Whether a pod should have ended so long ago that nobody will say that it has: its time is over, grace included."""
    due = moment(meta(raw).get("deletionTimestamp"))
    return due is not None and now >= due + GONE_AFTER


def ended(raw: Raw) -> bool:
    """Whether a pod is over."""
    return (raw.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def in_place(pod: Raw) -> bool:
    """Whether a worker's Ray node does its part: its pod is ready, or it is one of a RayService and all of its containers run.

    There KubeRay asks for Serve's proxy, too, and Serve keeps one only where a replica is: a worker without one is never ready, and waits
    for replicas (docs/upstream.md, "The RayClusters of a RayService"). Its raylet runs when its containers do: an init container
    has reached the head before, and `ray start --block` ends with the raylet.
    """
    if is_true(pod, "Ready"):
        return True
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = bool(statuses) and all((one.get("state") or {}).get("running") is not None for one in statuses)
    serves = label(pod, names.RAY_SERVE_LABEL) == "true" and label(pod, names.RAY_NODE_TYPE_LABEL) != names.HEAD
    return serves and running


def dispatched(pod: Raw) -> bool:
    """Whether a pod's copy was seen once."""
    return bool(condition(pod, names.DISPATCHED_CONDITION))
