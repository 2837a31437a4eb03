"""What holds up a job before KubeRay makes its pods: its label, its Workload, the manager's quota, a check, room elsewhere?

Kueue's and our own sentences are passed on as they stand on the objects. Whether there is room is not reckoned here.
"""

from collections.abc import Iterator

from adapter import names
from adapter.diagnosis.blocker import Diagnosis, as_sentence
from adapter.diagnosis.job_facts import JobFacts
from adapter.objects.placement import PlacementState
from adapter.objects.queues import read_local_queue
from adapter.objects.unstructured import (
    Raw,
    condition,
    is_condition_true,
    key_of,
    mapping_field,
    meta,
    printable,
    text_field,
)
from adapter.objects.workload import AdmissionCheckState, Workload
from adapter.objects.workload import parse_workload as read_workload

_COMPLETE, _FAILED = "Complete", ("Failed", "ValidationFailed")  # of a RayJob's status.jobDeploymentStatus
# How the reason of an eviction ends that a check's answer made (kueue:apis/kueue/v1beta2/workload_types.go,
# WorkloadEvictedByAdmissionCheck, also behind WorkloadDeactivated).
_CHECK_EVICTION_SUFFIX = "AdmissionCheck"
_DESCRIBE = "See `kubectl describe {}`."


def diagnose_job(facts: JobFacts) -> Diagnosis | None:
    """What the job itself says: it is over or goes, or Kueue does not manage it."""
    status, title = facts.status, facts.title
    done = status.deployment_status
    if meta(facts.job).get("deletionTimestamp"):
        return Diagnosis("Job", "Failed", "Deleted", title, "It is being deleted.")
    if done == _COMPLETE and status.job_status in ("SUCCEEDED", ""):
        return Diagnosis("Job", "Done", "Succeeded", title, "It has succeeded.")
    if done in (_COMPLETE, *_FAILED):
        said = as_sentence(status.message) or "KubeRay says nothing of why."
        why = printable(status.reason or status.job_status or done)
        return Diagnosis("Job", "Failed", "JobFailed", title, f"It has failed ({why}): {said}", "Submit it anew.")
    return None


def diagnose_queue_label(facts: JobFacts) -> Diagnosis | None:
    """Nobody but KubeRay looks at a job without the label."""
    if facts.queue:
        return None
    suspended = ", and spec.suspend of it is true" if facts.job_object.suspended else ""
    return Diagnosis(
        "Job",
        "Refused",
        "NoQueue",
        facts.title,
        f"It has no label {names.QUEUE_LABEL}{suspended}: Kueue does not manage it, and none of its workers is sent elsewhere.",
        f"Delete it, and submit it again with the label {names.QUEUE_LABEL}: LOCALQUEUE.",
    )


def diagnose_workload(facts: JobFacts) -> Diagnosis | None:
    """What keeps Kueue from admitting the job."""
    if not facts.workload:
        return _diagnose_by_placement(facts) if "workloads" in facts.unread_reasons else _missing_workload(facts)
    work = read_workload(facts.workload)
    return next((found for found in _candidate_diagnoses(facts, work) if found), None)


def _candidate_diagnoses(facts: JobFacts, workload: Workload) -> Iterator[Diagnosis | None]:
    where = f"Workload {workload.namespace}/{workload.name}"
    yield _rejected_check(workload, where)
    yield _deactivated_workload(facts.workload, workload, where)
    yield _missing_local_queue(facts) if not is_condition_true(facts.workload, names.QUOTA_RESERVED) else None
    yield _missing_quota(facts.workload, where)
    yield _missing_check(facts, workload, where)
    yield from (_pending_check(facts, name, check, where) for name, check in sorted(workload.checks.items()))
    yield _not_admitted(facts.workload, where)


def _diagnose_by_placement(facts: JobFacts) -> Diagnosis | None:
    """What is known of a Workload that may not be read."""
    state = (facts.placement.get("status") or {}).get("state")
    return (
        _diagnose_placement(facts.placement, "")
        if state in (PlacementState.WAITING, PlacementState.RESERVING, PlacementState.WITHDRAWING)
        else None
    )


def _missing_local_queue(facts: JobFacts) -> Diagnosis | None:
    if facts.local_queue or "localqueues" in facts.unread_reasons:
        return None
    said = f"Namespace {facts.namespace} has no LocalQueue {facts.queue}, which its label {names.QUEUE_LABEL} names."
    todo = f"Name one that `kubectl -n {facts.namespace} get localqueues` lists."
    return Diagnosis("Workload", "Refused", "NoLocalQueue", facts.title, said, todo)


def _missing_workload(facts: JobFacts) -> Diagnosis:
    if missing := _missing_local_queue(facts):
        return missing
    said = "Kueue has made no Workload of it yet."
    kind = f"{facts.kind.lower()}"
    todo = f"If that stays so: {_DESCRIBE.format(f'{kind} {facts.name}')[:-1]}, and whether Kueue runs with the integration {names.RAY_DOMAIN}/{kind}."
    return Diagnosis("Workload", "Waits", "NoWorkload", facts.title, said, todo)


def _rejected_check(workload: Workload, where: str) -> Diagnosis | None:
    for name, check in sorted(workload.checks.items()):
        if check.state == names.CHECK_REJECTED:
            return _rejected_job(where, f"AdmissionCheck {name} refused it: {as_sentence(check.message)}")
    return None


def _rejected_job(where: str, message: str) -> Diagnosis:
    todo = "Delete the job, and submit it again without what is named there."
    return Diagnosis("AdmissionCheck", "Refused", "Rejected", where, message, todo)


def _deactivated_workload(raw: Raw, workload: Workload, where: str) -> Diagnosis | None:
    if workload.active:
        return None
    if workload.deactivated_at is not None:
        said = "It found no room, gave the manager's quota to those who queue behind it, and queues again in a moment."
        return Diagnosis("Workload", "Waits", "Requeuing", where, said)
    evicted = condition(raw, names.EVICTED)
    message = as_sentence(str(evicted.get("message") or ""))
    if str(evicted.get("reason") or "").endswith(_CHECK_EVICTION_SUFFIX):
        return _rejected_job(where, message)
    said = f"Somebody or something deactivated it (spec.active is false): {message or 'nothing says why.'}"
    todo = f'`kubectl -n {workload.namespace} patch workload {workload.name} --type=merge -p \'{{"spec": {{"active": true}}}}\'` lets it queue again.'
    return Diagnosis("Workload", "Refused", "Deactivated", where, said, todo)


def _missing_quota(raw: Raw, where: str) -> Diagnosis | None:
    evicted = str(condition(raw, names.EVICTED).get("message") or "") if is_condition_true(raw, names.EVICTED) else ""
    if is_condition_true(raw, names.QUOTA_RESERVED):
        said = f"It is being evicted: {as_sentence(evicted) or 'nothing says why.'}"
        return Diagnosis("Workload", "Waits", "Evicted", where, said) if is_condition_true(raw, names.EVICTED) else None
    message = str(condition(raw, names.QUOTA_RESERVED).get("message") or "")
    before = f"It was evicted: {as_sentence(evicted)} " if evicted and evicted != message else ""
    said = f"{before}It waits for quota of the manager cluster: {as_sentence(message) or 'Kueue has not said why yet.'}"
    todo = "Wait for jobs before it, or have the ClusterQueue's quota raised."
    return Diagnosis("Workload", "Waits", "ManagerQuota", where, said, todo)


def _missing_check(facts: JobFacts, workload: Workload, where: str) -> Diagnosis | None:
    """Kueue let it go without asking us: its workers are the manager's own."""
    known = facts.our_checks
    if known.intersection(workload.checks) or (workload.checks and not known):
        return None
    said = f"{queue_title(facts)} asks no AdmissionCheck of {names.CONTROLLER_NAME} for it, so its workers run in the manager cluster, if at all."
    todo = "Use a queue that has one, or have the check added to the ClusterQueue."
    return Diagnosis("AdmissionCheck", "Refused", "NoCheck", where, said, todo)


def queue_title(facts: JobFacts) -> str:
    """The ClusterQueue of the job as far as that can be told, else its LocalQueue."""
    admission = mapping_field(mapping_field(facts.workload, "status"), "admission")
    name = text_field(admission, "clusterQueue") or read_local_queue(facts.local_queue).cluster_queue
    return f"ClusterQueue {name}" if name else f"LocalQueue {facts.namespace}/{facts.queue}"


def _pending_check(facts: JobFacts, name: str, check: AdmissionCheckState, where: str) -> Diagnosis | None:
    if check.state == names.CHECK_READY:
        return None
    said = as_sentence(check.message)
    if check.state == names.CHECK_RETRY:
        return Diagnosis("AdmissionCheck", "Waits", "Retry", where, f"AdmissionCheck {name} has it start again: {said}")
    if facts.placement and name in facts.our_checks:
        return _diagnose_placement(facts.placement, said)
    if said:
        return Diagnosis("AdmissionCheck", "Waits", "CheckPending", where, f"AdmissionCheck {name} waits: {said}")
    todo = f"If that stays so, see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`." if name in facts.our_checks else ""
    return Diagnosis(
        "AdmissionCheck", "Waits", "CheckPending", where, f"AdmissionCheck {name} has not answered yet.", todo
    )


def _diagnose_placement(raw: Raw, check_message: str) -> Diagnosis:
    status = raw.get("status") or {}
    state, reason = str(status.get("state") or "Planned"), as_sentence(str(status.get("reason") or ""))
    name = "/".join(key_of(raw))
    explained = as_sentence(str((raw.get("spec") or {}).get("explanation") or ""))
    why = reason or check_message or explained
    never = _reason_code(raw) == names.ReasonCode.NEVER_FITS  # its text says what would help
    room = state in (PlacementState.WAITING, "Planned") and not never
    todo = "It starts by itself as soon as there is room." if room else ""
    return Diagnosis("Placement", "Waits", state, f"Placement {name}", why, todo)


def _reason_code(raw: Raw) -> object:
    """The reason of a Placement's condition; before it has one, the code of its plan."""
    return condition(raw, names.PLACED).get("reason") or (raw.get("spec") or {}).get("explanationCode")


def _not_admitted(raw: Raw, where: str) -> Diagnosis | None:
    if is_condition_true(raw, names.ADMITTED):
        return None
    return Diagnosis(
        "AdmissionCheck", "Waits", "NotAdmitted", where, "All of its checks are ready, and Kueue is about to admit it."
    )
