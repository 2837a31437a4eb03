"""The input of the planner's bench: a fleet of any size, a gang that just fits, and gangs on their way. Pure.

The gang is hard to plan. It fills every cluster to the last pod: half from its queue's own quota, half borrowed from
the other end of the tree, in the second flavor because the first is used up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapter.objects.placement import GroupShare, Share
from adapter.objects.unstructured import Raw
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.quota import node_capacity, tree
from adapter.quota.node_capacity import NodeIndex

NAMESPACE = "demo"
_FLAVORS = ("spot", "reserved")
_RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
_SPANNED = 4  # clusters that a gang on its way spans: most jobs are small compared to the fleet
_TREES = 8  # different trees that the clusters share: as many as a processor's caches do not hold
_BRANCHES = 8  # cohorts or queues below each cohort
_CPU, _GPU = 1000, 1  # of each pod: millicores and devices


@dataclass(frozen=True, slots=True)
class Size:
    """A fleet and its gangs. `queues`, `depth` and `nodes` are those of each cluster, `pods` those of the gang."""

    pods: int = 10_000
    clusters: int = 100
    queues: int = 1000
    depth: int = 4  # cohorts above each queue
    groups: int = 4  # worker groups of every gang
    gangs: int = 32  # gangs with shares that no cluster's status shows yet
    nodes: int = 100
    reclaims: bool = False  # whether the gang's queues reclaim what others borrowed


@dataclass(frozen=True, slots=True)
class Fleet:
    """The input of a decision."""

    size: Size
    candidates: Sequence[Candidate]
    request: GangRequest
    in_flight: Sequence[tuple[GangRequest, tuple[Share, ...]]]


def make(size: Size) -> Fleet:
    """Build it; most of the time goes into the trees."""
    trees = [tree.build(*objects(size)) for _ in range(min(_TREES, size.clusters))]
    there = node_capacity.parse_nodes(node(number) for number in range(size.nodes))
    candidates = [_candidate(size, number, trees[number % len(trees)], there) for number in range(size.clusters)]
    return Fleet(size, candidates, _gang(0, size.pods, size.groups), [_in_flight(size, n) for n in range(size.gangs)])


def objects(size: Size) -> tuple[list[Raw], list[Raw], list[Raw]]:
    """One cluster's ClusterQueues, Cohorts and ResourceFlavors."""
    flavors: list[Raw] = [{"metadata": {"name": name}, "spec": {}} for name in _FLAVORS]
    return [_queue(size, number) for number in range(size.queues)], _cohorts(size), flavors


def _candidate(size: Size, number: int, of: tree.QuotaTree, there: NodeIndex) -> Candidate:
    queues = {(NAMESPACE, f"team-{n}"): (f"team-{n}", "") for n in range(size.queues)}
    return Candidate(f"cluster-{number}", "", of, queues, {NAMESPACE: {}}, nodes=there)


def _gang(queue: int, pods: int, groups: int) -> GangRequest:
    """Groups of equal size with different requests for memory, of which there is enough."""
    each = [pods // groups + (number < pods % groups) for number in range(groups)]
    asked = {"cpu": _CPU, "nvidia.com/gpu": _GPU, "pods": 1}
    return GangRequest(
        NAMESPACE,
        f"team-{queue}",
        tuple(GroupRequest(f"g{n}", f"g{n}", count, {}, {**asked, "memory": n + 1}) for n, count in enumerate(each)),
    )


def _in_flight(size: Size, number: int) -> tuple[GangRequest, tuple[Share, ...]]:
    """A gang of another queue with one worker of each group in each of a few clusters; quota for it is there."""
    request = _gang(1 + number % (size.queues - 2), _SPANNED * size.groups, size.groups)
    where = [(number * _SPANNED + offset) % size.clusters for offset in range(min(_SPANNED, size.clusters))]
    groups = tuple(GroupShare(group.name, group.role, 1) for group in request.groups)
    return request, tuple(Share(f"cluster-{index}", groups) for index in where)


def _queue(size: Size, number: int) -> Raw:
    """The first queue owns half of a cluster's part of the gang, the last one the rest; the others own what is on its
    way.
    """
    part = size.pods // size.clusters
    shared = {0: part // 2, size.queues - 1: part - part // 2}
    kept = {} if number in shared else {"lendingLimit": "0"}
    room = shared.get(number, _promised(size, number))
    spot, reserved = _FLAVORS
    flavors = [
        {"name": spot, "resources": [{"name": name, "nominalQuota": "8"} for name in _RESOURCES]},
        {"name": reserved, "resources": [_row(name, room) | kept for name in _RESOURCES]},
    ]
    return {
        "metadata": {"name": f"team-{number}"},
        "spec": {
            "cohortName": _cohort(size.depth - 1, number // _BRANCHES),
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any" if size.reclaims else "Never"},
            "resourceGroups": [{"coveredResources": list(_RESOURCES), "flavors": flavors}],
        },
        "status": {
            "flavorsReservation": [
                {"name": spot, "resources": [{"name": name, "total": "8"} for name in _RESOURCES]},
            ]
        },
    }


def _promised(size: Size, number: int) -> int:
    """How many workers of gangs on their way a cluster holds at most through one queue."""
    return sum(1 + gang % (size.queues - 2) == number for gang in range(size.gangs)) * size.groups


def _row(name: str, pods: int) -> dict[str, str]:
    return {"name": name, "nominalQuota": str(pods if name != "memory" else pods * 1000)}


def _cohorts(size: Size) -> list[Raw]:
    """Levels of cohorts, the root alone on the first, each below one of the level above."""
    found: list[Raw] = []
    count = -(-size.queues // _BRANCHES)
    for level in range(size.depth - 1, 0, -1):
        parents = -(-count // _BRANCHES)
        for number in range(count):
            spec = {"parentName": _cohort(level - 1, number // _BRANCHES)}
            found.append({"metadata": {"name": _cohort(level, number)}, "spec": spec})
        count = parents
    return found


def _cohort(level: int, number: int) -> str:
    return f"level-{level}-{number if level else 0}"


def node(number: int) -> Raw:
    """A node with room for many workers."""
    name = f"node-{number}"
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {
            "allocatable": {"cpu": "192", "memory": "2Ti", "nvidia.com/gpu": "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def one_more(request: GangRequest) -> GangRequest:
    """The gang with one worker more than there is room for."""
    *rest, last = request.groups
    return replace(request, groups=(*rest, replace(last, count=last.count + 1)))
