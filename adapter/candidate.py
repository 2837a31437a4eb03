"""What is to be placed, and what does each worker cluster offer for it? The planner's input, and its filter.

A candidate that cannot take part has a reason instead of an offer; nothing here chooses between those that can.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    def by_role(self) -> tuple[Group, ...]:
        """The groups in the order in which a worker cluster's Kueue goes through those of a share."""
        return tuple(sorted(self.groups, key=lambda group: group.role))

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
    taken_back: int = 0  # of the total, those that need what others borrowed


def closed(request: Request, candidate: Candidate) -> str:
    """Why a candidate cannot take any worker of this gang, empty when it can: the filter."""
    if candidate.problem:
        return candidate.problem
    if request.namespace not in candidate.namespaces:
        return f"no namespace {request.namespace} there: create it, with a LocalQueue {request.queue}"
    if (request.namespace, request.queue) not in candidate.queues:
        return f"no LocalQueue {request.queue} in namespace {request.namespace} there: create it"
    return candidate.queues[request.namespace, request.queue][1]


def queue_name(request: Request, candidate: Candidate) -> str:
    """The ClusterQueue behind the gang's LocalQueue there, empty when there is none."""
    return candidate.queues.get((request.namespace, request.queue), ("", ""))[0]


def reclaims(request: Request, candidate: Candidate) -> bool:
    """Whether the queue there may take back what others borrowed of it."""
    queue = queue_name(request, candidate)
    return queue in candidate.tree.queues and candidate.tree.queues[queue].reclaims


class Offers:
    """What candidates offer one gang. A plan asks the same over and over: each answer is found once per state of a quota."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._surveys: dict[tuple[str, quota.Tree, str], quota.Survey] = {}
        self._nodes: dict[tuple[str, str, tuple[str, ...]], tuple[int, str]] = {}
        self._offers: dict[tuple[str, quota.Tree, str], Offer] = {}
        self._charged: dict[tuple[str, quota.Tree, str, int], quota.Tree] = {}

    def reclaiming(self) -> "Offers":
        """The same for a gang that takes back what others borrowed; what both ask alike is not asked again."""
        other = Offers(replace(self.request, reclaims=True))
        other._surveys, other._nodes, other._charged = self._surveys, self._nodes, self._charged
        return other

    def of(self, candidate: Candidate, tree: quota.Tree, group: Group) -> Offer:
        """Say how many pods of a group, up to all, the candidate could take, were its quota as in `tree`."""
        key = (candidate.name, tree, group.name)
        if key not in self._offers:
            self._offers[key] = self._offer(candidate, tree, group)
        return self._offers[key]

    def charge(self, candidate: Candidate, tree: quota.Tree, group: Group, count: int) -> quota.Tree:
        """The tree once `count` pods of the group are reserved there."""
        key = (candidate.name, tree, group.name, count)
        if key not in self._charged:
            survey = self._survey(candidate, tree, group)
            # Which flavor Kueue takes depends on how many pods want to go into one: ask for these very ones.
            room = survey.room(count)
            if room.nominal + room.borrow < count:
                room = survey.reclaimable(count)
            self._charged[key] = quota.charge(tree, survey.queue.name, room, group.request, count)
        return self._charged[key]

    def admits(self, candidate: Candidate, counts: Mapping[str, int]) -> bool:
        """Whether the cluster's Kueue admits a share at its first try: group by group by role, each in what those before it
        left. At a later try it may admit more (see quota.py)."""
        tree, groups = candidate.tree, [group for group in self.request.by_role if counts.get(group.name)]
        for group in groups:
            if self.of(candidate, tree, group).total < counts[group.name]:
                return False
            if group is not groups[-1]:
                tree = self.charge(candidate, tree, group, counts[group.name])
        return True

    def _offer(self, candidate: Candidate, tree: quota.Tree, group: Group) -> Offer:
        if group.zone and group.zone != candidate.zone:
            return Offer(reason=f"worker group {group.name} asks for zone {group.zone}, this is {candidate.zone}")
        survey = self._survey(candidate, tree, group)
        room = survey.room(group.count)
        held, short = self._held(candidate, tree, group, room)
        total = room.nominal + room.borrow
        free, free_now = total, min(total, held)
        now = free_now
        if self.request.reclaims:
            back = survey.reclaimable(group.count)
            total = max(total, back.nominal)
            # Nobody shall lose a pod for one that no node there could hold.
            now = max(now, min(back.nominal, self._held(candidate, tree, group, back)[0]))
        if candidate.can_grow or candidate.nodes is None:
            return Offer(room.nominal, total, room.ever, now, room.reason, total - free)
        reason = room.reason or short
        return Offer(min(room.nominal, held), now, min(room.ever, held), now, reason, now - free_now)

    def _survey(self, candidate: Candidate, tree: quota.Tree, group: Group) -> quota.Survey:
        key = (candidate.name, tree, group.name)
        if key not in self._surveys:
            queue = queue_name(self.request, candidate)
            labels = candidate.namespaces[self.request.namespace]
            self._surveys[key] = quota.survey(tree, queue, group.request, group.pod_spec, namespace=labels)
        return self._surveys[key]

    def _held(self, candidate: Candidate, tree: quota.Tree, group: Group, room: quota.Room) -> tuple[int, str]:
        """How many pods today's nodes could hold were they empty, and why fewer than wanted.

        More than wanted are counted only where the most room is asked for.
        """
        if candidate.nodes is None or not room.flavors:
            return UNLIMITED, ""
        key = (candidate.name, group.name, tuple(dict.fromkeys(room.flavors.values())))
        if key not in self._nodes:
            flavors = [tree.flavors[name] for name in key[-1]]
            wanted = UNLIMITED if self.request.strategy == "AvailableCapacity" else group.count
            self._nodes[key] = node_room.hold(candidate.nodes, group.pod_spec, group.request, flavors, wanted)
        return self._nodes[key]
