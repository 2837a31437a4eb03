"""What should its user know of a job, a WorkerCluster or a DispatchPolicy at the moment of applying it: sentences, at once all of them?

Nobody is refused by them. They say early what a condition or an event would say later: what keeps workers from running elsewhere, and that a
job which looks as if it would be dispatched goes another way. Of a job that is nobody's business here, in a namespace without a queue that
dispatches, nothing is said. What would fit now is the controller's answer; only how it is told stands here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from adapter import names
from adapter.admission import job_validation, queue_layout
from adapter.admission.policy import PolicyObjects, ResolvedPolicy, policy_of_check, resolve_clusters
from adapter.admission.readiness import no_cluster_message, policy_readiness
from adapter.objects import rayjob, rayservice, specs
from adapter.objects.admissioncheck import AdmissionCheck, covered_groups
from adapter.objects.queues import NO_CLUSTER_QUEUE, ClusterQueue, LocalQueue
from adapter.objects.rayjob import JobManifest, JobParseResult
from adapter.objects.unstructured import MAX_ITEM_LENGTH, UNREADABLE, Raw, key_of, label, printable
from adapter.objects.workload import PodSet, Workload, parse_workload

# An API server passes 4096 characters on, of all webhooks together, and cuts each to 256 where there are more
# (k8s:apiserver/pkg/endpoints/filters/warning.go): so a quarter is left to others. More than 16 lines nobody reads before the file is mended.
MAX_CHARACTERS = 3_072
MAX_WARNINGS = 16


@dataclass(frozen=True, slots=True)
class WarningContext:
    """What the manager cluster shows of queues, and what admins have written."""

    local_queues: Mapping[str, LocalQueue]  # of the object's namespace, by name
    cluster_queues: Mapping[str, ClusterQueue]
    checks: Mapping[str, AdmissionCheck]
    policy_objects: PolicyObjects


@dataclass(frozen=True, slots=True)
class JobWarnings:
    """What is said of a job, and the job of which a plan may be asked, if there is one to make."""

    sentences: tuple[str, ...] = ()
    job_to_plan: Raw | None = None


_NO_WARNINGS = JobWarnings()


def job_warnings(raw: Raw, context: WarningContext, now: datetime) -> JobWarnings:
    """Speak of a RayJob, RayCluster or RayService that an API server has taken for well-formed; raises UNREADABLE for another one."""
    ours = _dispatching_queues(context)
    queue = label(raw, names.QUEUE_LABEL)
    name = queue or (names.DEFAULT_QUEUE if names.DEFAULT_QUEUE in context.local_queues else "")
    if astray := _wrong_queue_reason(raw, name, ours, context):
        return JobWarnings((f"{_object_title(raw)}: {astray}.",))
    if name not in ours:
        return _NO_WARNINGS
    job = rayservice.ray_cluster(raw) if raw.get("kind") == names.RAY_SERVICE else raw
    found = _job_sentences(raw, rayjob.parse_partially(job, key_of(raw)[0]), name, context, now)
    return JobWarnings(found, None if found else job)


def worker_cluster_warnings(raw: Raw, policy_objects: PolicyObjects) -> list[str]:
    """Speak of a WorkerCluster; `written` has it as it stood before, if it did."""
    try:
        specs.parse_worker_cluster(raw)
    except specs.InvalidSpec as error:
        return list(error.messages)
    name = key_of(raw)[1]
    now = PolicyObjects(policy_objects.policies, [*_other_clusters(policy_objects, name), raw], policy_objects.configs)
    if policy_objects.policies and not any(
        name in _considered_clusters(found, now) for found in policy_objects.policies.values()
    ):
        return [
            f"{names.WORKER_CLUSTER_KIND} {printable(name)}: no {names.DISPATCH_POLICY_KIND} considers it, so no workers go there; name it in "
            "spec.clusters.names of one, or give it spec.labels that a selector there matches."
        ]
    return []


def dispatch_policy_warnings(raw: Raw, policy_objects: PolicyObjects) -> list[str]:
    """Speak of a DispatchPolicy: what its condition Ready will say, unless that it is ready; and all else that keeps it from being read."""
    try:
        specs.parse_dispatch_policy(raw)
    except specs.InvalidSpec as error:
        return [*error.messages, *_policy_cluster_warnings(raw, policy_objects)]
    found = policy_readiness(raw, policy_objects)
    return [] if found.status == "True" else [found.message]


def _policy_cluster_warnings(raw: Raw, policy_objects: PolicyObjects) -> list[str]:
    """What is wrong with the clusters of a policy whose spec has other faults; nothing where they have one themselves."""
    spec = raw.get("spec")
    bare = {**raw, "spec": {"clusters": spec.get("clusters") if isinstance(spec, dict) else None}}
    try:
        specs.parse_dispatch_policy(bare)
    except specs.InvalidSpec:
        return []
    return dispatch_policy_warnings(bare, policy_objects)


def plan_warnings(raw: Raw, answer: Mapping[str, object]) -> list[str]:
    """Tell the controller's plan of a job in a sentence; nothing where the answer is of another version's."""
    fits, sentence = answer.get("fits"), answer.get("sentence")
    if not isinstance(fits, bool) or not isinstance(sentence, str) or not sentence:
        return []
    return [f"{_object_title(raw)} {'fits now' if fits else 'does not fit now'}: {sentence}"]


def limit_warnings(sentences: Sequence[str]) -> list[str]:
    """As many of the sentences on an object as an API server passes on whole, each on one line; and how many were left out, with where to
    read them."""
    said: list[str] = []
    left = MAX_CHARACTERS
    for sentence in sentences[:MAX_WARNINGS]:
        line = printable(sentence, MAX_ITEM_LENGTH)
        if len(line) > left:
            break
        said.append(line)
        left -= len(line)
    missing = len(sentences) - len(said)
    return [*said, f"and {missing} more: apply it again when these are mended"] if missing else said


def _object_title(raw: Raw) -> str:
    meta = raw.get("metadata") or {}
    return f"{raw.get('kind')} {printable(meta.get('name') or meta.get('generateName') or '', rayjob.MAX_NAME_LENGTH)}"


def _dispatching_queues(context: WarningContext) -> list[str]:
    """The LocalQueues of the namespace whose jobs have a check of ours."""
    return sorted(
        name
        for name, queue in context.local_queues.items()
        if _our_checks_of(_cluster_queue_of(queue, context), context)
    )


def _cluster_queue_of(local_queue: LocalQueue, context: WarningContext) -> ClusterQueue:
    return context.cluster_queues.get(local_queue.cluster_queue, NO_CLUSTER_QUEUE)


def _our_checks_of(cluster_queue: ClusterQueue, context: WarningContext) -> list[str]:
    return [name for name in cluster_queue.checks if name in context.checks and context.checks[name].is_ours]


def _wrong_queue_reason(raw: Raw, name: str, our_queues: list[str], context: WarningContext) -> str:
    """Why the job goes another way than through a queue of ours, a fragment; empty where it does not, or nobody would expect that."""
    there, namespace = context.local_queues.get(name), key_of(raw)[0]
    dispatches = f"{', '.join(our_queues)} of namespace {namespace}"
    if not name:
        if not our_queues:
            return ""
        return (
            f"metadata.labels has no {names.QUEUE_LABEL}, so it waits in no queue, and its workers start in the manager cluster; for worker "
            f"clusters name LocalQueue {dispatches}"
        )
    if there is None:
        have = f"it has {', '.join(sorted(context.local_queues))}" if context.local_queues else "it has none"
        return (
            f"namespace {namespace} has no LocalQueue {printable(name)}, {have}, so it waits until there is one; name one in metadata.labels "
            f"{names.QUEUE_LABEL}"
        )
    if not (cluster_queue := _cluster_queue_of(there, context)).name:
        target = printable(there.cluster_queue)
        return f"LocalQueue {name} leads to ClusterQueue {target}, which does not exist, so it waits until there is one; name another queue"
    if our_queues and name not in our_queues:
        return (
            f"ClusterQueue {cluster_queue.name} of LocalQueue {name} has no AdmissionCheck of {names.CONTROLLER_NAME}, so its workers run in the "
            f"manager cluster; for worker clusters name LocalQueue {dispatches}"
        )
    return ""


def _job_sentences(
    raw: Raw, parsed: JobParseResult, queue: str, context: WarningContext, now: datetime
) -> tuple[str, ...]:
    """What is wrong with a job in one of our queues, each once: what keeps it from being read, and all that can be judged beside."""
    said = dict.fromkeys(parsed.faults)
    try:
        for why in islice(
            _dispatched_job_problems(raw, parsed.manifest, queue, context, now), specs.MAX_REPORTED_FAULTS
        ):
            said[f"{_object_title(raw)}: {why}."] = None
    except (*UNREADABLE, RecursionError):
        if not said:
            raise
    return tuple(said)[: specs.MAX_REPORTED_FAULTS]


def _dispatched_job_problems(
    raw: Raw, manifest: JobManifest | None, queue: str, context: WarningContext, now: datetime
) -> Iterator[str]:
    """What is wrong with it in fragments, beside what keeps it from being read; `asked` is None where nothing else of it can be judged."""
    cluster_queue = _cluster_queue_of(context.local_queues[queue], context)
    check = _our_checks_of(cluster_queue, context)[0]
    controllers = {
        name: context.checks[name].controller if name in context.checks else "" for name in cluster_queue.checks
    }
    if rival := queue_layout.conflicting_checks(f"ClusterQueue {cluster_queue.name}", controllers):
        yield rival.rstrip(".")
    chosen, problem = _resolve_policy_of(context.checks[check], context.policy_objects)
    if problem:
        yield problem.rstrip(".")
    if raw.get("kind") == names.RAY_SERVICE and (why := job_validation.service_problem(raw)):
        yield why
    if manifest:
        work = parse_workload(
            rayjob.build_workload(manifest, queue, cluster_queue.checks, cluster_queue.flavors, 0, now)
        )
        podsets = [group for group in covered_groups(work, check, cluster_queue, manifest.job) if group.count]
        yield from _workload_problems(work, manifest, podsets, chosen, context)


def _workload_problems(
    workload: Workload,
    manifest: JobManifest,
    podsets: list[PodSet],
    resolved_policy: ResolvedPolicy | None,
    context: WarningContext,
) -> Iterator[str]:
    """What its user must take out of it, and that a part of its workers would wait for ever."""
    clusters = [
        one for one in context.policy_objects.clusters if resolved_policy and key_of(one)[1] in resolved_policy.clusters
    ]
    yield from job_validation.workload_problems(workload, manifest.job, podsets, resolved_policy, clusters)
    if (
        resolved_policy
        and resolved_policy.policy.gang == "BestEffort"
        and (why := job_validation.waits_for_all(manifest.job))
    ):
        yield why.rstrip(".")


def _resolve_policy_of(check: AdmissionCheck, policy_objects: PolicyObjects) -> tuple[ResolvedPolicy | None, str]:
    try:
        chosen = policy_of_check(check, policy_objects)
    except specs.InvalidSpec as error:
        return None, str(error)
    return chosen, "" if chosen.clusters else no_cluster_message(check.policy)


def _considered_clusters(raw: Raw, policy_objects: PolicyObjects) -> tuple[str, ...]:
    """The clusters of a policy; all of them where that cannot be told."""
    try:
        return resolve_clusters(
            specs.parse_dispatch_policy(raw).clusters, policy_objects.clusters, policy_objects.configs
        )
    except specs.InvalidSpec:
        return tuple(key_of(one)[1] for one in policy_objects.clusters)


def _other_clusters(policy_objects: PolicyObjects, name: str) -> list[Raw]:
    return [one for one in policy_objects.clusters if key_of(one)[1] != name]


WARNINGS_BY_KIND: Mapping[str, Callable[[Raw, PolicyObjects], list[str]]] = {
    names.WORKER_CLUSTER_KIND: worker_cluster_warnings,
    names.DISPATCH_POLICY_KIND: dispatch_policy_warnings,
}
"""What is said of the kinds that admins write."""
