"""What does a manager's gated pod say of itself while its copy runs elsewhere?

What the copy says, field by field, except where the API server or the manager's own controllers would stumble over it: a
container that ended may not start again but by the API server's own rule (k8s:pkg/api/v1/pod/util.go, ContainerShouldRestart and
AllContainersCouldRestart, 1.36), and a cluster-autoscaler would take a copied shortage for its own. Every function gives the
whole difference or nothing, so a burst of equal events costs no write. They do not judge whether the copy is alive: they are
told. What is wrong with a copy is said in its own cluster's words; a pod that only takes its time is no trouble.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from adapter import names
from adapter.objects.rayjob import MAX_NAME_LENGTH
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
from adapter.objects.worker_pod import has_template_slot, slot_of

# Never qosClass: it is immutable, and the copy's differs as soon as that cluster's LimitRange adds a default.
MIRRORED_FIELDS = (
    "phase", "conditions", "containerStatuses", "initContainerStatuses",
    "podIP", "podIPs", "hostIP", "hostIPs", "startTime", "reason", "message",
)  # fmt: skip
POD_SCHEDULED = "PodScheduled"
READINESS_CONDITIONS = ("Ready", "ContainersReady")
TERMINAL_PHASES = ("Succeeded", "Failed")
# Bytes of what is said of a container's end, and of its state, as a kubelet bounds them (k8s:pkg/kubelet/container/runtime.go,
# MaxContainerTerminationMessageLength and MaxPodTerminationMessageLogLength; status_manager.go, normalizeStatus, which divides a pod's by its
# containers). One that keeps to it is never cut. Who does not, in a cluster that is not ours, makes no pod of the manager larger.
_MAX_CONTAINER_BYTES, _MAX_POD_BYTES = 4 * 1024, 12 * 1024
# Of what a pod says of itself no kubelet bounds anything, and one that evicts names every container. So much of it is for people.
_MAX_TEXT_LENGTH = 4 * 1024
# Kubernetes has ten, and every readiness gate adds one. As many again may be others': what a copy said before and says no more looks like theirs.
_MAX_CONDITIONS = 32
_MAX_TYPE_LENGTH = (
    317  # of a condition: what a readiness gate may be called (k8s:apimachinery/pkg/util/validation, IsQualifiedName)
)
# Of a list or a map within these: a container has a dozen mounts, and what Kubernetes has no field for is dropped when it is written.
_MAX_ITEMS = 64
# Reasons with which a kubelet waits because something is wrong, beside those that end so (k8s:pkg/kubelet/images/types.go,
# pkg/kubelet/kuberuntime/kuberuntime_container.go).
_FAULT_REASONS = ("BackOff", "Error", "InvalidImageName", "ErrImagePull", "ErrImageNeverPull")


def status_patch(local: Raw, remote: Raw, cluster: str, note: str = "") -> dict[str, Any] | None:
    """Give the JSON merge-patch for the manager pod's status subresource, or None when nothing would change; `note` is what is to
    be said of a copy that runs.

    Where the copy is comes with what is written anyway, and is never a reason to write.

    The pod's uid is in it as a precondition: for a namesake the API server answers 422, `metadata.uid: field is
    immutable`. A pod that is being deleted or is over gets none: podgc and KubeRay write the last word there
    (docs/upstream.md, "A deleted pod's last status").
    """
    if _is_over(local):
        return None
    status = remote.get("status") or {}
    said, place = _dispatched_reason(remote, cluster, note), _describe_location(local, remote, cluster)
    wanted = (
        {field: _truncate_all(status.get(field) or None) for field in MIRRORED_FIELDS}
        | _bounded_texts(status, _MAX_TEXT_LENGTH)
        | {
            "phase": _truncate_all(status.get("phase") or "Pending"),
            "conditions": _mirrored_conditions(local, remote, _keep_known_location(local, said, place)),
            "containerStatuses": _mirrored_containers(local, status, "containers", "containerStatuses"),
            "initContainerStatuses": _mirrored_containers(local, status, "initContainers", "initContainerStatuses"),
        }
    )
    if not _build_patch(local, wanted):
        return None
    return _build_patch(
        local, wanted | {"conditions": _mirrored_conditions(local, remote, _with_location(said, place))}
    )


def failed_patch(local: Raw, *, reason: str, message: str, now: str) -> dict[str, Any] | None:
    """Give the JSON merge-patch that fails the manager pod, so that KubeRay replaces it; None when it is over anyway.

    Container statuses stay: they are the last that was seen. `now` is an RFC 3339 time as Kubernetes writes it.
    """
    if _is_over(local):
        return None
    lost = {"status": "False", "reason": reason, "message": message}
    kept = [one for one in _pod_conditions(local) if one.get("type") not in READINESS_CONDITIONS]
    before = [{**condition(local, kind), "type": kind} for kind in READINESS_CONDITIONS]
    unready = [updated_condition(one, {**one, **lost}, now) for one in before]
    return _build_patch(local, {"phase": "Failed", "reason": reason, "message": message, "conditions": kept + unready})


def unknown_patch(local: Raw, cluster: str, reason: str, since: str) -> dict[str, Any] | None:
    """Give the JSON merge-patch that says that nothing is known of the copy; None when it is said, or over.

    Nothing else changes: whatever runs there counts as running, so Ready and phase stay. `since` is an RFC 3339 time.
    """
    if _is_over(local):
        return None
    text = f"worker cluster {cluster} {reason}; the worker is left running"
    reason = names.ConditionReason.CLUSTER_UNREACHABLE
    said = {"type": names.DISPATCHED_CONDITION, "status": "Unknown", "reason": reason, "message": text}
    kept = [one for one in _pod_conditions(local) if one.get("type") != names.DISPATCHED_CONDITION]
    before = condition(local, names.DISPATCHED_CONDITION)
    return _build_patch(local, {"conditions": [*kept, {**before, **said, "lastTransitionTime": since}]})


def _is_over(local: Raw) -> bool:
    return bool(meta(local).get("deletionTimestamp")) or (local.get("status") or {}).get("phase") in TERMINAL_PHASES


def _build_patch(local: Raw, wanted: dict[str, Any]) -> dict[str, Any] | None:
    status = local.get("status") or {}
    # In a merge-patch null removes a field, so a field that the copy has lost goes here too.
    changed = {
        field: value for field, value in wanted.items() if without_nulls(status.get(field)) != without_nulls(value)
    }
    return {"metadata": {"uid": uid_of(local), **_slot_metadata(local)}, "status": changed} if changed else None


def _slot_metadata(local: Raw) -> Raw:
    """What is written with the first news of a pod that has the slot that it came with: where it is, for all who look for it there."""
    slot = slot_of(local) if has_template_slot(local) else None
    if slot is None:
        return {}
    return {"labels": {names.CLUSTER_LABEL: slot.cluster}, "annotations": {names.SLOT_ANNOTATION: str(slot)}}


def _mirrored_conditions(local: Raw, remote: Raw, said: Reason) -> list[Raw]:
    theirs = [
        one for one in _pod_conditions(remote) if one.get("type") != POD_SCHEDULED and _is_valid_type(one.get("type"))
    ]
    mirrored = [_truncate_all(one) for one in theirs[:_MAX_CONDITIONS]]
    # Until the copy has a node, the manager pod must go on saying SchedulingGated: a cluster-autoscaler takes a copied
    # Unschedulable for its own shortage and adds nodes in the manager (kueue PR #12262; #13136 for the other half).
    scheduled = condition(remote if is_condition_true(remote, POD_SCHEDULED) else local, POD_SCHEDULED)
    found = [*([_truncate_all(scheduled)] if scheduled else []), *mirrored, _dispatched_condition(remote, said)]
    return [_with_own_generation(one, local) for one in found] + list(_foreign_conditions(local, found))[
        :_MAX_CONDITIONS
    ]


def _is_valid_type(kind: object) -> bool:
    """Whether a condition can be of this type: of one that is longer, what is left would be another one's."""
    return isinstance(kind, str) and len(kind) <= _MAX_TYPE_LENGTH


def _dispatched_condition(remote: Raw, said: Reason) -> Raw:
    return {
        "type": names.DISPATCHED_CONDITION,
        "status": "True",
        "reason": said.code,
        # That it finds no node is told here: as PodScheduled it would be taken for a shortage of the manager's own.
        "message": said.text,
        "lastTransitionTime": meta(remote).get("creationTimestamp"),
    }


def _dispatched_reason(remote: Raw, cluster: str, note: str) -> Reason:
    """What the condition is to say of a remote pod, without its place. That no node takes it, its reason says: the message is the
    scheduler's own."""
    found = failure(remote, cluster)
    if found is None:
        return Reason(names.ConditionReason.CREATED, truncate(note or f"runs in worker cluster {cluster}"))
    unschedulable = found.code is names.ConditionReason.UNSCHEDULABLE
    return Reason(found.code, truncate(_scheduler_message(remote) if unschedulable else found.text))


def _keep_known_location(local: Raw, message: Reason, place: str) -> Reason:
    """What the condition says already, if that is this, with or without its place; else this."""
    before = str(condition(local, names.DISPATCHED_CONDITION).get("message") or "")
    known = (message, _with_location(message, place))
    return next((one for one in known if one.text == before), message)


def _with_location(message: Reason, location: str) -> Reason:
    return Reason(message.code, f"{clause(message.text)}{location}") if location else message


def _describe_location(local: Raw, remote: Raw, cluster: str) -> str:
    """Where a copy is and what to type to see more of it; nothing while it has no node, for then there is nothing to see."""
    namespace, name = key_of(local)
    node = printable((remote.get("spec") or {}).get("nodeName") or "", MAX_NAME_LENGTH)
    if not node:
        return ""
    log = f"`kubectl --context {cluster} -n {namespace} logs {name}`"
    return f"; there it is pod {namespace}/{name} on node {node}; its log: {log}; who has no access there: `kubectl rayspan logs -n {namespace} {name}`"


def _foreign_conditions(local: Raw, mirrored: Sequence[Raw]) -> Iterator[Raw]:
    """Keep conditions with a domain in their type: some controller of the manager writes them and would fight us."""
    taken = {one.get("type") for one in mirrored}
    return (one for one in _pod_conditions(local) if "/" in one.get("type", "") and one["type"] not in taken)


def _with_own_generation(entry: Raw, local: Raw) -> Raw:
    """Speak of the manager pod's generation, never the copy's.

    The API server keeps the old value where a patch leaves it out (k8s:registry/core/pod/strategy.go,
    preserveOldObservedGeneration), so leaving it out would look like a difference for ever.
    """
    own = condition(local, entry.get("type", "")).get("observedGeneration")
    rest = {key: value for key, value in entry.items() if key != "observedGeneration"}
    return {**rest, "observedGeneration": own} if own else rest


def _mirrored_containers(local: Raw, status: Raw, kind: str, field: str) -> list[Raw] | None:
    """Mirror the statuses of the pod's own containers, keeping the last word of each that ended and may not start again.

    The API server refuses the whole patch otherwise (k8s:validation.go, ValidateContainerStateTransition). What a worker cluster adds to a
    copy, such as sidecars, nobody looks for in the manager, and of these there might be any number.
    """
    spec = local.get("spec") or {}
    specs = {one.get("name"): one for one in spec.get(kind) or ()}
    ended = {
        one.get("name"): one
        for one in (local.get("status") or {}).get(field) or ()
        if _terminated_state(one)
        and not may_restart(specs.get(one.get("name")), spec, _terminated_state(one).get("exitCode") or 0)
    }
    there, most = (
        {one.get("name"): one for one in status.get(field) or () if one.get("name") in specs},
        _max_message_bytes(status),
    )
    mirrored = [
        _bounded_status(one, most) if _terminated_state(one) else ended.get(name, _bounded_status(one, most))
        for name, one in there.items()
    ]
    return mirrored + [one for name, one in ended.items() if name not in there] or None


def _bounded_status(container_status: Raw, most: int) -> Raw:
    """Within bounds, with no more than so many bytes of each message, and without the health of devices, which the API server compares with what the
    pod asks for: admission over there may have added some (k8s:validation.go, validateContainerStatusAllocatedResourcesStatus)."""
    kept = {key: value for key, value in container_status.items() if key != "allocatedResourcesStatus"}
    states = {field: _bounded_state(kept[field], most) for field in ("state", "lastState") if kept.get(field)}
    return {**_truncate_all(kept), **states}


def _bounded_state(state: Raw, most: int) -> Raw:
    """A container's state with the end of what it says: the last line tells most of a crash."""
    return {
        kind: {**_truncate_all(said), **_bounded_message(said, most)} if said else said for kind, said in state.items()
    }


def _bounded_message(details: Raw, most: int) -> Raw:
    return {"message": _last_bytes(str(details["message"]), most)} if details.get("message") else {}


def _truncate_all(part: Any) -> Any:
    """A part of what a copy says of itself, with no more than so many characters of each text, and so many items of each list."""
    if isinstance(part, str):
        return truncate(part, MAX_ITEM_LENGTH)
    if isinstance(part, Mapping):
        return {_truncate_all(key): _truncate_all(value) for key, value in islice(part.items(), _MAX_ITEMS)}
    return list(map(_truncate_all, part[:_MAX_ITEMS])) if isinstance(part, list) else part


def _last_bytes(text: str, most: int) -> str:
    return text.encode()[-most:].decode(errors="ignore")


def _max_message_bytes(status: Raw) -> int:
    """How many bytes each container of a pod may say."""
    many = sum(len(status.get(field) or ()) for field in ("containerStatuses", "initContainerStatuses"))
    return min(_MAX_CONTAINER_BYTES, max(1, _MAX_POD_BYTES // max(1, many)))


def _bounded_texts(source: Raw, most: int) -> dict[str, Any]:
    """Reason and message of a status or of a condition, as far as it has them, with no more than so many characters each."""
    said = {field: source.get(field) for field in ("reason", "message")}
    return {field: truncate(text, most) if isinstance(text, str) else text for field, text in said.items() if text}


def _terminated_state(container_status: Raw) -> Raw:
    return (container_status.get("state") or {}).get("terminated") or {}


def _pod_conditions(pod: Raw) -> list[Raw]:
    return list((pod.get("status") or {}).get("conditions") or ())


def without_nulls(value: Any) -> Any:
    """Forget nulls: the API server writes `lastProbeTime: null` into conditions that were sent without it."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def trouble_message(remote: Raw, cluster: str) -> str:
    """What is wrong with a remote pod, empty when nothing is; without the pod's name, since its siblings have it too."""
    found = failure(remote, cluster)
    return found.text if found else ""


def failure(remote: Raw, cluster: str) -> Reason | None:
    """The first thing that is wrong with a remote pod, None when nothing is."""
    return next(_failures(remote, cluster), None)


def _failures(remote: Raw, cluster: str) -> Iterator[Reason]:
    failing = names.ConditionReason.CONTAINER_FAILING
    for status in _container_statuses(remote):
        name, state = status.get("name"), status.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        before = (status.get("lastState") or {}).get("terminated") or {}
        worker = f"Container {name} of a worker in {cluster}"
        if "OOMKilled" in (ended.get("reason"), before.get("reason")):
            yield Reason(failing, f"{worker} was killed for want of memory (OOMKilled); raise its memory limit.")
        if str(waiting.get("reason") or "").endswith(_FAULT_REASONS):
            # Of a back-off the kubelet says only for how long, and which pod: not what its siblings would say.
            tells = waiting.get("message") and not str(waiting["reason"]).endswith("BackOff")
            said = f": {waiting['message']}" if tells else ""
            yield Reason(failing, f"{worker} does not start, {waiting['reason']}{said}")
    scheduled = condition(remote, POD_SCHEDULED)
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        text = f"A worker in {cluster} finds no node: {_scheduler_message(remote)}"
        yield Reason(names.ConditionReason.UNSCHEDULABLE, text)


def _scheduler_message(remote: Raw) -> str:
    return str(condition(remote, POD_SCHEDULED).get("message") or "Unschedulable")


def _container_statuses(remote: Raw) -> Iterator[dict[str, Any]]:
    status = remote.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(field) or ()


def may_restart(container: Raw | None, pod_spec: Raw, exit_code: int) -> bool:
    """Whether the API server lets this container's status leave `terminated`; never for a name the spec has not."""
    if any(_restarts_all(one) for kind in ("initContainers", "containers") for one in pod_spec.get(kind) or ()):
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
            return bool(rule.get("action") == "Restart")  # the first rule that matches decides
    return False
