"""Which worker clusters does a policy consider, and in which order?

Names stand as they are, known or not: a cluster that does not exist is passed over by the plan, with that reason. Whether
a cluster can take anything is not asked here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from adapter import names
from adapter.objects import specs as api
from adapter.objects.admissioncheck import AdmissionCheck
from adapter.objects.selectors import selects
from adapter.objects.unstructured import UNREADABLE, Raw, key_of


def resolve(clusters: api.Clusters, known: Iterable[Raw], configs: Mapping[str, Raw] | None) -> tuple[str, ...]:
    """Name the policy's WorkerClusters, first choice first; a selector may match none, now.

    `known` are all WorkerCluster objects, `configs` the MultiKueueConfigs by name, None where they cannot be read. Raises
    specs.Invalid with a sentence fragment when the MultiKueueConfig does not exist or lists nothing.
    """
    if clusters.names:
        return tuple(dict.fromkeys(clusters.names))  # an API server with an older schema lets a name stand twice
    specs = _specs(known)
    if clusters.selector is not None:
        return _selected(clusters.selector, specs)
    assert clusters.multi_kueue_config_ref is not None, "one of the three is set"
    return _listed(clusters.multi_kueue_config_ref.name, specs, configs)


def labels(name: str, spec: api.WorkerCluster) -> dict[str, str]:
    """What selectors match: the labels that a Ray node there carries, so that jobs and policies say the same words."""
    region = {names.RAY_REGION_LABEL: spec.region} if spec.region else {}
    return {**spec.labels, **region, names.RAY_ZONE_LABEL: spec.zone or name, names.CLUSTER_LABEL: name}


def _specs(known: Iterable[Raw]) -> dict[str, api.WorkerCluster]:
    specs = {}
    for raw in known:
        try:
            specs[key_of(raw)[1]] = api.worker_cluster(raw)
        except api.Invalid:
            continue  # its own condition says so; nothing can be said of its labels
    return specs


def _selected(selector: Raw, specs: Mapping[str, api.WorkerCluster]) -> tuple[str, ...]:
    try:
        return tuple(name for name in sorted(specs) if selects(selector, labels(name, specs[name])))
    except UNREADABLE as error:
        raise api.Invalid(f"spec.clusters.selector cannot be read ({error})") from None


def _listed(config: str, specs: Mapping[str, api.WorkerCluster], configs: Mapping[str, Raw] | None) -> tuple[str, ...]:
    """Each MultiKueueCluster stands for the WorkerCluster that refers to it, else for the one of its own name."""
    field = "spec.clusters.multiKueueConfigRef"
    if configs is None:
        raise api.Invalid(
            f"{field} cannot be followed, because the manager cluster does not show its MultiKueueConfigs; install Kueue's "
            "CRDs, and apply kustomize/overlays/manager, or list the clusters in spec.clusters.names"
        )
    if config not in configs:
        raise api.Invalid(f"{field} names MultiKueueConfig {config}, which does not exist; create it")
    ours = {
        spec.source.multi_kueue_cluster_ref.name: name
        for name, spec in sorted(specs.items(), reverse=True)
        if spec.source.multi_kueue_cluster_ref
    }
    listed = (configs[config].get("spec") or {}).get("clusters")
    if not listed or not isinstance(listed, list):
        raise api.Invalid(f"{field}: MultiKueueConfig {config} lists no clusters; name one in its spec.clusters")
    return tuple(dict.fromkeys(ours.get(str(name), str(name)) for name in listed))


@dataclass(frozen=True, slots=True)
class Written:
    """What admins have written that a check may refer to, each by its name."""

    policies: Mapping[str, Raw] = field(default_factory=dict)
    clusters: Sequence[Raw] = ()
    configs: Mapping[str, Raw] | None = None  # MultiKueueConfigs; None where they cannot be read


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy that can be used, with the names of its clusters, first choice first."""

    policy: api.DispatchPolicy
    clusters: tuple[str, ...]


# What holds for a gang whose policy cannot be read: nothing is planned for it, and what runs must not be given up for that.
_RESERVATION_TIMEOUT = timedelta(seconds=30)
_LOST_TIMEOUT = timedelta(minutes=5)  # the policy's own default
_START_TIMEOUT = timedelta(minutes=15)  # the same


def reservation_timeout(chosen: Chosen | None) -> timedelta:
    """For how long a cluster may take to admit a share."""
    return chosen.policy.reservation_timeout if chosen else _RESERVATION_TIMEOUT


def lost_after(chosen: Chosen | None) -> timedelta:
    """For how long a cluster may be out of sight before its workers count as lost."""
    return chosen.policy.worker_lost_timeout if chosen else _LOST_TIMEOUT


def start_timeout(chosen: Chosen | None) -> timedelta:
    """For how long a worker may take to start before it is to start elsewhere."""
    return chosen.policy.worker_start_timeout if chosen else _START_TIMEOUT


def together(chosen: Chosen | None) -> bool:
    """Whether a gang's workers must be in one cluster."""
    return chosen is not None and chosen.policy.gang == "SameCluster"


def when_share_lost(chosen: Chosen | None) -> Literal["Replace", "Restart"]:
    """Whether only the lost workers of a gang are planned anew, or all of it starts again."""
    return chosen.policy.when_share_lost if chosen else "Replace"


def policy(check: AdmissionCheck, written: Written) -> Chosen:
    """The policy behind an AdmissionCheck; raises specs.Invalid with a sentence when there is none that can be used."""
    if not check.policy:
        raise api.Invalid(
            f"AdmissionCheck {check.name}: spec.parameters must name a {names.DISPATCH_POLICY_KIND} of {names.DOMAIN}; "
            "add apiGroup, kind and name."
        )
    if check.policy not in written.policies:
        raise api.Invalid(
            f"AdmissionCheck {check.name}: spec.parameters names {names.DISPATCH_POLICY_KIND} {check.policy}, "
            "which does not exist; create it."
        )
    return usable(written.policies[check.policy], written)


def usable(raw: Raw, written: Written) -> Chosen:
    """A DispatchPolicy with its clusters; raises specs.Invalid with a sentence when it cannot be used."""
    found = api.dispatch_policy(raw)
    try:
        return Chosen(found, resolve(found.clusters, written.clusters, written.configs))
    except api.Invalid as error:
        raise api.Invalid(f"{names.DISPATCH_POLICY_KIND} {key_of(raw)[1]}: {error}.") from None
