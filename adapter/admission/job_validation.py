"""Why can the workers of a job not run in another cluster: a sentence, a fragment of one, or nothing?

Asked at the admission check, before any quota is held: a pod that cannot start elsewhere would hold its whole gang. What its
templates must not have is said in `pod_validation.py`, and whether the Secrets and ConfigMaps that it refers to can be copied is
asked of the manager (`rewrite.copied_objects`); what KubeRay adds to the template afterwards (operator-wide sidecars) is not in a podset
and not seen here. A field of a KubeRay that is newer than the manager's is not there, and nothing is said of it.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from adapter import names
from adapter.admission import pod_validation
from adapter.admission.policy import ResolvedPolicy
from adapter.objects import rayjob, specs
from adapter.objects.placement import placement_name
from adapter.objects.raycluster import WorkerGroup
from adapter.objects.rayjob import JobObject
from adapter.objects.unstructured import Raw, annotation, printable
from adapter.objects.workload import PodSet, Workload

RESUBMIT = "Delete the job, and submit it again without that."  # the end of a refusal, for a job that is submitted
_CHANGE_AND_RESUBMIT = (
    "Delete the job, and submit it again then."  # the same, where something else than the job is to be changed first
)


def workload_rejection(
    workload: Workload,
    job: JobObject,
    check: str,
    podsets: Iterable[PodSet],
    resolved_policy: ResolvedPolicy | None,
    clusters: Iterable[Raw],
    *,
    submitted: bool = True,
) -> str:
    """Say in a sentence why the job of a Workload can never run remotely, empty when it can; of a job that is
    submitted also what to do.

    `job` is its RayJob or RayCluster, empty while nothing is known of it; `podsets` are the worker groups that the check covers,
    `chosen` is its policy, None where that cannot be read, and `clusters` are the WorkerClusters that the policy names.
    """
    if workload.job is None or workload.job.kind not in names.RAY_KINDS:
        if workload.job and workload.job.kind == names.RAY_SERVICE:
            return _service_as_job_message(workload, check)
        kind = workload.job.kind if workload.job else "pod"
        return f"AdmissionCheck {check} dispatches {' and '.join(names.RAY_KINDS)} only, found a {kind}; use another queue."
    if why := next(workload_problems(workload, job, podsets, resolved_policy, clusters), ""):
        what_to_do = f" {resubmit_advice(workload)}" if submitted else ""
        return f"{_job_title(workload)}: {why}.{what_to_do}"
    if why := _needs_all_workers(job, resolved_policy):
        return f"{_job_title(workload)}: {why}"
    return ""


def workload_problems(
    workload: Workload,
    job: JobObject,
    podsets: Iterable[PodSet],
    resolved_policy: ResolvedPolicy | None,
    clusters: Iterable[Raw],
) -> Iterator[str]:
    """Say in fragments all that its user must take out of a job, the first one as `of_workload` says it; of a kind that is dispatched."""
    assert workload.job is not None
    yield from job_problems(job)
    if why := _elastic_conflict(workload, job):
        yield why
    given = _has_service_account(resolved_policy, clusters)
    own, zones = placement_name(workload) if workload.elastic else "", rayjob.podset_zones(job)
    for podset in podsets:
        for why in _group_problems(podset, given, own, zones.get(podset.name, "")):
            yield f"worker group {printable(podset.name)}: {why}"


def further_problems(
    workload: Workload,
    job: JobObject,
    podsets: Iterable[PodSet],
    resolved_policy: ResolvedPolicy | None,
    clusters: Iterable[Raw],
) -> list[str]:
    """Say in sentences what else is to be taken out of a job, beside what `of_workload` says: for a job that is not submitted."""
    assert workload.job is not None
    last = _needs_all_workers(job, resolved_policy).rstrip(".")
    found = chain(workload_problems(workload, job, podsets, resolved_policy, clusters), [last] if last else [])
    return [f"{_job_title(workload)}: {why}." for why in islice(found, 1, specs.MAX_REPORTED_FAULTS)]


def _group_problems(podset: PodSet, has_account: bool, own: str, zone: str) -> Iterator[str]:
    yield from pod_validation.template_problems(podset.template, account_given=has_account)
    yield from pod_validation.reserved_key_problems(podset.template, own)
    if why := _zone_conflict(podset, zone):
        yield why


def _needs_all_workers(job: JobObject, resolved_policy: ResolvedPolicy | None) -> str:
    return waits_for_all(job) if resolved_policy and resolved_policy.policy.gang == "BestEffort" else ""


def resubmit_advice(workload: Workload) -> str:
    """The end of a refusal: what its user is to do. Kueue lets a Workload that was refused stay refused, whatever is edited."""
    if workload.job is None or workload.job.service is None:
        return RESUBMIT
    of = f"{names.RAY_SERVICE} {workload.job.service.name}"
    return f"Correct {of}, and then delete {workload.job.kind} {workload.job.name}: KubeRay makes it anew from what {of} says by then."


def _service_as_job_message(workload: Workload, check: str) -> str:
    """Kueue would count one RayCluster of the service, and stop the one that serves for each edit (kueue:pkg/controller/jobs/rayservice)."""
    return (
        f"{_job_title(workload)}: AdmissionCheck {check} dispatches the RayClusters of a {names.RAY_SERVICE}, each as a job of its own, and Kueue "
        f"takes the {names.RAY_SERVICE} for one job. Take {names.RAY_SERVICE_FRAMEWORK} out of integrations.frameworks in Kueue's configuration, "
        f"restart Kueue, and submit the {names.RAY_SERVICE} again."
    )


def started_early_message(workload: Workload, job: JobObject) -> str:
    """Say in a sentence that KubeRay runs a RayCluster of a RayService that Kueue has not admitted, empty when it does not.

    It would be admitted as it is: without our label, its workers would start in the manager. `job` is as it is known now, empty
    while it is not; of one that is admitted nothing is to be asked.
    """
    service = workload.job.service if workload.job else None
    if service is None or not job.is_known or job.suspended:
        return ""
    return (
        "spec.suspend is not true, and Kueue has not admitted it: KubeRay 1.6.2 starts what Kueue suspends of a "
        f"{names.RAY_SERVICE}; apply kustomize/components/rayservice."
    )


def unsuspended_message(workload: Workload) -> str:
    """Say in a sentence that somebody let an elastic job run which Kueue has not admitted: answered as one that runs, its workers would
    start in the manager."""
    kind = workload.job.kind if workload.job else "job"
    return (
        "spec.suspend is false, and Kueue has not admitted it: somebody else set it; set spec.suspend to true, or delete "
        f"the {kind} and submit it again."
    )


def restart_warning(workload: Workload, resolved_policy: ResolvedPolicy | None) -> str:
    """Say in a sentence what the user of a RayCluster must know before it starts, empty when nothing: of a RayService, that it may stop
    as a whole."""
    service = workload.job.service if workload.job else None
    if service is None or resolved_policy is None or resolved_policy.policy.share_lost_action != "Restart":
        return ""
    return (
        f"The policy's onShareLost is Restart: when a worker cluster loses its workers, the whole RayCluster stops and queues again, and "
        f"{names.RAY_SERVICE} {service.name} answers nobody until it runs; use a queue whose policy says Replace."
    )


def autoscaler_timeout_warning(workload: Workload, job: JobObject) -> str:
    """Say in a sentence what Ray's autoscaler does with workers that wait, and which time its user is to set; empty where it does not
    run, or one of its two times is set (ray:python/ray/autoscaler/v2/instance_manager/config.py): then it is not an hour."""
    given = rayjob.autoscaler_env(job)
    if given is None or given & {names.RAY_PENDING_IDLE_TIMEOUT_ENV, names.RAY_ALLOCATION_TIMEOUT_ENV}:
        return ""
    return (
        f"Ray's autoscaler keeps a worker that waits and that nobody needs any more for an hour ({names.RAY_ALLOCATION_TIMEOUT_ENV}), and the "
        f"manager's quota with it; set {names.RAY_PENDING_IDLE_TIMEOUT_ENV} to 60 in autoscalerOptions.env."
    )


def service_problem(service: Raw) -> str:
    """Say in a fragment why no RayCluster of a RayService can run elsewhere, empty when they can; what its RayClusters have is asked of
    each of them."""
    kind = ((service.get("spec") or {}).get("upgradeStrategy") or {}).get("type")
    if kind != names.INCREMENTAL_UPGRADE:
        return ""
    return (
        f"spec.upgradeStrategy.type is {names.INCREMENTAL_UPGRADE}, which lets its RayClusters grow and shrink while they run: a RayCluster in a "
        "queue keeps its number of workers; set NewCluster"
    )


def sources_rejection(workload: Workload, reason: str) -> str:
    """Say in a sentence that what its workers refer to can never be copied (`why`, a fragment), empty when it can."""
    return f"{_job_title(workload)}: {reason}. {_CHANGE_AND_RESUBMIT}" if reason else ""


def missing_sources_message(workload: Workload, reason: str) -> str:
    """Say in a sentence that the manager does not have what its workers refer to, empty when it has all."""
    return f"{_job_title(workload)}: {reason}." if reason else ""


def _job_title(workload: Workload) -> str:
    """Whom a sentence is about: the job that its user knows."""
    return f"{workload.job.kind} {workload.job.name}" if workload.job else f"Workload {workload.name}"


def _has_service_account(resolved_policy: ResolvedPolicy | None, clusters: Iterable[Raw]) -> bool:
    """Whether each cluster that the policy names has a service account for the pods that come to it; where no policy can be
    read nothing is planned, and nothing shall be refused for good."""
    pods = [(raw.get("spec") or {}).get("pods") or {} for raw in clusters]
    return all(one.get("serviceAccountName") for one in pods) and (bool(pods) or resolved_policy is None)


def job_problem(job: JobObject) -> str:
    """Say in a fragment why the workers of a RayJob or RayCluster cannot run elsewhere, empty when they can.

    As of a template: field, what was found, what to do. KubeRay acts on these fields when it makes pods, and none of them is in a
    Workload's podsets. Sources: kuberay:apis/ray/v1/raycluster_types.go; docs/upstream.md,
    "Jobs whose workers must stay together".
    """
    return next(job_problems(job), "")


def job_problems(job: JobObject) -> Iterator[str]:
    """Say the same of all that is in the way."""
    where = "spec.rayClusterSpec" if job.kind == "RayJob" else "spec"
    yield from _missing_elastic_annotation(where, job)
    if job.cluster.tls:
        yield (
            f"{where}.tlsOptions is set: a worker elsewhere would wait for a certificate with its own address, and Ray does "
            "not read a new one; leave it out, and set RAY_USE_TLS and the certificates in the templates"
        )
    if job.cluster.token_auth:
        yield (
            f"{where}.authOptions.enableK8sTokenAuth is true: the token's issuer is the cluster that a pod runs in, which the "
            "manager does not trust; use authOptions.mode token"
        )
    for index, group in enumerate(job.cluster.groups):
        if (group.num_of_hosts or 1) > 1:
            yield (
                f"{where}.workerGroupSpecs[{index}].numOfHosts is {group.num_of_hosts}: the hosts of one replica could come "
                "into different clusters; set 1"
            )
        for key in group.labels:
            if key.startswith(f"{names.DOMAIN}/"):
                yield f"{where}.workerGroupSpecs[{index}].labels has {printable(key)}: Rayspan writes that itself, and reads it; remove it"
        if group.desired_workers != group.quota_workers:
            yield _count_mismatch(f"{where}.workerGroupSpecs[{index}]", group)
    if job.resizes:
        yield (
            f"metadata.annotations has {names.RAY_IN_PLACE_RESIZE_ANNOTATION}: a worker elsewhere is not resized while it runs; "
            "remove it"
        )


def _missing_elastic_annotation(where: str, job: JobObject) -> Iterator[str]:
    """What makes a job grow and shrink while it runs, though its queue was not told (docs/upstream.md, "Elastic jobs")."""
    if job.cluster.autoscaling and not job.elastic:
        yield (
            f'{where}.enableInTreeAutoscaling is true, and metadata.annotations lacks {names.ELASTIC_ANNOTATION}: "true": Kueue '
            "holds quota for a fixed number of workers; add the annotation, or leave the field out and set replicas"
        )


def _elastic_conflict(workload: Workload, job: JobObject) -> str:
    """Why a job that says that it changes its size may not: it is of a RayService, or its Workload does not say so."""
    if workload.elastic and workload.job and workload.job.service:
        return (
            f"metadata.annotations has {names.ELASTIC_ANNOTATION}, from {names.RAY_SERVICE} {workload.job.service.name}: the RayClusters of a "
            f"{names.RAY_SERVICE} keep their number of workers; remove it there, with spec.rayClusterConfig.enableInTreeAutoscaling"
        )
    if workload.elastic or not job.elastic:
        return ""
    return (
        f"metadata.annotations has {names.ELASTIC_ANNOTATION}, and its Workload {workload.name} has not: Kueue in the manager cluster holds "
        "quota for a fixed number of workers; turn on its feature gate ElasticJobsViaWorkloadSlices, or remove the annotation"
    )


def _zone_conflict(podset: PodSet, labelled: str) -> str:
    """Workers could be where the one says, and Ray's autoscaler would take them for being where the other says."""
    annotated = annotation(podset.template, names.ZONE_ANNOTATION)
    if not labelled or annotated in ("", labelled):
        return ""
    return (
        f"its labels have {names.RAY_ZONE_LABEL}: {printable(labelled)}, and the annotations of its template {names.ZONE_ANNOTATION}: "
        f"{printable(annotated)}; leave the annotation out"
    )


def _count_mismatch(where: str, group: WorkerGroup) -> str:
    """KubeRay would make workers for which no quota is held, or quota would be held for workers that nobody makes."""
    made, held = group.desired_workers, group.quota_workers
    if group.suspended:
        return (
            f"{where}.suspend is true: KubeRay makes no worker of the group, and Kueue would hold quota for {held}; leave it out, "
            "or set replicas to 0"
        )
    if group.num_of_hosts is not None and group.num_of_hosts < 1:
        return (
            f"{where}.numOfHosts is {group.num_of_hosts}: KubeRay makes no worker of the group, and Kueue would hold quota for "
            f"{held}; set 1"
        )
    limit, value = ("minReplicas", group.min_replicas) if made > held else ("maxReplicas", group.max_replicas)
    return (
        f"{where}.replicas is {group.replicas} and {limit} {value}: KubeRay makes {made} workers of the "
        f"group, and Kueue would hold quota for {held}; set replicas to {made}"
    )


def waits_for_all(job: JobObject) -> str:
    """Say in a sentence why a job cannot start with a part of its workers, empty when it can.

    KubeRay submits to a cluster only when every worker of it is ready, unless the submitter sits beside the head
    (ray-operator rayjob_controller.go: it waits for the RayCluster's state ready). A part would wait for ever.
    """
    if job.kind != "RayJob" or job.submission_mode == "SidecarMode":
        return ""
    return (
        f"its spec.submissionMode {job.submission_mode} starts the job only when every worker is ready, and the policy's gang BestEffort "
        "may place fewer; submit it with SidecarMode, or through a queue whose policy places all."
    )
