"""The patches that mirror the status of a remote pod onto its gated manager pod.

Each field is mirrored, with two exceptions. An ended container's status stays unless the API server lets the container
restart (k8s:pkg/api/v1/pod/util.go, ContainerShouldRestart and AllContainersCouldRestart, 1.36). A shortage of nodes is
left out, because a cluster-autoscaler would take it for its own. Functions return the whole difference or None, so
equal events cost no write. Callers decide whether the remote pod is alive. A slow start is no failure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from adapter import names
from adapter.objects.job_manifest import MAX_NAME_LENGTH
from adapter.objects.pod_address import PodAddress, parse_address, parse_pod_address, reported_addresses
from adapter.objects.reason import Reason, clause
from adapter.objects.unstructured import (
    MAX_ITEM_LENGTH,
    Raw,
    condition,
    is_condition_true,
    key_of,
    meta,
    printable,
    truncate,
    uid_of,
    updated_condition,
)
from adapter.objects.worker_pod import has_template_slot, slot_of, waits_for_image

# Without qosClass: it is immutable, and differs where a LimitRange adds a default.
MIRRORED_FIELDS = (
    "phase", "conditions", "containerStatuses", "initContainerStatuses",
    "podIP", "podIPs", "hostIP", "hostIPs", "startTime", "reason", "message",
)  # fmt: skip
POD_SCHEDULED = "PodScheduled"
READINESS_CONDITIONS = ("Ready", "ContainersReady")
TERMINAL_PHASES = ("Succeeded", "Failed")
# Bytes of a container's messages, as a kubelet limits them (k8s:pkg/kubelet/container/runtime.go,
# MaxContainerTerminationMessageLength and MaxPodTerminationMessageLogLength; status_manager.go, normalizeStatus, which
# divides a pod's bytes by its containers). A cluster that ignores these limits makes no manager pod larger.
_MAX_CONTAINER_BYTES, _MAX_POD_BYTES = 4 * 1024, 12 * 1024
# The limit of a pod's own message: no kubelet limits it, and an eviction's message names every container.
_MAX_TEXT_LENGTH = 4 * 1024
# The limit of mirrored conditions: Kubernetes has ten, and each readiness gate adds one. As many again may be of other
# controllers, because a condition that the remote pod has lost looks like theirs.
_MAX_CONDITIONS = 32
# The limit of a condition's type, as for a readiness gate (k8s:apimachinery/pkg/util/validation, IsQualifiedName).
_MAX_TYPE_LENGTH = 317
# The limit of a list or map: a container has a dozen mounts, and unknown fields are dropped when written.
_MAX_ITEMS = 64
# Endings of the reasons with which a kubelet waits after a failure that is none of its image's
# (k8s:pkg/kubelet/kuberuntime/kuberuntime_container.go).
_FAULT_REASONS = ("BackOff", "Error")


def status_patch(local: Raw, remote: Raw, cluster: str, note: str = "") -> dict[str, Any] | None:
    """The JSON merge patch for the manager pod's status; None if nothing changes. `note`: a running pod's message.

    The remote pod's location is in each patch, never as its only change. The uid is a precondition: for another pod of
    that name the API server answers 422, `metadata.uid: field is immutable`. A pod that is being deleted or has ended
    gets no patch: podgc and KubeRay write its last status (docs/upstream.md, "A deleted pod's last status").
    """
    if _is_over(local):
        return None
    status = remote.get("status") or {}
    reason, location = _dispatched_reason(remote, cluster, note), _describe_location(local, remote, cluster)
    wanted = (
        {field: _truncate_all(status.get(field) or None) for field in MIRRORED_FIELDS}
        | _bounded_texts(status, _MAX_TEXT_LENGTH)
        | {
            "phase": _truncate_all(status.get("phase") or "Pending"),
            **_mirrored_addresses(status),
            "conditions": _mirrored_conditions(local, remote, _keep_known_location(local, reason, location)),
            "containerStatuses": _mirrored_containers(local, status, "containers", "containerStatuses"),
            "initContainerStatuses": _mirrored_containers(local, status, "initContainers", "initContainerStatuses"),
        }
    )
    if not _build_patch(local, wanted):
        return None
    return _build_patch(
        local, wanted | {"conditions": _mirrored_conditions(local, remote, _with_location(reason, location))}
    )


def _mirrored_addresses(status: Raw) -> dict[str, Any]:
    """The addresses of the pod and its host, without those that the API server refuses.

    Nor are a pod's addresses mirrored that lead to a node's own services: a Service with publishNotReadyAddresses, as
    KubeRay makes one for replicas of several hosts, leads requests to each address in a pod's status.
    """
    return _one_of_each_family(status, "podIP", parse_pod_address) | _one_of_each_family(
        status, "hostIP", parse_address
    )


def _one_of_each_family(status: Raw, field: str, parse: Callable[[Any], PodAddress | None]) -> dict[str, Any]:
    """A field of addresses and its plural, which begins with the same address."""
    addresses = [address for text in reported_addresses(status, field)[:_MAX_ITEMS] if (address := parse(text))]
    first = {address.version: str(address) for address in reversed(addresses)}
    mirrored = sorted(first.values(), key=[str(address) for address in addresses].index)
    return {field: next(iter(mirrored), None), f"{field}s": [{"ip": text} for text in mirrored] or None}


def failed_patch(local: Raw, *, reason: str, message: str, now: str) -> dict[str, Any] | None:
    """The patch that fails the manager pod, so that KubeRay replaces it; None if it has ended.

    `now` is an RFC 3339 time.

    Container statuses stay.
    """
    if _is_over(local):
        return None
    conditions = _unready_conditions(local, reason, message, now)
    return _build_patch(local, {"phase": "Failed", "reason": reason, "message": message, "conditions": conditions})


def finished_patch(local: Raw, *, reason: str, message: str, now: str) -> dict[str, Any] | None:
    """The patch that reports a pod as not ready after its remote pod is gone for good; None if it is so, or has ended.

    The phase stays, and its containers wait: KubeRay replaces a worker that failed or succeeded, or whose Ray container
    has terminated (kuberay:controllers/ray/raycluster_controller.go, shouldDeletePod).
    """
    if _is_over(local):
        return None
    # The API server may not let a container wait that has ended.
    waiting = {"waiting": {"reason": reason, "message": message}}
    statuses = [
        {**entry, "ready": False, "started": False, "state": entry["state"] if _terminated_state(entry) else waiting}
        for entry in (local.get("status") or {}).get("containerStatuses") or ()
    ]
    conditions = _unready_conditions(local, reason, message, now)
    return _build_patch(
        local, {"reason": reason, "message": message, "conditions": conditions, "containerStatuses": statuses}
    )


def _unready_conditions(local: Raw, reason: str, message: str, now: str) -> list[Raw]:
    unready = {"status": "False", "reason": reason, "message": message}
    others = [entry for entry in _pod_conditions(local) if entry.get("type") not in READINESS_CONDITIONS]
    before = [{**condition(local, kind), "type": kind} for kind in READINESS_CONDITIONS]
    return [*others, *(updated_condition(entry, {**entry, **unready}, now) for entry in before)]


def unknown_patch(local: Raw, cluster: str, reason: str, since: str) -> dict[str, Any] | None:
    """The patch that marks the remote pod as unreachable; None if it is marked, or the pod has ended.

    `since` is an RFC 3339 time.

    Ready and phase stay: the remote pod counts as running.
    """
    if _is_over(local):
        return None
    text = f"worker cluster {cluster} {reason}; the worker is left running"
    reason = names.ConditionReason.CLUSTER_UNREACHABLE
    unknown = {"type": names.DISPATCHED_CONDITION, "status": "Unknown", "reason": reason, "message": text}
    others = [entry for entry in _pod_conditions(local) if entry.get("type") != names.DISPATCHED_CONDITION]
    before = condition(local, names.DISPATCHED_CONDITION)
    return _build_patch(local, {"conditions": [*others, {**before, **unknown, "lastTransitionTime": since}]})


def _is_over(local: Raw) -> bool:
    return bool(meta(local).get("deletionTimestamp")) or (local.get("status") or {}).get("phase") in TERMINAL_PHASES


def _build_patch(local: Raw, wanted: dict[str, Any]) -> dict[str, Any] | None:
    status = local.get("status") or {}
    # In a merge patch, null removes a field that the remote pod has lost.
    changed = {
        field: value for field, value in wanted.items() if without_nulls(status.get(field)) != without_nulls(value)
    }
    return {"metadata": {"uid": uid_of(local), **_slot_metadata(local)}, "status": changed} if changed else None


def _slot_metadata(local: Raw) -> Raw:
    """The label and annotation with the location of a pod with a template slot, for its first patch."""
    slot = slot_of(local) if has_template_slot(local) else None
    if slot is None:
        return {}
    return {"labels": {names.CLUSTER_LABEL: slot.cluster}, "annotations": {names.SLOT_ANNOTATION: str(slot)}}


def _mirrored_conditions(local: Raw, remote: Raw, reason: Reason) -> list[Raw]:
    remote_conditions = [
        entry
        for entry in _pod_conditions(remote)
        if entry.get("type") != POD_SCHEDULED and _is_valid_type(entry.get("type"))
    ]
    mirrored = [_truncate_all(entry) for entry in remote_conditions[:_MAX_CONDITIONS]]
    # Until the remote pod has a node, the manager pod must keep SchedulingGated: a cluster-autoscaler takes
    # Unschedulable for its own shortage and adds nodes (kueue PR #12262; #13136 for the other half).
    scheduled = condition(remote if is_condition_true(remote, POD_SCHEDULED) else local, POD_SCHEDULED)
    conditions = [*([_truncate_all(scheduled)] if scheduled else []), *mirrored, _dispatched_condition(remote, reason)]
    return [_with_own_generation(entry, local) for entry in conditions] + list(_foreign_conditions(local, conditions))[
        :_MAX_CONDITIONS
    ]


def _is_valid_type(kind: object) -> bool:
    """Whether a condition's type is not too long; if it were truncated, it could be another type."""
    return isinstance(kind, str) and len(kind) <= _MAX_TYPE_LENGTH


def _dispatched_condition(remote: Raw, reason: Reason) -> Raw:
    return {
        "type": names.DISPATCHED_CONDITION,
        "status": "True",
        "reason": reason.code,
        "message": reason.text,
        "lastTransitionTime": meta(remote).get("creationTimestamp"),
    }


def _dispatched_reason(remote: Raw, cluster: str, note: str) -> Reason:
    """The condition's reason and message, without location; an unschedulable pod has the scheduler's message."""
    problem = failure(remote, cluster)
    if problem is None:
        return Reason(names.ConditionReason.CREATED, truncate(note or f"runs in worker cluster {cluster}"))
    unschedulable = problem.code is names.ConditionReason.UNSCHEDULABLE
    return Reason(problem.code, truncate(_scheduler_message(remote) if unschedulable else problem.text))


def _keep_known_location(local: Raw, message: Reason, location: str) -> Reason:
    """The condition's present message if it is `message`, with or without the location; else `message`."""
    before = str(condition(local, names.DISPATCHED_CONDITION).get("message") or "")
    candidates = (message, _with_location(message, location))
    return next((candidate for candidate in candidates if candidate.text == before), message)


def _with_location(message: Reason, location: str) -> Reason:
    return Reason(message.code, f"{clause(message.text)}{location}") if location else message


def _describe_location(local: Raw, remote: Raw, cluster: str) -> str:
    """Where a remote pod is, and the commands for its log; empty without a node."""
    namespace, name = key_of(local)
    node = printable((remote.get("spec") or {}).get("nodeName") or "", MAX_NAME_LENGTH)
    if not node:
        return ""
    log = f"`kubectl --context {cluster} -n {namespace} logs {name}`"
    return (
        f"; there it is pod {namespace}/{name} on node {node}; its log: {log}; without access to that cluster: "
        f"`kubectl rayspan logs -n {namespace} {name}`"
    )


def _foreign_conditions(local: Raw, mirrored: Sequence[Raw]) -> Iterator[Raw]:
    """The pod's conditions with a domain in their type; if dropped, other controllers would write them again."""
    mirrored_types = {entry.get("type") for entry in mirrored}
    return (
        entry
        for entry in _pod_conditions(local)
        if "/" in entry.get("type", "") and entry["type"] not in mirrored_types
    )


def _with_own_generation(entry: Raw, local: Raw) -> Raw:
    """The condition with the manager pod's generation.

    If a patch leaves the generation out, the API server keeps the old value (k8s:registry/core/pod/strategy.go,
    preserveOldObservedGeneration), which would be a permanent difference.
    """
    generation = condition(local, entry.get("type", "")).get("observedGeneration")
    fields = {key: value for key, value in entry.items() if key != "observedGeneration"}
    return {**fields, "observedGeneration": generation} if generation else fields


def _mirrored_containers(local: Raw, status: Raw, kind: str, field: str) -> list[Raw] | None:
    """Mirror the pod's own containers; one that ended and may not start again keeps its last status.

    Otherwise the API server would reject the whole patch (k8s:validation.go, ValidateContainerStateTransition).
    Containers that a worker cluster adds are left out: users do not expect them, and their number is unlimited.
    """
    spec = local.get("spec") or {}
    specs = {container.get("name"): container for container in spec.get(kind) or ()}
    ended = {
        entry.get("name"): entry
        for entry in (local.get("status") or {}).get(field) or ()
        if _terminated_state(entry)
        and not may_restart(specs.get(entry.get("name")), spec, _terminated_state(entry).get("exitCode") or 0)
    }
    statuses, max_bytes = (
        {entry.get("name"): entry for entry in status.get(field) or () if entry.get("name") in specs},
        _max_message_bytes(status),
    )
    mirrored = [
        _bounded_status(entry, max_bytes)
        if _terminated_state(entry)
        else ended.get(name, _bounded_status(entry, max_bytes))
        for name, entry in statuses.items()
    ]
    return mirrored + [entry for name, entry in ended.items() if name not in statuses] or None


def _bounded_status(container_status: Raw, most: int) -> Raw:
    """Limit messages to `most` bytes each, and drop the health of devices.

    The API server compares that health with the pod's requests, and admission in the worker cluster may have added
    devices (k8s:validation.go, validateContainerStatusAllocatedResourcesStatus).
    """
    fields = {key: value for key, value in container_status.items() if key != "allocatedResourcesStatus"}
    states = {field: _bounded_state(fields[field], most) for field in ("state", "lastState") if fields.get(field)}
    return {**_truncate_all(fields), **states}


def _bounded_state(state: Raw, most: int) -> Raw:
    """Keep the end of messages: the last line explains most of a crash."""
    return {
        kind: {**_truncate_all(details), **_bounded_message(details, most)} if details else details
        for kind, details in state.items()
    }


def _bounded_message(details: Raw, most: int) -> Raw:
    return {"message": _last_bytes(str(details["message"]), most)} if details.get("message") else {}


def _truncate_all(part: Any) -> Any:
    if isinstance(part, str):
        return truncate(part, MAX_ITEM_LENGTH)
    if isinstance(part, Mapping):
        return {_truncate_all(key): _truncate_all(value) for key, value in islice(part.items(), _MAX_ITEMS)}
    return list(map(_truncate_all, part[:_MAX_ITEMS])) if isinstance(part, list) else part


def _last_bytes(text: str, most: int) -> str:
    return text.encode()[-most:].decode(errors="ignore")


def _max_message_bytes(status: Raw) -> int:
    count = sum(len(status.get(field) or ()) for field in ("containerStatuses", "initContainerStatuses"))
    return min(_MAX_CONTAINER_BYTES, max(1, _MAX_POD_BYTES // max(1, count)))


def _bounded_texts(source: Raw, most: int) -> dict[str, Any]:
    texts = {field: source.get(field) for field in ("reason", "message")}
    return {field: truncate(text, most) if isinstance(text, str) else text for field, text in texts.items() if text}


def _terminated_state(container_status: Raw) -> Raw:
    return (container_status.get("state") or {}).get("terminated") or {}


def _pod_conditions(pod: Raw) -> list[Raw]:
    return list((pod.get("status") or {}).get("conditions") or ())


def without_nulls(value: Any) -> Any:
    """The value without nulls: the API server adds `lastProbeTime: null` to conditions sent without it."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def trouble_message(remote: Raw, cluster: str) -> str:
    """What is wrong with a remote pod, if anything; without its name, so that siblings' texts are equal."""
    problem = failure(remote, cluster)
    return problem.text if problem else ""


def failure(remote: Raw, cluster: str) -> Reason | None:
    return next(_failures(remote, cluster), None)


def _failures(remote: Raw, cluster: str) -> Iterator[Reason]:
    failing = names.ConditionReason.CONTAINER_FAILING
    for status in _container_statuses(remote):
        name, state = status.get("name"), status.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        before = (status.get("lastState") or {}).get("terminated") or {}
        worker = f"Container {name} of a worker in {cluster}"
        if "OOMKilled" in (ended.get("reason"), before.get("reason")):
            yield Reason(failing, f"{worker} ran out of memory (OOMKilled); raise its memory limit.")
        reason = str(waiting.get("reason") or "")
        if reason.endswith(_FAULT_REASONS) or waits_for_image(reason):
            # The message of a back-off from a crash has only its duration and the pod, and so differs among siblings;
            # that of an image's has the registry's words.
            has_message = waiting.get("message") and reason != "CrashLoopBackOff"
            details = f": {waiting['message']}" if has_message else ""
            yield Reason(failing, f"{worker} does not start, {reason}{details}")
    scheduled = condition(remote, POD_SCHEDULED)
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        text = f"A worker in {cluster} cannot be scheduled: {_scheduler_message(remote)}"
        yield Reason(names.ConditionReason.UNSCHEDULABLE, text)


def _scheduler_message(remote: Raw) -> str:
    return str(condition(remote, POD_SCHEDULED).get("message") or "Unschedulable")


def _container_statuses(remote: Raw) -> Iterator[dict[str, Any]]:
    status = remote.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(field) or ()


def may_restart(container: Raw | None, pod_spec: Raw, exit_code: int) -> bool:
    """Whether the API server lets this container's status leave `terminated`; never if the spec lacks the container."""
    if any(_restarts_all(spec) for kind in ("initContainers", "containers") for spec in pod_spec.get(kind) or ()):
        return True
    if container is None:
        return False
    if container.get("restartPolicy"):
        return _rule_restarts(container, exit_code) or _policy_restarts(container["restartPolicy"], exit_code)
    return _policy_restarts(pod_spec.get("restartPolicy") or "Always", exit_code)


def _policy_restarts(policy: str, exit_code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _restarts_all(container: Raw) -> bool:
    return any(rule.get("action") == "RestartAllContainers" for rule in container.get("restartPolicyRules") or ())


def _rule_restarts(container: Raw, exit_code: int) -> bool:
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        listed = exit_code in (codes.get("values") or ())
        if codes and listed == (codes.get("operator") == "In"):
            return bool(rule.get("action") == "Restart")  # the first match decides
    return False
