"""Decides whether any job can be dispatched now, and lists the obstacles.

A job needs an active ClusterQueue with a served AdmissionCheck of ours, and a WorkerCluster of the check's policy that
accepts workers. Quota is ignored. If an object was not readable and so is not passed, it counts as missing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from adapter import names
from adapter.admission.policy import PolicyObjects, policy_of_check
from adapter.admission.readiness import start_timeout_warning
from adapter.diagnosis.blocker import as_sentence
from adapter.diagnosis.job_document import Document
from adapter.objects import queue_settings, specs
from adapter.objects.admissioncheck import AdmissionCheck, read_check
from adapter.objects.queues import read_cluster_queue
from adapter.objects.unstructured import Raw, condition, is_condition_true, key_of, parse_time

# An active AdmissionCheck with one of these reasons dispatches jobs.
_DISPATCHING_REASONS: Final = (names.ConditionReason.READY, names.ConditionReason.INVALID_QUEUE_LAYOUT)
# A Lease that was not renewed for this long has no leader. A replica takes over after 17 s; the rest allows for clock
# skew. If clocks may differ more, use is_lease_renewed.
_RENEWAL_OVERDUE_AFTER: Final = timedelta(minutes=1)
_NO_CLUSTER: Final = "there is no WorkerCluster; create one with `kubectl rayspan join`."
_NO_CHECK: Final = f"no ClusterQueue lists an AdmissionCheck of {names.CONTROLLER_NAME}; add one to a queue."
_LEASES: Final = "leases"  # a kind: if only Leases are unread, the answer is still known
_PODS: Final = f"`kubectl -n {names.SYSTEM_NAMESPACE} get pods`"


@dataclass(frozen=True, slots=True)
class _DispatchPath:
    """A listed AdmissionCheck of ours, with the WorkerClusters of its policy."""

    check: AdmissionCheck
    closed_reason: str  # why the check itself dispatches no job, as the end of a sentence; or empty
    clusters: tuple[str, ...] = ()


def stopped_reason(queues: Iterable[Raw], checks: Iterable[Raw], policy_objects: PolicyObjects) -> str:
    """A sentence why no job can be dispatched now; empty if a job could be dispatched, given quota."""
    all_queues = [*queues]
    if not policy_objects.clusters:
        return f"Nothing can be dispatched: {_NO_CLUSTER}"
    accepting_clusters = {key_of(raw)[1] for raw in policy_objects.clusters if _takes_workers(raw)}
    paths = [*_dispatch_paths(all_queues, checks, policy_objects)]
    reasons = [_blocked_reason(path, accepting_clusters) for path in paths]
    open_checks = {path.check.name for path, reason in zip(paths, reasons, strict=True) if not reason}
    queue_obstacles = [
        _queue_obstacle(queue) for queue in all_queues if open_checks.intersection(read_cluster_queue(queue).checks)
    ]
    if "" in queue_obstacles:
        return ""
    return f"Nothing can be dispatched: {next(iter([*queue_obstacles, *reasons]), _NO_CHECK)}"


def obstacles(queues: Iterable[Raw], checks: Iterable[Raw], policy_objects: PolicyObjects) -> list[str]:
    """All obstacles, also if another path is open; a sentence each, with advice."""
    all_queues = [*queues]
    paths = [*_dispatch_paths(all_queues, checks, policy_objects)]
    check_names = {path.check.name for path in paths}
    messages = [_NO_CLUSTER] if not policy_objects.clusters else []
    messages += [_NO_CHECK] if not paths else []
    messages += [path.closed_reason for path in paths if path.closed_reason]
    messages += [
        _queue_obstacle(queue) for queue in all_queues if check_names.intersection(read_cluster_queue(queue).checks)
    ]
    messages += [*_cluster_obstacles(paths, policy_objects)] if policy_objects.clusters else []
    return [f"{message[0].upper()}{message[1:]}" for message in dict.fromkeys(messages) if message]


def queue_notes(queues: Iterable[Raw], checks: Iterable[Raw]) -> list[str]:
    """What Rayspan does not reckon with in the manager's queues with a check of ours."""
    controllers = {check.name: check.controller for check in map(read_check, checks)}
    notes = []
    for queue in sorted(queues, key=key_of):
        if any(controllers.get(name) == names.CONTROLLER_NAME for name in read_cluster_queue(queue).checks):
            notes += [*queue_settings.manager_queue_notes(queue, controllers), queue_settings.version_note(queue)]
    return [note for note in notes if note]


def _policy_notes(policy_objects: PolicyObjects) -> Iterator[str]:
    for _, policy in sorted(policy_objects.policies.items()):
        if warning := start_timeout_warning(policy, policy_objects):
            yield warning


def describe_dispatch(
    queues: Sequence[Raw],
    checks: Sequence[Raw],
    policy_objects: PolicyObjects,
    no_leader_message: str,
    unread: Mapping[str, str],
    missing_kinds: Collection[str],
) -> Document:
    """A document that says whether jobs can be dispatched (null if unknown), with obstacles and notes.

    Programs read its field names.

    `unread` maps the plural of each unread kind to a sentence; the cluster does not serve `missing_kinds` of them.
    """
    incomplete = bool(unread.keys() - {_LEASES})
    blockers = [*([no_leader_message] if no_leader_message else []), *map(_unknown_kind_message, sorted(missing_kinds))]
    stopped = bool(blockers) or (not incomplete and bool(stopped_reason(queues, checks, policy_objects)))
    return {
        "dispatches": False if stopped else None if incomplete else True,
        "obstacles": [*blockers, *([] if incomplete else obstacles(queues, checks, policy_objects))],
        "notes": [
            *queue_notes(queues, checks),
            *filter(None, map(_missing_names_note, policy_objects.clusters)),
            *filter(None, map(_relay_note, policy_objects.clusters)),
            *_policy_notes(policy_objects),
            *(note for kind, note in unread.items() if kind not in missing_kinds),
        ],
    }


def _missing_names_note(cluster: Raw) -> str:
    """What the last preflight missed of what a WorkerCluster names for its pods; empty if it missed nothing."""
    exist = condition(cluster, names.NAMES_EXIST)
    if exist.get("status") != "False":
        return ""
    return f"The last preflight found: {exist.get('message')} Then run `kubectl rayspan preflight` again."


def _relay_note(cluster: Raw) -> str:
    """Which jobs run with another key or address of the relay than new ones; empty if none does."""
    current = condition(cluster, names.RELAY_CURRENT)
    if current.get("status") != "False":
        return ""
    return f"WorkerCluster {key_of(cluster)[1]}: {current.get('message')}"


def _unknown_kind_message(plural: str) -> str:
    return f"This cluster does not serve {plural}: install Kueue and Rayspan in it, or name the manager with --context."


def no_leader_reason(lease: Raw, now: datetime) -> str:
    """A sentence if no controller leads, else empty; `lease` is empty if there is none."""
    spec = lease.get("spec") or {}
    renewed = parse_time(spec.get("renewTime"))
    if is_lease_held(lease) and renewed and abs(now - renewed) < _RENEWAL_OVERDUE_AFTER:
        return ""
    since = f" since {spec['renewTime']}" if renewed else ""
    return f"No controller leads{since} (Lease {names.SYSTEM_NAMESPACE}/{names.LEASE}); see {_PODS}."


def is_lease_held(lease: Raw) -> bool:
    """Whether the Lease names a holder, which may have exited."""
    return bool((lease.get("spec") or {}).get("holderIdentity"))


def is_lease_renewed(previous: Raw, current: Raw) -> bool:
    """Whether a holder renewed the Lease between two reads, whatever the clocks say."""
    previous_time, current_time = ((lease.get("spec") or {}).get("renewTime") for lease in (previous, current))
    return is_lease_held(current) and current_time != previous_time


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
            check, f"AdmissionCheck {check.name}: {check.message or 'the controller has not reported on it.'}"
        )
    try:
        return _DispatchPath(check, "", policy_of_check(check, policy_objects).clusters)
    except specs.InvalidSpec as error:
        return _DispatchPath(check, str(error))


def _blocked_reason(path: _DispatchPath, accepting_clusters: set[str]) -> str:
    """Why the check or its clusters take no job, as the end of a sentence; or empty."""
    if path.closed_reason or accepting_clusters.intersection(path.clusters):
        return path.closed_reason
    where = f"{names.DISPATCH_POLICY_KIND} {path.check.policy}"
    return (
        f"none of {', '.join(path.clusters)} of {where} is connected and takes new workers; "
        "see `kubectl get workerclusters -o wide`."
    )


def _queue_obstacle(queue: Raw) -> str:
    """Why the ClusterQueue is not active, or empty."""
    active = condition(queue, names.ACTIVE)
    if active.get("status") != "False":
        return ""
    message = as_sentence(str(active.get("message") or active.get("reason") or ""))
    return f"ClusterQueue {key_of(queue)[1]} admits no jobs; Kueue reports: {message}"


def _takes_workers(cluster: Raw) -> bool:
    return not (_cordon_state(cluster) or _is_disconnected(cluster))


def _cordon_state(cluster: Raw) -> str:
    spec = cluster.get("spec") or {}
    return "draining" if spec.get("draining") else "cordoned" if spec.get("cordoned") else ""


def _is_disconnected(cluster: Raw) -> bool:
    connected = condition(cluster, names.CONNECTED)
    # NotClaimed closes a cluster only if it is not Ready: a Ready cluster accepts workers without a claim.
    unclaimed = (names.ConditionReason.NOT_CLAIMED,) if is_condition_true(cluster, names.READY) else ()
    reasons = (names.ConditionReason.CONNECTED, *unclaimed)
    return connected.get("status") != "True" or connected.get("reason") not in reasons


def _cluster_obstacles(paths: Iterable[_DispatchPath], policy_objects: PolicyObjects) -> Iterator[str]:
    worker_clusters: Mapping[str, Raw] = {key_of(raw)[1]: raw for raw in policy_objects.clusters}
    for path in paths:
        for name in path.clusters:
            if name in worker_clusters:
                yield _cluster_obstacle(name, worker_clusters[name])
            else:
                where = f"{names.DISPATCH_POLICY_KIND} {path.check.policy}"
                yield (
                    f"{where} names WorkerCluster {name}, which does not exist; create it with `kubectl "
                    f"rayspan join {name}`."
                )


def _cluster_obstacle(name: str, raw: Raw) -> str:
    if state := _cordon_state(raw):
        return f"WorkerCluster {name} is {state}; `kubectl rayspan uncordon {name}` lets new workers go there again."
    if not _is_disconnected(raw):
        return ""
    connected = condition(raw, names.CONNECTED)
    message = as_sentence(str(connected.get("message") or "")) or f"the controller has not reported on it; see {_PODS}."
    return f"WorkerCluster {name} takes no workers ({connected.get('reason') or 'Unknown'}): {message}"
