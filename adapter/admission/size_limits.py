"""Limits the size of pod templates, so that planning and copying a job has a bounded cost.

Only lengths are read, so rejecting an oversized template is cheap. `pod_validation` reads what a template means;
`job_manifest.MAX_PODSETS` limits worker groups.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from adapter.objects.unstructured import Raw


class SizeLimit(NamedTuple):
    """The most entries of a list or mapping, summed over all containers, terms and so on of a pod template."""

    field: str  # `[]` descends into each entry of a list, which has its own limit further up
    max_entries: int
    remedy: str


_REQUIRED_NODES = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_PREFERRED_NODES = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"

# Requests are summed for every queued gang at each plan. A Ray container, its sidecars and init containers request some
# four resources each.
_REQUEST_LIMITS = (
    SizeLimit("spec.containers", 16, "use fewer sidecars"),
    SizeLimit("spec.initContainers", 16, "let one do the work of several"),
    SizeLimit("spec.containers[].resources.requests", 128, "ask for fewer resources"),
    SizeLimit("spec.containers[].resources.limits", 128, "ask for fewer resources"),
    SizeLimit("spec.initContainers[].resources.requests", 128, "ask for fewer resources"),
    SizeLimit("spec.initContainers[].resources.limits", 128, "ask for fewer resources"),
    SizeLimit("spec.resources.requests", 32, "ask for fewer resources"),
    SizeLimit("spec.resources.limits", 32, "ask for fewer resources"),
    SizeLimit("spec.overhead", 32, "ask for fewer resources"),
)

# Each entry of these fields is compared with every flavor and kind of node in every cluster. Charts and autoscalers
# write one to three terms of up to ten expressions, and up to a hundred machine types. With 17 groups at these limits,
# a cluster of 300 nodes takes some 10 ms of a plan, and one of 5 000 some 150 ms.
_PLANNING_LIMITS = (
    SizeLimit("spec.nodeSelector", 32, "choose nodes by fewer labels"),
    SizeLimit("spec.tolerations", 64, 'tolerate several taints at once with operator "Exists"'),
    SizeLimit("spec.resourceClaims", 32, "let one ResourceClaimTemplate request several devices"),
    SizeLimit(_REQUIRED_NODES, 32, 'join terms that differ in one label into one with operator "In"'),
    SizeLimit(f"{_REQUIRED_NODES}[].matchExpressions", 64, "choose nodes by fewer labels"),
    SizeLimit(f"{_REQUIRED_NODES}[].matchExpressions[].values", 512, "choose nodes by a label that they share"),
    SizeLimit(
        f"{_REQUIRED_NODES}[].matchFields", 32, "remove it, the manager's nodes do not exist in the worker cluster"
    ),
    SizeLimit(
        f"{_REQUIRED_NODES}[].matchFields[].values",
        32,
        "remove it, the manager's nodes do not exist in the worker cluster",
    ),
)

# These fields are read for every worker, each time that its remote pod is created or reconciled. The limits are several
# times the longest of KubeRay's samples.
_COPYING_LIMITS = (
    SizeLimit("metadata.labels", 64, "leave out what no worker needs"),
    SizeLimit("metadata.annotations", 64, "leave out what no worker needs"),
    SizeLimit("spec.containers[].env", 512, "put them into a ConfigMap, and name it in envFrom"),
    SizeLimit("spec.initContainers[].env", 512, "put them into a ConfigMap, and name it in envFrom"),
    SizeLimit("spec.containers[].envFrom", 64, "join several ConfigMaps into one"),
    SizeLimit("spec.initContainers[].envFrom", 64, "join several ConfigMaps into one"),
    SizeLimit("spec.containers[].volumeMounts", 256, "mount one volume in place of several"),
    SizeLimit("spec.initContainers[].volumeMounts", 256, "mount one volume in place of several"),
    SizeLimit("spec.containers[].ports", 128, "name only those that others connect to"),
    SizeLimit("spec.initContainers[].ports", 128, "name only those that others connect to"),
    SizeLimit("spec.containers[].command", 256, "put it into a file of the image"),
    SizeLimit("spec.containers[].args", 256, "put them into a file of the image"),
    SizeLimit("spec.initContainers[].command", 256, "put it into a file of the image"),
    SizeLimit("spec.initContainers[].args", 256, "put them into a file of the image"),
    SizeLimit("spec.volumes", 64, "join several into one"),
    SizeLimit("spec.volumes[].projected.sources", 64, "join several ConfigMaps into one"),
    SizeLimit("spec.volumes[].configMap.items", 256, "mount the whole ConfigMap"),
    SizeLimit("spec.volumes[].secret.items", 256, "mount the whole Secret"),
    SizeLimit("spec.imagePullSecrets", 16, "put several registries into one Secret"),
    SizeLimit("spec.hostAliases", 64, "give such names to a DNS server"),
    SizeLimit("spec.schedulingGates", 16, "leave out what no worker waits for"),
    SizeLimit("spec.readinessGates", 16, "leave out what no worker waits for"),
    SizeLimit("spec.topologySpreadConstraints", 16, "spread over fewer topologies"),
    SizeLimit(_PREFERRED_NODES, 32, "prefer fewer kinds of nodes"),
    SizeLimit(f"{_PREFERRED_NODES}[].preference.matchExpressions", 64, "prefer nodes by fewer labels"),
    SizeLimit(
        f"{_PREFERRED_NODES}[].preference.matchExpressions[].values", 512, "prefer nodes by a label that they share"
    ),
    *(
        SizeLimit(
            f"spec.affinity.{kind}.{when}DuringSchedulingIgnoredDuringExecution", 16, "choose fewer kinds of pods"
        )
        for kind in ("podAffinity", "podAntiAffinity")
        for when in ("required", "preferred")
    ),
)

LIMITS = (*_REQUEST_LIMITS, *_PLANNING_LIMITS, *_COPYING_LIMITS)


def first_excess(template: Raw) -> str:
    """A fragment on the first oversized field of a pod template, with count, limit and remedy; or empty."""
    return next(template_excesses(template), "")


def template_excesses(template: Raw) -> Iterator[str]:
    """A fragment for each oversized field."""
    return _find_excesses(template, LIMITS)


def has_bounded_requests(template: Raw) -> bool:
    """Whether a pod template, also a head's, has no more containers and resources than a worker may have."""
    return not any(_find_excesses(template, _REQUEST_LIMITS))


def _find_excesses(template: Raw, limits: Iterable[SizeLimit]) -> Iterator[str]:
    for limit in limits:
        count = sum(_entry_counts(template, limit.field.split(".")))
        if count > limit.max_entries:
            yield f"{limit.field} has {count} entries, and at most {limit.max_entries} are allowed: {limit.remedy}"


def _entry_counts(template: Raw, path: Iterable[str]) -> Iterable[int]:
    """The length of a field in each object that has it."""
    values: list[object] = [template]
    for step in path:
        values = [value.get(step.removesuffix("[]")) for value in values if isinstance(value, Mapping)]
        if step.endswith("[]"):
            values = [entry for value in values if isinstance(value, list) for entry in value]
    return [len(value) for value in values if isinstance(value, list | Mapping)]
