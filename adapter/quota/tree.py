"""Computes how many pods of one shape a worker cluster's Kueue admits now, nominal and borrowed, and what is scarce.

The rules are kueue v0.19.2's own, on the quota that its objects show. It is a forecast for plans; the worker cluster's
Kueue decides. Not modelled, because the objects do not show it: preemption, the order of waiting Workloads (a
StrictFIFO queue's head blocks the rest), packing of topology flavors, the settings of Kueue's own configuration, and
usage in a flavor that its ClusterQueue no longer lists, which Kueue still counts, for the cohort too, but status hides.
Not modelled, though it could be: where only some podsets of a Workload fit, Kueue tries it again with the next flavors
of those, so it may admit more of a Workload with several podsets than computed here, never less.
Kueue itself verifies the rest, on random trees and along the path of plans: planning/offers.py computes the demand
(`demand_for_pods`) and the capacity (`flavor_capacity`), reserves on a path (`reserve_pods`) and writes it into the
tree (`with_usage`). See hack/oracle (`make oracle`).
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.objects.pod_requests import PODS, UNLIMITED, Resources
from adapter.objects.selectors import Labels
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
    """One worker cluster's quota in its observed objects, plus later charges; compared by identity."""

    queues: Mapping[str, ClusterQueueRules]
    flavors: Mapping[str, Flavor]
    forest: Forest
    parsed_queues: Mapping[str, clusterqueue.ParsedQueue] = field(default_factory=dict)  # for `previous` of `build`
    # The results of planning/offers.py, cached here because they are valid for this tree only. None: no cache.
    offer_cache: dict[Hashable, Any] | None = field(default=None, repr=False)


def build(
    cluster_queues: Iterable[Raw], cohorts: Iterable[Raw], flavors: Iterable[Raw], *, previous: QuotaTree | None = None
) -> QuotaTree:
    """Build a tree from ClusterQueue, Cohort and ResourceFlavor objects, in any order; never raises.

    `previous` is the last tree of this cluster: its objects are not read again, which saves most of the work where one
    of a thousand queues has changed. Objects must therefore never be changed in place.
    """
    parsed_flavors = clusterqueue.parse_flavors(flavors)
    reusable = previous.parsed_queues if previous is not None and previous.flavors == parsed_flavors else {}
    queues, forest, parsed_queues = clusterqueue.parse_queues(cluster_queues, cohorts, parsed_flavors, reusable)
    return QuotaTree(queues, parsed_flavors, forest, parsed_queues, offer_cache={})


def demand_for_pods(tree: QuotaTree, queue: str, request: Resources, pod_spec: Raw, namespace: Labels | None) -> Demand:
    """The demand of pods with this `request` on the ClusterQueue `queue`, independent of usage.

    `namespace` is the labels of the pods' namespace; None skips the ClusterQueue's namespaceSelector. `pods: 1` is
    always requested.
    """
    rules = tree.queues.get(queue) or ClusterQueueRules(queue, closed_reason=f"ClusterQueue {queue} does not exist")
    return flavorassigner.build_demand(rules, tree.flavors, request, pod_spec, namespace)


def queue_path(tree: QuotaTree, queue: str) -> QuotaPath:
    """The quota and usage of a ClusterQueue: only they change while one gang is planned."""
    return cohort.quota_path(tree.forest, (CLUSTER_QUEUE, queue))


def reserve_pods(path: QuotaPath, flavors: Mapping[str, str], request: Resources, count: int) -> QuotaPath:
    """The path of a ClusterQueue with `count` such pods reserved in these flavors, one for each resource."""
    needs = {**request, PODS: 1}
    amounts = {(flavor, name): min(needs.get(name, 0) * count, UNLIMITED) for name, flavor in flavors.items()}
    return cohort.add_usage(path, amounts) if amounts else path


def with_usage(tree: QuotaTree, queue: str, path: QuotaPath) -> QuotaTree:
    """The tree with the usage of a ClusterQueue's path."""
    return QuotaTree(tree.queues, tree.flavors, cohort.with_path_usage(tree.forest, (CLUSTER_QUEUE, queue), path))
