"""What does a worker cluster's quota look like to a gang: in use, free, and what is scarcest?

For people only: how many pods fit is `quota`'s answer, and the planner decides by that alone. Numbers are those of the
tree that is given, so what other gangs were promised is in use already.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.planning.request import Candidate, Group, Request, closed, pod_spec_in, queue_name
from adapter.quota import cohort, tree
from adapter.quota.clusterqueue import QUEUE, Queue


@dataclass(frozen=True, slots=True)
class Row:
    """One resource in one flavor of the ClusterQueue, in the units of `shape.Resources`."""

    flavor: str
    resource: str
    nominal: int
    used: int
    free: int  # borrowing included
    ever: int  # if nothing were in use


def rows(request: Request, one: Candidate) -> list[Row]:
    """Every flavor of every resource that the gang asks for, as the ClusterQueue lists them; empty where it is closed."""
    queue = one.tree.queues.get(queue_name(request, one))
    if queue is None or queue.closed or closed(request, one):
        return []
    asked = {name for group in request.groups for name, need in group.request.items() if need}
    return [_row(one, queue.name, flavor, resource) for flavor, resource in _cells(queue, asked)]


def scarcest(request: Request, one: Candidate) -> Row | None:
    """The resource of which the fewest workers' worth is free, None where no quota bounds the gang."""
    found = [tight for group in request.groups if (tight := _tight(request, one, group))]
    least = min(found, key=lambda tight: tight.free // max(tight.need, 1), default=None)
    return _row(one, queue_name(request, one), least.flavor, least.resource) if least else None


def _tight(request: Request, one: Candidate, group: Group) -> tree.Shortfall | None:
    if closed(request, one):
        return None
    labels = one.namespaces[request.namespace]
    queue = queue_name(request, one)
    return tree.room(
        one.tree, queue, group.request, pod_spec_in(one, group), wanted=group.count, namespace=labels
    ).tight


def _cells(queue: Queue, asked: set[str]) -> Iterator[tuple[str, str]]:
    for group in queue.groups:
        for flavor in group.flavors:
            yield from ((flavor, resource) for resource in sorted(group.resources & asked))


def _row(one: Candidate, queue: str, flavor: str, resource: str) -> Row:
    forest, key, cell = one.tree.forest, (QUEUE, queue), (flavor, resource)
    line = cohort.line(forest, key)
    return Row(
        flavor=flavor,
        resource=resource,
        nominal=forest.subtree[key].get(cell, 0),
        used=forest.usage(key).get(cell, 0),
        free=max(0, cohort.available(line, cell)),
        ever=max(0, cohort.potential(line, cell)),
    )
