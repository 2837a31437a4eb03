"""What is known of the manager and of a worker cluster before workers are sent there, and what a finding about them is.

Facts only: what is good or bad about them is said elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from adapter import names
from adapter.preflight.probe import Trip

Outcome = Literal["ok", "warning", "failure"]
MANAGER = "the manager"  # no WorkerCluster can have this name

# What a WorkerCluster's account needs: rights of manifests/rbac/worker.yaml, in all namespaces, and of worker-tenant.yaml in one.
_LOOK = ("list", "watch")
Rights = Mapping[tuple[str, str], tuple[str, ...]]  # API group and resource -> verbs
CLUSTER_RIGHTS: Rights = {
    (names.KUEUE_DOMAIN, "clusterqueues"): _LOOK,
    (names.KUEUE_DOMAIN, "localqueues"): _LOOK,
    (names.KUEUE_DOMAIN, "cohorts"): _LOOK,
    (names.KUEUE_DOMAIN, "resourceflavors"): _LOOK,
    (names.KUEUE_DOMAIN, "workloads"): _LOOK,
    ("", "namespaces"): _LOOK,
    ("", "nodes"): _LOOK,
    ("", "pods"): _LOOK,
    ("", "services"): _LOOK,
    (names.DISCOVERY_GROUP, "endpointslices"): _LOOK,
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


def needed(rights: Rights, head: str, scheduler: str) -> Rights:
    """Which of them are used in a cluster whose workers find the head that way and are scheduled by that: Services are for
    those that mirror it, PodGroups for Volcano."""
    unused: tuple[str, ...] = (
        () if head == "ServiceMirror" else ("services", "endpointslices", "endpointslices/restricted")
    )
    unused += () if scheduler == names.VOLCANO_SCHEDULER else ("podgroups",)
    return {kind: verbs for kind, verbs in rights.items() if kind[1] not in unused}


@dataclass(frozen=True, slots=True)
class Side:
    """What is known of one cluster; of the fields below `trouble`, nothing where that is set."""

    name: str
    trouble: str = ""  # why its API server cannot be asked, a sentence
    head: str = "PodIP"  # by which strategy its workers find the head
    namespace: bool = True
    queues: Mapping[str, str | None] = field(
        default_factory=dict
    )  # LocalQueue -> why it takes nothing; None: it is missing
    missing: Sequence[str] = ()  # rights, such as "create pods in demo"
    networks: Sequence[str] = ()  # its nodes' pod CIDRs
    addresses: Sequence[str] = ()  # of pods there
    unread: str = ""  # why its pod network is not known
    probe: str = ""  # why no probe could run, or give an answer; a part of a sentence
    no_image: bool = False
    address: str = ""  # the probe's
    name_error: str | None = None  # why DNS failed; None: not tried
    trips: Mapping[str, Trip] = field(default_factory=dict)  # to other clusters, by name
    services: Sequence[str] = ()  # of the manager: RayServices in a queue, in the namespace
    frameworks: Sequence[str] | None = None  # kinds that its Kueue takes for jobs; None: not known
    held: bool = True  # KubeRay is kept from what is Kueue's in their RayClusters, as far as may be seen

    @property
    def is_manager(self) -> bool:
        return self.name == MANAGER


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: of which cluster or pair, how it is, and what to do about it."""

    clusters: tuple[str, ...]  # of a pair, first the one from which the other was tried
    check: str
    outcome: Outcome
    message: str
    reason: str = ""  # in one word, why a pair cannot work together


@dataclass(frozen=True, slots=True)
class Asked:
    """What the preflight is for."""

    namespace: str
    queues: Sequence[str]
    image: str
