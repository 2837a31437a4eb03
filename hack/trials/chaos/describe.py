"""What does one look show, for people who want to know why it is not as it must be? Pure; one line for each object."""

from collections.abc import Iterable, Iterator

from adapter import names
from adapter.objects.placement import placement
from adapter.objects.raw import Raw, is_true, label, meta, uid_of
from adapter.objects.workerpod import slot_of
from adapter.objects.workload import workload
from hack.trials.chaos.look import Sight


def text(sight: Sight) -> str:
    """All objects, the manager's first."""
    wanted = ", ".join(f"{name} {count}" for name, count in sight.wanted.items())
    return "\n".join([f"wanted: {wanted or 'nothing'}", "in the manager:", *_manager(sight), *_members(sight)])


def _manager(sight: Sight) -> Iterator[str]:
    yield from (f"  RayCluster {meta(job)['name']}{_leaving(job)}" for job in sight.jobs)
    for raw in sight.workloads:
        work = workload(raw)
        checks = ", ".join(f"{check.state}: {check.message}" for check in work.checks.values())
        yield f"  Workload {work.name} {_conditions(raw)} [{checks}]{_leaving(raw)}"
    for place in map(placement, sight.placements):
        shares = ", ".join(f"{share.workers} {share.cluster}" for share in place.shares)
        said = f"{place.status.get('state')}: {place.status.get('reason')}"
        yield f"  Placement {place.name} round {place.round} ({shares}) {said}"
    for pod in sight.pods:
        slot = slot_of(pod)
        yield f"  pod {meta(pod)['name']} {uid_of(pod)} {_phase(pod)} {slot}{_leaving(pod)}"


def _members(sight: Sight) -> Iterator[str]:
    for name, member in sight.members.items():
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
    return " ".join(kind for kind in shown if is_true(raw, kind)) or "not reserved"


def _phase(pod: Raw) -> str:
    return f"{(pod.get('status') or {}).get('phase')}{' ready' if is_true(pod, 'Ready') else ''}"


def _leaving(raw: Raw) -> str:
    return ", leaving" if meta(raw).get("deletionTimestamp") else ""
