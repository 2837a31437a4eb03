"""Facts about the manager cluster and a worker cluster before workers are sent there, and the form of a finding.

evaluation.py judges the facts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from adapter import names
from adapter.preflight.probe import PathResult

FindingOutcome = Literal["ok", "warning", "failure"]
NamedKind = Literal[
    "service account", "claim", "ResourceClaimTemplate", "RuntimeClass", "priority class", "scheduler"
]  # fmt: skip
Presence = Literal["exists", "missing", "unknown"]
MANAGER = "the manager"  # no WorkerCluster can have this name

# The rights of a WorkerCluster's account: manifests/rbac/worker.yaml in all namespaces, worker-tenant.yaml in one.
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
    ("", "secrets"): ("create", "update", "delete"),
    ("", "services"): ("create", "get", "patch", "delete"),
    (names.DISCOVERY_GROUP, "endpointslices"): ("create", "get", "patch", "delete"),
    (names.DISCOVERY_GROUP, "endpointslices/restricted"): ("create",),
    (names.VOLCANO_GROUP, "podgroups"): ("create", "get"),
}
# Those of worker-tenant.yaml that only a preflight uses: without one, it says what it could not look for.
PREFLIGHT_RIGHTS: Rights = {(names.RESOURCE_GROUP, "resourceclaimtemplates"): ("get",)}


def needed_rights(rights: Rights, head: str, scheduler: str) -> Rights:
    """The rights used with this head strategy and scheduler: ServiceMirror needs Services, Volcano needs PodGroups."""
    unused: tuple[str, ...] = (
        () if head == "ServiceMirror" else ("services", "endpointslices", "endpointslices/restricted")
    )
    unused += () if scheduler == names.VOLCANO_SCHEDULER else ("podgroups",)
    return {kind: verbs for kind, verbs in rights.items() if kind[1] not in unused}


class NamedThere(NamedTuple):
    """An object of the worker cluster that its WorkerCluster names for the pods of a namespace."""

    kind: NamedKind
    field: str  # of spec.pods
    name: str  # there
    of_all_pods: bool = False  # each worker there has it


class NamedAnswer(NamedTuple):
    """Whether such an object exists."""

    named: NamedThere
    presence: Presence
    words: str = ""  # the worker cluster's, or why it is not known; a fragment


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts of one cluster; where `api_error` is set, the fields below it are unknown."""

    name: str
    api_error: str = ""  # why its API server does not answer, a sentence
    head_strategy: str = "PodIP"  # how its workers find the head
    has_namespace: bool = True
    # LocalQueue -> why it takes no job; None: it does not exist
    queues: Mapping[str, str | None] = field(default_factory=dict)
    missing_rights: Sequence[str] = ()  # rights, such as "create pods in demo"
    networks: Sequence[str] = ()  # its nodes' pod CIDRs
    addresses: Sequence[str] = ()  # of its pods
    network_error: str = ""  # why its pod network is unknown
    probe_error: str = ""  # why no probe ran or reported, a fragment
    image_missing: bool = False
    probe_address: str = ""  # of the probe server
    dns_error: str | None = None  # why DNS failed; None: not probed
    paths: Mapping[str, PathResult] = field(default_factory=dict)  # by name of the other cluster
    relay_address: str = ""  # host and port, where its network has the mode Relay: its pods need no other path
    relay_error: str | None = None  # why a pod there does not reach that address; empty if it does, None: not probed
    ray_services: Sequence[str] = ()  # RayServices in a queue, in the manager's namespace
    frameworks: Sequence[str] | None = None  # integrations of its Kueue; None: unknown
    # Whether a MutatingAdmissionPolicy keeps KubeRay from resuming the RayClusters of RayServices; True if unknown.
    has_service_policy: bool = True
    # Of a worker cluster: what plans do not foresee in its queues and its Kueue's configuration; by what no worker runs
    # within its quota.
    kueue_notes: Sequence[str] = ()
    kueue_faults: Sequence[str] = ()
    named: Sequence[NamedAnswer] = ()  # of what its WorkerCluster names for its pods

    @property
    def is_manager(self) -> bool:
        return self.name == MANAGER


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of a cluster or a pair, and what to do about it."""

    clusters: tuple[str, ...]  # of a pair, first the cluster of the probe client
    check: str
    outcome: FindingOutcome
    message: str
    reason: str = ""  # of a failure of a pair or of the relay, for the condition Reachable


@dataclass(frozen=True, slots=True)
class PreflightOptions:
    """The options of a preflight."""

    namespace: str
    queues: Sequence[str]
    image: str
