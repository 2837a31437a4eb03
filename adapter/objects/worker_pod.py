"""Worker pods, and the slots that a Placement has for them.

A slot is `cluster/round/role/index`. Cluster and round name the share, role the worker group, and index is below the
share's count of that group. The slot is in an annotation, which users can forge; a text that does not parse counts as
no slot.

A pod may have a template slot, so that no write is needed before its remote pod is created. Its template lists the
group's slots, and KubeRay's replica index says which of them is the pod's. A new plan changes neither the list nor the
index of an existing pod. A slot in the pod's own annotation takes precedence. worker/dispatch.py assigns slots, and
worker/template_slots.py decides whether a pod owns its template slot.
"""

import functools
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from adapter import names
from adapter.objects.placement import GroupShare, Placement, Share, ShareKey
from adapter.objects.unstructured import (
    NAME_PATTERN,
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

# A pod that should have ended this long ago counts as gone: its node may be lost, and then nothing reports the end.
# Kubernetes waits as long for a node (tolerationSeconds of 300 by default).
DELETION_OVERDUE_AFTER = timedelta(minutes=5)

# The limits of the list of template slots, which is in each pod of the group. With twenty shares the list has about a
# kilobyte, a tenth of the pod object. With more shares there is no list, and each pod gets its slot by a write. A
# longer list is forged and not read.
_MAX_LISTED_SHARES, _MAX_LIST_LENGTH = 20, 4096
# The name of a cluster has up to 253 characters and a role 8. A longer text is forged.
_LONGEST_SLOT = 512
# What kubelets write while a container's image cannot be had (k8s:pkg/kubelet/images/types.go).
_IMAGE_FAILURES: Final = frozenset({
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
    "RegistryUnavailable", "SignatureValidationFailed",
})  # fmt: skip


class Slot(NamedTuple):
    """A place for one worker on a share."""

    share: ShareKey
    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index

    @property
    def cluster(self) -> str:
        return self.share.cluster

    @staticmethod
    def parse(text: str) -> "Slot | None":
        """Read `cluster/round/role/index`; None for a text that `str(slot)` would not give."""
        return _parse(text) if len(text) <= _LONGEST_SLOT else None

    def __str__(self) -> str:
        return f"{self.share.cluster}/{self.share.round}/{self.role}/{self.index}"


@functools.lru_cache(maxsize=16384)  # Each reconcile reads the slots of all pods.
def _parse(text: str) -> Slot | None:
    parts = text.split("/", 4)
    if len(parts) != 4:
        return None
    cluster, round_, role, index = parts
    if not (NAME_PATTERN.fullmatch(cluster) and _is_canonical(round_) and _is_canonical(index) and role.isprintable()):
        return None
    return Slot(ShareKey(cluster, int(round_)), role, int(index))


def slot_of(pod: Raw) -> Slot | None:
    """The slot in the annotation of a manager pod or remote pod, else its template slot."""
    written = annotation(pod, names.SLOT_ANNOTATION)
    return Slot.parse(written) if written else _template_slot(pod)


def slot_cluster(pod: Raw) -> str:
    slot = slot_of(pod)
    return slot.cluster if slot else ""


def slot_share(pod: Raw) -> ShareKey | None:
    slot = slot_of(pod)
    return slot.share if slot else None


def placement_key(pod: Raw) -> Key:
    return key_of(pod)[0], label(pod, names.PLACEMENT_LABEL)


def has_template_slot(pod: Raw) -> bool:
    """Whether the slot of a pod is its template slot."""
    return not annotation(pod, names.SLOT_ANNOTATION) and _template_slot(pod) is not None


def without_template_slots(pod: Raw) -> Raw:
    annotations = {
        key: value for key, value in (meta(pod).get("annotations") or {}).items() if key != names.SLOTS_ANNOTATION
    }
    return {**pod, "metadata": {**meta(pod), "annotations": annotations}}


def without_unplanned_slot(pod: Raw, placement: Placement | None) -> Raw:
    """The pod, less its template slot if the Placement has no such slot; unchanged while the Placement is None.

    This uses only what the manager cluster shows. Only the controller knows whether the pod owns the slot
    (worker/template_slots.py).
    """
    is_unplanned = (
        placement is not None and has_template_slot(pod) and not is_planned_slot(placement, pod, slot_of(pod))
    )
    return without_template_slots(pod) if is_unplanned else pod


def worker_cluster_of(pod: Raw, placement: Placement | None) -> str:
    """The worker cluster of a pod's remote pod, else of its planned slot, as far as the manager cluster shows it."""
    return label(pod, names.CLUSTER_LABEL) or slot_cluster(without_unplanned_slot(pod, placement))


def _template_slot(pod: Raw) -> Slot | None:
    """The entry of the template's slot list at KubeRay's replica index; users can forge list and index.

    The hosts of one replica have the same index, so they have no template slot.
    """
    if label(pod, names.RAY_HOST_INDEX_LABEL):
        return None
    index, slot_list = label(pod, names.RAY_REPLICA_INDEX_LABEL), annotation(pod, names.SLOTS_ANNOTATION)
    return _nth_slot(slot_list, int(index)) if _is_number(index) and 0 < len(slot_list) <= _MAX_LIST_LENGTH else None


@functools.lru_cache(maxsize=4096)  # Each reconcile reads the slots of all pods.
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
    """The list of slots for the template of a worker group, in the order of the plan.

    Empty with too many shares, and for replicas of several hosts.
    """
    parts = [(placement.share_key(share), part) for share, part in group_shares(placement, group)]
    if any(part.hosts > 1 for _, part in parts):
        return ""
    slot_list = " ".join(f"{key.cluster}/{key.round}/{part.role}/{part.count}" for key, part in parts)
    return slot_list if len(parts) <= _MAX_LISTED_SHARES and len(slot_list) <= _MAX_LIST_LENGTH else ""


def is_planned_slot(placement: Placement, pod: Raw, slot: Slot | None) -> bool:
    """Whether the plan has `slot` for the pod's group, computed without a list of slots: a gang may have thousands."""
    return slot is not None and any(
        slot.share == placement.share_key(share) and slot.role == part.role and slot.index < part.count
        for share, part in group_shares(placement, worker_group_of(pod))
    )


def share_slots(placement: Placement, share: Share, group: GroupShare) -> Iterator[Slot]:
    key = placement.share_key(share)
    return (Slot(key, group.role, index) for index in range(group.count))


def group_shares(placement: Placement, group: str) -> Iterator[tuple[Share, GroupShare]]:
    """The wanted shares with workers of a group, in the order of the plan."""
    return ((share, part) for share in placement.active_shares for part in share.groups if part.name == group)


def _is_number(text: str) -> bool:
    """Whether this is a number of at most nine digits; `int` would raise for a forged one of thousands of digits."""
    return text.isascii() and text.isdecimal() and len(text) < 10


def _is_canonical(text: str) -> bool:
    return _is_number(text) and (text == "0" or not text.startswith("0"))


def worker_group_of(pod: Raw) -> str:
    """A pod's worker group, lower-cased as in the podset's name."""
    return label(pod, names.RAY_GCS_GROUP_LABEL).lower()


def pull_secrets(pod: Raw, workload: Workload) -> tuple[Raw, ...]:
    """The imagePullSecrets of the pod's template; the pod itself may have those of its service account instead."""
    specs = [podset.template.get("spec") or {} for podset in workload.podsets if podset.name == worker_group_of(pod)]
    return tuple(secret for spec in specs for secret in spec.get("imagePullSecrets") or ())


def may_get_slot(pod: Raw, remotes: Mapping[str, Raw]) -> bool:
    """Whether a pod has no slot, or no remote pod was created for its slot."""
    return not slot_of(pod) or not (remotes or is_dispatched(pod))


def unlocked_reason(pod: Raw) -> str:
    """Why the manager's nodes may run a pod, as a fragment; empty while scheduling gate and nodeSelector prevent it."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return f"spec.nodeName is {spec['nodeName']}"
    if names.GATE not in {gate.get("name") for gate in spec.get("schedulingGates") or ()}:
        return f"spec.schedulingGates lacks {names.GATE}"
    if (spec.get("nodeSelector") or {}).get(names.LOCK_NODE_SELECTOR) != names.LOCK_NODE_SELECTOR_VALUE:
        return f"spec.nodeSelector lacks {names.LOCK_NODE_SELECTOR}: {names.LOCK_NODE_SELECTOR_VALUE}"
    return ""


def waits_for_quota(pod: Raw) -> bool:
    """Whether a pod of an elastic job has Kueue's scheduling gate: the manager has no quota for it yet."""
    return names.ELASTIC_GATE in {gate.get("name") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()}


def is_deleting(pod: Raw) -> bool:
    return bool(meta(pod).get("deletionTimestamp"))


def is_overdue_for_deletion(pod: Raw, cluster_time: datetime) -> bool:
    """Whether a pod should have ended so long ago, after its grace period, that nothing will report its end.

    `cluster_time` is that of its own cluster, which wrote the deadline.
    """
    deadline = parse_time(meta(pod).get("deletionTimestamp"))
    return deadline is not None and cluster_time >= deadline + DELETION_OVERDUE_AFTER


def has_ended(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def waits_for_image(reason: str) -> bool:
    """Whether a container that waits for this reason cannot have its image."""
    return reason in _IMAGE_FAILURES


def has_working_ray_node(pod: Raw) -> bool:
    """Whether a worker's Ray node works: its pod is ready, or it belongs to a RayService and all of its containers run.

    In a RayService, KubeRay's readiness probe also asks Serve's proxy, which runs only on nodes with a Serve replica.
    So a worker without Serve replicas is never ready (docs/upstream.md, "The RayClusters of a RayService"). If its
    containers run, so does its raylet: before them an init container has reached the head, and `ray start --block`
    exits when the raylet does.
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
