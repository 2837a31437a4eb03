"""What does a worker cluster say of a group Workload of ours, which holds the quota of a share there?

Read tolerantly from the object alone; what only the store of that cluster knows (`stranded`, `ray_labels`) is added by who
reads it. How such a Workload is made is not asked here (rewrite/group_workload.py), nor what follows from its state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from adapter import names
from adapter.objects.placement import ShareKey
from adapter.objects.unstructured import (
    Raw,
    annotation,
    condition,
    condition_true_since,
    is_condition_true,
    key_of,
    label,
    meta,
    parse_number,
    uid_of,
)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A group Workload of ours as a worker cluster shows it."""

    cluster: str
    namespace: str
    name: str
    uid: str
    anchor_uid: str
    placement: str
    round: int
    deleting: bool
    ended: bool  # finished or deactivated there: it will never be admitted again
    admitted: bool
    reserved_at: datetime | None  # None: holds no quota now
    message: str  # what that cluster's Kueue says while it waits
    no_fit: bool  # it looked, and found no quota that it could give now or take from others
    cluster_queue: str = ""  # where it holds quota
    version: int = 0  # of the object, as a number
    eviction_message: str = ""  # why its pods were stopped, as that cluster's Kueue says it; empty when they were not
    templates: Mapping[str, Raw] = field(default_factory=dict)  # role -> what quota is held for, for each pod
    counts: Mapping[str, int] = field(default_factory=dict)  # role -> for how many pods
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role -> what its pods were given
    usage: Mapping[str, Raw] = field(
        default_factory=dict
    )  # role -> what that cluster's Kueue counts for all of its pods
    ray_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # role -> what Ray is told of them
    pod_group: str = ""  # the Volcano PodGroup of its pods; empty: it has none
    stranded: bool = False  # evicted, and no pod is left by whose end Kueue would notice that the quota is free

    @property
    def key(self) -> ShareKey:
        """The key of its share."""
        return ShareKey(self.cluster, self.round)

    @property
    def workers(self) -> int:
        """For how many workers quota is asked for or held."""
        return sum(self.counts.values())

    @property
    def is_unprocessed(self) -> bool:
        """That cluster's Kueue has neither looked at it nor begun to."""
        return not (self.message or self.eviction_message or self.deleting or self.reserved_at)


def parse_reservation(cluster: str, raw: Raw) -> Reservation:
    """Read a remote group Workload."""
    namespace, name = key_of(raw)
    podsets = (raw.get("spec") or {}).get("podSets") or ()
    round_text = annotation(raw, names.ROUND_ANNOTATION)
    # Kueue's Finish leaves Admitted as it was (kueue:pkg/workload/finish).
    over = is_condition_true(raw, names.FINISHED) or (raw.get("spec") or {}).get("active") is False
    return Reservation(
        cluster=cluster,
        namespace=namespace,
        name=name,
        uid=uid_of(raw),
        anchor_uid=anchor_uid(raw),
        placement=label(raw, names.PLACEMENT_LABEL),
        round=parse_number(round_text),
        deleting=bool(meta(raw).get("deletionTimestamp")),
        ended=over,
        admitted=is_condition_true(raw, names.ADMITTED) and not is_condition_true(raw, names.EVICTED) and not over,
        reserved_at=condition_true_since(raw, names.QUOTA_RESERVED),
        message=condition(raw, names.QUOTA_RESERVED).get("message") or "",
        no_fit=_is_no_fit(condition(raw, names.QUOTA_RESERVED)),
        cluster_queue=((raw.get("status") or {}).get("admission") or {}).get("clusterQueue") or "",
        version=_parse_version(meta(raw).get("resourceVersion") or ""),
        templates={one.get("name") or "": one.get("template") or {} for one in podsets},
        counts={one.get("name") or "": parse_number(str(one.get("count"))) for one in podsets},
        flavors=_assigned_flavors((raw.get("status") or {}).get("admission") or {}),
        usage=_resource_usage((raw.get("status") or {}).get("admission") or {}),
        pod_group=annotation(raw, names.POD_GROUP_ANNOTATION),
        eviction_message=str(condition(raw, names.EVICTED).get("message") or "evicted")
        if is_condition_true(raw, names.EVICTED)
        else "",
    )


def anchor_references(raw: Raw) -> list[Raw]:
    """The references by which the share's anchor owns an object: its group Workload, a pod, or what belongs to them."""
    return [owner for owner in meta(raw).get("ownerReferences") or () if owner.get("kind") == "ConfigMap"]


def anchor_uid(raw: Raw) -> str:
    """The uid of the anchor that owns an object, empty when none does."""
    return next((str(owner.get("uid") or "") for owner in anchor_references(raw)), "")


def _assigned_flavors(admission: Raw) -> dict[str, tuple[str, ...]]:
    assigned = admission.get("podSetAssignments") or ()
    return {one.get("name") or "": tuple(sorted(set((one.get("flavors") or {}).values()))) for one in assigned}


def _resource_usage(admission: Raw) -> dict[str, Raw]:
    assigned = admission.get("podSetAssignments") or ()
    return {one.get("name") or "": one.get("resourceUsage") or {} for one in assigned}


def _is_no_fit(reserved: Raw) -> bool:
    """Whether Kueue has tried it and does not preempt for it.

    Kueue has a code for this only under a gate that is off by default; its message says that it preempts
    (kueue:pkg/scheduler/scheduler.go). A share that we misread is given up early or late, and nothing worse happens."""
    message = str(reserved.get("message") or "").lower()
    return reserved.get("status") == "False" and bool(message) and "preempt" not in message


def _parse_version(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0  # etcd counts in 63 bits
