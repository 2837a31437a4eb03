"""The values that the rewriter, the group Workload and the mirror need for one share in a worker cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from adapter import names
from adapter.objects.placement import share_name
from adapter.objects.specs import NO_MAPPING, HeadSpec, NetworkSpec, PodMapping, WorkerCluster
from adapter.objects.unstructured import Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One share of one Workload in one worker cluster.

    `manager_flavor_keys` and `manager_flavor_tolerations` are those of the manager's ResourceFlavors.
    """

    cluster: str
    zone: str
    region: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # for Ray
    resources: Mapping[str, int] = field(default_factory=dict)  # for Ray
    head: HeadSpec = field(default_factory=HeadSpec)
    network: NetworkSpec = field(default_factory=NetworkSpec)
    queue: str  # LocalQueue
    manager: str  # id of the manager cluster
    workload: str  # its name, or that of the gang of an elastic job
    workload_uid: str  # its uid, or that of the elastic job
    placement: str
    share: str  # name of the group Workload and its anchor
    round: int
    max_priority: int | None = None  # highest priority of a share there; None: no limit
    pods: PodMapping = NO_MAPPING  # `spec.pods`
    manager_flavor_keys: frozenset[str] = frozenset()
    manager_flavor_tolerations: tuple[Raw, ...] = ()

    @classmethod
    def for_share(
        cls,
        cluster: str,
        spec: WorkerCluster,
        *,
        queue: str,
        manager: str,
        workload: str,
        workload_uid: str,
        placement: str,
        round_: int,
        flavors: Iterable[Raw] = (),
    ) -> Self:
        """The target of a share; `flavors` are the specs of the ResourceFlavors that the manager's Kueue assigned."""
        keys, tolerations = _manager_only_rules(flavors)
        return cls(
            cluster=cluster,
            zone=spec.zone or cluster,
            region=spec.region,
            labels=spec.labels,
            resources=spec.resources,
            head=spec.head,
            network=spec.network,
            queue=queue,
            manager=manager,
            workload=workload,
            workload_uid=workload_uid,
            placement=placement,
            share=share_name(placement, round_),
            round=round_,
            max_priority=spec.max_priority,
            pods=spec.pods,
            manager_flavor_keys=keys,
            manager_flavor_tolerations=tolerations,
        )

    @classmethod
    def without_cluster(cls, flavors: Iterable[Raw]) -> Self:
        """A target for computations that are equal for all clusters."""
        keys, tolerations = _manager_only_rules(flavors)
        return cls(
            cluster="", zone="", queue="", manager="", workload="", workload_uid="", placement="", share="", round=0,
            manager_flavor_keys=keys, manager_flavor_tolerations=tolerations,
        )  # fmt: skip


def capped_priority(priority: int | None, max_priority: int | None) -> int | None:
    """The priority of a job's share, at most `max_priority`; Kueue reads a missing priority as 0."""
    if max_priority is None or (priority or 0) <= max_priority:
        return priority
    return max_priority


def _manager_only_rules(flavors: Iterable[Raw]) -> tuple[frozenset[str], tuple[Raw, ...]]:
    specs = list(flavors)
    keys = frozenset(key for spec in specs for key in spec.get("nodeLabels") or {})
    return keys, tuple(toleration for spec in specs for toleration in spec.get("tolerations") or ())


def origin_labels(target: Target) -> dict[str, str]:
    return {
        names.MANAGER_LABEL: target.manager,
        names.WORKLOAD_UID_LABEL: target.workload_uid,
        names.PLACEMENT_LABEL: target.placement,
        names.CLUSTER_LABEL: target.cluster,
    }


def origin_annotations(target: Target) -> dict[str, str]:
    """The Workload's name, which may be too long for a label, and the round."""
    return {names.WORKLOAD_ANNOTATION: target.workload, names.ROUND_ANNOTATION: str(target.round)}


def anchor_owner(target: Target, anchor_uid: str) -> dict[str, Any]:
    """The owner reference to the share's anchor ConfigMap, not as a controller.

    Kueue finishes a pod-less group Workload that has a *controller* (kueue:pkg/controller/jobframework/reconciler.go,
    OwnerNotFound).
    """
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": target.share, "uid": anchor_uid}
