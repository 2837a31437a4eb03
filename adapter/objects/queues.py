"""Typed records of Kueue's ClusterQueues, LocalQueues and ResourceFlavors, without their quota.

The readers never raise: an absent or malformed field counts as empty. quota/clusterqueue.py reads the quota, and
excludes a malformed queue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.unstructured import (
    Key,
    Raw,
    key_of,
    label,
    mapping_field,
    mapping_list,
    text_field,
    text_list,
    text_mapping,
    whole_field,
)

_KEEPS_OUT = ("NoSchedule", "NoExecute")  # the effects that Kueue considers (flavorassigner.go, checkFlavorForPodSets)


@dataclass(frozen=True, slots=True)
class QueueFlavors:
    """A resource group of a ClusterQueue, without its numbers."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]  # in order of preference


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue of the manager cluster; one that does not exist has no name."""

    name: str = ""
    cohort: str = ""
    strategy: str = ""  # spec.queueingStrategy
    groups: tuple[QueueFlavors, ...] = ()
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # check -> its onFlavors; empty: all
    pending: int = 0  # status.pendingWorkloads
    borrows: bool = False  # it uses quota of others in its cohort

    @property
    def flavors(self) -> frozenset[str]:
        """All flavors of its resource groups."""
        return frozenset(flavor for group in self.groups for flavor in group.flavors)

    @property
    def is_strict(self) -> bool:
        """Whether Kueue tries no further Workload before the first one has quota."""
        return self.strategy == names.STRICT_FIFO


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A LocalQueue and its ClusterQueue."""

    namespace: str
    name: str
    cluster_queue: str
    pool: str  # its label names.POOL_LABEL

    @property
    def key(self) -> Key:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A ResourceFlavor; one that does not exist has no name."""

    name: str = ""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    topology: str = ""  # spec.topologyName
    keeps_out: bool = False  # it has a taint that a pod must tolerate itself


NO_CLUSTER_QUEUE = ClusterQueue()  # one object, so that memos recognise it (shell/kube/memo.py)
NO_FLAVOR = ResourceFlavor()


def quota_source(raw: Raw) -> Raw:
    """The part of a ClusterQueue or Cohort whose `resourceGroups` Kueue schedules by.

    Kueue 0.20 with its feature DynamicQuotaOrchestration writes status.effectiveQuotas. It replaces the whole list of
    the spec, also by an empty one (docs/upstream.md, "Effective quotas").
    """
    effective = mapping_field(raw, "status").get("effectiveQuotas")
    return effective if isinstance(effective, dict) else mapping_field(raw, "spec")


def read_cluster_queue(raw: Raw) -> ClusterQueue:
    """Read a ClusterQueue (kueue:apis/kueue/v1beta2/clusterqueue_types.go)."""
    spec, status = mapping_field(raw, "spec"), mapping_field(raw, "status")
    return ClusterQueue(
        name=key_of(raw)[1],
        cohort=text_field(spec, "cohortName"),
        strategy=text_field(spec, "queueingStrategy"),
        groups=tuple(map(_group, mapping_list(quota_source(raw), "resourceGroups"))),
        checks=_checks(spec),
        pending=whole_field(status, "pendingWorkloads") or 0,
        borrows=_borrows(status),
    )


def read_local_queue(raw: Raw) -> LocalQueue:
    """Read a LocalQueue (kueue:apis/kueue/v1beta2/localqueue_types.go)."""
    namespace, name = key_of(raw)
    return LocalQueue(
        namespace, name, text_field(mapping_field(raw, "spec"), "clusterQueue"), label(raw, names.POOL_LABEL)
    )


def read_flavor(raw: Raw) -> ResourceFlavor:
    """Read a ResourceFlavor (kueue:apis/kueue/v1beta2/resourceflavor_types.go)."""
    spec = mapping_field(raw, "spec")
    return ResourceFlavor(
        name=key_of(raw)[1],
        node_labels=text_mapping(spec, "nodeLabels"),
        topology=text_field(spec, "topologyName"),
        keeps_out=_keeps_out(spec),
    )


def _group(raw: Raw) -> QueueFlavors:
    flavors = tuple(text_field(flavor, "name") for flavor in mapping_list(raw, "flavors"))
    return QueueFlavors(text_list(raw, "coveredResources"), flavors)


def _checks(spec: Raw) -> dict[str, tuple[str, ...]]:
    """The checks of a ClusterQueue, each with its flavors.

    Source: kueue:apis/kueue/v1beta2/clusterqueue_types.go, AdmissionChecksStrategy.
    """
    entries = mapping_list(mapping_field(spec, "admissionChecksStrategy"), "admissionChecks")
    return {text_field(entry, "name"): text_list(entry, "onFlavors") for entry in entries}


def _borrows(status: Raw) -> bool:
    flavors = mapping_list(status, "flavorsReservation")
    rows = (row for flavor in flavors for row in mapping_list(flavor, "resources"))
    return any(row.get("borrowed") not in (None, "", "0") for row in rows)


def _keeps_out(spec: Raw) -> bool:
    """Whether a taint is not tolerated by the flavor's own tolerations, which every pod gets."""
    tolerated = {text_field(toleration, "key") for toleration in mapping_list(spec, "tolerations")}
    if "" in tolerated:
        return False
    taints = mapping_list(spec, "nodeTaints")
    return any(taint.get("effect") in _KEEPS_OUT and text_field(taint, "key") not in tolerated for taint in taints)
