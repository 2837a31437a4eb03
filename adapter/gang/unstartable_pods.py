"""Remote pods that wait for a change of their cluster: no node takes them, or a container cannot be created.

A cluster without an autoscaler gets no node for such a pod, and a kubelet only repeats what failed. So such a worker
has a shorter start timeout (start_timeout.py). A cluster that can grow has the policy's time for its nodes: its
WorkerCluster has `canGrow`, or the pod consumes a ProvisioningRequest of its Kueue.
"""

from collections.abc import Iterator

from adapter import names
from adapter.gang.gang_facts import Gang
from adapter.objects.unstructured import (
    Raw,
    annotation,
    condition,
    key_of,
    mapping_field,
    mapping_list,
    text_field,
    uid_of,
)
from adapter.objects.worker_pod import slot_cluster, waits_for_image

# What kubelets write while a container has its image and no configuration (k8s:pkg/kubelet/kuberuntime/
# kuberuntime_container.go, and the errors of CRI runtimes). A container that runs and ends is not among them: restarts
# may help it.
_NOT_CONFIGURED = ("CreateContainerConfigError", "CreateContainerError")


def unstartable_pods(gang: Gang) -> list[str]:
    """The uids of the manager pods whose remote pods in reachable clusters wait for a change of their cluster."""
    workers = gang.pods.workers
    if workers is None:
        return []
    pairs = ((pod, workers.remote_pods.get(key_of(pod))) for pod in workers.pods_with_slot)
    return [uid_of(pod) for pod, remote_pod in pairs if remote_pod and _is_unstartable(gang, pod, remote_pod)]


def _is_unstartable(gang: Gang, pod: Raw, remote_pod: Raw) -> bool:
    cluster, obstacle = slot_cluster(pod), start_obstacle(remote_pod)
    if not obstacle or cluster in gang.clusters.unreachable:
        return False
    can_grow = cluster in gang.clusters.growing or bool(annotation(remote_pod, names.PROVISIONING_REQUEST_ANNOTATION))
    return obstacle != names.ConditionReason.UNSCHEDULABLE or not can_grow


def start_obstacle(remote_pod: Raw) -> str:
    """A word for what a remote pod waits for; empty: nothing in its cluster keeps it from starting.

    A pod with a nominated node gets that node when the pods that the scheduler preempted have ended.
    """
    scheduled, status = condition(remote_pod, "PodScheduled"), mapping_field(remote_pod, "status")
    if scheduled.get("status") != "True":
        is_unschedulable = scheduled.get("reason") == "Unschedulable" and not status.get("nominatedNodeName")
        return names.ConditionReason.UNSCHEDULABLE if is_unschedulable else ""
    return names.ConditionReason.CONTAINER_FAILING if any(map(is_uncreatable, _waiting_reasons(status))) else ""


def is_uncreatable(reason: str) -> bool:
    """Whether a container that waits for this reason cannot be created as its cluster is now."""
    return waits_for_image(reason) or reason in _NOT_CONFIGURED


def _waiting_reasons(status: Raw) -> Iterator[str]:
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in mapping_list(status, field):
            yield text_field(mapping_field(mapping_field(container, "state"), "waiting"), "reason")
