"""Diagnoses a job that Kueue has admitted: KubeRay, the head, workers that do not start or do not join Ray.

Reports only the worst worker, with the number of workers in the same step.
"""

from collections.abc import Sequence
from typing import Final

from adapter import names
from adapter.diagnosis.blocker import Diagnosis, Stage, as_sentence
from adapter.diagnosis.job_facts import JobFacts, ray_cluster_name
from adapter.diagnosis.pod_state import MANAGER, POD_STEPS, WAITS_FOR_GCS, PodState, PodStep
from adapter.objects.rayjob import read_ray_cluster, read_status
from adapter.objects.unstructured import MAX_TEXT_LENGTH, Raw, key_of, printable

_UNSUBMITTED = ("Initializing", "Waiting")  # status.jobDeploymentStatus before the job is submitted to Ray


def diagnose_kuberay(facts: JobFacts, pods: Sequence[PodState]) -> Diagnosis | None:
    """The diagnosis if KubeRay has not created the RayCluster or all of its pods."""
    name = ray_cluster_name(facts.job, facts.kind)
    if not facts.ray_cluster:
        if "rayclusters" in facts.unread_reasons:
            return None
        message = f"RayCluster {name} does not exist." if name else "KubeRay has not created its RayCluster yet."
        return Diagnosis(
            "Pods",
            "Waits",
            "NoRayCluster",
            facts.title,
            f"{message}{_kuberay_message(facts.job)}",
            _describe_advice(facts),
        )
    if "pods" in facts.unread_reasons:
        return None
    wanted, workers = wanted_workers(facts.ray_cluster), [pod for pod in pods if pod.role != names.HEAD]
    cluster_title = f"RayCluster {facts.namespace}/{name}"
    if len(workers) == len(pods):
        return Diagnosis(
            "Pods",
            "Waits",
            "NoHead",
            cluster_title,
            f"KubeRay has not created the head yet.{_kuberay_message(facts.ray_cluster)}",
            _describe_advice(facts),
        )
    if len(workers) < wanted:
        message = f"KubeRay has created {len(workers)} of {wanted} workers.{_kuberay_message(facts.ray_cluster)}"
        return Diagnosis("Pods", "Waits", "WorkersMissing", cluster_title, message, _describe_advice(facts))
    return None


def diagnose_pods(facts: JobFacts, pods: Sequence[PodState]) -> Diagnosis | None:
    """The diagnosis of a pod that has not joined Ray; the head first, because no worker joins without it."""
    heads = [pod for pod in pods if pod.role == names.HEAD]
    if heads and not any(head.ready for head in heads):
        return _diagnose_head(facts, heads[0])
    workers = [pod for pod in pods if pod.role != names.HEAD]
    unjoined = [worker for worker in workers if worker.step != "Joined"]
    # A failed worker may still exist beside its replacement.
    all_joined = bool(facts.ray_cluster) and len(workers) - len(unjoined) >= wanted_workers(facts.ray_cluster)
    if all_joined or not unjoined:
        return None
    worst = min(unjoined, key=lambda worker: (POD_STEPS.index(worker.step), worker.name))
    return _diagnose_worker(facts, worst, sum(worker.step == worst.step for worker in unjoined) - 1)


def diagnose_running(facts: JobFacts, pods: Sequence[PodState]) -> Diagnosis:
    """The diagnosis of a job that nothing holds up."""
    if not pods and {"pods", "rayclusters"} & facts.unread_reasons.keys():
        return _diagnose_by_status(facts)
    workers = [pod for pod in pods if pod.role != names.HEAD and pod.step == "Joined"]
    message = f"Its head runs, and {_joined_text(len(workers))}."
    if facts.status.deployment_status in _UNSUBMITTED and not facts.status.job_status:
        advice = f"If this persists, see `kubectl -n {facts.namespace} describe job {facts.name}`, which submits it."
        return Diagnosis(
            "Ray", "Waits", "NotSubmitted", facts.title, f"{message} It is not submitted to Ray yet.", advice
        )
    status = printable(facts.status.job_status or facts.status.deployment_status)
    return Diagnosis("Ray", "Runs", "Runs", facts.title, f"{message}{f' The job is {status}.' if status else ''}")


def _diagnose_by_status(facts: JobFacts) -> Diagnosis:
    """Fall back on KubeRay's status, because the pods are not readable."""
    if read_status(facts.ray_cluster).state == "ready" or facts.status.job_status == "RUNNING":
        return Diagnosis("Ray", "Runs", "Runs", facts.title, "KubeRay reports that it runs.")
    return Diagnosis(
        "Pods", "Waits", "PodsUnread", facts.title, "It is admitted, and KubeRay does not report that it runs."
    )


def wanted_workers(ray_cluster: Raw) -> int:
    """The number of workers in the RayCluster's spec."""
    return sum(group.desired_workers for group in read_ray_cluster(ray_cluster).cluster.groups)


def _joined_text(count: int) -> str:
    if count == 0:
        return "it has no workers"
    return "its only worker has joined" if count == 1 else f"all of its {count} workers have joined"


def _kuberay_message(raw: Raw) -> str:
    status = read_status(raw)
    message = as_sentence(status.message or status.reason)
    return f" It reports: {message}" if message else ""


def _describe_advice(facts: JobFacts) -> str:
    return (
        f"If this persists, see `kubectl -n {facts.namespace} describe {facts.kind.lower()} "
        f"{facts.name}`, and whether KubeRay runs."
    )


def _diagnose_head(facts: JobFacts, head: PodState) -> Diagnosis:
    message = f"The head is not ready: {_pod_problem(head, facts)}"
    advice = f"See `kubectl -n {facts.namespace} describe pod {head.name}`."
    return Diagnosis("Pods", "Waits", f"Head{head.step}", f"Pod {facts.namespace}/{head.name}", message, advice)


def _diagnose_worker(facts: JobFacts, worst: PodState, similar: int) -> Diagnosis:
    stage, advice = _STAGE_AND_ADVICE[worst.step]
    similar_text = f" {similar} more {'is' if similar == 1 else 'are'} like it." if similar else ""
    message = f"A worker is not ready yet: {_pod_problem(worst, facts)}{similar_text}"
    advice_fields = {"namespace": facts.namespace, "pod": worst.name, "cluster": worst.cluster or "its worker cluster"}
    in_cluster = "" if worst.cluster in ("", MANAGER) else f" in {worst.cluster}"
    return Diagnosis(
        stage,
        "Waits",
        worst.step,
        f"Pod {facts.namespace}/{worst.name}",
        message,
        advice.format(**advice_fields, there=in_cluster),
    )


def _pod_problem(pod: PodState, facts: JobFacts) -> str:
    """What is wrong with a pod, and where it is, in one sentence or two."""
    location = f" in {pod.cluster}" if pod.cluster else ""
    node = f" on {pod.node}" if pod.node else ""
    problem = {
        "Failed": f"it failed ({pod.reason}){location}{node}",
        "Crashes": f"{pod.reason}{location}{node}",
        "NoImage": f"its image cannot be pulled{location}{node} ({pod.reason})",
        "Unschedulable": f"it cannot be scheduled{location}",
        "ClusterUnreachable": f"its remote pod{location} is unreachable",
        "NoRemotePod": f"its remote pod is not created{location} yet (slot {pod.slot})",
        "NoSlot": f"it is gated, and has no slot on {_placement_title(facts)} yet",
        "Starts": f"it starts{location}{node}",
        "NotJoined": _not_joined_text(pod, location, node),
    }[pod.step]
    message = pod.message
    if pod.step == "NoSlot" and not message and ((facts.placement.get("spec") or {}).get("job") or {}).get("uid"):
        # An elastic job's Placement says what it waits for.
        message = printable((facts.placement.get("status") or {}).get("reason") or "", MAX_TEXT_LENGTH)
    return as_sentence(f"{problem}{f': {message}' if message else ''}")


def _not_joined_text(pod: PodState, location: str, node: str) -> str:
    if pod.reason == WAITS_FOR_GCS:
        return f"it waits in {names.GCS_WAITER}{location}{node} until it reaches the head"
    probe = "Ray does not answer" if pod.role == names.HEAD else "has not joined Ray"
    return f"it runs{location}{node}, and {probe} (Ready is False)"


def _placement_title(facts: JobFacts) -> str:
    return f"Placement {key_of(facts.placement)[1]}" if facts.placement else "a Placement"


_DESCRIBE_POD = "See `kubectl -n {namespace} describe pod {pod}`{there}."
_STAGE_AND_ADVICE: Final[dict[PodStep, tuple[Stage, str]]] = {
    "Failed": ("Pods", "KubeRay creates another one."),
    "Crashes": ("Pods", f"{_DESCRIBE_POD[:-1]}, and its log there."),
    "NoImage": (
        "Pods",
        (
            "Name an image that its nodes can pull, with imagePullSecrets if the registry needs them, or let an "
            "administrator set spec.pods.imageRegistries on WorkerCluster {cluster}; after a minute it is moved to a "
            "cluster that has capacity."
        ),
    ),
    "Unschedulable": (
        "Pods",
        (
            "It starts as soon as a node is available; if that takes too long, it is moved to a "
            "cluster that has capacity."
        ),
    ),
    "ClusterUnreachable": ("Pods", "It is left running; see `kubectl get workerclusters`."),
    "NoRemotePod": ("Pods", "If this persists, see the events of the job."),
    "NoSlot": ("Pods", "If this persists, see the events of the job."),
    "Starts": ("Pods", ""),
    "NotJoined": ("Ray", "If this persists, see its log{there}, and `kubectl rayspan preflight`."),
}
