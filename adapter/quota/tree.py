"""How many pods of one shape does a worker cluster's Kueue admit now: nominal, borrowed, ever; and what is tight?

The rules are kueue v0.19.2's own, on the quota that its objects show. It is a forecast to plan by; the worker's Kueue
decides. Not modelled, because its objects do not show it: preemption, the order of waiting Workloads (a StrictFIFO
queue's head blocks the rest), packing of topology flavors, the settings of Kueue's own configuration, and what is still
in use in a flavor that its ClusterQueue no longer lists: Kueue counts it on, for the cohort too, but status hides it.
Not modelled, though it could be: where only some podsets of a Workload fit, Kueue tries it again with the next flavors
of those, so of a Workload with several podsets it may admit more than is said here; never less.
All else is put to the test by Kueue itself, on random trees, by the way that plans take: planning/offers.py, which asks
(`ask`), counts (`survey`), reserves on a `line` and settles that in the tree. See hack/oracle (`make oracle`).
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
    """One worker cluster's quota as its objects showed it, plus what was charged since; compared by identity."""

    queues: Mapping[str, ClusterQueueRules]
    flavors: Mapping[str, Flavor]
    forest: Forest
    parsed_queues: Mapping[str, clusterqueue.ParsedQueue] = field(default_factory=dict)  # what it was built from
    # What was found on it by whoever plans (planning/offers.py): it is kept here, for it goes with the tree. None where nothing is.
    offer_cache: dict[Hashable, Any] | None = field(default=None, repr=False)


def build(
    cluster_queues: Iterable[Raw], cohorts: Iterable[Raw], flavors: Iterable[Raw], *, previous: QuotaTree | None = None
) -> QuotaTree:
    """Read raw ClusterQueue, Cohort and ResourceFlavor objects into a Tree; never raises, order does not matter.

    `before` is the same cluster's last Tree: objects that are still the same ones are not read again, which is most of the
    work where one of a thousand queues has changed. Nobody may change an object in place, then.
    """
    known = clusterqueue.parse_flavors(flavors)
    same = previous.parsed_queues if previous is not None and previous.flavors == known else {}
    queues, forest, read = clusterqueue.parse_queues(cluster_queues, cohorts, known, same)
    return QuotaTree(queues, known, forest, read, offer_cache={})


def demand_for_pods(tree: QuotaTree, queue: str, request: Resources, pod_spec: Raw, namespace: Labels | None) -> Demand:
    """Say what pods that ask `request` each want of the ClusterQueue `queue`, whatever is in use.

    `namespace` is the labels of the pods' namespace; None skips the ClusterQueue's namespaceSelector. `pods: 1` is always asked.
    """
    found = tree.queues.get(queue) or ClusterQueueRules(queue, closed_reason=f"ClusterQueue {queue} does not exist")
    return flavorassigner.build_demand(found, tree.flavors, request, pod_spec, namespace)


def queue_path(tree: QuotaTree, queue: str) -> QuotaPath:
    """What a ClusterQueue has, and what of that is in use: all that changes while one gang is planned."""
    return cohort.quota_path(tree.forest, (CLUSTER_QUEUE, queue))


def reserve_pods(path: QuotaPath, flavors: Mapping[str, str], request: Resources, count: int) -> QuotaPath:
    """Return a ClusterQueue's line with `count` such pods reserved in these flavors, of each resource one."""
    needs = {**request, PODS: 1}
    amounts = {(of, name): min(needs.get(name, 0) * count, UNLIMITED) for name, of in flavors.items()}
    return cohort.add_usage(path, amounts) if amounts else path


def with_usage(tree: QuotaTree, queue: str, path: QuotaPath) -> QuotaTree:
    """Return the tree with what is in use on a ClusterQueue's line."""
    return QuotaTree(tree.queues, tree.flavors, cohort.with_path_usage(tree.forest, (CLUSTER_QUEUE, queue), path))
