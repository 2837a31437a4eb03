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
from adapter.quota.clusterqueue import QUEUE, Queue, leads_to
from adapter.quota.cohort import Forest, Line, emptied
from adapter.quota.flavorassigner import Demand, Fit, Shortfall, Survey, survey
from adapter.quota.resource_flavor import Flavor

__all__ = [
    "Demand", "Fit", "Line", "Resources", "Shortfall", "Survey", "Tree",
    "ask", "build", "emptied", "leads_to", "line", "reserve", "settle", "survey",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """One worker cluster's quota as its objects showed it, plus what was charged since; compared by identity."""

    queues: Mapping[str, Queue]
    flavors: Mapping[str, Flavor]
    forest: Forest
    read: Mapping[str, clusterqueue.Read] = field(default_factory=dict)  # what it was built from
    # What was found on it by whoever plans (planning/offers.py): it is kept here, for it goes with the tree. None where nothing is.
    found: dict[Hashable, Any] | None = field(default=None, repr=False)


def build(
    cluster_queues: Iterable[Raw], cohorts: Iterable[Raw], flavors: Iterable[Raw], *, before: Tree | None = None
) -> Tree:
    """Read raw ClusterQueue, Cohort and ResourceFlavor objects into a Tree; never raises, order does not matter.

    `before` is the same cluster's last Tree: objects that are still the same ones are not read again, which is most of the
    work where one of a thousand queues has changed. Nobody may change an object in place, then.
    """
    known = clusterqueue.read_flavors(flavors)
    same = before.read if before is not None and before.flavors == known else {}
    queues, forest, read = clusterqueue.read_queues(cluster_queues, cohorts, known, same)
    return Tree(queues, known, forest, read, found={})


def ask(tree: Tree, queue: str, request: Resources, pod_spec: Raw, namespace: Labels | None) -> Demand:
    """Say what pods that ask `request` each want of the ClusterQueue `queue`, whatever is in use.

    `namespace` is the labels of the pods' namespace; None skips the ClusterQueue's namespaceSelector. `pods: 1` is always asked.
    """
    found = tree.queues.get(queue) or Queue(queue, closed=f"ClusterQueue {queue} does not exist")
    return flavorassigner.read(found, tree.flavors, request, pod_spec, namespace)


def line(tree: Tree, queue: str) -> Line:
    """What a ClusterQueue has, and what of that is in use: all that changes while one gang is planned."""
    return cohort.line(tree.forest, (QUEUE, queue))


def reserve(line: Line, flavors: Mapping[str, str], request: Resources, count: int) -> Line:
    """Return a ClusterQueue's line with `count` such pods reserved in these flavors, of each resource one."""
    needs = {**request, PODS: 1}
    amounts = {(of, name): min(needs.get(name, 0) * count, UNLIMITED) for name, of in flavors.items()}
    return cohort.reserve(line, amounts) if amounts else line


def settle(tree: Tree, queue: str, line: Line) -> Tree:
    """Return the tree with what is in use on a ClusterQueue's line."""
    return Tree(tree.queues, tree.flavors, cohort.charged(tree.forest, (QUEUE, queue), line))
