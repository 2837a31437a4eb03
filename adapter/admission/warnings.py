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
from adapter.admission.policy import Chosen, Written, policy, resolve
from adapter.admission.readiness import none_chosen, of_policy
from adapter.objects import rayjob, rayservice, specs
from adapter.objects.admissioncheck import AdmissionCheck, covered_groups
from adapter.objects.queues import NO_CLUSTER_QUEUE, ClusterQueue, LocalQueue
from adapter.objects.rayjob import Asked, Look
from adapter.objects.unstructured import LONGEST_OF_ONE, UNREADABLE, Raw, key_of, label, quoted
from adapter.objects.workload import PodSet, Workload, workload

# An API server passes 4096 characters on, of all webhooks together, and cuts each to 256 where there are more
# (k8s:apiserver/pkg/endpoints/filters/warning.go): so a quarter is left to others. More than 16 lines nobody reads before the file is mended.
MOST_CHARACTERS = 3_072
MOST_SENTENCES = 16


@dataclass(frozen=True, slots=True)
class Seen:
    """What the manager cluster shows of queues, and what admins have written."""

    local_queues: Mapping[str, LocalQueue]  # of the object's namespace, by name
    cluster_queues: Mapping[str, ClusterQueue]
    checks: Mapping[str, AdmissionCheck]
    written: Written


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of a job, and the job of which a plan may be asked, if there is one to make."""

    sentences: tuple[str, ...] = ()
    to_plan: Raw | None = None


_NOTHING = Said()


def of_job(raw: Raw, seen: Seen, now: datetime) -> Said:
    """Speak of a RayJob, RayCluster or RayService that an API server has taken for well-formed; raises UNREADABLE for another one."""
    ours = _dispatching(seen)
    queue = label(raw, names.QUEUE_LABEL)
    name = queue or (names.DEFAULT_QUEUE if names.DEFAULT_QUEUE in seen.local_queues else "")
    if astray := _astray(raw, name, ours, seen):
        return Said((f"{_who(raw)}: {astray}.",))
    if name not in ours:
        return _NOTHING
    job = rayservice.ray_cluster(raw) if raw.get("kind") == names.RAY_SERVICE else raw
    found = _told(raw, rayjob.look(job, key_of(raw)[0]), name, seen, now)
    return Said(found, None if found else job)


def of_worker_cluster(raw: Raw, written: Written) -> list[str]:
    """Speak of a WorkerCluster; `written` has it as it stood before, if it did."""
    try:
        specs.worker_cluster(raw)
    except specs.Invalid as error:
        return list(error.every)
    name = key_of(raw)[1]
    now = Written(written.policies, [*_others(written, name), raw], written.configs)
    if written.policies and not any(name in _considered(found, now) for found in written.policies.values()):
        return [
            f"{names.WORKER_CLUSTER_KIND} {quoted(name)}: no {names.DISPATCH_POLICY_KIND} considers it, so no workers go there; name it in "
            "spec.clusters.names of one, or give it spec.labels that a selector there matches."
        ]
    return []


def of_dispatch_policy(raw: Raw, written: Written) -> list[str]:
    """Speak of a DispatchPolicy: what its condition Ready will say, unless that it is ready; and all else that keeps it from being read."""
    try:
        specs.dispatch_policy(raw)
    except specs.Invalid as error:
        return [*error.every, *_of_clusters(raw, written)]
    found = of_policy(raw, written)
    return [] if found.status == "True" else [found.message]


def _of_clusters(raw: Raw, written: Written) -> list[str]:
    """What is wrong with the clusters of a policy whose spec has other faults; nothing where they have one themselves."""
    spec = raw.get("spec")
    bare = {**raw, "spec": {"clusters": spec.get("clusters") if isinstance(spec, dict) else None}}
    try:
        specs.dispatch_policy(bare)
    except specs.Invalid:
        return []
    return of_dispatch_policy(bare, written)


def of_plan(raw: Raw, answer: Mapping[str, object]) -> list[str]:
    """Tell the controller's plan of a job in a sentence; nothing where the answer is of another version's."""
    fits, sentence = answer.get("fits"), answer.get("sentence")
    if not isinstance(fits, bool) or not isinstance(sentence, str) or not sentence:
        return []
    return [f"{_who(raw)} {'fits now' if fits else 'does not fit now'}: {sentence}"]


def bounded(sentences: Sequence[str]) -> list[str]:
    """As many of the sentences on an object as an API server passes on whole, each on one line; and how many were left out, with where to
    read them."""
    said: list[str] = []
    left = MOST_CHARACTERS
    for sentence in sentences[:MOST_SENTENCES]:
        line = quoted(sentence, LONGEST_OF_ONE)
        if len(line) > left:
            break
        said.append(line)
        left -= len(line)
    missing = len(sentences) - len(said)
    return [*said, f"and {missing} more: apply it again when these are mended"] if missing else said


def _who(raw: Raw) -> str:
    meta = raw.get("metadata") or {}
    return f"{raw.get('kind')} {quoted(meta.get('name') or meta.get('generateName') or '', rayjob.LONGEST_NAME)}"


def _dispatching(seen: Seen) -> list[str]:
    """The LocalQueues of the namespace whose jobs have a check of ours."""
    return sorted(name for name, queue in seen.local_queues.items() if _our_checks(_cluster_queue(queue, seen), seen))


def _cluster_queue(local_queue: LocalQueue, seen: Seen) -> ClusterQueue:
    return seen.cluster_queues.get(local_queue.cluster_queue, NO_CLUSTER_QUEUE)


def _our_checks(cluster_queue: ClusterQueue, seen: Seen) -> list[str]:
    return [name for name in cluster_queue.checks if name in seen.checks and seen.checks[name].is_ours]


def _astray(raw: Raw, name: str, ours: list[str], seen: Seen) -> str:
    """Why the job goes another way than through a queue of ours, a fragment; empty where it does not, or nobody would expect that."""
    there, namespace = seen.local_queues.get(name), key_of(raw)[0]
    dispatches = f"{', '.join(ours)} of namespace {namespace}"
    if not name:
        if not ours:
            return ""
        return (
            f"metadata.labels has no {names.QUEUE_LABEL}, so it waits in no queue, and its workers start in the manager cluster; for worker "
            f"clusters name LocalQueue {dispatches}"
        )
    if there is None:
        have = f"it has {', '.join(sorted(seen.local_queues))}" if seen.local_queues else "it has none"
        return (
            f"namespace {namespace} has no LocalQueue {quoted(name)}, {have}, so it waits until there is one; name one in metadata.labels "
            f"{names.QUEUE_LABEL}"
        )
    if not (cluster_queue := _cluster_queue(there, seen)).name:
        target = quoted(there.cluster_queue)
        return f"LocalQueue {name} leads to ClusterQueue {target}, which does not exist, so it waits until there is one; name another queue"
    if ours and name not in ours:
        return (
            f"ClusterQueue {cluster_queue.name} of LocalQueue {name} has no AdmissionCheck of {names.CONTROLLER_NAME}, so its workers run in the "
            f"manager cluster; for worker clusters name LocalQueue {dispatches}"
        )
    return ""


def _told(raw: Raw, found: Look, queue: str, seen: Seen, now: datetime) -> tuple[str, ...]:
    """What is wrong with a job in one of our queues, each once: what keeps it from being read, and all that can be judged beside."""
    said = dict.fromkeys(found.faults)
    try:
        for why in islice(_of_dispatched(raw, found.asked, queue, seen, now), specs.MOST_TOLD):
            said[f"{_who(raw)}: {why}."] = None
    except (*UNREADABLE, RecursionError):
        if not said:
            raise
    return tuple(said)[: specs.MOST_TOLD]


def _of_dispatched(raw: Raw, asked: Asked | None, queue: str, seen: Seen, now: datetime) -> Iterator[str]:
    """What is wrong with it in fragments, beside what keeps it from being read; `asked` is None where nothing else of it can be judged."""
    cluster_queue = _cluster_queue(seen.local_queues[queue], seen)
    check = _our_checks(cluster_queue, seen)[0]
    controllers = {name: seen.checks[name].controller if name in seen.checks else "" for name in cluster_queue.checks}
    if rival := queue_layout.rivals(f"ClusterQueue {cluster_queue.name}", controllers):
        yield rival.rstrip(".")
    chosen, problem = _policy(seen.checks[check], seen.written)
    if problem:
        yield problem.rstrip(".")
    if raw.get("kind") == names.RAY_SERVICE and (why := job_validation.of_service(raw)):
        yield why
    if asked:
        work = workload(rayjob.workload(asked, queue, cluster_queue.checks, cluster_queue.flavors, 0, now))
        podsets = [group for group in covered_groups(work, check, cluster_queue, asked.job) if group.count]
        yield from _of_work(work, asked, podsets, chosen, seen)


def _of_work(work: Workload, asked: Asked, podsets: list[PodSet], chosen: Chosen | None, seen: Seen) -> Iterator[str]:
    """What its user must take out of it, and that a part of its workers would wait for ever."""
    clusters = [one for one in seen.written.clusters if chosen and key_of(one)[1] in chosen.clusters]
    yield from job_validation.every(work, asked.job, podsets, chosen, clusters)
    if chosen and chosen.policy.gang == "BestEffort" and (why := job_validation.waits_for_all(asked.job)):
        yield why.rstrip(".")


def _policy(check: AdmissionCheck, written: Written) -> tuple[Chosen | None, str]:
    try:
        chosen = policy(check, written)
    except specs.Invalid as error:
        return None, str(error)
    return chosen, "" if chosen.clusters else none_chosen(check.policy)


def _considered(raw: Raw, written: Written) -> tuple[str, ...]:
    """The clusters of a policy; all of them where that cannot be told."""
    try:
        return resolve(specs.dispatch_policy(raw).clusters, written.clusters, written.configs)
    except specs.Invalid:
        return tuple(key_of(one)[1] for one in written.clusters)


def _others(written: Written, name: str) -> list[Raw]:
    return [one for one in written.clusters if key_of(one)[1] != name]


OF_KIND: Mapping[str, Callable[[Raw, Written], list[str]]] = {
    names.WORKER_CLUSTER_KIND: of_worker_cluster,
    names.DISPATCH_POLICY_KIND: of_dispatch_policy,
}
"""What is said of the kinds that admins write."""
