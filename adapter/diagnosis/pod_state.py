"""How is one pod of a RayCluster: where, since when, and what is wrong with it, as the manager's pod says it?

A worker's pod in the manager shows what its copy in a worker cluster says (`worker.status_mirror`), so one reader is enough for pods that run
here and for those that do not. The node of a copy has no place there: the address of its host has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from adapter import names
from adapter.diagnosis.job_facts import JobFacts, is_head
from adapter.objects.unstructured import MAX_TEXT_LENGTH, Raw, condition, label, meta, printable
from adapter.objects.worker_pod import has_working_ray_node, slot_cluster, slot_of, waits_for_quota

MANAGER = "manager"  # where a pod is that has no copy elsewhere
UNREACHABLE_REASON = names.ConditionReason.CLUSTER_UNREACHABLE  # the reason of a pod whose copy cannot be seen
GCS_WAITER = "wait-gcs-ready"  # KubeRay's init container of every worker
WAITS_FOR_GCS = f"Init:{GCS_WAITER}"  # the reason of a pod that waits in it
# How far a pod has come: the first that is not Joined, in this order, is what holds a job up most.
PodStep = Literal[
    "Failed", "Crashes", "Unschedulable", "ClusterUnreachable", "NoRemotePod", "NoSlot", "Starts", "NotJoined", "Joined"
]
POD_STEPS: tuple[PodStep, ...] = (
    "Failed", "Crashes", "Unschedulable", "ClusterUnreachable", "NoRemotePod", "NoSlot", "Starts", "NotJoined", "Joined",
)  # fmt: skip
# Characters of what a container said last: two lines of a terminal, so that the sentence around them is read, too.
_MAX_OUTPUT_LENGTH = 160
_STARTING = ("", "ContainerCreating", "PodInitializing")  # a container waits so without anything being wrong


@dataclass(frozen=True, slots=True)
class PodState:
    """One Ray node, as its pod in the manager shows it."""

    name: str
    role: str
    group: str
    cluster: str  # a WorkerCluster, or `manager`; empty for a worker that has no place yet
    zone: str  # empty: not known
    node: str  # the node's name, where it is here; else its address
    phase: str
    reason: str  # in a word, why it is not well; empty when it is
    ready: bool
    restarts: int
    since: str  # when it became ready, and before that when it was made
    slot: str
    step: PodStep
    message: str  # what is wrong, in the words of its cluster; empty when nothing is


def read_pod_state(pod: Raw, facts: JobFacts) -> PodState:
    """Read one pod of the job."""
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
        restarts=sum(int(one.get("restartCount") or 0) for _, one in _container_statuses(pod)),
        since=str((joined and ready.get("lastTransitionTime")) or meta(pod).get("creationTimestamp") or ""),
        slot=str(slot_of(pod) or ""),
        step=step,
        message=printable(" ".join(message.split()), MAX_TEXT_LENGTH),
    )


def is_gated(pod: Raw) -> bool:
    """Whether our gate holds a pod, so that it never runs in the manager."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return names.GATE in {gate.get("name") for gate in gates}


def _zone_of_cluster(cluster: str, facts: JobFacts) -> str:
    known = facts.worker_clusters.get(cluster)
    return "" if known is None else str((known.get("spec") or {}).get("zone") or cluster)


def _current_step(pod: Raw) -> tuple[PodStep, str, str]:
    """How far it is, why in a word, and what it says."""
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        return "Failed", str(status.get("reason") or "Failed"), str(status.get("message") or _exit_summary(pod))
    if crash := next(_crash_reasons(pod), None):
        return "Crashes", *crash
    sent = condition(pod, names.DISPATCHED_CONDITION)
    joined = has_working_ray_node(pod)
    if sent.get("status") == "Unknown":  # it counts as running for as long as nobody knows better
        return "Joined" if joined else "ClusterUnreachable", UNREACHABLE_REASON, str(sent.get("message") or "")
    if joined:
        return "Joined", "", ""
    return _starting_step(pod, sent)


def _starting_step(pod: Raw, sent: Raw) -> tuple[PodStep, str, str]:
    """The same for one that is on its way."""
    phase, said = (pod.get("status") or {}).get("phase"), str(sent.get("message") or "")
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
        return "Unschedulable", "Unschedulable", said
    return "Starts", "", ""


def _container_statuses(pod: Raw) -> Iterator[tuple[str, Raw]]:
    status = pod.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        yield from ((field, one) for one in status.get(field) or ())


def _crash_reasons(pod: Raw) -> Iterator[tuple[str, str]]:
    for field, one in _container_statuses(pod):
        state = one.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        last = (one.get("lastState") or {}).get("terminated") or {}
        reason = str(waiting.get("reason") or "")
        if reason not in _STARTING:
            yield reason, _container_report(one, last, str(waiting.get("message") or ""))
        elif ended and (field == "containerStatuses" or ended.get("exitCode")):
            yield str(ended.get("reason") or "Terminated"), _container_report(one, ended, "")


def _container_report(container: Raw, last: Raw, message: str) -> str:
    restarts = int(container.get("restartCount") or 0)
    parts = [
        f"{restarts} {'restart' if restarts == 1 else 'restarts'}" if restarts else "",
        f"the last time it ended with exit code {last.get('exitCode')}, {last.get('reason') or 'no reason'}"
        if last
        else "",
        message,
        _last_output(last),
    ]
    said = "; ".join(part for part in parts if part)
    return f"container {container.get('name')}{f': {said}' if said else ''}"


def _last_output(ended: Raw) -> str:
    """The end of what a container left behind, or printed, before it ended: an error is in the last line or two."""
    words = " ".join(str(ended.get("message") or "").split())
    shown = words if len(words) <= _MAX_OUTPUT_LENGTH else f"…{words[-_MAX_OUTPUT_LENGTH:].lstrip()}"
    return f"it said last: {shown}" if shown else ""


def _exit_summary(pod: Raw) -> str:
    """What the containers of a pod that is over ended with."""
    ends = (((one.get("state") or {}).get("terminated") or {}, one) for _, one in _container_statuses(pod))
    return next((_container_report(one, end, "") for end, one in ends if end.get("exitCode")), "")


def _waits_for_gcs(pod: Raw) -> bool:
    found = ((pod.get("status") or {}).get("initContainerStatuses")) or ()
    runs = (one for one in found if (one.get("state") or {}).get("running"))
    return any(one.get("name") == GCS_WAITER for one in runs)
