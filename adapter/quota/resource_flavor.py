"""Decides whether a pod may use a ResourceFlavor, by labels, taints and tolerations as kueue v0.19.2 reads them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.selectors import Labels, has_labels, matches_expressions, tolerates
from adapter.objects.topology_request import TopologyRequest
from adapter.objects.unstructured import Raw


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor; one with a `fault` (a fragment) is unreadable and takes no pod."""

    name: str
    labels: Labels = field(default_factory=dict)
    taints: Sequence[Raw] = ()
    tolerations: Sequence[Raw] = ()
    has_topology: bool = False
    fault: str = ""


def parse(name: str, raw: Raw) -> Flavor:
    """Read a ResourceFlavor; raises AttributeError, TypeError or ValueError for a malformed one."""
    spec = raw.get("spec") or {}
    labels = dict(spec.get("nodeLabels") or {})
    if not all(isinstance(value, str) for value in labels.values()):
        raise ValueError("a value in spec.nodeLabels is not a string")
    taints = [taint for taint in spec.get("nodeTaints") or () if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return Flavor(
        name=name,
        labels=labels,
        taints=tuple(taints),
        tolerations=tuple(dict(toleration) for toleration in spec.get("tolerations") or ()),
        has_topology=spec.get("topologyName") is not None,
    )


def mismatch_reason(flavor: Flavor, pod_spec: Raw, topology_only: bool, topology: TopologyRequest | None = None) -> str:
    """Why a pod may not use the flavor, a fragment; empty when it may.

    Selectors and required node affinity count only on label keys of this flavor. A flavor with a topology takes pods
    that request no topology only if every flavor of the ClusterQueue has one (`topology_only`). A flavor without one
    takes no pods that request a topology. Whether the topology has the requested level, and how pods are packed, is
    Kueue's to decide. Source: pkg/scheduler/flavorassigner/flavorassigner.go checkFlavorForPodSets,
    tas_flavorassigner.go.
    """
    if flavor.fault:
        return flavor.fault
    if flavor.has_topology and not (topology_only or topology):
        return (
            f"flavor {flavor.name} accepts only pods that request a topology; for it, write annotation "
            f'{names.UNCONSTRAINED_TOPOLOGY_ANNOTATION}: "true" into the worker group\'s template'
        )
    if topology and not flavor.has_topology:
        return f"flavor {flavor.name} has no spec.topologyName, and the worker group requests a topology"
    tolerations = (*(pod_spec.get("tolerations") or ()), *flavor.tolerations)
    for taint in flavor.taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return f"flavor {flavor.name} has the taint {_taint_text(taint)}, which the pod does not tolerate"
    if not _selector_matches(flavor.labels, pod_spec):
        return f"flavor {flavor.name} does not match the pod's node selector or affinity"
    return ""


def _selector_matches(labels: Labels, pod_spec: Raw) -> bool:
    selector = {key: value for key, value in (pod_spec.get("nodeSelector") or {}).items() if key in labels}
    if not has_labels(labels, selector):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [_relevant_expressions(term, labels) for term in required.get("nodeSelectorTerms") or ()]
    # Terms are ORed, so a term without a label key of this flavor accepts every pod (flavorSelector).
    return not terms or any(matches_expressions(term, labels) for term in terms)


def _relevant_expressions(term: Raw, labels: Labels) -> list[Raw]:
    return [expression for expression in term.get("matchExpressions") or () if expression.get("key") in labels]


def _taint_text(taint: Raw) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"
