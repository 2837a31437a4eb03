"""How many pods of one shape does a worker cluster's Kueue admit now: nominal, borrowed, ever; and what is tight?

The rules are kueue v0.19.2's own, on the quota that its objects show. It is a forecast to plan by; the worker's Kueue
decides. Not modelled, because its objects do not show it: preemption, the order of waiting Workloads (a StrictFIFO
queue's head blocks the rest), packing of topology flavors, the settings of Kueue's own configuration, and what is still
in use in a flavor that its ClusterQueue no longer lists: Kueue counts it on, for the cohort too, but status hides it.
Not modelled, though it could be: where only some podsets of a Workload fit, Kueue tries it again with the next flavors
of those, so of a Workload with several podsets it may admit more than is said here; never less.
All else is put to the test by Kueue itself, on random trees: hack/oracle (`make oracle`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter import clusterqueue, cohort, flavor
from adapter.clusterqueue import QUEUE, UNREADABLE, Group, Queue, leads_to
from adapter.cohort import Cell, Forest, Line
from adapter.flavor import Flavor, Labels, Raw
from adapter.shape import PODS, UNLIMITED, Resources, as_text

__all__ = [
    "Resources", "Room", "Shortfall", "Survey", "Tree", "build", "charge", "emptied", "leads_to", "reclaimable", "room", "survey",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """One worker cluster's quota as its objects showed it, plus what was charged since; compared by identity."""

    queues: Mapping[str, Queue]
    flavors: Mapping[str, Flavor]
    forest: Forest
    read: Mapping[str, clusterqueue.Read] = field(default_factory=dict)  # what it was built from


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The resource that ends first, in the flavor looked at: amounts as in `shape.Resources`, `need` for one pod."""

    flavor: str
    resource: str
    free: int  # now, borrowing included
    total: int  # if nothing were in use
    need: int

    def __str__(self) -> str:
        free, total, need = (as_text(amount, self.resource) for amount in (self.free, self.total, self.need))
        have = f"{free} free of {total}" if self.need <= self.total else f"{total} at most"
        return f"{self.resource} in flavor {self.flavor}: {have}, one worker needs {need}"


@dataclass(frozen=True, slots=True)
class Room:
    """How many pods fit; UNLIMITED where no quota counts what they ask.

    `nominal + borrow` are admitted now without preemption, in `flavors` (resource -> flavor, as in a Workload's
    podSetAssignments; empty when none fits). `ever` would fit were nothing in use. `reason` is a sentence fragment when
    fewer fit than were wanted, else empty.
    """

    flavors: Mapping[str, str] = field(default_factory=dict)
    nominal: int = 0
    borrow: int = 0
    ever: int = 0
    tight: Shortfall | None = None
    reason: str = ""


class _Offer(NamedTuple):  # many are made for each plan, and a dataclass takes three times as long to make
    flavor: str
    needs: Resources
    fits: int = 0
    nominal: int = 0
    ever: int = 0
    tight: Shortfall | None = None
    refusal: str = ""


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
    return Tree(queues, known, forest, read)


@dataclass(frozen=True, slots=True)
class Survey:
    """What one ClusterQueue's flavors have for one pod shape, however many such pods are wanted: most of the work."""

    queue: Queue
    line: Line = ()
    groups: Sequence[Sequence[_Offer]] = ()  # by resource group, in the order of its flavors
    closed: str = ""  # why no pod fits, whatever is free

    def room(self, wanted: int) -> Room:
        """Say how many more such pods are admitted now as one podset; see `room`."""
        if self.closed:
            return Room(reason=self.closed)
        most = min((max(one.fits for one in group) for group in self.groups), default=UNLIMITED)
        ever = min((max(one.ever for one in group) for group in self.groups), default=UNLIMITED)
        wanted = max(wanted, 1)
        reason = "" if most >= wanted else _reason(self.groups, wanted)
        if most == 0:
            return Room(ever=ever, tight=_nearest(self.groups), reason=reason)
        chosen = [_chosen(self.queue, self.line, group, min(wanted, most)) for group in self.groups]
        return _open(chosen, ever, reason)

    def reclaimable(self, wanted: int) -> Room:
        """Say how many fit once Kueue has taken back what others borrowed of the queue; see `reclaimable`."""
        if self.closed or not self.queue.reclaims:
            return Room()
        chosen = [max(group, key=lambda offer: min(offer.nominal, wanted)) for group in self.groups]
        count = min((offer.nominal for offer in chosen), default=0)
        flavors = {name: offer.flavor for offer in chosen for name in offer.needs} if count else {}
        return Room(flavors, count, 0, count)


def survey(tree: Tree, queue: str, request: Resources, pod_spec: Raw, *, namespace: Labels | None = None) -> Survey:
    """Look at a ClusterQueue's flavors for a pod shape; parameters as of `room`."""
    found = tree.queues.get(queue) or Queue(queue, closed=f"ClusterQueue {queue} does not exist")
    closed = found.closed or _outside(found, namespace) or _uncovered(found, request)
    if closed:
        return Survey(found, closed=closed)
    line = cohort.line(tree.forest, (QUEUE, found.name))
    groups = [
        [_offer(line, found, tree.flavors[name], needs, pod_spec) for name in group.flavors]
        for group, needs in _shared_out(found, request)
    ]
    return Survey(found, line, groups)


def room(
    tree: Tree, queue: str, request: Resources, pod_spec: Raw, *, wanted: int = 1, namespace: Labels | None = None
) -> Room:
    """Say how many more pods that ask `request` each the ClusterQueue `queue` admits now as one podset.

    Per resource group the whole podset takes one flavor: the first, in the group's order, that the pod may use and
    where `wanted` pods fit; with whenCanBorrow TryNextFlavor the one that borrows from nearest, the first among equals.
    Where fewer than `wanted` fit anywhere, the same rule is followed for the most that do. As the choice depends on the
    count, ask with the count that is to be placed, and charge one podset before asking for the next. `namespace` is the
    labels of the pods' namespace; None skips the ClusterQueue's namespaceSelector. `pods: 1` is always asked.
    Source: pkg/scheduler/flavorassigner/flavorassigner.go findFlavorForPodSets, shouldTryNextFlavor, isPreferred.
    """
    return survey(tree, queue, request, pod_spec, namespace=namespace).room(wanted)


def reclaimable(
    tree: Tree, queue: str, request: Resources, pod_spec: Raw, *, wanted: int = 1, namespace: Labels | None = None
) -> Room:
    """Say how many such pods fit the queue's own unused nominal quota once Kueue has taken back what others borrowed of it.

    Only where reclaimWithinCohort is Any, for then no borrower's priority can prevent it; else no room. `nominal` is the
    count, `flavors` the first per resource group in which most of `wanted` fit; parameters as of `room`.
    Source: pkg/scheduler/preemption/preemption.go, a Workload within nominal quota may preempt those that borrow.
    """
    return survey(tree, queue, request, pod_spec, namespace=namespace).reclaimable(wanted)


def charge(tree: Tree, queue: str, room: Room, request: Resources, count: int) -> Tree:
    """Return the tree with `count` such pods reserved in the room's flavors; shares all but the path to the root.

    A Room without flavors, an unknown queue and one in a cycle change nothing: no room is there that could shrink.
    """
    key, needs = (QUEUE, queue), {**request, PODS: 1}
    amounts = {(of, name): min(needs.get(name, 0) * count, UNLIMITED) for name, of in room.flavors.items()}
    if key not in tree.forest.subtree or not amounts:
        return tree
    return Tree(tree.queues, tree.flavors, cohort.reserve(tree.forest, key, amounts))


def emptied(tree: Tree) -> Tree:
    """Return the tree as if nothing at all were in use."""
    return Tree(tree.queues, tree.flavors, cohort.emptied(tree.forest))


def _outside(queue: Queue, namespace: Labels | None) -> str:
    try:
        if namespace is None or flavor.selects(queue.namespaces, namespace):
            return ""
    except UNREADABLE as error:
        return f"the namespaceSelector of ClusterQueue {queue.name} cannot be read ({error})"
    return f"ClusterQueue {queue.name} does not select the namespace"


def _uncovered(queue: Queue, request: Resources) -> str:
    asked = (name for name, need in request.items() if need and name != PODS)
    left = sorted(name for name in asked if not any(name in group.resources for group in queue.groups))
    return f"ClusterQueue {queue.name} does not cover {', '.join(left)}" if left else ""


def _shared_out(queue: Queue, request: Resources) -> list[tuple[Group, dict[str, int]]]:
    """Which group pays for which resource: the first that covers it, as in Kueue."""
    left = {**request, PODS: 1}
    shares = []
    for group in queue.groups:
        needs = {name: left.pop(name) for name in sorted(left) if name in group.resources}
        if needs:
            shares.append((group, needs))
    return shares


def _offer(line: Line, queue: Queue, of: Flavor, needs: Resources, pod_spec: Raw) -> _Offer:
    try:
        refusal = flavor.refusal(of, pod_spec, queue.topology_only)
    except UNREADABLE as error:
        refusal = f"flavor {of.name} or the pod's scheduling rules cannot be read ({error})"
    if refusal:
        return _Offer(of.name, needs, refusal=refusal)
    rows = [_row(line, (of.name, resource), need) for resource, need in needs.items()]
    fits, _, resource, free, total = min(rows)[:5]
    return _Offer(
        flavor=of.name,
        needs=needs,
        fits=fits,
        nominal=min(row[-1] for row in rows),
        ever=min(row[1] for row in rows),
        tight=Shortfall(of.name, resource, free, total, needs[resource]),
    )


def _row(line: Line, cell: Cell, need: int) -> tuple[int, int, str, int, int, int]:
    """How many pods fit now, and ever; of which resource, how much of it is free, and there; how many fit nominal quota.

    So ordered that the least is what is tight.
    """
    free, total = max(0, cohort.available(line, cell)), max(0, cohort.potential(line, cell))
    return _times(free, need), _times(total, need), cell[1], free, total, _times(cohort.nominal_free(line, cell), need)


def _times(amount: int, need: int) -> int:
    return UNLIMITED if need == 0 or amount == UNLIMITED else amount // need


def _chosen(queue: Queue, line: Line, offers: Sequence[_Offer], count: int) -> _Offer:
    able = [offer for offer in offers if offer.fits >= count]
    return min(able, key=lambda offer: _level(line, offer, count)) if queue.next_before_borrowing else able[0]


def _level(line: Line, offer: _Offer, count: int) -> int:
    return max(
        cohort.borrowing_level(line, (offer.flavor, name), min(need * count, UNLIMITED))
        for name, need in offer.needs.items()
    )


def _open(chosen: Sequence[_Offer], ever: int, reason: str) -> Room:
    total = min((offer.fits for offer in chosen), default=UNLIMITED)
    # Others may have borrowed what is nominally free here, so nominal is no more than what fits.
    nominal = min([total, *(offer.nominal for offer in chosen)])
    flavors = {name: offer.flavor for offer in chosen for name in offer.needs}
    tight = next((offer.tight for offer in chosen if offer.fits == total != UNLIMITED), None)
    return Room(flavors, nominal, total - nominal, ever, tight, reason)


def _nearest(offers: Sequence[Sequence[_Offer]]) -> Shortfall | None:
    """Of the first group in which no pod fits, the flavor that could ever hold the most."""
    group = next(group for group in offers if all(offer.fits == 0 for offer in group))
    return max(group, key=lambda offer: (offer.tight is not None, offer.ever)).tight


def _reason(offers: Sequence[Sequence[_Offer]], wanted: int) -> str:
    """Explain the first group in which fewer than wanted fit, flavor by flavor."""
    group = next(group for group in offers if all(offer.fits < wanted for offer in group))
    return "; ".join(offer.refusal or str(offer.tight) for offer in group)
