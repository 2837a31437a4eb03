"""Can anything at all be dispatched now, and what stands in the way of it?

A job needs one way: a ClusterQueue that lets jobs in, an AdmissionCheck of ours in it that is served, and a WorkerCluster of the check's
policy that takes workers. Whether there is quota for it is not asked. What could not be read must not be asked about: it would be taken
for missing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from adapter import names
from adapter.admission.policy import PolicyObjects, policy_of_check
from adapter.diagnosis.blocker import as_sentence
from adapter.diagnosis.job_document import Document
from adapter.objects import specs
from adapter.objects.admissioncheck import AdmissionCheck, read_check
from adapter.objects.queues import read_cluster_queue
from adapter.objects.unstructured import Raw, condition, is_condition_true, key_of, parse_time

_DISPATCHING_REASONS: Final = (
    names.ConditionReason.READY,
    names.ConditionReason.INVALID_QUEUE_LAYOUT,
)  # the reasons of an active AdmissionCheck by which jobs are dispatched
# A leader renews its Lease every few seconds, and another one takes it after 17 s. The rest is for clocks: that of whoever looks need not be
# that of whoever wrote. Where they differ by more, `is_renewed` tells.
_RENEWAL_OVERDUE_AFTER: Final = timedelta(minutes=1)
_NO_CLUSTER: Final = "there is no WorkerCluster; make one by `kubectl rayspan join`."
_NO_CHECK: Final = f"no ClusterQueue lists an AdmissionCheck of {names.CONTROLLER_NAME}; put one into a queue."
_LEASES: Final = "leases"  # who may not read these may know all the same
_PODS: Final = f"`kubectl -n {names.SYSTEM_NAMESPACE} get pods`"


@dataclass(frozen=True, slots=True)
class _DispatchPath:
    """An AdmissionCheck of ours that a ClusterQueue lists."""

    check: AdmissionCheck
    closed_reason: str  # why no job of it is dispatched whatever its clusters do, a part of a sentence with its end; empty: it is open
    clusters: tuple[str, ...] = ()


def stopped_reason(queues: Iterable[Raw], checks: Iterable[Raw], policy_objects: PolicyObjects) -> str:
    """Say in a sentence why no job at all can be dispatched now, empty where one could be, if there is quota for it."""
    known = [*queues]
    if not policy_objects.clusters:
        return f"Nothing can be dispatched: {_NO_CLUSTER}"
    takes = {key_of(raw)[1] for raw in policy_objects.clusters if _takes_workers(raw)}
    ways = [*_dispatch_paths(known, checks, policy_objects)]
    why = [_blocked_reason(way, takes) for way in ways]
    well = {way.check.name for way, closed in zip(ways, why, strict=True) if not closed}
    shut = [_queue_obstacle(queue) for queue in known if well.intersection(read_cluster_queue(queue).checks)]
    if "" in shut:
        return ""
    return f"Nothing can be dispatched: {next(iter([*shut, *why]), _NO_CHECK)}"


def obstacles(queues: Iterable[Raw], checks: Iterable[Raw], policy_objects: PolicyObjects) -> list[str]:
    """What is in the way of jobs, a sentence each with what to do, whether or not another way is open."""
    known = [*queues]
    ways = [*_dispatch_paths(known, checks, policy_objects)]
    ours = {way.check.name for way in ways}
    found = [_NO_CLUSTER] if not policy_objects.clusters else []
    found += [_NO_CHECK] if not ways else []
    found += [way.closed_reason for way in ways if way.closed_reason]
    found += [_queue_obstacle(queue) for queue in known if ours.intersection(read_cluster_queue(queue).checks)]
    found += [*_cluster_obstacles(ways, policy_objects)] if policy_objects.clusters else []
    return [f"{one[0].upper()}{one[1:]}" for one in dict.fromkeys(found) if one]


def describe_dispatch(
    queues: Sequence[Raw],
    checks: Sequence[Raw],
    policy_objects: PolicyObjects,
    no_leader_message: str,
    unread: Mapping[str, str],
    missing_kinds: Collection[str],
) -> Document:
    """Whether jobs can be dispatched, null where that is not known; names are camelCase and stay.

    `unread` says of each kind that could not be read what is not known for that; `lacks` are those of them that the cluster does not have.
    """
    blind = bool(unread.keys() - {_LEASES})
    first = [*([no_leader_message] if no_leader_message else []), *map(_unknown_kind_message, sorted(missing_kinds))]
    shut = bool(first) or (not blind and bool(stopped_reason(queues, checks, policy_objects)))
    return {
        "dispatches": False if shut else None if blind else True,
        "obstacles": [*first, *([] if blind else obstacles(queues, checks, policy_objects))],
        "notes": [said for kind, said in unread.items() if kind not in missing_kinds],
    }


def _unknown_kind_message(plural: str) -> str:
    return f"This cluster knows no {plural}: install Kueue and Rayspan in it, or name the manager by --context."


def no_leader_reason(lease: Raw, now: datetime) -> str:
    """Say in a sentence that no controller leads, by its Lease (empty: there is none); empty where one does."""
    spec = lease.get("spec") or {}
    renewed = parse_time(spec.get("renewTime"))
    if is_lease_held(lease) and renewed and abs(now - renewed) < _RENEWAL_OVERDUE_AFTER:
        return ""
    since = f" since {spec['renewTime']}" if renewed else ""
    return f"No controller leads{since} (Lease {names.SYSTEM_NAMESPACE}/{names.LEASE}); see {_PODS}."


def is_lease_held(lease: Raw) -> bool:
    """Whether somebody holds it, or did until he ended."""
    return bool((lease.get("spec") or {}).get("holderIdentity"))


def is_lease_renewed(previous: Raw, current: Raw) -> bool:
    """Whether somebody who holds it has renewed it in between, whatever the clocks say."""
    had, has = ((lease.get("spec") or {}).get("renewTime") for lease in (previous, current))
    return is_lease_held(current) and has != had


def _dispatch_paths(
    queues: Iterable[Raw], checks: Iterable[Raw], policy_objects: PolicyObjects
) -> Iterator[_DispatchPath]:
    listed = {name for queue in queues for name in read_cluster_queue(queue).checks}
    for check in sorted(map(read_check, checks), key=lambda check: check.name):
        if check.is_ours and check.name in listed:
            yield _dispatch_path(check, policy_objects)


def _dispatch_path(check: AdmissionCheck, policy_objects: PolicyObjects) -> _DispatchPath:
    if not check.active or check.reason not in _DISPATCHING_REASONS:
        return _DispatchPath(
            check, f"AdmissionCheck {check.name}: {check.message or 'the controller has said nothing of it.'}"
        )
    try:
        return _DispatchPath(check, "", policy_of_check(check, policy_objects).clusters)
    except specs.InvalidSpec as error:
        return _DispatchPath(check, str(error))


def _blocked_reason(path: _DispatchPath, accepting_clusters: set[str]) -> str:
    """Why no job of this check is dispatched, a part of a sentence with its end."""
    if path.closed_reason or accepting_clusters.intersection(path.clusters):
        return path.closed_reason
    where = f"{names.DISPATCH_POLICY_KIND} {path.check.policy}"
    return f"none of {', '.join(path.clusters)} of {where} is connected and takes new workers; see `kubectl get workerclusters -o wide`."


def _queue_obstacle(queue: Raw) -> str:
    """Why Kueue lets no job into a ClusterQueue, empty where it does or has not said."""
    told = condition(queue, names.ACTIVE)
    if told.get("status") != "False":
        return ""
    said = as_sentence(str(told.get("message") or told.get("reason") or ""))
    return f"ClusterQueue {key_of(queue)[1]} lets no job in; Kueue says: {said}"


def _takes_workers(cluster: Raw) -> bool:
    return not (_cordon_state(cluster) or _is_disconnected(cluster))


def _cordon_state(cluster: Raw) -> str:
    """What an admin has asked for by which no new workers go there, in a word."""
    spec = cluster.get("spec") or {}
    return "draining" if spec.get("draining") else "cordoned" if spec.get("cordoned") else ""


def _is_disconnected(cluster: Raw) -> bool:
    found = condition(cluster, names.CONNECTED)
    # Another reason says why none go there, but where work goes on without a claim: the condition Ready tells these two apart.
    unclaimed = (names.ConditionReason.NOT_CLAIMED,) if is_condition_true(cluster, names.READY) else ()
    reasons = (names.ConditionReason.CONNECTED, *unclaimed)
    return found.get("status") != "True" or found.get("reason") not in reasons


def _cluster_obstacles(paths: Iterable[_DispatchPath], policy_objects: PolicyObjects) -> Iterator[str]:
    """What keeps workers from each cluster that some policy names."""
    known: Mapping[str, Raw] = {key_of(raw)[1]: raw for raw in policy_objects.clusters}
    for way in paths:
        for name in way.clusters:
            if name in known:
                yield _cluster_obstacle(name, known[name])
            else:
                where = f"{names.DISPATCH_POLICY_KIND} {way.check.policy}"
                yield f"{where} names WorkerCluster {name}, which does not exist; make it by `kubectl rayspan join {name}`."


def _cluster_obstacle(name: str, raw: Raw) -> str:
    if closed := _cordon_state(raw):
        return f"WorkerCluster {name} is {closed}; `kubectl rayspan uncordon {name}` lets new workers go there again."
    if not _is_disconnected(raw):
        return ""
    found = condition(raw, names.CONNECTED)
    said = as_sentence(str(found.get("message") or "")) or f"the controller has said nothing of it; see {_PODS}."
    return f"WorkerCluster {name} takes no workers ({found.get('reason') or 'Unknown'}): {said}"
