"""Worker pods, and the slots that a Placement has for them.

A slot is `cluster/round/role/index`: a share, a worker group on it, and a number below the share's count of that group.
It is written into an annotation. An annotation may say anything, and a text that is no slot counts as none.

A pod may have a template slot, so that no write is needed before its remote pod is created. Its template lists the
slots of its group, and KubeRay numbers the pods. A pod has both from its creation on, and a new plan changes neither. A
slot that is written into the pod itself takes precedence. Who gets which slot is decided in worker/dispatch.py, and
whether a pod owns its template slot in worker/template_slots.py.
"""

import functools
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from adapter import names
from adapter.objects.placement import GroupShare, Placement, Share, ShareKey
from adapter.objects.unstructured import (
    Key,
    Raw,
    annotation,
    condition,
    is_condition_true,
    key_of,
    label,
    meta,
    parse_time,
)
from adapter.objects.workload import Workload

# A pod that should have ended this long ago counts as gone although its cluster still shows it: its node may be lost,
# and then nothing reports the end. Kubernetes waits as long for a node before it gives its pods up (tolerationSeconds
# of 300 by default).
DELETION_OVERDUE_AFTER = timedelta(minutes=5)

# The list is in each pod of the group: twenty shares take about a kilobyte, a tenth of a worker pod. Slots on more
# shares are written one by one. A longer list is not read, since an annotation may say anything.
_MAX_LISTED_SHARES, _MAX_LIST_LENGTH = 20, 4096
# The name of a cluster has up to 253 characters and a role 8. A longer text is forged and stays out of the cache.
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


def placement_key(pod: Raw) -> Key:
    """Namespace and name of the Placement in a pod's label."""
    return key_of(pod)[0], label(pod, names.PLACEMENT_LABEL)


def has_template_slot(pod: Raw) -> bool:
    """Whether a pod has a template slot, and no slot is written into it."""
    return not annotation(pod, names.SLOT_ANNOTATION) and _template_slot(pod) is not None


def without_template_slots(pod: Raw) -> Raw:
    """The pod without the list of slots from its template."""
    annotations = {
        key: value for key, value in (meta(pod).get("annotations") or {}).items() if key != names.SLOTS_ANNOTATION
    }
    return {**pod, "metadata": {**meta(pod), "annotations": annotations}}


def without_unplanned_slot(pod: Raw, placement: Placement | None) -> Raw:
    """The pod without a template slot that its Placement does not have; None: the Placement is not known, and the pod
    keeps its slot.

    This reads the manager cluster alone. Only the controller knows whether the pod owns the slot
    (worker/template_slots.py).
    """
    is_unplanned = (
        placement is not None and has_template_slot(pod) and not is_planned_slot(placement, pod, slot_of(pod))
    )
    return without_template_slots(pod) if is_unplanned else pod


def worker_cluster_of(pod: Raw, placement: Placement | None) -> str:
    """The worker cluster that a pod is in or has a planned slot in, as far as the manager cluster shows; empty when
    there is none."""
    return label(pod, names.CLUSTER_LABEL) or slot_cluster(without_unplanned_slot(pod, placement))


def _template_slot(pod: Raw) -> Slot | None:
    """The slot in the template's list that KubeRay's number of the pod leads to, whoever wrote either."""
    index, slot_list = label(pod, names.RAY_REPLICA_INDEX_LABEL), annotation(pod, names.SLOTS_ANNOTATION)
    return _nth_slot(slot_list, int(index)) if _is_number(index) and 0 < len(slot_list) <= _MAX_LIST_LENGTH else None


@functools.lru_cache(maxsize=4096)  # Each reconcile of a gang reads the slots of all its pods several times.
def _nth_slot(slot_list: str, index: int) -> Slot | None:
    remaining = index
    for part in slot_list.split(" "):
        prefix, _, count = part.rpartition("/")
        if not _is_number(count):
            return None
        if remaining < int(count):
            return Slot.parse(f"{prefix}/{remaining}")
        remaining -= int(count)
    return None


def list_slots(placement: Placement, group: str) -> str:
    """The list of slots for the template of a worker group, in the order of the plan; empty when there are too many
    shares."""
    parts = [(placement.share_key(share), part) for share, part in _group_shares(placement, group)]
    slot_list = " ".join(f"{key.cluster}/{key.round}/{part.role}/{part.count}" for key, part in parts)
    return slot_list if len(parts) <= _MAX_LISTED_SHARES and len(slot_list) <= _MAX_LIST_LENGTH else ""


def planned_slots(placement: Placement, pod: Raw) -> Iterator[Slot]:
    """The slots of the wanted shares for the pod's worker group, in the order of the plan."""
    for share, part in _group_shares(placement, worker_group_of(pod)):
        yield from share_slots(placement, share, part)


def is_planned_slot(placement: Placement, pod: Raw, slot: Slot | None) -> bool:
    """Whether this is one of `planned_slots`. It does not list them: a gang may have thousands."""
    return slot is not None and any(
        slot.share == placement.share_key(share) and slot.role == part.role and slot.index < part.count
        for share, part in _group_shares(placement, worker_group_of(pod))
    )


def share_slots(placement: Placement, share: Share, group: GroupShare) -> Iterator[Slot]:
    """The slots of one worker group on one share."""
    key = placement.share_key(share)
    return (Slot(key, group.role, index) for index in range(group.count))


def _group_shares(placement: Placement, group: str) -> Iterator[tuple[Share, GroupShare]]:
    return ((share, part) for share in placement.active_shares for part in share.groups if part.name == group)


def _is_number(text: str) -> bool:
    """Whether this is a count or an index. It has fewer than ten digits: an annotation may hold thousands, which Python
    refuses to read."""
    return text.isascii() and text.isdecimal() and len(text) < 10


def _is_canonical(text: str) -> bool:
    """Whether this is a number as `str` writes it."""
    return _is_number(text) and (text == "0" or not text.startswith("0"))


def worker_group_of(pod: Raw) -> str:
    """A pod's worker group as a Placement names it: Kueue lower-cases it for the podset's name."""
    return label(pod, names.RAY_GCS_GROUP_LABEL).lower()


def pull_secrets(pod: Raw, workload: Workload) -> tuple[Raw, ...]:
    """The imagePullSecrets of the pod's template. The pod itself does not show them: admission gives a pod without any
    those of its service account."""
    specs = [podset.template.get("spec") or {} for podset in workload.podsets if podset.name == worker_group_of(pod)]
    return tuple(secret for spec in specs for secret in spec.get("imagePullSecrets") or ())


def may_get_slot(pod: Raw, remotes: Mapping[str, Raw]) -> bool:
    """Whether a pod may get a slot: it has none, or no remote pod was created for the one that it has."""
    return not slot_of(pod) or not (remotes or is_dispatched(pod))


def unlocked_reason(pod: Raw) -> str:
    """Why the manager cluster may run a pod itself, a fragment; empty while the scheduling gate and the lock keep it
    from its nodes."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return f"spec.nodeName is {spec['nodeName']}"
    if names.GATE not in {gate.get("name") for gate in spec.get("schedulingGates") or ()}:
        return f"spec.schedulingGates lacks {names.GATE}"
    if (spec.get("nodeSelector") or {}).get(names.LOCK_NODE_SELECTOR) != names.LOCK_NODE_SELECTOR_VALUE:
        return f"spec.nodeSelector lacks {names.LOCK_NODE_SELECTOR}: {names.LOCK_NODE_SELECTOR_VALUE}"
    return ""


def waits_for_quota(pod: Raw) -> bool:
    """Whether a pod of an elastic job still has Kueue's own scheduling gate: the manager has no quota for it yet."""
    return names.ELASTIC_GATE in {gate.get("name") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()}


def is_deleting(pod: Raw) -> bool:
    """Whether a pod is being deleted."""
    return bool(meta(pod).get("deletionTimestamp"))


def is_overdue_for_deletion(pod: Raw, now: datetime) -> bool:
    """Whether a pod should have ended, grace period included, so long ago that nothing will report its end."""
    deadline = parse_time(meta(pod).get("deletionTimestamp"))
    return deadline is not None and now >= deadline + DELETION_OVERDUE_AFTER


def has_ended(pod: Raw) -> bool:
    """Whether a pod has failed or succeeded."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def has_working_ray_node(pod: Raw) -> bool:
    """Whether a worker's Ray node works: its pod is ready, or it belongs to a RayService and all of its containers run.

    For a RayService KubeRay's readiness also needs Serve's proxy, which Serve keeps only where a replica is. A worker
    without a replica is never ready and waits for replicas (docs/upstream.md, "The RayClusters of a RayService"). Its
    raylet runs when its containers do: an init container has reached the head before, and `ray start --block` ends with
    the raylet.
    """
    if is_condition_true(pod, "Ready"):
        return True
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = bool(statuses) and all((status.get("state") or {}).get("running") is not None for status in statuses)
    serves = label(pod, names.RAY_SERVE_LABEL) == "true" and label(pod, names.RAY_NODE_TYPE_LABEL) != names.HEAD
    return serves and running


def is_dispatched(pod: Raw) -> bool:
    """Whether the remote pod of a pod has been observed."""
    return bool(condition(pod, names.DISPATCHED_CONDITION))
