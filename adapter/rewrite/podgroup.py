"""Which of a share's workers must Volcano start together, in a worker cluster whose pods it schedules?

All of them, while the gang starts: one PodGroup for each share, beside its group Workload and owned by the same anchor. Volcano
itself would make a group of one for each pod, for it reads a size from owners of Kubernetes' own kinds only
(volcano:pkg/controllers/podgroup/pg_controller_handler.go, getAnnotationsFromUpperRes). Where Volcano does not schedule
there is none. Whether quota is held for the workers, and in which order things are made, is not decided here.
"""

from collections import Counter
from typing import Any

from adapter import names
from adapter.objects.podrequests import PODS, as_text, pod_requests
from adapter.objects.raw import Key, Raw, meta
from adapter.rewrite.target import Target

_SHARED = ("name", "namespace", "labels", "ownerReferences")  # what it has in common with its group Workload


def name(target: Target) -> str:
    """Name the PodGroup that a share gets when it is made; empty where its pods go to another scheduler."""
    return target.share if target.pods.scheduler == names.VOLCANO_SCHEDULER else ""


def annotations(group: str) -> dict[str, str]:
    """Name what makes a pod a member of a PodGroup, nothing for an empty name (volcano:pkg/scheduler/api/job_info.go, getJobID).

    On a group Workload it says that its share has that PodGroup: a WorkerCluster may come to Volcano while shares stand.
    """
    return {names.POD_GROUP_ANNOTATION: group} if group else {}


def beside(workload: Raw, target: Target, *, starts: bool) -> dict[str, Any] | None:
    """Build the PodGroup of a share from its group Workload (`reservation.group_workload`); None where it gets none.

    Volcano takes none of its pods before all are there and have room. One that is replaced later starts as soon as there is
    room for it beside those that run: they count (volcano:pkg/scheduler/api/job_info.go, ReadyTaskNum). A share for a gang that
    runs already (not `starts`) takes its workers one by one, as a drain moves them, so none of them waits for another.
    """
    if not name(target):
        return None
    podsets = workload["spec"]["podSets"]
    spec: dict[str, Any] = {"minMember": 1}
    if starts:
        spec = {"minMember": sum(podset["count"] for podset in podsets), "minResources": _requests(podsets)}
    # A pod's own word for it is not read by a PodGroup that Volcano did not make.
    if queue := target.pods.annotations.get(names.VOLCANO_QUEUE_ANNOTATION):
        spec["queue"] = queue
    metadata = {key: meta(workload)[key] for key in _SHARED}
    return {"apiVersion": names.VOLCANO_API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def refusal(key: Key, status: int, said: str) -> str:
    """Say why a share's PodGroup (namespace and name) cannot be made, and what to do; `status` and `said` are its API server's."""
    text = f"PodGroup {'/'.join(key)}, which spec.pods.schedulerName {names.VOLCANO_SCHEDULER} asks for, cannot be made: {said}"
    if status == 404:
        return f"{text}; install Volcano there, or let the WorkerCluster name another scheduler"
    if "cannot create resource" in said:  # as RBAC says it; a webhook of Volcano's may refuse by the same status
        return f"{text}; apply kustomize/overlays/worker there"
    return text


def _requests(podsets: list[Raw]) -> dict[str, str]:
    """What all pods ask for; not that they are pods, which every node limits by itself."""
    asked: Counter[str] = Counter()
    for podset in podsets:
        each = pod_requests(podset["template"]["spec"])
        asked.update({resource: amount * podset["count"] for resource, amount in each.items() if resource != PODS})
    return {resource: as_text(amount, resource) for resource, amount in sorted(asked.items())}
