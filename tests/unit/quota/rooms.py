"""Capacity of one podset in a ClusterQueue, computed with the steps of a plan: for tests of the arithmetic alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.objects.pod_requests import Resources
from adapter.objects.selectors import Labels
from adapter.objects.topology_request import TopologyRequest
from adapter.objects.unstructured import Raw
from adapter.quota.tree import (
    QuotaTree,
    Shortfall,
    demand_for_pods,
    flavor_capacity,
    queue_path,
    reserve_pods,
    with_usage,
)


@dataclass(frozen=True, slots=True)
class Room:
    """How many pods fit, in which flavors, and why no more."""

    flavors: Mapping[str, str] = field(default_factory=dict)
    nominal: int = 0
    borrow: int = 0
    ever: int = 0
    tight: Shortfall | None = None
    reason: str = ""


def admits(
    tree: QuotaTree,
    queue: str,
    request: Resources,
    pod_spec: Raw,
    *,
    wanted: int = 1,
    namespace: Labels | None = None,
    topology: TopologyRequest | None = None,
) -> Room:
    """How many more such pods the ClusterQueue admits now as one podset."""
    found = flavor_capacity(
        demand_for_pods(tree, queue, request, pod_spec, namespace, "", topology), queue_path(tree, queue)
    )
    fit = found.fit(wanted)
    return Room(
        fit.flavors,
        fit.nominal,
        fit.borrow,
        found.potential_pods(),
        found.shortfall(wanted),
        found.shortage_reason(wanted),
    )


def charge(tree: QuotaTree, queue: str, flavors: Mapping[str, str], request: Resources, count: int) -> QuotaTree:
    """The tree with so many such pods reserved in these flavors."""
    return with_usage(tree, queue, reserve_pods(queue_path(tree, queue), flavors, request, count))
