"""A worker group's topology request: the domain of nodes in which Kueue of a worker cluster places the group's workers.

Kueue of the manager reads its own annotations on a template, and admits such a job only to a flavor with a topology of
the manager's nodes (docs/upstream.md, "What a check covers"). So a template has annotations of ours in their place.
Where the feature TopologyAwareScheduling is off in the manager, Kueue's own are dropped.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from adapter import names
from adapter.objects.unstructured import Raw, annotation, mapping_field, meta, printable

# kueue:config/components/crd/bases/kueue.x-k8s.io_workloads.yaml, spec.podSets[].topologyRequest
MAX_LEVEL_LENGTH: Final = 63
# k8s:apimachinery/pkg/api/validate/content, IsLabelKey
_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")  # as Go's strconv.ParseBool

Mode = Literal["required", "preferred", "unconstrained"]
# In the order in which Kueue reads them (kueue:pkg/controller/jobframework/tas.go, Build).
_ANNOTATIONS: Final[tuple[tuple[Mode, str, str], ...]] = (
    ("required", names.REQUIRED_TOPOLOGY_ANNOTATION, names.KUEUE_REQUIRED_TOPOLOGY),
    ("preferred", names.PREFERRED_TOPOLOGY_ANNOTATION, names.KUEUE_PREFERRED_TOPOLOGY),
    ("unconstrained", names.UNCONSTRAINED_TOPOLOGY_ANNOTATION, names.KUEUE_UNCONSTRAINED_TOPOLOGY),
)


class TopologyRequest(NamedTuple):
    mode: Mode
    value: str  # the level, a key of node labels; of `unconstrained`: "true"

    @property
    def podset_field(self) -> dict[str, str | bool]:
        """`topologyRequest` of a podset (kueue:apis/kueue/v1beta2/workload_types.go, PodSetTopologyRequest)."""
        return {self.mode: True if self.mode == "unconstrained" else self.value}

    @property
    def pod_annotation(self) -> dict[str, str]:
        """The annotation by which Kueue knows a pod of such a podset (kueue:pkg/util/tas/tas.go, IsTAS)."""
        return {kueue: self.value for mode, _, kueue in _ANNOTATIONS if mode == self.mode}


def read_topology_request(template: Raw) -> TopologyRequest | None:
    """The request of a pod template or of a pod; None if it has none."""
    values: dict[str, object] = {mode: annotation(template, ours) for mode, ours, _ in _ANNOTATIONS}
    return _first_request({**values, "unconstrained": values["unconstrained"] in _TRUE})


def podset_topology_request(podset: Raw) -> TopologyRequest | None:
    """The request of a podset of a group Workload; None if it has none."""
    return _first_request(mapping_field(podset, "topologyRequest"))


def _first_request(values: Mapping[str, object]) -> TopologyRequest | None:
    """The first request in Kueue's order; `values` are like the fields of a podset's request, by mode."""
    for mode, _, _ in _ANNOTATIONS:
        value = values.get(mode)
        if mode == "unconstrained" and value is True:
            return TopologyRequest(mode, "true")
        if mode != "unconstrained" and isinstance(value, str) and value:
            return TopologyRequest(mode, value)
    return None


def with_topology_request(pod: Raw, request: TopologyRequest | None) -> Raw:
    """A pod with this request in place of its own."""
    if read_topology_request(pod) == request:
        return pod
    others = mapping_field(meta(pod), "annotations").items()
    annotations = {key: text for key, text in others if key not in {ours for _, ours, _ in _ANNOTATIONS}}
    annotations |= {ours: request.value for mode, ours, _ in _ANNOTATIONS if request and mode == request.mode}
    return {**pod, "metadata": {**meta(pod), "annotations": annotations}}


def topology_problem(template: Raw) -> str:
    """A fragment why a template's topology request is invalid; empty if it is valid or absent."""
    ours = [key for _, key, _ in _ANNOTATIONS if annotation(template, key)]
    if len(ours) > 1:
        return f"metadata.annotations has {' and '.join(ours)}; keep one of them"
    unconstrained = annotation(template, names.UNCONSTRAINED_TOPOLOGY_ANNOTATION)
    if unconstrained and unconstrained not in _TRUE:
        return f"metadata.annotations.{names.UNCONSTRAINED_TOPOLOGY_ANNOTATION} is {printable(unconstrained)}; set true"
    request = read_topology_request(template)
    if request is None or request.mode == "unconstrained" or _is_level(request.value):
        return ""
    return (
        f"metadata.annotations.{ours[0]} is {printable(request.value)}, which is no key of a node label with at most "
        f"{MAX_LEVEL_LENGTH} characters; name a level of the worker clusters' Topology"
    )


def manager_topology_warning(template: Raw) -> str:
    """A fragment on Kueue's own annotations in a template, which the manager's Kueue reads; empty without any."""
    for _, ours, kueue in _ANNOTATIONS:
        if annotation(template, kueue):
            return (
                f"metadata.annotations has {kueue}: the manager's Kueue would place remote workers on its own nodes, "
                f"and admits no such job to a flavor without a topology; write {ours} in its place"
            )
    return ""


def _is_level(text: str) -> bool:
    return len(text) <= MAX_LEVEL_LENGTH and _LABEL_KEY.fullmatch(text) is not None
