"""What is to be placed, and what does each worker cluster offer for it? The planner's input, and its filter.

A candidate that cannot take part has a reason instead of an offer; nothing here chooses between those that can.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from adapter import nodes as node_room
from adapter import quota
from adapter.facts import Key, Raw
from adapter.shape import UNLIMITED

Strategy = Literal["FillInOrder", "AvailableCapacity", "Spread"]
Gang = Literal["AllOrNothing", "SameCluster", "BestEffort"]


@dataclass(frozen=True, slots=True)
class Group:
    """One worker group as it is to be reserved: `pod_spec` is the remote one, `request` what one pod asks of quota."""

    name: str
    role: str
    count: int
    pod_spec: Raw
    request: quota.Resources
    zone: str = ""  # the only zone that it may run in; empty: any


@dataclass(frozen=True, slots=True)
class Request:
    """A gang that wants to be placed, and how its policy wants that done."""

    namespace: str
    queue: str
    groups: tuple[Group, ...]
    strategy: Strategy = "FillInOrder"
    gang: Gang = "AllOrNothing"
    minimum: int = 0  # workers that a BestEffort gang needs at least
    reclaims: bool = False  # whether quota that others borrowed counts, too

    @property
    def workers(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def needed(self) -> int:
        """How many workers must fit at once."""
        return min(self.minimum, self.workers) if self.gang == "BestEffort" else self.workers


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker cluster as the planner sees it; `problem` says why it cannot take part now."""

    name: str
    problem: str
    tree: quota.Tree
    queues: Mapping[Key, tuple[str, str]]  # LocalQueue -> its ClusterQueue, and why it takes nothing (empty: it does)
    namespaces: Mapping[str, Mapping[str, str]]  # name -> its labels
    zone: str = ""
    nodes: Sequence[node_room.Node] | None = None  # None: not known, so nothing is concluded from them
    can_grow: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """What one candidate has for one group: pods that fit nominal quota, with borrowing, ever, and on today's nodes."""

    nominal: int = 0
    total: int = 0
    ever: int = 0
    now: int = 0
    reason: str = ""  # why fewer fit than were asked for, else empty


def closed(request: Request, candidate: Candidate) -> str:
    """Why a candidate cannot take any worker of this gang, empty when it can: the filter."""
    if candidate.problem:
        return candidate.problem
    if request.namespace not in candidate.namespaces:
        return f"no namespace {request.namespace} there: create it, with a LocalQueue {request.queue}"
    if (request.namespace, request.queue) not in candidate.queues:
        return f"no LocalQueue {request.queue} in namespace {request.namespace} there: create it"
    return candidate.queues[request.namespace, request.queue][1]


def offer(request: Request, candidate: Candidate, tree: quota.Tree, group: Group, wanted: int) -> Offer:
    """Say how many of `wanted` pods of a group the candidate could take, were its quota as in `tree`."""
    if group.zone and group.zone != candidate.zone:
        return Offer(reason=f"worker group {group.name} asks for zone {group.zone}, this is {candidate.zone}")
    room = _room(request, candidate, tree, group, wanted)
    held, short = _held(candidate, tree, group, room, wanted)
    free = room.nominal + room.borrow
    total = max(free, _reclaimable(request, candidate, tree, group, wanted).nominal) if request.reclaims else free
    now = min(total, held)
    if candidate.can_grow or candidate.nodes is None:
        return Offer(room.nominal, total, room.ever, now, room.reason)
    return Offer(min(room.nominal, held), now, min(room.ever, held), now, room.reason or short)


def charge(request: Request, candidate: Candidate, tree: quota.Tree, group: Group, count: int) -> quota.Tree:
    """The tree once `count` pods of the group are reserved there."""
    queue, _ = candidate.queues[request.namespace, request.queue]
    # Which flavor Kueue takes depends on how many pods want to go into one: ask for these very ones.
    room = _room(request, candidate, tree, group, count)
    if room.nominal + room.borrow < count:
        room = _reclaimable(request, candidate, tree, group, count)
    return quota.charge(tree, queue, room, group.request, count)


def _room(request: Request, candidate: Candidate, tree: quota.Tree, group: Group, wanted: int) -> quota.Room:
    queue, _ = candidate.queues[request.namespace, request.queue]
    labels = candidate.namespaces[request.namespace]
    return quota.room(tree, queue, group.request, group.pod_spec, wanted=wanted, namespace=labels)


def _reclaimable(request: Request, candidate: Candidate, tree: quota.Tree, group: Group, wanted: int) -> quota.Room:
    queue, _ = candidate.queues[request.namespace, request.queue]
    labels = candidate.namespaces[request.namespace]
    return quota.reclaimable(tree, queue, group.request, group.pod_spec, wanted=wanted, namespace=labels)


def _held(candidate: Candidate, tree: quota.Tree, group: Group, room: quota.Room, wanted: int) -> tuple[int, str]:
    """How many pods today's nodes could hold were they empty, and why fewer than wanted."""
    if candidate.nodes is None or not room.flavors:
        return UNLIMITED, ""
    flavors = [tree.flavors[name] for name in dict.fromkeys(room.flavors.values())]
    return node_room.hold(candidate.nodes, group.pod_spec, group.request, flavors, wanted)
