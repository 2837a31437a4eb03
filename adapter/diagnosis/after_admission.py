"""What holds up a job that Kueue has admitted: KubeRay, its head, a worker that does not start, or one that does not join?

Of several workers the one that is worst is told, with how many are like it.
"""

from collections.abc import Sequence
from typing import Final

from adapter import names
from adapter.diagnosis.blocker import Diagnosis, Stage, as_sentence
from adapter.diagnosis.job_facts import JobFacts, ray_cluster_name
from adapter.diagnosis.pod_state import GCS_WAITER, MANAGER, POD_STEPS, WAITS_FOR_GCS, PodState, PodStep
from adapter.objects.rayjob import read_ray_cluster, read_status
from adapter.objects.unstructured import MAX_TEXT_LENGTH, Raw, key_of, printable

_UNSUBMITTED = ("Initializing", "Waiting")  # status.jobDeploymentStatus before Ray knows of the job


def diagnose_kuberay(facts: JobFacts, pods: Sequence[PodState]) -> Diagnosis | None:
    """KubeRay has yet to make a RayCluster, or its pods."""
    name = ray_cluster_name(facts.job, facts.kind)
    if not facts.ray_cluster:
        if "rayclusters" in facts.unread_reasons:
            return None
        said = f"RayCluster {name} is not there." if name else "KubeRay has made no RayCluster of it yet."
        return Diagnosis(
            "Pods",
            "Waits",
            "NoRayCluster",
            facts.title,
            f"{said}{_kuberay_message(facts.job)}",
            _describe_advice(facts),
        )
    if "pods" in facts.unread_reasons:
        return None
    wanted, workers = wanted_workers(facts.ray_cluster), [one for one in pods if one.role != names.HEAD]
    where = f"RayCluster {facts.namespace}/{name}"
    if len(workers) == len(pods):
        return Diagnosis(
            "Pods",
            "Waits",
            "NoHead",
            where,
            f"KubeRay has made no head yet.{_kuberay_message(facts.ray_cluster)}",
            _describe_advice(facts),
        )
    if len(workers) < wanted:
        said = f"KubeRay has made {len(workers)} of {wanted} workers.{_kuberay_message(facts.ray_cluster)}"
        return Diagnosis("Pods", "Waits", "WorkersMissing", where, said, _describe_advice(facts))
    return None


def diagnose_pods(facts: JobFacts, pods: Sequence[PodState]) -> Diagnosis | None:
    """A pod that does not run, or has not joined: the head first, for no worker joins without it."""
    heads = [one for one in pods if one.role == names.HEAD]
    if heads and not any(one.ready for one in heads):
        return _diagnose_head(facts, heads[0])
    workers = [one for one in pods if one.role != names.HEAD]
    late = [one for one in workers if one.step != "Joined"]
    # One that failed may still be there beside the one that stands for it.
    whole = bool(facts.ray_cluster) and len(workers) - len(late) >= wanted_workers(facts.ray_cluster)
    if whole or not late:
        return None
    worst = min(late, key=lambda one: (POD_STEPS.index(one.step), one.name))
    return _diagnose_worker(facts, worst, sum(one.step == worst.step for one in late) - 1)


def diagnose_running(facts: JobFacts, pods: Sequence[PodState]) -> Diagnosis:
    """Nothing is in the way."""
    if not pods and {"pods", "rayclusters"} & facts.unread_reasons.keys():
        return _diagnose_by_status(facts)
    workers = [one for one in pods if one.role != names.HEAD and one.step == "Joined"]
    said = f"Its head runs, and {_joined_text(len(workers))}."
    if facts.status.deployment_status in _UNSUBMITTED and not facts.status.job_status:
        todo = f"If that stays so, see `kubectl -n {facts.namespace} describe job {facts.name}`, which submits it."
        return Diagnosis("Ray", "Waits", "NotSubmitted", facts.title, f"{said} It is not submitted to Ray yet.", todo)
    status = printable(facts.status.job_status or facts.status.deployment_status)
    return Diagnosis("Ray", "Runs", "Runs", facts.title, f"{said}{f' The job is {status}.' if status else ''}")


def _diagnose_by_status(facts: JobFacts) -> Diagnosis:
    """Its pods may not be read: what KubeRay says of them all is all that is known."""
    if read_status(facts.ray_cluster).state == "ready" or facts.status.job_status == "RUNNING":
        return Diagnosis("Ray", "Runs", "Runs", facts.title, "KubeRay says that it runs.")
    return Diagnosis(
        "Pods", "Waits", "PodsUnread", facts.title, "It is admitted, and KubeRay does not say that it runs."
    )


def wanted_workers(ray_cluster: Raw) -> int:
    """How many workers KubeRay is to make."""
    return sum(group.desired_workers for group in read_ray_cluster(ray_cluster).cluster.groups)


def _joined_text(count: int) -> str:
    if count == 0:
        return "it has no workers"
    return "its one worker has joined" if count == 1 else f"all of its {count} workers have joined"


def _kuberay_message(raw: Raw) -> str:
    """What KubeRay says itself."""
    status = read_status(raw)
    said = as_sentence(status.message or status.reason)
    return f" It says: {said}" if said else ""


def _describe_advice(facts: JobFacts) -> str:
    return f"If that stays so, see `kubectl -n {facts.namespace} describe {facts.kind.lower()} {facts.name}`, and whether KubeRay runs."


def _diagnose_head(facts: JobFacts, head: PodState) -> Diagnosis:
    said = f"The head is not ready: {_pod_problem(head, facts)}"
    todo = f"See `kubectl -n {facts.namespace} describe pod {head.name}`."
    return Diagnosis("Pods", "Waits", f"Head{head.step}", f"Pod {facts.namespace}/{head.name}", said, todo)


def _diagnose_worker(facts: JobFacts, worst: PodState, similar: int) -> Diagnosis:
    stage, todo = _STAGE_AND_ADVICE[worst.step]
    like = f" {similar} more {'is' if similar == 1 else 'are'} like it." if similar else ""
    said = f"A worker is not there yet: {_pod_problem(worst, facts)}{like}"
    words = {"namespace": facts.namespace, "pod": worst.name, "cluster": worst.cluster or "its worker cluster"}
    context = "" if worst.cluster in ("", MANAGER) else f" in {worst.cluster}"
    return Diagnosis(
        stage, "Waits", worst.step, f"Pod {facts.namespace}/{worst.name}", said, todo.format(**words, there=context)
    )


def _pod_problem(pod: PodState, facts: JobFacts) -> str:
    """What is wrong with a pod, and where it is, as one sentence or two."""
    place = f" in {pod.cluster}" if pod.cluster else ""
    node = f" on {pod.node}" if pod.node else ""
    said = {
        "Failed": f"it failed ({pod.reason}){place}{node}",
        "Crashes": f"{pod.reason}{place}{node}",
        "Unschedulable": f"it finds no node{place}",
        "ClusterUnreachable": f"its copy{place} cannot be seen",
        "NoRemotePod": f"its copy is not made{place} yet (slot {pod.slot})",
        "NoSlot": f"it is held back, and has no slot on {_placement_title(facts)} yet",
        "Starts": f"it starts{place}{node}",
        "NotJoined": _not_joined_text(pod, place, node),
    }[pod.step]
    message = pod.message
    if pod.step == "NoSlot" and not message and ((facts.placement.get("spec") or {}).get("job") or {}).get("uid"):
        message = printable(
            (facts.placement.get("status") or {}).get("reason") or "", MAX_TEXT_LENGTH
        )  # what an elastic job waits for
    return as_sentence(f"{said}{f': {message}' if message else ''}")


def _not_joined_text(pod: PodState, location: str, node: str) -> str:
    if pod.reason == WAITS_FOR_GCS:
        return f"it waits in {GCS_WAITER}{location}{node} until it reaches the head"
    probe = "Ray does not answer" if pod.role == names.HEAD else "has not joined Ray"
    return f"it runs{location}{node}, and {probe} (Ready is False)"


def _placement_title(facts: JobFacts) -> str:
    return f"Placement {key_of(facts.placement)[1]}" if facts.placement else "a Placement"


_DESCRIBE_POD = "See `kubectl -n {namespace} describe pod {pod}`{there}."
_STAGE_AND_ADVICE: Final[dict[PodStep, tuple[Stage, str]]] = {
    "Failed": ("Pods", "KubeRay makes another one."),
    "Crashes": ("Pods", f"{_DESCRIBE_POD[:-1]}, and its log there."),
    "Unschedulable": (
        "Pods",
        "It starts as soon as there is a node; one that takes too long is moved where there is room.",
    ),
    "ClusterUnreachable": ("Pods", "It is left running; see `kubectl get workerclusters`."),
    "NoRemotePod": ("Pods", "If that stays so, see the events of the job."),
    "NoSlot": ("Pods", "If that stays so, see the events of the job."),
    "Starts": ("Pods", ""),
    "NotJoined": ("Ray", "If that stays so, see its log{there}, and `kubectl rayspan preflight`."),
}
