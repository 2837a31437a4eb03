"""What does a manager's gated pod say of itself while its copy runs elsewhere?

What the copy says, field by field, except where the API server or the manager's own controllers would stumble over it
(kuberay.md section 2.8). Every function gives the whole difference or nothing, so a burst of equal events costs no
write. They do not judge whether the copy is alive: they are told.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from adapter import names
from adapter.objects.raw import Raw, condition, is_true, meta, uid_of
from adapter.worker import trouble
from adapter.worker.restart import may_restart

# Never qosClass: it is immutable, and the copy's differs as soon as that cluster's LimitRange adds a default.
MIRRORED = (
    "phase", "conditions", "containerStatuses", "initContainerStatuses",
    "podIP", "podIPs", "hostIP", "hostIPs", "startTime", "reason", "message",
)  # fmt: skip
SCHEDULED = "PodScheduled"
READINESS = ("Ready", "ContainersReady")
OVER = ("Succeeded", "Failed")


def status_patch(local: Raw, remote: Raw, cluster: str) -> dict[str, Any] | None:
    """Give the JSON merge-patch for the manager pod's status subresource, or None when nothing would change.

    The pod's uid is in it as a precondition: for a namesake the API server answers 422, `metadata.uid: field is
    immutable`. A pod that is being deleted or is over gets none: podgc and KubeRay write the last word there
    (kuberay.md section 3.2).
    """
    if _is_over(local):
        return None
    status = remote.get("status") or {}
    wanted = {field: status.get(field) or None for field in MIRRORED} | {
        "phase": status.get("phase") or "Pending",
        "conditions": _conditions(local, remote, cluster),
        "containerStatuses": _containers(local, status, "containers", "containerStatuses"),
        "initContainerStatuses": _containers(local, status, "initContainers", "initContainerStatuses"),
    }
    return _patch(local, wanted)


def failed_patch(local: Raw, *, reason: str, message: str, now: str) -> dict[str, Any] | None:
    """Give the JSON merge-patch that fails the manager pod, so that KubeRay replaces it; None when it is over anyway.

    Container statuses stay: they are the last that was seen. `now` is an RFC 3339 time as Kubernetes writes it.
    """
    if _is_over(local):
        return None
    lost = {"status": "False", "reason": reason, "message": message}
    kept = [one for one in _all_conditions(local) if one.get("type") not in READINESS]
    unready = [_turned(condition(local, kind), {"type": kind, **lost}, now) for kind in READINESS]
    return _patch(local, {"phase": "Failed", "reason": reason, "message": message, "conditions": kept + unready})


def unknown_patch(local: Raw, cluster: str, why: str, since: str) -> dict[str, Any] | None:
    """Give the JSON merge-patch that says that nothing is known of the copy; None when it is said, or over.

    Nothing else changes: whatever runs there counts as running, so Ready and phase stay. `since` is an RFC 3339 time.
    """
    if _is_over(local):
        return None
    text = f"worker cluster {cluster} {why}; the worker is left running"
    said = {"type": names.DISPATCHED_CONDITION, "status": "Unknown", "reason": "ClusterUnreachable", "message": text}
    kept = [one for one in _all_conditions(local) if one.get("type") != names.DISPATCHED_CONDITION]
    before = condition(local, names.DISPATCHED_CONDITION)
    return _patch(local, {"conditions": [*kept, {**before, **said, "lastTransitionTime": since}]})


def _is_over(local: Raw) -> bool:
    return bool(meta(local).get("deletionTimestamp")) or (local.get("status") or {}).get("phase") in OVER


def _patch(local: Raw, wanted: dict[str, Any]) -> dict[str, Any] | None:
    status = local.get("status") or {}
    # In a merge-patch null removes a field, so a field that the copy has lost goes here too.
    changed = {field: value for field, value in wanted.items() if _plain(status.get(field)) != _plain(value)}
    return {"metadata": {"uid": uid_of(local)}, "status": changed} if changed else None


def _conditions(local: Raw, remote: Raw, cluster: str) -> list[Raw]:
    mirrored = [one for one in _all_conditions(remote) if one.get("type") != SCHEDULED]
    # Until the copy has a node, the manager pod must go on saying SchedulingGated: a cluster-autoscaler takes a copied
    # Unschedulable for its own shortage and adds nodes in the manager (kueue PR #12262; #13136 for the other half).
    scheduled = condition(remote if is_true(remote, SCHEDULED) else local, SCHEDULED)
    found = [*([scheduled] if scheduled else []), *mirrored, _dispatched(remote, cluster)]
    return [_with_own_generation(one, local) for one in found] + list(_foreign(local, found))


def _dispatched(remote: Raw, cluster: str) -> Raw:
    return {
        "type": names.DISPATCHED_CONDITION,
        "status": "True",
        "reason": "Created",
        # That it finds no node is told here: as PodScheduled it would be taken for a shortage of the manager's own.
        "message": trouble.sentence(remote, cluster) or f"runs in worker cluster {cluster}",
        "lastTransitionTime": meta(remote).get("creationTimestamp"),
    }


def _foreign(local: Raw, found: Sequence[Raw]) -> Iterator[Raw]:
    """Keep conditions with a domain in their type: some controller of the manager writes them and would fight us."""
    taken = {one.get("type") for one in found}
    return (one for one in _all_conditions(local) if "/" in one.get("type", "") and one["type"] not in taken)


def _with_own_generation(one: Raw, local: Raw) -> Raw:
    """Speak of the manager pod's generation, never the copy's.

    The API server keeps the old value where a patch leaves it out (k8s:registry/core/pod/strategy.go,
    preserveOldObservedGeneration), so leaving it out would look like a difference for ever.
    """
    own = condition(local, one.get("type", "")).get("observedGeneration")
    rest = {key: value for key, value in one.items() if key != "observedGeneration"}
    return {**rest, "observedGeneration": own} if own else rest


def _containers(local: Raw, status: Raw, kind: str, field: str) -> list[Raw] | None:
    """Mirror container statuses, keeping the last word of each container that ended and may not start again.

    The API server refuses the whole patch otherwise (k8s:validation.go, ValidateContainerStateTransition).
    """
    spec = local.get("spec") or {}
    specs = {one.get("name"): one for one in spec.get(kind) or ()}
    ended = {
        one.get("name"): one
        for one in (local.get("status") or {}).get(field) or ()
        if _ended(one) and not may_restart(specs.get(one.get("name")), spec, _ended(one).get("exitCode") or 0)
    }
    copies = status.get(field) or ()
    mirrored = [_understood(one) if _ended(one) else ended.get(one.get("name"), _understood(one)) for one in copies]
    seen = {one.get("name") for one in copies}
    return mirrored + [one for name, one in ended.items() if name not in seen] or None


def _understood(container_status: Raw) -> Raw:
    """Without the health of devices, which the API server compares with what the pod asks for: admission over there may have added
    some (k8s:validation.go, validateContainerStatusAllocatedResourcesStatus)."""
    return {key: value for key, value in container_status.items() if key != "allocatedResourcesStatus"}


def _ended(container_status: Raw) -> Raw:
    return (container_status.get("state") or {}).get("terminated") or {}


def _turned(old: Raw, new: Raw, now: str) -> Raw:
    """Give the new condition, with the time of the old one where the status does not change."""
    since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
    return {**old, **new, "lastTransitionTime": since or now}


def _all_conditions(pod: Raw) -> list[Raw]:
    return list((pod.get("status") or {}).get("conditions") or ())


def _plain(value: Any) -> Any:
    """Forget nulls: the API server writes `lastProbeTime: null` into conditions that were sent without it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
