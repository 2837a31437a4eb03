"""What holds up a job before KubeRay makes its pods: its label, its Workload, the manager's quota, a check, room elsewhere?

Kueue's and our own sentences are passed on as they stand on the objects. Whether there is room is not reckoned here.
"""

from collections.abc import Iterator

from adapter import names
from adapter.diagnosis.blocker import Link, sentence
from adapter.diagnosis.job_facts import Facts
from adapter.objects.queues import read_local_queue
from adapter.objects.unstructured import Raw, condition, is_true, key_of, mapping_field, meta, quoted, text_field
from adapter.objects.workload import Check, Workload
from adapter.objects.workload import workload as read_workload

_COMPLETE, _FAILED = "Complete", ("Failed", "ValidationFailed")  # of a RayJob's status.jobDeploymentStatus
_BY_CHECK = "AdmissionCheck"  # how the reason of an eviction ends that a check's answer made
_LOOK = "See `kubectl describe {}`."


def of_job(facts: Facts) -> Link | None:
    """What the job itself says: it is over or goes, or Kueue does not manage it."""
    status, title = facts.status, facts.title
    done = status.deployment_status
    if meta(facts.job).get("deletionTimestamp"):
        return Link("Job", "Failed", "Deleted", title, "It is being deleted.")
    if done == _COMPLETE and status.job_status in ("SUCCEEDED", ""):
        return Link("Job", "Done", "Succeeded", title, "It has succeeded.")
    if done in (_COMPLETE, *_FAILED):
        said = sentence(status.message) or "KubeRay says nothing of why."
        why = quoted(status.reason or status.job_status or done)
        return Link("Job", "Failed", "JobFailed", title, f"It has failed ({why}): {said}", "Submit it anew.")
    return None


def without_queue(facts: Facts) -> Link | None:
    """Nobody but KubeRay looks at a job without the label."""
    if facts.queue:
        return None
    suspended = ", and spec.suspend of it is true" if facts.job_object.suspended else ""
    return Link(
        "Job",
        "Refused",
        "NoQueue",
        facts.title,
        f"It has no label {names.QUEUE_LABEL}{suspended}: Kueue does not manage it, and none of its workers is sent elsewhere.",
        f"Delete it, and submit it again with the label {names.QUEUE_LABEL}: LOCALQUEUE.",
    )


def of_workload(facts: Facts) -> Link | None:
    """What keeps Kueue from admitting the job."""
    if not facts.workload:
        return _told_by_placement(facts) if "workloads" in facts.unread else _no_workload(facts)
    work = read_workload(facts.workload)
    return next((found for found in _walk(facts, work) if found), None)


def _walk(facts: Facts, work: Workload) -> Iterator[Link | None]:
    where = f"Workload {work.namespace}/{work.name}"
    yield _rejected(work, where)
    yield _inactive(facts.workload, work, where)
    yield _no_queue(facts) if not is_true(facts.workload, names.QUOTA_RESERVED) else None
    yield _no_quota(facts.workload, where)
    yield _unchecked(facts, work, where)
    yield from (_unready(facts, name, check, where) for name, check in sorted(work.checks.items()))
    yield _not_admitted(facts.workload, where)


def _told_by_placement(facts: Facts) -> Link | None:
    """What is known of a Workload that may not be read."""
    state = (facts.placement.get("status") or {}).get("state")
    return _of_placement(facts.placement, "") if state in (names.WAITING, names.RESERVING, names.WITHDRAWING) else None


def _no_queue(facts: Facts) -> Link | None:
    if facts.local_queue or "localqueues" in facts.unread:
        return None
    said = f"Namespace {facts.namespace} has no LocalQueue {facts.queue}, which its label {names.QUEUE_LABEL} names."
    todo = f"Name one that `kubectl -n {facts.namespace} get localqueues` lists."
    return Link("Workload", "Refused", "NoLocalQueue", facts.title, said, todo)


def _no_workload(facts: Facts) -> Link:
    if missing := _no_queue(facts):
        return missing
    said = "Kueue has made no Workload of it yet."
    kind = f"{facts.kind.lower()}"
    todo = f"If that stays so: {_LOOK.format(f'{kind} {facts.name}')[:-1]}, and whether Kueue runs with the integration {names.RAY_DOMAIN}/{kind}."
    return Link("Workload", "Waits", "NoWorkload", facts.title, said, todo)


def _rejected(work: Workload, where: str) -> Link | None:
    for name, check in sorted(work.checks.items()):
        if check.state == names.CHECK_REJECTED:
            return _refused(where, f"AdmissionCheck {name} refused it: {sentence(check.message)}")
    return None


def _refused(where: str, said: str) -> Link:
    todo = "Delete the job, and submit it again without what is named there."
    return Link("AdmissionCheck", "Refused", "Rejected", where, said, todo)


def _inactive(raw: Raw, work: Workload, where: str) -> Link | None:
    if work.active:
        return None
    if work.yielded_at is not None:
        said = "It found no room, gave the manager's quota to those who queue behind it, and queues again in a moment."
        return Link("Workload", "Waits", "Yielded", where, said)
    evicted = condition(raw, names.EVICTED)
    message = sentence(str(evicted.get("message") or ""))
    if str(evicted.get("reason") or "").endswith(_BY_CHECK):
        return _refused(where, message)
    said = f"Somebody or something deactivated it (spec.active is false): {message or 'nothing says why.'}"
    todo = f'`kubectl -n {work.namespace} patch workload {work.name} --type=merge -p \'{{"spec": {{"active": true}}}}\'` lets it queue again.'
    return Link("Workload", "Refused", "Deactivated", where, said, todo)


def _no_quota(raw: Raw, where: str) -> Link | None:
    evicted = str(condition(raw, names.EVICTED).get("message") or "") if is_true(raw, names.EVICTED) else ""
    if is_true(raw, names.QUOTA_RESERVED):
        said = f"It is being evicted: {sentence(evicted) or 'nothing says why.'}"
        return Link("Workload", "Waits", "Evicted", where, said) if is_true(raw, names.EVICTED) else None
    message = str(condition(raw, names.QUOTA_RESERVED).get("message") or "")
    before = f"It was evicted: {sentence(evicted)} " if evicted and evicted != message else ""
    said = f"{before}It waits for quota of the manager cluster: {sentence(message) or 'Kueue has not said why yet.'}"
    todo = "Wait for jobs before it, or have the ClusterQueue's quota raised."
    return Link("Workload", "Waits", "ManagerQuota", where, said, todo)


def _unchecked(facts: Facts, work: Workload, where: str) -> Link | None:
    """Kueue let it go without asking us: its workers are the manager's own."""
    known = facts.our_checks
    if known.intersection(work.checks) or (work.checks and not known):
        return None
    said = f"{where_queued(facts)} asks no AdmissionCheck of {names.CONTROLLER_NAME} for it, so its workers run in the manager cluster, if at all."
    todo = "Use a queue that has one, or have the check added to the ClusterQueue."
    return Link("AdmissionCheck", "Refused", "NoCheck", where, said, todo)


def where_queued(facts: Facts) -> str:
    """The ClusterQueue of the job as far as that can be told, else its LocalQueue."""
    admission = mapping_field(mapping_field(facts.workload, "status"), "admission")
    name = text_field(admission, "clusterQueue") or read_local_queue(facts.local_queue).cluster_queue
    return f"ClusterQueue {name}" if name else f"LocalQueue {facts.namespace}/{facts.queue}"


def _unready(facts: Facts, name: str, check: Check, where: str) -> Link | None:
    if check.state == names.CHECK_READY:
        return None
    said = sentence(check.message)
    if check.state == names.CHECK_RETRY:
        return Link("AdmissionCheck", "Waits", "Retry", where, f"AdmissionCheck {name} has it start again: {said}")
    if facts.placement and name in facts.our_checks:
        return _of_placement(facts.placement, said)
    if said:
        return Link("AdmissionCheck", "Waits", "CheckPending", where, f"AdmissionCheck {name} waits: {said}")
    todo = f"If that stays so, see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`." if name in facts.our_checks else ""
    return Link("AdmissionCheck", "Waits", "CheckPending", where, f"AdmissionCheck {name} has not answered yet.", todo)


def _of_placement(raw: Raw, said: str) -> Link:
    status = raw.get("status") or {}
    state, reason = str(status.get("state") or "Planned"), sentence(str(status.get("reason") or ""))
    name = "/".join(key_of(raw))
    explained = sentence(str((raw.get("spec") or {}).get("explanation") or ""))
    why = reason or said or explained
    room = state in (names.WAITING, "Planned") and f" {names.EVEN} " not in why  # what would help stands there
    todo = "It starts by itself as soon as there is room." if room else ""
    return Link("Placement", "Waits", state, f"Placement {name}", why, todo)


def _not_admitted(raw: Raw, where: str) -> Link | None:
    if is_true(raw, names.ADMITTED):
        return None
    return Link(
        "AdmissionCheck", "Waits", "NotAdmitted", where, "All of its checks are ready, and Kueue is about to admit it."
    )
