"""Reasons why the workers of a job cannot run in another cluster: sentences or fragments, empty where there are none.

The admission check needs these reasons before any quota is reserved: one pod that cannot start elsewhere would keep its
whole gang waiting. `pod_validation` has the rules for a pod template, and `rewrite.copied_objects` those for Secrets
and ConfigMaps. Sidecars that KubeRay adds later are not checked, because they are in no podset; nor are fields that
only a newer KubeRay has.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from adapter import names
from adapter.admission import pod_validation, pod_warnings
from adapter.admission.kuberay_validation import KubeRayRejection
from adapter.admission.naming_validation import naming_problems, needed_in_clusters, read_mappings
from adapter.admission.pod_warnings import PodSettings
from adapter.admission.policy import ResolvedPolicy
from adapter.objects import kuberay_rules, rayjob, replica, specs
from adapter.objects.location import ANYWHERE, LOCATION_KEYS, Location, annotated_location
from adapter.objects.placement import placement_name
from adapter.objects.raycluster import WorkerGroup
from adapter.objects.rayjob import JobObject
from adapter.objects.specs import PodMapping
from adapter.objects.topology_request import topology_problem
from adapter.objects.unstructured import Raw, mapping_field, printable
from adapter.objects.workload import PodSet, Workload

RESUBMIT = "Delete the job, correct it, and submit it again."
# The remedy for a fault outside the job; it follows a sentence on that fault.
_CHANGE_AND_RESUBMIT = "Then delete the job, and submit it again."


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
    """A sentence why a Workload's job can never run remotely; for a `submitted` job, with the remedy.

    `job` is empty while unknown. `podsets` are the worker groups that the check covers. `clusters` are the
    WorkerClusters of `resolved_policy`, which is None where it cannot be read.
    """
    if workload.job is None or workload.job.kind not in names.RAY_KINDS:
        if workload.job and workload.job.kind == names.RAY_SERVICE:
            return _service_as_job_message(workload, check)
        kind = workload.job.kind if workload.job else "pod"
        return (
            f"AdmissionCheck {check} dispatches {' and '.join(names.RAY_KINDS)} only, found a {kind}; use another "
            "queue."
        )
    if reason := next(workload_problems(workload, job, podsets, resolved_policy, clusters), ""):
        remedy = f" {resubmit_advice(workload)}" if submitted else ""
        return f"{_file_title(workload, job)}: {reason}.{remedy}"
    if reason := _needs_all_workers(job, resolved_policy):
        return f"{_file_title(workload, job)}: {reason}"
    return ""


def workload_problems(
    workload: Workload,
    job: JobObject,
    podsets: Iterable[PodSet],
    resolved_policy: ResolvedPolicy | None,
    clusters: Iterable[Raw],
) -> Iterator[str]:
    """A fragment for each thing that the user must change; the job must be of a kind that Rayspan dispatches."""
    assert workload.job is not None
    yield from job_problems(job)
    if reason := _elastic_conflict(workload, job):
        yield reason
    podsets = list(podsets)
    mappings = _mappings_of(podsets, resolved_policy, clusters)
    own_placement, locations = placement_name(workload) if workload.elastic else "", rayjob.podset_locations(job)
    for podset in podsets:
        labelled = locations.get(podset.name, ANYWHERE)
        for reason in _group_problems(podset, workload.namespace, mappings, own_placement, labelled):
            yield f"worker group {printable(podset.name)}: {reason}"
    if resolved_policy and resolved_policy.policy.gang == "SameCluster" and mappings:
        yield from _same_cluster_problems(podsets, workload.namespace, mappings)


def further_problems(
    workload: Workload,
    job: JobObject,
    podsets: Iterable[PodSet],
    resolved_policy: ResolvedPolicy | None,
    clusters: Iterable[Raw],
) -> list[str]:
    """Sentences on all but the first problem, for a job that is not submitted."""
    assert workload.job is not None
    last = _needs_all_workers(job, resolved_policy).rstrip(".")
    reasons = chain(workload_problems(workload, job, podsets, resolved_policy, clusters), [last] if last else [])
    return [f"{_file_title(workload, job)}: {reason}." for reason in islice(reasons, 1, specs.MAX_REPORTED_FAULTS)]


def portability_warnings(
    workload: Workload, job: JobObject, podsets: Iterable[PodSet], clusters: Iterable[Raw]
) -> list[str]:
    """Fragments on what the workers refer to that only the manager has, each once; `clusters` are the policy's."""
    templates = {podset.name: podset.template for podset in podsets}
    settings = PodSettings.of_clusters(clusters)
    own_services = {job.cluster.head_service_of(workload.job.name if workload.job else "")}
    warnings = dict[str, None]()
    for index, group in enumerate(job.cluster.groups):
        if group.podset in templates:
            of_params = pod_warnings.start_param_warnings(
                f"{job.cluster_path}.workerGroupSpecs[{index}]", group, workload.namespace, own_services
            )
            warnings |= dict.fromkeys(of_params)
    for name, template in templates.items():
        of_template = pod_warnings.template_warnings(template, own_services, settings, workload.namespace)
        warnings |= {f"worker group {printable(name)}: {warning}": None for warning in of_template}
    return [*islice(warnings, pod_warnings.MAX_WARNINGS)]


def portability_message(workload: Workload, warnings: Iterable[str]) -> str:
    """The sentences of `portability_warnings`, as one message; empty without warnings."""
    return " ".join(f"{_job_title(workload)}: {warning}." for warning in warnings)


def _mappings_of(
    podsets: Iterable[PodSet], resolved_policy: ResolvedPolicy | None, clusters: Iterable[Raw]
) -> Mapping[str, PodMapping] | None:
    """The pod mappings of the policy's clusters, None while they cannot be read.

    WorkerClusters are parsed only for a job that needs anything of them. An unreadable policy is no reason to reject a
    job for good.
    """
    if not any(needed_in_clusters([podset.template]) for podset in podsets):
        return pod_validation.NO_CLUSTERS
    return read_mappings(clusters) if resolved_policy else None


def _same_cluster_problems(
    podsets: Iterable[PodSet], namespace: str, mappings: Mapping[str, PodMapping]
) -> Iterator[str]:
    """The problem of groups that no cluster can take together, where each has a cluster for itself."""
    templates = [podset.template for podset in podsets]
    if not any(list(naming_problems(needed_in_clusters([template]), mappings, namespace)) for template in templates):
        yield from naming_problems(needed_in_clusters(templates), mappings, namespace)


def _group_problems(
    podset: PodSet, namespace: str, mappings: Mapping[str, PodMapping] | None, own: str, labelled: Location
) -> Iterator[str]:
    yield from pod_validation.template_problems(podset.template, namespace, mappings)
    yield from pod_validation.reserved_key_problems(podset.template, own)
    yield from _location_conflicts(podset, labelled)
    if reason := topology_problem(podset.template):
        yield reason


def _needs_all_workers(job: JobObject, resolved_policy: ResolvedPolicy | None) -> str:
    return waits_for_all(job) if resolved_policy and resolved_policy.policy.gang == "BestEffort" else ""


def resubmit_advice(workload: Workload) -> str:
    """The remedy in a rejection: to delete the job, because a rejected Workload stays rejected, whatever is edited."""
    if workload.job is None or workload.job.service is None:
        return RESUBMIT
    service = f"{names.RAY_SERVICE} {workload.job.service.name}"
    return (
        f"Correct {service}, and then delete {workload.job.kind} {workload.job.name}: KubeRay creates it again from "
        f"the corrected {service}."
    )


def _service_as_job_message(workload: Workload, check: str) -> str:
    """The rejection of a RayService that Kueue queues as one job.

    Kueue then counts quota for only one RayCluster of the service, and stops the serving RayCluster at each edit.

    Source: kueue:pkg/controller/jobs/rayservice.
    """
    return (
        f"{_job_title(workload)}: AdmissionCheck {check} dispatches the RayClusters of a {names.RAY_SERVICE}, each as "
        f"its own job, but Kueue queues the {names.RAY_SERVICE} as one job. Remove {names.RAY_SERVICE_FRAMEWORK} from "
        f"integrations.frameworks in Kueue's configuration, restart Kueue, and submit the {names.RAY_SERVICE} again."
    )


def started_early_message(workload: Workload, job: JobObject) -> str:
    """A sentence if KubeRay runs a RayService's RayCluster that Kueue has not admitted.

    If Kueue admitted such a running RayCluster, it would not add our label, so the workers would start in the manager.
    For an admitted Workload the result means nothing.
    """
    service = workload.job.service if workload.job else None
    if service is None or not job.is_known or job.suspended:
        return ""
    return (
        "spec.suspend is not true, but Kueue has not admitted it: KubeRay 1.6.2 starts the RayClusters that Kueue "
        f"suspends of a {names.RAY_SERVICE}; apply kustomize/components/rayservice."
    )


def unsuspended_message(workload: Workload) -> str:
    """The sentence on an elastic job that was unsuspended before Kueue admitted it.

    If we treated the job as running, its workers would start in the manager.
    """
    kind = workload.job.kind if workload.job else "job"
    return (
        "spec.suspend is false, but Kueue has not admitted it: another client set it; set spec.suspend to true, or "
        f"delete the {kind} and submit it again."
    )


def restart_warning(workload: Workload, resolved_policy: ResolvedPolicy | None) -> str:
    """A sentence if the loss of one share would restart a RayService's whole RayCluster."""
    service = workload.job.service if workload.job else None
    if service is None or resolved_policy is None or resolved_policy.policy.share_lost_action != "Restart":
        return ""
    return (
        "The policy's onShareLost is Restart: when a worker cluster loses its workers, the whole RayCluster stops and "
        f"queues again, and {names.RAY_SERVICE} {service.name} answers no requests until it runs again; use a queue "
        "whose policy has onShareLost: Replace."
    )


def move_warning(workload: Workload, ignored: str) -> str:
    """A sentence on what is ignored of the clusters that the job names to leave."""
    return f"{_job_title(workload)}: {ignored}." if ignored else ""


def autoscaler_timeout_warning(workload: Workload, job: JobObject) -> str:
    """A sentence if Ray's autoscaler keeps workers that it no longer needs pending for an hour.

    It does so unless one of two timeouts is set (ray:python/ray/autoscaler/v2/instance_manager/config.py).
    """
    env_names = rayjob.autoscaler_env(job)
    if env_names is None or env_names & {names.RAY_PENDING_IDLE_TIMEOUT_ENV, names.RAY_ALLOCATION_TIMEOUT_ENV}:
        return ""
    return (
        "Ray's autoscaler keeps a pending worker that is not needed any more for an hour "
        f"({names.RAY_ALLOCATION_TIMEOUT_ENV}), and its quota in the manager; set {names.RAY_PENDING_IDLE_TIMEOUT_ENV} "
        "to 60 in autoscalerOptions.env."
    )


def service_problem(service: Raw) -> str:
    """A fragment why no RayCluster of a RayService can run elsewhere."""
    return next(service_problems(service), "")


def service_problems(service: Raw) -> Iterator[str]:
    """The fragments on all problems; `service_problem` returns the first."""
    yield from kuberay_rules.service_faults(service)
    kind = ((service.get("spec") or {}).get("upgradeStrategy") or {}).get("type")
    if kind == names.INCREMENTAL_UPGRADE:
        yield (
            f"spec.upgradeStrategy.type is {names.INCREMENTAL_UPGRADE}, which moves workers from one RayCluster to the "
            "next, but in a queue each RayCluster has quota of its own; set NewCluster"
        )


def missing_config(service: Raw) -> str:
    """A fragment if a RayService has no spec of its RayCluster; the field has another name than in a RayJob."""
    spec = mapping_field(service, "spec")
    if mapping_field(spec, "rayClusterConfig"):
        return ""
    other = ", not in spec.rayClusterSpec" if "rayClusterSpec" in spec else ""
    return (
        f"spec.rayClusterConfig is missing, where a {names.RAY_SERVICE} has the spec of its RayCluster{other}; define "
        "head and workers there"
    )


def job_rejection(workload: Workload, reason: str) -> str:
    """The rejection of a job for a reason that only another job can mend; empty without one."""
    return f"{_job_title(workload)}: {reason}. {_CHANGE_AND_RESUBMIT}" if reason else ""


def kuberay_message(workload: Workload, rejection: KubeRayRejection) -> str:
    """The sentence on a job that KubeRay rejects, in KubeRay's words."""
    service = workload.job.service if workload.job else None
    where = f"{names.RAY_SERVICE} {service.name}" if service else "the job"
    remedy = RESUBMIT if rejection.is_final else f"Correct the spec of {where}; KubeRay then validates it again."
    words = rejection.message.rstrip(".") or "it gives no cause"
    return f"{_job_title(workload)}: KubeRay rejects it ({printable(rejection.reason)}): {words}. {remedy}"


def missing_sources_message(workload: Workload, reason: str) -> str:
    """A sentence on referenced objects that the manager lacks."""
    return f"{_job_title(workload)}: {reason}." if reason else ""


def _file_title(workload: Workload, job: JobObject) -> str:
    """The kind and name in the user's file, which may be that of a RayService."""
    return f"{names.RAY_SERVICE} {workload.job.name}" if workload.job and job.of_service else _job_title(workload)


def _job_title(workload: Workload) -> str:
    return f"{workload.job.kind} {workload.job.name}" if workload.job else f"Workload {workload.name}"


def job_problem(job: JobObject) -> str:
    """A fragment why the workers of a RayJob or RayCluster cannot run elsewhere.

    The fields checked here are those that KubeRay acts on when it creates pods and that no podset shows
    (kuberay:apis/ray/v1/raycluster_types.go; docs/upstream.md, "Jobs whose workers must stay together").
    """
    return next(job_problems(job), "")


def job_problems(job: JobObject) -> Iterator[str]:
    """The fragments on all problems; `job_problem` returns the first."""
    where = job.cluster_path
    yield from job.kuberay_faults
    yield from _missing_elastic_annotation(where, job)
    if job.cluster.tls:
        yield (
            f"{where}.tlsOptions is set: a worker in a worker cluster would wait for a certificate with its own "
            "address, and Ray does not read a new one; leave it out, and set RAY_USE_TLS and the certificates in the "
            "templates"
        )
    if job.cluster.token_auth:
        yield (
            f"{where}.authOptions.enableK8sTokenAuth is true: the token's issuer is the cluster that a pod runs in, "
            "which the manager does not trust; use authOptions.mode token"
        )
    for index, group in enumerate(job.cluster.groups):
        if group.hosts > replica.MAX_HOSTS:
            yield (
                f"{where}.workerGroupSpecs[{index}].numOfHosts is {group.num_of_hosts}, and a replica has at most "
                f"{replica.MAX_HOSTS} hosts; use more replicas"
            )
        for key in group.labels:
            if key in replica.HOST_LABELS:
                yield (
                    f"{where}.workerGroupSpecs[{index}].labels has {key}: KubeRay writes it on each host of a replica; "
                    "remove it"
                )
            if key.startswith(f"{names.DOMAIN}/"):
                yield (
                    f"{where}.workerGroupSpecs[{index}].labels has {printable(key)}: the key is reserved for Rayspan; "
                    "remove it"
                )
        if group.desired_workers != group.quota_workers:
            yield _count_mismatch(f"{where}.workerGroupSpecs[{index}]", group)
    if job.resizes:
        yield (
            f"metadata.annotations has {names.RAY_IN_PLACE_RESIZE_ANNOTATION}: a worker in a worker cluster is not "
            "resized while it runs; remove it"
        )


def _missing_elastic_annotation(where: str, job: JobObject) -> Iterator[str]:
    """A fragment if a job uses the autoscaler without being elastic.

    Kueue lets only a job with the annotation of elastic jobs change its size (docs/upstream.md, "Elastic jobs").
    """
    if job.cluster.autoscaling and not job.elastic:
        yield (
            f"{where}.enableInTreeAutoscaling is true, and metadata.annotations lacks {names.ELASTIC_ANNOTATION}: "
            '"true": Kueue holds quota for a fixed number of workers; add the annotation, or use a LocalQueue with '
            f"the label {names.JOB_DEFAULTS_LABEL}, which adds it, or leave the field out and set replicas"
        )


def _elastic_conflict(workload: Workload, job: JobObject) -> str:
    if workload.elastic or not job.elastic:
        return ""
    return (
        f"metadata.annotations has {names.ELASTIC_ANNOTATION}, but its Workload {workload.name} lacks it: Kueue in the "
        "manager cluster holds quota for a fixed number of workers; turn on its feature gate "
        "ElasticJobsViaWorkloadSlices, or remove the annotation"
    )


def _location_conflicts(podset: PodSet, labelled: Location) -> Iterator[str]:
    """A fragment for each label of a group that its template's annotation contradicts.

    Workers could then run in one zone or region while Ray's autoscaler counts them in the other.
    """
    rows = zip(LOCATION_KEYS, labelled, annotated_location(podset.template), strict=True)
    for keys, required, annotated in rows:
        if required and annotated not in ("", required):
            yield (
                f"its labels have {keys.ray_label}: {printable(required)}, but the annotations of its template have "
                f"{keys.annotation}: {printable(annotated)}; remove the annotation"
            )


def _count_mismatch(where: str, group: WorkerGroup) -> str:
    """A fragment on a group for which KubeRay creates another number of workers than Kueue holds quota for."""
    desired, quota = group.desired_workers, group.quota_workers
    if group.suspended:
        return (
            f"{where}.suspend is true: KubeRay creates no workers of the group, and Kueue would hold quota for "
            f"{quota}; leave it out, or set replicas to 0"
        )
    if group.num_of_hosts is not None and group.num_of_hosts < 1:
        return (
            f"{where}.numOfHosts is {group.num_of_hosts}: KubeRay creates no workers of the group, and Kueue would "
            f"hold quota for {quota}; set 1"
        )
    limit, value = ("minReplicas", group.min_replicas) if desired > quota else ("maxReplicas", group.max_replicas)
    return (
        f"{where}.replicas is {group.replicas} and {limit} {value}: KubeRay creates {desired} workers of the group, "
        f"and Kueue would hold quota for {quota}; set replicas to {desired}"
    )


def waits_for_all(job: JobObject) -> str:
    """A sentence why a job cannot start with a part of its workers.

    KubeRay submits only when all workers are ready, unless the submitter is a sidecar of the head (ray-operator
    rayjob_controller.go: it waits for the RayCluster's state ready).
    """
    if job.kind != "RayJob" or job.submission_mode == "SidecarMode":
        return ""
    return (
        f"its spec.submissionMode {job.submission_mode} starts the job only when every worker is ready, and the "
        "policy's gang BestEffort may place fewer; submit it with SidecarMode, or in a queue whose policy places all "
        "workers."
    )
