"""Reads where a pod of a RayCluster runs, since when, and what is wrong with it, from the manager's pod.

A manager pod mirrors its remote pod (`worker.manager_pod_status`), but shows the host's address instead of the node.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from adapter import names
from adapter.diagnosis.job_facts import JobFacts, is_head
from adapter.objects.unstructured import MAX_TEXT_LENGTH, Raw, condition, label, meta, printable
from adapter.objects.worker_pod import (
    has_working_ray_node,
    slot_cluster,
    slot_of,
    waits_for_image,
    waits_for_quota,
)

MANAGER = "manager"  # the cluster of a pod that runs in the manager cluster
UNREACHABLE_REASON = names.ConditionReason.CLUSTER_UNREACHABLE
WAITS_FOR_GCS = f"Init:{names.GCS_WAITER}"  # the reason of a pod that waits in it
# The steps of a pod, from worst to best: the pod with the first step in this order holds up the job most.
PodStep = Literal[
    "Failed",
    "Crashes",
    "NoImage",
    "Unschedulable",
    "ClusterUnreachable",
    "NoRemotePod",
    "NoSlot",
    "Starts",
    "NotJoined",
    "Joined",
]
POD_STEPS: tuple[PodStep, ...] = (
    "Failed", "Crashes", "NoImage", "Unschedulable", "ClusterUnreachable", "NoRemotePod", "NoSlot", "Starts",
    "NotJoined", "Joined",
)  # fmt: skip
# Characters of a container's last output: two terminal lines, so that the sentence around it stays readable.
_MAX_OUTPUT_LENGTH = 160
_STARTING = ("", "ContainerCreating", "PodInitializing")  # reasons of a waiting container that are no problem


@dataclass(frozen=True, slots=True)
class PodState:
    """The state of a Ray node."""

    name: str
    role: str
    group: str
    cluster: str  # a WorkerCluster, or `manager`; empty for a worker without a slot
    zone: str  # empty if unknown
    node: str  # the node's name in the manager cluster, its address in a worker cluster
    phase: str
    reason: str  # one word, empty if nothing is wrong
    ready: bool
    restarts: int
    since: str  # when it became ready, or else its creation time
    slot: str
    step: PodStep
    message: str  # the problem, as its cluster reports it, or empty


def read_pod_state(pod: Raw, facts: JobFacts) -> PodState:
    """Read the manager's pod."""
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    cluster = label(pod, names.CLUSTER_LABEL) or slot_cluster(pod) or ("" if is_gated(pod) else MANAGER)
    ready = condition(pod, "Ready")
    joined = ready.get("status") == "True"
    step, reason, message = _current_step(pod)
    return PodState(
        name=str(meta(pod).get("name") or ""),
        role=names.HEAD if is_head(pod) else names.WORKER,
        group=label(pod, names.RAY_GCS_GROUP_LABEL),
        cluster=cluster,
        zone=_zone_of_cluster(cluster, facts),
        node=printable(spec.get("nodeName") or status.get("hostIP") or ""),
        phase=printable(status.get("phase") or "Pending"),
        reason=printable(reason),
        ready=joined,
        restarts=sum(int(container.get("restartCount") or 0) for _, container in _container_statuses(pod)),
        since=str((joined and ready.get("lastTransitionTime")) or meta(pod).get("creationTimestamp") or ""),
        slot=str(slot_of(pod) or ""),
        step=step,
        message=printable(" ".join(message.split()), MAX_TEXT_LENGTH),
    )


def is_gated(pod: Raw) -> bool:
    """Whether a pod has our scheduling gate, so that it never runs in the manager cluster."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return names.GATE in {gate.get("name") for gate in gates}


def _zone_of_cluster(cluster: str, facts: JobFacts) -> str:
    worker_cluster = facts.worker_clusters.get(cluster)
    return "" if worker_cluster is None else str((worker_cluster.get("spec") or {}).get("zone") or cluster)


def _current_step(pod: Raw) -> tuple[PodStep, str, str]:
    """Step, reason and message."""
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        return "Failed", str(status.get("reason") or "Failed"), str(status.get("message") or _exit_summary(pod))
    if crash := next(_crash_reasons(pod), None):
        return "NoImage" if waits_for_image(crash[0]) else "Crashes", *crash
    dispatched = condition(pod, names.DISPATCHED_CONDITION)
    joined = has_working_ray_node(pod)
    if dispatched.get("status") == "Unknown":  # an unreachable pod keeps its last state
        return "Joined" if joined else "ClusterUnreachable", UNREACHABLE_REASON, str(dispatched.get("message") or "")
    if joined:
        return "Joined", "", ""
    return _starting_step(pod, dispatched)


def _starting_step(pod: Raw, sent: Raw) -> tuple[PodStep, str, str]:
    phase, message = (pod.get("status") or {}).get("phase"), str(sent.get("message") or "")
    if is_gated(pod) and not sent:
        if waits_for_quota(pod):
            return "NoSlot", "SchedulingGated", "the manager's Kueue has no quota for it yet"
        return ("NoRemotePod", "SchedulingGated", "") if slot_of(pod) else ("NoSlot", "SchedulingGated", "")
    if phase == "Running":
        return "NotJoined", "NotReady", str(condition(pod, "Ready").get("message") or "")
    if _waits_for_gcs(pod):
        return "NotJoined", WAITS_FOR_GCS, ""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("reason") == "Unschedulable":
        return "Unschedulable", "Unschedulable", str(scheduled.get("message") or "")
    unschedulable = sent.get("reason") == names.ConditionReason.UNSCHEDULABLE
    if unschedulable and scheduled.get("status") != "True":
        return "Unschedulable", "Unschedulable", message
    return "Starts", "", ""


def _container_statuses(pod: Raw) -> Iterator[tuple[str, Raw]]:
    status = pod.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        yield from ((field, container) for container in status.get(field) or ())


def _crash_reasons(pod: Raw) -> Iterator[tuple[str, str]]:
    for field, container in _container_statuses(pod):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        last = (container.get("lastState") or {}).get("terminated") or {}
        reason = str(waiting.get("reason") or "")
        if reason not in _STARTING:
            yield reason, _container_report(container, last, str(waiting.get("message") or ""))
        elif ended and (field == "containerStatuses" or ended.get("exitCode")):
            yield str(ended.get("reason") or "Terminated"), _container_report(container, ended, "")


def _container_report(container: Raw, last: Raw, message: str) -> str:
    restarts = int(container.get("restartCount") or 0)
    parts = [
        f"{restarts} {'restart' if restarts == 1 else 'restarts'}" if restarts else "",
        f"it last ended with exit code {last.get('exitCode')}, {last.get('reason') or 'no reason'}" if last else "",
        message,
        _last_output(last),
    ]
    report = "; ".join(part for part in parts if part)
    return f"container {container.get('name')}{f': {report}' if report else ''}"


def _last_output(ended: Raw) -> str:
    """The end of a terminated container's message."""
    shown = last_words(str(ended.get("message") or ""))
    return f"last output: {shown}" if shown else ""


def last_words(output: str) -> str:
    """The end of an output as one line, because an error is in the last line or two."""
    line = " ".join(output.split())
    return line if len(line) <= _MAX_OUTPUT_LENGTH else f"…{line[-_MAX_OUTPUT_LENGTH:].lstrip()}"


def _exit_summary(pod: Raw) -> str:
    ends = (
        ((container.get("state") or {}).get("terminated") or {}, container) for _, container in _container_statuses(pod)
    )
    return next((_container_report(container, end, "") for end, container in ends if end.get("exitCode")), "")


def _waits_for_gcs(pod: Raw) -> bool:
    containers = ((pod.get("status") or {}).get("initContainerStatuses")) or ()
    running = (container for container in containers if (container.get("state") or {}).get("running"))
    return any(container.get("name") == names.GCS_WAITER for container in running)
