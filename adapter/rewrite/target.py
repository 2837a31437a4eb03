"""Where does a share run: what the rewriter, the reservation and the mirror must know of one worker cluster's share.

Plain values only. Who has the Workload, its round and its flavors, and whether the cluster can be reached, is asked elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from adapter import names
from adapter.objects.placement import share_name
from adapter.objects.specs import NO_MAPPING, HeadSpec, PodMapping, WorkerCluster
from adapter.objects.unstructured import Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One share of one Workload in one worker cluster.

    `manager_flavor_keys` are node label keys that mean something in the manager only (its ResourceFlavors' nodeLabels);
    `manager_flavor_tolerations` are the tolerations that go with those flavors, compared as whole objects.
    """

    cluster: str
    zone: str
    region: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # for Ray, beside zone, region and cluster
    resources: Mapping[str, int] = field(default_factory=dict)  # for Ray, beside the zone's own
    head: HeadSpec = field(default_factory=HeadSpec)  # how its workers find the head
    queue: str  # LocalQueue in the worker cluster
    manager: str  # id of the manager cluster
    workload: str  # or what the gang of an elastic job is called
    workload_uid: str  # or its job's
    placement: str
    share: str  # name of the group Workload and of its anchor ConfigMap
    round: int
    max_priority: int | None = None  # with which a share queues there at most, None: with its job's
    pods: PodMapping = NO_MAPPING  # what the worker cluster gives the pods that come to it
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
        """The share that a round of a Placement makes in a cluster; `flavors` are the specs of the ResourceFlavors that the
        manager's Kueue assigned to the Workload."""
        keys, tolerations = _manager_only_rules(flavors)
        return cls(
            cluster=cluster,
            zone=spec.zone or cluster,
            region=spec.region,
            labels=spec.labels,
            resources=spec.resources,
            head=spec.head,
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
        """No cluster yet: for what is asked for in the same way in whichever."""
        keys, tolerations = _manager_only_rules(flavors)
        return cls(
            cluster="", zone="", queue="", manager="", workload="", workload_uid="", placement="", share="", round=0,
            manager_flavor_keys=keys, manager_flavor_tolerations=tolerations,
        )  # fmt: skip


def capped_priority(priority: int | None, max_priority: int | None) -> int | None:
    """The priority of a job's share where the cluster admits none above `most`; Kueue takes none for 0."""
    if max_priority is None or (priority or 0) <= max_priority:
        return priority
    return max_priority


def _manager_only_rules(flavors: Iterable[Raw]) -> tuple[frozenset[str], tuple[Raw, ...]]:
    """Keys of node labels, and tolerations, that these flavors put on pods in the manager: they mean nothing elsewhere."""
    found = list(flavors)
    keys = frozenset(key for spec in found for key in spec.get("nodeLabels") or {})
    return keys, tuple(one for spec in found for one in spec.get("tolerations") or ())


def origin_labels(target: Target) -> dict[str, str]:
    """Name the labels that tell every remote object of a share from everybody else's."""
    return {
        names.MANAGER_LABEL: target.manager,
        names.WORKLOAD_UID_LABEL: target.workload_uid,
        names.PLACEMENT_LABEL: target.placement,
        names.CLUSTER_LABEL: target.cluster,
    }


def origin_annotations(target: Target) -> dict[str, str]:
    """Name the annotations on every remote object of a share: what may be too long for a label, and the round."""
    return {names.WORKLOAD_ANNOTATION: target.workload, names.ROUND_ANNOTATION: str(target.round)}


def anchor_owner(target: Target, anchor_uid: str) -> dict[str, Any]:
    """Refer to the share's anchor ConfigMap as a non-controller owner.

    Kueue finishes a pod-less group Workload that has a *controller* (kueue:pkg/controller/jobframework/reconciler.go,
    OwnerNotFound), so the reference must not be one; garbage collection needs no more than this.
    """
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": target.share, "uid": anchor_uid}
