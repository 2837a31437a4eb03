"""What does one pod shape ask of a ClusterQueue: which resources, of which flavors, or why nothing of it?

All that can be said before anybody looks at what is in use, so that it is found once however often that changes. How many
such pods fit is `adapter.quota`'s question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.objects.podrequests import PODS, Resources
from adapter.objects.raw import UNREADABLE, Raw
from adapter.objects.selectors import Labels, selects
from adapter.quota import flavor
from adapter.quota.clusterqueue import Group, Queue
from adapter.quota.cohort import Cell
from adapter.quota.flavor import Flavor


class Choice(NamedTuple):
    """A flavor that could pay for some of the pod's resources, or why it may not."""

    flavor: str
    needs: Mapping[Cell, int]  # what one pod asks of the flavor, in the units of `shape.Resources`; never nothing
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """For each resource group that pays for something, its flavors in order of preference."""

    queue: Queue
    groups: Sequence[Sequence[Choice]] = ()
    closed: str = ""  # why no pod fits, whatever is free


def read(
    queue: Queue, flavors: Mapping[str, Flavor], request: Resources, pod_spec: Raw, namespace: Labels | None
) -> Demand:
    """Share the pod's requests out over the queue's resource groups; None skips the queue's namespaceSelector."""
    closed = queue.closed or _outside(queue, namespace) or _uncovered(queue, request)
    if closed:
        return Demand(queue, closed=closed)
    shares = _shared_out(queue, request)
    return Demand(queue, [[_choice(queue, flavors[of], needs, pod_spec) for of in g.flavors] for g, needs in shares])


def _outside(queue: Queue, namespace: Labels | None) -> str:
    try:
        if namespace is None or selects(queue.namespaces, namespace):
            return ""
    except UNREADABLE as error:
        return f"the namespaceSelector of ClusterQueue {queue.name} cannot be read ({error})"
    return f"ClusterQueue {queue.name} does not select the namespace"


def _uncovered(queue: Queue, request: Resources) -> str:
    asked = {name for name, need in request.items() if need and name != PODS}
    left = asked.difference(*(group.resources for group in queue.groups))
    return f"ClusterQueue {queue.name} does not cover {', '.join(sorted(left))}" if left else ""


def _shared_out(queue: Queue, request: Resources) -> list[tuple[Group, dict[str, int]]]:
    """Which group pays for which resource: the first that covers it, as in Kueue."""
    left = {**request, PODS: 1}
    shares = []
    for group in queue.groups:
        needs = {name: left.pop(name) for name in sorted(left) if name in group.resources}
        if needs:
            shares.append((group, needs))
    return shares


def _choice(queue: Queue, of: Flavor, needs: Resources, pod_spec: Raw) -> Choice:
    try:
        refusal = flavor.refusal(of, pod_spec, queue.topology_only)
    except UNREADABLE as error:
        refusal = f"flavor {of.name} or the pod's scheduling rules cannot be read ({error})"
    return Choice(of.name, {(of.name, resource): need for resource, need in needs.items()}, refusal)
