"""Decides which worker clusters a DispatchPolicy considers, and in which order.

Names need not exist: the plan skips unknown clusters and reports them. Capacity is not considered here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from adapter import names
from adapter.objects import specs as api
from adapter.objects.admissioncheck import AdmissionCheck
from adapter.objects.location import ray_labels
from adapter.objects.selectors import selects
from adapter.objects.unstructured import UNREADABLE, Raw, key_of


def resolve_clusters(
    clusters: api.ClusterSelection, worker_clusters: Iterable[Raw], configs: Mapping[str, Raw] | None
) -> tuple[str, ...]:
    """The names of the policy's WorkerClusters, first choice first; a selector may match none.

    `configs` are the MultiKueueConfigs by name, None where they cannot be read. Raises specs.InvalidSpec with a
    fragment when the MultiKueueConfig does not exist or lists nothing.
    """
    if clusters.names:
        # An API server with an older schema accepts a name twice.
        return tuple(dict.fromkeys(clusters.names))
    specs = _parse_specs(worker_clusters)
    if clusters.selector is not None:
        return _clusters_by_selector(clusters.selector, specs)
    assert clusters.multi_kueue_config_ref is not None, "one of the three is set"
    return _clusters_by_config(clusters.multi_kueue_config_ref.name, specs, configs)


def cluster_labels(name: str, spec: api.WorkerCluster) -> dict[str, str]:
    """The labels that selectors match.

    The cluster's Ray nodes have the same labels, so that jobs and policies use the same words.
    """
    return {**spec.labels, **ray_labels(spec.location(name)), names.CLUSTER_LABEL: name}


def _parse_specs(worker_clusters: Iterable[Raw]) -> dict[str, api.WorkerCluster]:
    specs = {}
    for raw in worker_clusters:
        try:
            specs[key_of(raw)[1]] = api.parse_worker_cluster(raw)
        except api.InvalidSpec:
            # The WorkerCluster's own condition reports the fault.
            continue
    return specs


def _clusters_by_selector(selector: Raw, specs: Mapping[str, api.WorkerCluster]) -> tuple[str, ...]:
    try:
        return tuple(name for name in sorted(specs) if selects(selector, cluster_labels(name, specs[name])))
    except UNREADABLE as error:
        raise api.InvalidSpec(f"spec.clusters.selector cannot be read ({error})") from None


def _clusters_by_config(
    config: str, specs: Mapping[str, api.WorkerCluster], configs: Mapping[str, Raw] | None
) -> tuple[str, ...]:
    """The WorkerClusters of a MultiKueueConfig, in its order.

    A MultiKueueCluster in it stands for the WorkerCluster that refers to it, or else for the WorkerCluster of the same
    name.
    """
    field = "spec.clusters.multiKueueConfigRef"
    if configs is None:
        raise api.InvalidSpec(
            f"{field} cannot be resolved, because the controller cannot read the MultiKueueConfigs of the manager "
            "cluster; install Kueue's CRDs, and apply kustomize/overlays/manager, or list the clusters in "
            "spec.clusters.names"
        )
    if config not in configs:
        raise api.InvalidSpec(f"{field} names MultiKueueConfig {config}, which does not exist; create it")
    ours = {
        spec.source.multi_kueue_cluster_ref.name: name
        for name, spec in sorted(specs.items(), reverse=True)
        if spec.source.multi_kueue_cluster_ref
    }
    listed = (configs[config].get("spec") or {}).get("clusters")
    if not listed or not isinstance(listed, list):
        raise api.InvalidSpec(f"{field}: MultiKueueConfig {config} lists no clusters; name one in its spec.clusters")
    return tuple(dict.fromkeys(ours.get(str(name), str(name)) for name in listed))


@dataclass(frozen=True, slots=True)
class PolicyObjects:
    """The objects of admins that a check may refer to."""

    policies: Mapping[str, Raw] = field(default_factory=dict)
    clusters: Sequence[Raw] = ()
    configs: Mapping[str, Raw] | None = None  # None where they cannot be read


@dataclass(frozen=True, slots=True)
class ResolvedPolicy:
    """A usable policy, and its clusters, first choice first."""

    policy: api.DispatchPolicy
    clusters: tuple[str, ...]


# The timeouts of a gang whose policy cannot be read, equal to the defaults of a policy. Nothing is planned for such a
# gang, and its workers must go on running.
_RESERVATION_TIMEOUT = timedelta(seconds=30)
_WORKER_LOST_TIMEOUT = timedelta(minutes=5)
_WORKER_START_TIMEOUT = timedelta(minutes=15)


def reservation_timeout(resolved_policy: ResolvedPolicy | None) -> timedelta:
    """How long a cluster may take to admit a share."""
    return resolved_policy.policy.reservation_timeout if resolved_policy else _RESERVATION_TIMEOUT


def worker_lost_timeout(resolved_policy: ResolvedPolicy | None) -> timedelta:
    """How long a cluster may be unreachable before its workers count as lost."""
    return resolved_policy.policy.worker_lost_timeout if resolved_policy else _WORKER_LOST_TIMEOUT


def worker_start_timeout(resolved_policy: ResolvedPolicy | None) -> timedelta:
    """How long a worker may take to start before it is placed elsewhere."""
    return resolved_policy.policy.worker_start_timeout if resolved_policy else _WORKER_START_TIMEOUT


def min_workers_timeout(resolved_policy: ResolvedPolicy | None) -> timedelta | None:
    """How long a gang may run with fewer workers than its minimum; None: for ever."""
    return resolved_policy.policy.min_workers_timeout if resolved_policy else None


def needs_same_cluster(resolved_policy: ResolvedPolicy | None) -> bool:
    """Whether a gang's workers must be in one cluster."""
    return resolved_policy is not None and resolved_policy.policy.gang == "SameCluster"


def share_lost_action(resolved_policy: ResolvedPolicy | None) -> Literal["Replace", "Restart"]:
    """Whether only lost workers are placed again, or the whole job restarts."""
    return resolved_policy.policy.share_lost_action if resolved_policy else "Replace"


def policy_of_check(check: AdmissionCheck, policy_objects: PolicyObjects) -> ResolvedPolicy:
    """The policy of an AdmissionCheck; raises specs.InvalidSpec with a sentence if there is no usable one."""
    if not check.policy:
        raise api.InvalidSpec(
            f"AdmissionCheck {check.name}: spec.parameters must name a {names.DISPATCH_POLICY_KIND} of {names.DOMAIN}; "
            "add apiGroup, kind and name."
        )
    if check.policy not in policy_objects.policies:
        raise api.InvalidSpec(
            f"AdmissionCheck {check.name}: spec.parameters names {names.DISPATCH_POLICY_KIND} {check.policy}, "
            "which does not exist; create it."
        )
    return resolve_policy(policy_objects.policies[check.policy], policy_objects)


def resolve_policy(raw: Raw, policy_objects: PolicyObjects) -> ResolvedPolicy:
    """A DispatchPolicy with its clusters; raises specs.InvalidSpec with a sentence if it is not usable."""
    policy = api.parse_dispatch_policy(raw)
    try:
        return ResolvedPolicy(
            policy, resolve_clusters(policy.clusters, policy_objects.clusters, policy_objects.configs)
        )
    except api.InvalidSpec as error:
        raise api.InvalidSpec(f"{names.DISPATCH_POLICY_KIND} {key_of(raw)[1]}: {error}.") from None
