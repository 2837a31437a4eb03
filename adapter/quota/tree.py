"""Computes how many pods of one shape a worker cluster's Kueue admits now, nominal and borrowed, and what is scarce.

This is a forecast by the rules of kueue v0.19.2. It does not model what Kueue's objects do not show: preemption, the
order of waiting Workloads (the first in a StrictFIFO queue blocks the rest), and packing of topology flavors. Nor does
it model usage in a flavor that its ClusterQueue no longer lists; Kueue still counts that usage, for the cohort too.
kueue_answers.py has what Kueue's own configuration does to requests.

Where only some podsets of a Workload fit, Kueue tries again with the next flavors of those podsets. So it may admit
more of such a Workload than computed here, never less. hack/oracle (`make oracle`) verifies the rest by Kueue itself,
on random trees and along the path of plans.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.objects.pod_requests import PODS, UNLIMITED, Resources
from adapter.objects.selectors import Labels
from adapter.objects.topology_request import TopologyRequest
from adapter.objects.unstructured import Raw
from adapter.quota import clusterqueue, cohort, flavorassigner
from adapter.quota.clusterqueue import CLUSTER_QUEUE, ClusterQueueRules, local_queue_target
from adapter.quota.cohort import Forest, QuotaPath, without_usage
from adapter.quota.flavorassigner import Demand, Fit, FlavorCapacity, Shortfall, flavor_capacity
from adapter.quota.resource_flavor import Flavor

__all__ = [
    "Demand",
    "Fit",
    "FlavorCapacity",
    "QuotaPath",
    "QuotaTree",
    "Resources",
    "Shortfall",
    "build",
    "demand_for_pods",
    "flavor_capacity",
    "local_queue_target",
    "queue_path",
    "reserve_pods",
    "with_usage",
    "without_usage",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class QuotaTree:
    """One worker cluster's observed quota, plus later charges; compared by identity."""

    queues: Mapping[str, ClusterQueueRules]
    flavors: Mapping[str, Flavor]
    forest: Forest
    parsed_queues: Mapping[str, clusterqueue.ParsedQueue] = field(default_factory=dict)  # for `build`
    # For planning/offers.py, whose results are valid for this tree only. None: no cache.
    offer_cache: dict[Hashable, Any] | None = field(default=None, repr=False)


def build(
    cluster_queues: Iterable[Raw], cohorts: Iterable[Raw], flavors: Iterable[Raw], *, previous: QuotaTree | None = None
) -> QuotaTree:
    """Build a tree from ClusterQueue, Cohort and ResourceFlavor objects, in any order; never raises.

    Objects of the `previous` tree are not read again, which saves most of the work where one of a thousand queues has
    changed. So objects must never be changed in place.
    """
    parsed_flavors = clusterqueue.parse_flavors(flavors)
    reusable = previous.parsed_queues if previous is not None and previous.flavors == parsed_flavors else {}
    queues, forest, parsed_queues = clusterqueue.parse_queues(cluster_queues, cohorts, parsed_flavors, reusable)
    return QuotaTree(queues, parsed_flavors, forest, parsed_queues, offer_cache={})


def demand_for_pods(
    tree: QuotaTree,
    queue: str,
    request: Resources,
    pod_spec: Raw,
    namespace: Labels | None,
    uncovered_note: str = "",
    topology: TopologyRequest | None = None,
) -> Demand:
    """The demand of pods with this request and spec, independent of usage; `pods: 1` is always requested.

    `namespace` is the labels of the pods' namespace; None skips the ClusterQueue's namespaceSelector.
    `uncovered_note` continues the reason for resources that the ClusterQueue does not cover.
    """
    rules = tree.queues.get(queue) or ClusterQueueRules(queue, closed_reason=f"ClusterQueue {queue} does not exist")
    return flavorassigner.build_demand(rules, tree.flavors, request, pod_spec, namespace, uncovered_note, topology)


def queue_path(tree: QuotaTree, queue: str) -> QuotaPath:
    return cohort.quota_path(tree.forest, (CLUSTER_QUEUE, queue))


def reserve_pods(
    path: QuotaPath, flavors: Mapping[str, str], request: Resources, count: int, *, waiting: bool = False
) -> QuotaPath:
    """The path of a ClusterQueue with quota reserved for `count` more pods; `flavors` is by resource.

    If the pods are `waiting`, what they would borrow yields to the nominal quota of other queues.
    """
    needs = {**request, PODS: 1}
    amounts = {(flavor, name): min(needs.get(name, 0) * count, UNLIMITED) for name, flavor in flavors.items()}
    add = cohort.add_waiting_usage if waiting else cohort.add_usage
    return add(path, amounts) if amounts else path


def with_usage(tree: QuotaTree, queue: str, path: QuotaPath) -> QuotaTree:
    return QuotaTree(tree.queues, tree.flavors, cohort.with_path_usage(tree.forest, (CLUSTER_QUEUE, queue), path))
