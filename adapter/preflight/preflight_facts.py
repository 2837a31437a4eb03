"""What is known of the manager and of a worker cluster before workers are sent there, and what a finding about them is.

Facts only: what is good or bad about them is said elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from adapter import names
from adapter.preflight.probe import PathResult

FindingOutcome = Literal["ok", "warning", "failure"]
MANAGER = "the manager"  # no WorkerCluster can have this name

# What a WorkerCluster's account needs: rights of manifests/rbac/worker.yaml, in all namespaces, and of worker-tenant.yaml in one.
_READ_VERBS = ("list", "watch")
Rights = Mapping[tuple[str, str], tuple[str, ...]]  # API group and resource -> verbs
CLUSTER_RIGHTS: Rights = {
    (names.KUEUE_DOMAIN, "clusterqueues"): _READ_VERBS,
    (names.KUEUE_DOMAIN, "localqueues"): _READ_VERBS,
    (names.KUEUE_DOMAIN, "cohorts"): _READ_VERBS,
    (names.KUEUE_DOMAIN, "resourceflavors"): _READ_VERBS,
    (names.KUEUE_DOMAIN, "workloads"): _READ_VERBS,
    ("", "namespaces"): _READ_VERBS,
    ("", "nodes"): _READ_VERBS,
    ("", "pods"): _READ_VERBS,
    ("", "services"): _READ_VERBS,
    (names.DISCOVERY_GROUP, "endpointslices"): _READ_VERBS,
}
NAMESPACE_RIGHTS: Rights = {
    (names.KUEUE_DOMAIN, "workloads"): ("create", "get", "delete"),
    ("", "pods"): ("create", "get", "delete"),
    ("", "configmaps"): ("create", "update", "get", "list", "delete"),
    ("", "secrets"): ("create", "update"),
    ("", "services"): ("create", "get", "patch", "delete"),
    (names.DISCOVERY_GROUP, "endpointslices"): ("create", "get", "patch", "delete"),
    (names.DISCOVERY_GROUP, "endpointslices/restricted"): ("create",),
    (names.VOLCANO_GROUP, "podgroups"): ("create", "get"),
}


def needed_rights(rights: Rights, head: str, scheduler: str) -> Rights:
    """Which of them are used in a cluster whose workers find the head that way and are scheduled by that: Services are for
    those that mirror it, PodGroups for Volcano."""
    unused: tuple[str, ...] = (
        () if head == "ServiceMirror" else ("services", "endpointslices", "endpointslices/restricted")
    )
    unused += () if scheduler == names.VOLCANO_SCHEDULER else ("podgroups",)
    return {kind: verbs for kind, verbs in rights.items() if kind[1] not in unused}


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is known of one cluster; of the fields below `trouble`, nothing where that is set."""

    name: str
    api_error: str = ""  # why its API server cannot be asked, a sentence
    head_strategy: str = "PodIP"  # by which strategy its workers find the head
    has_namespace: bool = True
    queues: Mapping[str, str | None] = field(
        default_factory=dict
    )  # LocalQueue -> why it takes nothing; None: it is missing
    missing_rights: Sequence[str] = ()  # rights, such as "create pods in demo"
    networks: Sequence[str] = ()  # its nodes' pod CIDRs
    addresses: Sequence[str] = ()  # of pods there
    network_error: str = ""  # why its pod network is not known
    probe_error: str = ""  # why no probe could run, or give an answer; a part of a sentence
    image_missing: bool = False
    probe_address: str = ""  # the probe's
    dns_error: str | None = None  # why DNS failed; None: not tried
    paths: Mapping[str, PathResult] = field(default_factory=dict)  # to other clusters, by name
    ray_services: Sequence[str] = ()  # of the manager: RayServices in a queue, in the namespace
    frameworks: Sequence[str] | None = None  # kinds that its Kueue takes for jobs; None: not known
    has_service_policy: bool = True  # KubeRay is kept from what is Kueue's in their RayClusters, as far as may be seen

    @property
    def is_manager(self) -> bool:
        return self.name == MANAGER


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: of which cluster or pair, how it is, and what to do about it."""

    clusters: tuple[str, ...]  # of a pair, first the one from which the other was tried
    check: str
    outcome: FindingOutcome
    message: str
    reason: str = ""  # in one word, why a pair cannot work together


@dataclass(frozen=True, slots=True)
class PreflightOptions:
    """What the preflight is for."""

    namespace: str
    queues: Sequence[str]
    image: str
