"""One read of all that the clusters hold of a stage's gangs, and of how far each gang is. It judges nothing.

The lists of one read are not of one instant. Together they may show half of a change; judges read again.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.placement import PlacementState, parse_placement
from adapter.objects.unstructured import is_condition_true, label, meta, uid_of
from adapter.objects.worker_pod import slot_of
from adapter.objects.workload import parse_workload
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage
from hack.trials.chaos import borrowing
from hack.trials.chaos.draw import MOMENTS


@dataclass(frozen=True, slots=True)
class Member:
    """One worker cluster: our objects in the stage's namespace, all of its Workloads, and its ClusterQueues."""

    pods: list[Raw] = field(default_factory=list)
    shares: list[Raw] = field(default_factory=list)
    anchors: list[Raw] = field(default_factory=list)
    workloads: list[Raw] = field(default_factory=list)
    queue: Raw = field(default_factory=dict)
    owner_queue: Raw = field(default_factory=dict)  # {} where gangs borrow from no one


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The stage over all clusters; `wanted` is the number of workers that each gang must run, `rejected` the names of
    jobs that KubeRay rejects.
    """

    wanted: Mapping[str, int]
    rejected: Collection[str] = ()
    jobs: list[Raw] = field(default_factory=list)
    pods: list[Raw] = field(default_factory=list)
    workloads: list[Raw] = field(default_factory=list)
    placements: list[Raw] = field(default_factory=list)
    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def workers(self) -> list[Raw]:
        """The manager's worker pods."""
        return [pod for pod in self.pods if label(pod, names.RAY_NODE_TYPE_LABEL) == "worker"]

    @property
    def heads(self) -> list[Raw]:
        return [pod for pod in self.pods if label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD]


def take(stage: Stage, wanted: Mapping[str, int], rejected: Collection[str] = ()) -> Snapshot:
    """Read every cluster; raises Unreachable where one does not answer.

    The manager is read last: what stands in a worker cluster without a reason in the manager is then an orphan, and not
    merely newer than what was read of the manager.
    """
    members = {name: _member(stage, name) for name in stage.clusters}
    manager = stage.manager
    return Snapshot(
        wanted=dict(wanted),
        rejected=frozenset(rejected),
        jobs=manager.items("rayclusters", stage.name),
        pods=manager.items("pods", stage.name),
        workloads=manager.items("workloads", stage.name),
        placements=manager.items("placements", stage.name),
        members=members,
    )


def _member(stage: Stage, name: str) -> Member:
    cluster = stage.fleet.workers[name]
    workloads = cluster.items("workloads", stage.name)
    return Member(
        pods=cluster.items("pods", stage.name, names.MANAGER_LABEL),
        shares=[one for one in workloads if label(one, names.MANAGER_LABEL)],
        anchors=cluster.items("configmaps", stage.name, names.MANAGER_LABEL),
        workloads=workloads,
        queue=cluster.get("clusterqueues", stage.name),
        owner_queue=cluster.get("clusterqueues", borrowing.owner_name(stage)),
    )


def reached(moment: str, gang: str, snapshot: Snapshot) -> bool:
    """Whether a gang has come to one of draw.MOMENTS, or beyond it."""
    return _moment(gang, snapshot) >= MOMENTS.index(moment)


def _moment(gang: str, snapshot: Snapshot) -> int:
    uids = {work.uid for work in map(parse_workload, snapshot.workloads) if work.job and work.job.name == gang}
    places = [place for place in map(parse_placement, snapshot.placements) if place.workload_uid in uids]
    called = {place.name for place in places}
    ours = [one for member in snapshot.members.values() for one in (*member.pods, *member.shares)]
    mine = [one for one in ours if label(one, names.PLACEMENT_LABEL) in called]
    passed = {
        "submitted": any(meta(job).get("name") == gang for job in snapshot.jobs),
        "planned": any(place.shares for place in places),
        "reserved": bool(mine),
        "placed": any(place.status.get("state") == PlacementState.PLACED for place in places),
        "dispatched": any(label(one, names.POD_UID_LABEL) for one in mine),
    }
    return max((MOMENTS.index(moment) for moment, yes in passed.items() if yes), default=-1)


def text(snapshot: Snapshot) -> str:
    """All objects, the manager's first."""
    wanted = ", ".join(f"{name} {count}" for name, count in snapshot.wanted.items())
    return "\n".join([f"wanted: {wanted or 'nothing'}", "in the manager:", *_manager(snapshot), *_members(snapshot)])


def _manager(snapshot: Snapshot) -> Iterator[str]:
    yield from (f"  RayCluster {meta(job)['name']}{_leaving(job)}" for job in snapshot.jobs)
    for raw in snapshot.workloads:
        work = parse_workload(raw)
        checks = ", ".join(f"{check.state}: {check.message}" for check in work.checks.values())
        yield f"  Workload {work.name} {_conditions(raw)} [{checks}]{_leaving(raw)}"
    for place in map(parse_placement, snapshot.placements):
        shares = ", ".join(f"{share.workers} {share.cluster}" for share in place.shares)
        said = f"{place.status.get('state')}: {place.status.get('reason')}"
        yield f"  Placement {place.name} round {place.round} ({shares}) {said}"
    for pod in snapshot.pods:
        slot = slot_of(pod) or ""
        yield f"  pod {meta(pod)['name']} {uid_of(pod)} {_phase(pod)} {slot}{_leaving(pod)}"


def _members(snapshot: Snapshot) -> Iterator[str]:
    for name, member in snapshot.members.items():
        yield f"in {name}:"
        reserved = (member.queue.get("status") or {}).get("flavorsReservation")
        yield f"  ClusterQueue reserves {reserved}"
        yield from (f"  Workload {meta(raw)['name']} {_conditions(raw)}{_leaving(raw)}" for raw in member.workloads)
        yield from _named("anchor", member.anchors)
        for pod in member.pods:
            of = label(pod, names.POD_UID_LABEL)
            yield f"  pod {meta(pod)['name']} of {of} {_phase(pod)}{_leaving(pod)}"


def _named(kind: str, objects: Iterable[Raw]) -> Iterator[str]:
    yield from (f"  {kind} {meta(raw)['name']}{_leaving(raw)}" for raw in objects)


def _conditions(raw: Raw) -> str:
    shown = (names.QUOTA_RESERVED, names.ADMITTED, names.EVICTED, names.FINISHED)
    return " ".join(kind for kind in shown if is_condition_true(raw, kind)) or "not reserved"


def _phase(pod: Raw) -> str:
    return f"{(pod.get('status') or {}).get('phase')}{' ready' if is_condition_true(pod, 'Ready') else ''}"


def _leaving(raw: Raw) -> str:
    return ", leaving" if meta(raw).get("deletionTimestamp") else ""
