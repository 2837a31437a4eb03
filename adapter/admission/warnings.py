"""Warnings on a job, a WorkerCluster or a DispatchPolicy when it is applied.

They reject nothing, and report early what a condition or event would report later. A job in a namespace without a
dispatching queue gets no warning. The controller plans whether a job fits now.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from adapter import names
from adapter.admission import job_validation, queue_layout
from adapter.admission.policy import PolicyObjects, ResolvedPolicy, policy_of_check, resolve_clusters
from adapter.admission.readiness import no_cluster_message, policy_readiness, start_timeout_warning
from adapter.objects import job_manifest, move_from, rayservice, specs
from adapter.objects.admissioncheck import AdmissionCheck, covered_groups
from adapter.objects.job_manifest import JobManifest, JobParseResult
from adapter.objects.queues import NO_CLUSTER_QUEUE, ClusterQueue, LocalQueue
from adapter.objects.unstructured import MAX_ITEM_LENGTH, UNREADABLE, Raw, key_of, label, printable
from adapter.objects.workload import PodSet, Workload, parse_workload

# An API server passes on 4096 characters of all webhooks, and cuts each warning to 256 where there are more
# (k8s:apiserver/pkg/endpoints/filters/warning.go). A quarter is left to other webhooks.
MAX_CHARACTERS = 3_072
MAX_WARNINGS = 16


@dataclass(frozen=True, slots=True)
class WarningContext:
    """The manager cluster's queues, and what admins have written."""

    local_queues: Mapping[str, LocalQueue]  # of the object's namespace, by name
    cluster_queues: Mapping[str, ClusterQueue]
    checks: Mapping[str, AdmissionCheck]
    policy_objects: PolicyObjects


@dataclass(frozen=True, slots=True)
class JobWarnings:
    """The warnings on a job, and the job to plan, if there is one."""

    faults: tuple[str, ...] = ()  # sentences: why it is not dispatched
    differences: tuple[str, ...] = ()  # sentences: what is dispatched, and differs in a worker cluster
    job_to_plan: Raw | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*self.faults, *self.differences)


_NO_WARNINGS = JobWarnings()


@dataclass(frozen=True, slots=True)
class _QueuedJob:
    """A job that one of our queues dispatches, with what the sentences on it are read from."""

    raw: Raw  # as its user wrote it
    parsed: JobParseResult
    cluster_queue: ClusterQueue
    check: AdmissionCheck
    resolved_policy: ResolvedPolicy | None
    policy_problem: str  # a sentence; empty if the policy is usable
    clusters: tuple[Raw, ...]  # the WorkerClusters of the policy
    workload: Workload | None  # as Kueue would make it; None if the job cannot be read
    podsets: tuple[PodSet, ...] = ()  # the worker groups with workers that the check covers


def job_warnings(raw: Raw, context: WarningContext, now: datetime) -> JobWarnings:
    """The warnings on a RayJob, RayCluster or RayService; raises one of UNREADABLE if the object is malformed."""
    our_queues = _dispatching_queues(context)
    queue = label(raw, names.QUEUE_LABEL)
    name = queue or (names.DEFAULT_QUEUE if names.DEFAULT_QUEUE in context.local_queues else "")
    if reason := _wrong_queue_reason(raw, name, our_queues, context):
        return JobWarnings((f"{_object_title(raw)}: {reason}.",))
    if name not in our_queues:
        return _NO_WARNINGS
    is_service = raw.get("kind") == names.RAY_SERVICE
    if is_service and (reason := job_validation.missing_config(raw)):
        return JobWarnings((f"{_object_title(raw)}: {reason}.",))
    job = rayservice.ray_cluster(raw) if is_service else raw
    parsed = job_manifest.parse_partially(job, key_of(raw)[0], of_service=is_service)
    queued = _queued_job(raw, parsed, name, context, now)
    faults = _job_faults(queued, context)
    return JobWarnings(faults, _job_differences(queued, context), None if faults else job)


def worker_cluster_warnings(raw: Raw, policy_objects: PolicyObjects) -> list[str]:
    """The warnings on a WorkerCluster; `policy_objects` may have its earlier version."""
    try:
        specs.parse_worker_cluster(raw)
    except specs.InvalidSpec as error:
        return list(error.messages)
    name = key_of(raw)[1]
    updated = PolicyObjects(
        policy_objects.policies, [*_other_clusters(policy_objects, name), raw], policy_objects.configs
    )
    if policy_objects.policies and not any(
        name in _considered_clusters(policy, updated) for policy in policy_objects.policies.values()
    ):
        return [
            f"{names.WORKER_CLUSTER_KIND} {printable(name)}: no {names.DISPATCH_POLICY_KIND} considers it, so no "
            "workers go there; name it in spec.clusters.names of one, or give it spec.labels that a selector there "
            "matches."
        ]
    return []


def dispatch_policy_warnings(raw: Raw, policy_objects: PolicyObjects) -> list[str]:
    """The warnings on a DispatchPolicy: each fault in its spec, why it will not be Ready, or what works badly."""
    try:
        specs.parse_dispatch_policy(raw)
    except specs.InvalidSpec as error:
        return [*error.messages, *_policy_cluster_warnings(raw, policy_objects)]
    readiness = policy_readiness(raw, policy_objects)
    if readiness.status != "True":
        return [readiness.message]
    return [*filter(None, [start_timeout_warning(raw, policy_objects)])]


def _policy_cluster_warnings(raw: Raw, policy_objects: PolicyObjects) -> list[str]:
    """The warnings on the clusters of a policy whose spec has other faults."""
    spec = raw.get("spec")
    bare = {**raw, "spec": {"clusters": spec.get("clusters") if isinstance(spec, dict) else None}}
    try:
        specs.parse_dispatch_policy(bare)
    except specs.InvalidSpec:
        return []
    return dispatch_policy_warnings(bare, policy_objects)


def plan_warnings(raw: Raw, answer: Mapping[str, object]) -> list[str]:
    """The controller's plan as a sentence; empty if the response is from a controller of another version."""
    fits, sentence = answer.get("fits"), answer.get("sentence")
    if not isinstance(fits, bool) or not isinstance(sentence, str) or not sentence:
        return []
    return [f"{_object_title(raw)} {'fits now' if fits else 'does not fit now'}: {sentence}"]


def limit_warnings(sentences: Sequence[str]) -> list[str]:
    """As many sentences as an API server passes on whole, one a line, and how many were left out."""
    lines: list[str] = []
    remaining = MAX_CHARACTERS
    for sentence in sentences[:MAX_WARNINGS]:
        line = printable(sentence, MAX_ITEM_LENGTH)
        if len(line) > remaining:
            break
        lines.append(line)
        remaining -= len(line)
    omitted = len(sentences) - len(lines)
    return [*lines, f"and {omitted} more: apply it again when these are fixed"] if omitted else lines


def _object_title(raw: Raw) -> str:
    meta = raw.get("metadata") or {}
    name = meta.get("name") or meta.get("generateName") or ""
    return f"{raw.get('kind')} {printable(name, job_manifest.MAX_NAME_LENGTH)}"


def _dispatching_queues(context: WarningContext) -> list[str]:
    return sorted(
        name
        for name, queue in context.local_queues.items()
        if _our_checks_of(_cluster_queue_of(queue, context), context)
    )


def _cluster_queue_of(local_queue: LocalQueue, context: WarningContext) -> ClusterQueue:
    return context.cluster_queues.get(local_queue.cluster_queue, NO_CLUSTER_QUEUE)


def _queue_and_check(queue: str, context: WarningContext) -> tuple[ClusterQueue, str]:
    """The ClusterQueue of one of our LocalQueues, and our check in it."""
    cluster_queue = _cluster_queue_of(context.local_queues[queue], context)
    return cluster_queue, _our_checks_of(cluster_queue, context)[0]


def _our_checks_of(cluster_queue: ClusterQueue, context: WarningContext) -> list[str]:
    return [name for name in cluster_queue.checks if name in context.checks and context.checks[name].is_ours]


def _wrong_queue_reason(raw: Raw, name: str, our_queues: list[str], context: WarningContext) -> str:
    """A fragment why the job bypasses our queues; empty if no user would expect it to use one."""
    local_queue, namespace = context.local_queues.get(name), key_of(raw)[0]
    dispatches = f"{', '.join(our_queues)} of namespace {namespace}"
    if not name:
        if not our_queues:
            return ""
        return (
            f"metadata.labels has no {names.QUEUE_LABEL}, so it waits in no queue, and its workers start in the "
            f"manager cluster; for worker clusters name LocalQueue {dispatches}"
        )
    if local_queue is None:
        have = f"it has {', '.join(sorted(context.local_queues))}" if context.local_queues else "it has none"
        return (
            f"namespace {namespace} has no LocalQueue {printable(name)}, {have}, so it waits until there is one; name "
            f"one in metadata.labels {names.QUEUE_LABEL}"
        )
    if not (cluster_queue := _cluster_queue_of(local_queue, context)).name:
        target = printable(local_queue.cluster_queue)
        return (
            f"LocalQueue {name} leads to ClusterQueue {target}, which does not exist, so it waits until there is one; "
            "name another queue"
        )
    if our_queues and name not in our_queues:
        return (
            f"ClusterQueue {cluster_queue.name} of LocalQueue {name} has no AdmissionCheck of "
            f"{names.CONTROLLER_NAME}, so its workers run in the manager cluster; for worker clusters name LocalQueue "
            f"{dispatches}"
        )
    return ""


def _queued_job(raw: Raw, parsed: JobParseResult, queue: str, context: WarningContext, now: datetime) -> _QueuedJob:
    """Read a job in one of our queues; what cannot be read is left out."""
    cluster_queue, name = _queue_and_check(queue, context)
    check = context.checks[name]
    resolved_policy, problem = _resolve_policy_of(check, context.policy_objects)
    names_of_policy = resolved_policy.clusters if resolved_policy else ()
    clusters = tuple(cluster for cluster in context.policy_objects.clusters if key_of(cluster)[1] in names_of_policy)
    workload, podsets = _workload_and_podsets(parsed.manifest, queue, name, cluster_queue, now)
    return _QueuedJob(raw, parsed, cluster_queue, check, resolved_policy, problem, clusters, workload, podsets)


def _workload_and_podsets(
    manifest: JobManifest | None, queue: str, check: str, cluster_queue: ClusterQueue, now: datetime
) -> tuple[Workload | None, tuple[PodSet, ...]]:
    """The Workload that Kueue would make of a job, and the worker groups with workers that the check covers."""
    if manifest is None:
        return None, ()
    checks, flavors = cluster_queue.checks, cluster_queue.flavors
    try:
        workload = parse_workload(job_manifest.build_workload(manifest, queue, checks, flavors, 0, now))
        groups = covered_groups(workload, check, cluster_queue, manifest.job)
    except (*UNREADABLE, RecursionError):
        return None, ()
    return workload, tuple(group for group in groups if group.count)


def _job_faults(queued: _QueuedJob, context: WarningContext) -> tuple[str, ...]:
    """The faults of a job, each once; raises one of UNREADABLE if there is no other fault than that."""
    sentences, title = dict.fromkeys(queued.parsed.faults), _object_title(queued.raw)
    try:
        for reason in islice(_further_faults(queued, context), specs.MAX_REPORTED_FAULTS):
            sentences[f"{title}: {reason}."] = None
    except (*UNREADABLE, RecursionError):
        if not sentences:
            raise
    return tuple(sentences)[: specs.MAX_REPORTED_FAULTS]


def _further_faults(queued: _QueuedJob, context: WarningContext) -> Iterator[str]:
    """Fragments on the faults that parsing does not find; only some of them for a job that cannot be read."""
    cluster_queue = queued.cluster_queue
    controllers = {
        name: context.checks[name].controller if name in context.checks else "" for name in cluster_queue.checks
    }
    if rival := queue_layout.conflicting_checks(f"ClusterQueue {cluster_queue.name}", controllers):
        yield rival.rstrip(".")
    if queued.policy_problem:
        yield queued.policy_problem.rstrip(".")
    if queued.raw.get("kind") == names.RAY_SERVICE:
        yield from job_validation.service_problems(queued.raw)
    if queued.parsed.manifest:
        yield from _workload_problems(queued, queued.parsed.manifest)


def _workload_problems(queued: _QueuedJob, manifest: JobManifest) -> Iterator[str]:
    if queued.workload is None:
        raise ValueError(f"{manifest} cannot be read")
    policy = queued.resolved_policy
    yield from job_validation.workload_problems(queued.workload, manifest.job, queued.podsets, policy, queued.clusters)
    if policy and policy.policy.gang == "BestEffort" and (reason := job_validation.waits_for_all(manifest.job)):
        yield reason.rstrip(".")


def _job_differences(queued: _QueuedJob, context: WarningContext) -> tuple[str, ...]:
    """What the workers refer to that only the manager has, and what is ignored; empty if the job cannot be read."""
    if queued.workload is None or queued.parsed.manifest is None:
        return ()
    try:
        warnings = job_validation.portability_warnings(
            queued.workload, queued.parsed.manifest.job, queued.podsets, queued.clusters
        )
    except (*UNREADABLE, RecursionError):
        return ()
    worker_clusters = {key_of(cluster)[1] for cluster in context.policy_objects.clusters}
    ignored = move_from.ignored_part(queued.parsed.manifest.job.move_from, worker_clusters)
    return tuple(f"{_object_title(queued.raw)}: {text}." for text in (*warnings, *filter(None, [ignored])))


def _resolve_policy_of(check: AdmissionCheck, policy_objects: PolicyObjects) -> tuple[ResolvedPolicy | None, str]:
    try:
        resolved_policy = policy_of_check(check, policy_objects)
    except specs.InvalidSpec as error:
        return None, str(error)
    return resolved_policy, "" if resolved_policy.clusters else no_cluster_message(check.policy)


def _considered_clusters(raw: Raw, policy_objects: PolicyObjects) -> tuple[str, ...]:
    """The clusters of a policy; all clusters if the policy cannot be resolved."""
    try:
        return resolve_clusters(
            specs.parse_dispatch_policy(raw).clusters, policy_objects.clusters, policy_objects.configs
        )
    except specs.InvalidSpec:
        return tuple(key_of(cluster)[1] for cluster in policy_objects.clusters)


def _other_clusters(policy_objects: PolicyObjects, name: str) -> list[Raw]:
    return [cluster for cluster in policy_objects.clusters if key_of(cluster)[1] != name]


WARNINGS_BY_KIND: Mapping[str, Callable[[Raw, PolicyObjects], list[str]]] = {
    names.WORKER_CLUSTER_KIND: worker_cluster_warnings,
    names.DISPATCH_POLICY_KIND: dispatch_policy_warnings,
}
"""Warnings on the kinds that admins write."""
