"""Diagnoses a job before KubeRay creates its pods: queue label, Workload, manager quota, admission checks, Placement.

Quotes the messages of Kueue and of the controller from the objects. Computes no capacity.
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
_DESCRIBE = "See `kubectl describe {}`."


def diagnose_job(facts: JobFacts) -> Diagnosis | None:
    """The diagnosis if the job is finished or is being deleted."""
    status, title = facts.status, facts.title
    deployment_status = status.deployment_status
    if meta(facts.job).get("deletionTimestamp"):
        return Diagnosis("Job", "Failed", "Deleted", title, "It is being deleted.")
    if deployment_status == _COMPLETE and status.job_status in ("SUCCEEDED", ""):
        return Diagnosis("Job", "Done", "Succeeded", title, "It has succeeded.")
    if deployment_status in (_COMPLETE, *_FAILED):
        message = as_sentence(status.message) or "KubeRay reports no cause."
        reason = printable(status.reason or status.job_status or deployment_status)
        return Diagnosis(
            "Job", "Failed", "JobFailed", title, f"It has failed ({reason}): {message}", "Submit it again."
        )
    return None


def diagnose_rejection(facts: JobFacts) -> Diagnosis | None:
    """The diagnosis if KubeRay rejects the job's RayCluster, in KubeRay's words."""
    if facts.kuberay_rejection is None:
        return None
    where = f"RayCluster {'/'.join(key_of(facts.ray_cluster))}"
    message = f"KubeRay rejects it ({facts.kuberay_rejection.reason}): {as_sentence(facts.kuberay_rejection.message)}"
    advice = (
        "Edit the RayCluster: it is placed as soon as KubeRay accepts it."
        if facts.kind == "RayCluster"
        else "Submit the job again without the field that the message names."
    )
    return Diagnosis("Job", "Refused", names.EventReason.REJECTED_BY_KUBERAY, where, message, advice)


def diagnose_queue_label(facts: JobFacts) -> Diagnosis | None:
    """The diagnosis of a job without a queue label, which only KubeRay reconciles."""
    if facts.queue:
        return None
    suspended = ", and its spec.suspend is true" if facts.job_object.suspended else ""
    return Diagnosis(
        "Job",
        "Refused",
        "NoQueue",
        facts.title,
        (
            f"It has no label {names.QUEUE_LABEL}{suspended}: Kueue does not manage it, and none of "
            "its workers runs in a worker cluster."
        ),
        f"Delete it, and submit it again with the label {names.QUEUE_LABEL}: LOCALQUEUE.",
    )


def diagnose_workload(facts: JobFacts) -> Diagnosis | None:
    """The diagnosis if Kueue does not admit the job."""
    if not facts.workload:
        return _diagnose_by_placement(facts) if "workloads" in facts.unread_reasons else _missing_workload(facts)
    workload = read_workload(facts.workload)
    return next((diagnosis for diagnosis in _candidate_diagnoses(facts, workload) if diagnosis), None)


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
    """The diagnosis by the Placement, because the Workload is not readable; None if the Placement is not waiting."""
    state = (facts.placement.get("status") or {}).get("state")
    return (
        _diagnose_placement(facts.placement, "")
        if state in (PlacementState.WAITING, PlacementState.RESERVING, PlacementState.WITHDRAWING)
        else None
    )


def _missing_local_queue(facts: JobFacts) -> Diagnosis | None:
    if facts.local_queue or "localqueues" in facts.unread_reasons:
        return None
    message = f"Namespace {facts.namespace} has no LocalQueue {facts.queue}, which its label {names.QUEUE_LABEL} names."
    advice = f"Set the label to one that `kubectl -n {facts.namespace} get localqueues` lists."
    return Diagnosis("Workload", "Refused", "NoLocalQueue", facts.title, message, advice)


def _missing_workload(facts: JobFacts) -> Diagnosis:
    if diagnosis := _missing_local_queue(facts):
        return diagnosis
    message = "Kueue has not created its Workload yet."
    kind = f"{facts.kind.lower()}"
    advice = (
        f"If this persists: {_DESCRIBE.format(f'{kind} {facts.name}')[:-1]}, and whether Kueue "
        f"runs with the integration {names.RAY_DOMAIN}/{kind}."
    )
    return Diagnosis("Workload", "Waits", "NoWorkload", facts.title, message, advice)


def _rejected_check(workload: Workload, where: str) -> Diagnosis | None:
    for name, check in sorted(workload.checks.items()):
        if check.state == names.CHECK_REJECTED:
            return _rejected_job(where, f"AdmissionCheck {name} rejected it: {as_sentence(check.message)}")
    return None


def _rejected_job(where: str, message: str) -> Diagnosis:
    advice = "Delete the job, and submit it again without the fields that the message names."
    return Diagnosis("AdmissionCheck", "Refused", "Rejected", where, message, advice)


def _deactivated_workload(raw: Raw, workload: Workload, where: str) -> Diagnosis | None:
    if workload.active:
        return None
    if workload.deactivated_at is not None:
        description = (
            "It found no capacity, and was deactivated so that jobs behind it get the manager's "
            "quota. It queues again in a moment."
        )
        return Diagnosis("Workload", "Waits", "Requeuing", where, description)
    evicted = condition(raw, names.EVICTED)
    message = as_sentence(str(evicted.get("message") or ""))
    if str(evicted.get("reason") or "").endswith(names.CHECK_EVICTION_SUFFIX):
        return _rejected_job(where, message)
    description = f"It was deactivated (spec.active is false): {message or 'no cause is recorded.'}"
    advice = (
        f"`kubectl -n {workload.namespace} patch workload {workload.name} --type=merge "
        '-p \'{"spec": {"active": true}}\'` lets it queue again.'
    )
    return Diagnosis("Workload", "Refused", "Deactivated", where, description, advice)


def _missing_quota(raw: Raw, where: str) -> Diagnosis | None:
    evicted = str(condition(raw, names.EVICTED).get("message") or "") if is_condition_true(raw, names.EVICTED) else ""
    if is_condition_true(raw, names.QUOTA_RESERVED):
        description = f"It is being evicted: {as_sentence(evicted) or 'no cause is recorded.'}"
        return (
            Diagnosis("Workload", "Waits", "Evicted", where, description)
            if is_condition_true(raw, names.EVICTED)
            else None
        )
    message = str(condition(raw, names.QUOTA_RESERVED).get("message") or "")
    eviction = f"It was evicted: {as_sentence(evicted)} " if evicted and evicted != message else ""
    description = (
        f"{eviction}It waits for quota of the manager cluster: "
        f"{as_sentence(message) or 'Kueue has not reported why yet.'}"
    )
    advice = "Wait for the jobs before it, or ask an administrator to raise the ClusterQueue's quota."
    return Diagnosis("Workload", "Waits", "ManagerQuota", where, description, advice)


def _missing_check(facts: JobFacts, workload: Workload, where: str) -> Diagnosis | None:
    """The diagnosis if no check of ours applies, so that the workers run in the manager cluster."""
    our_checks = facts.our_checks
    if our_checks.intersection(workload.checks) or (workload.checks and not our_checks):
        return None
    message = (
        f"{queue_title(facts)} has no AdmissionCheck of {names.CONTROLLER_NAME} for it, so its "
        "workers run in the manager cluster, if at all."
    )
    advice = "Use a queue that has one, or ask an administrator to add the check to the ClusterQueue."
    return Diagnosis("AdmissionCheck", "Refused", "NoCheck", where, message, advice)


def queue_title(facts: JobFacts) -> str:
    """The job's ClusterQueue if it is known, else its LocalQueue."""
    admission = mapping_field(mapping_field(facts.workload, "status"), "admission")
    name = text_field(admission, "clusterQueue") or read_local_queue(facts.local_queue).cluster_queue
    return f"ClusterQueue {name}" if name else f"LocalQueue {facts.namespace}/{facts.queue}"


def _pending_check(facts: JobFacts, name: str, check: AdmissionCheckState, where: str) -> Diagnosis | None:
    if check.state == names.CHECK_READY:
        return None
    message = as_sentence(check.message)
    if check.state == names.CHECK_RETRY:
        return Diagnosis(
            "AdmissionCheck", "Waits", "Retry", where, f"AdmissionCheck {name} requests a retry: {message}"
        )
    if facts.placement and name in facts.our_checks:
        return _diagnose_placement(facts.placement, message)
    if message:
        return Diagnosis("AdmissionCheck", "Waits", "CheckPending", where, f"AdmissionCheck {name} waits: {message}")
    advice = (
        f"If this persists, see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`." if name in facts.our_checks else ""
    )
    return Diagnosis(
        "AdmissionCheck", "Waits", "CheckPending", where, f"AdmissionCheck {name} has not reported a state yet.", advice
    )


def _diagnose_placement(raw: Raw, check_message: str) -> Diagnosis:
    status = raw.get("status") or {}
    state, reason = str(status.get("state") or "Planned"), as_sentence(str(status.get("reason") or ""))
    name = "/".join(key_of(raw))
    explanation = as_sentence(str((raw.get("spec") or {}).get("explanation") or ""))
    message = reason or check_message or explanation
    never_fits = _reason_code(raw) == names.ReasonCode.NEVER_FITS  # its message says what would help
    waits_for_capacity = state in (PlacementState.WAITING, "Planned") and not never_fits
    advice = "It starts by itself as soon as there is capacity." if waits_for_capacity else ""
    return Diagnosis("Placement", "Waits", state, f"Placement {name}", message, advice)


def _reason_code(raw: Raw) -> object:
    """The reason of the Placement's condition, or else its plan's reason code."""
    return condition(raw, names.PLACED).get("reason") or (raw.get("spec") or {}).get("explanationCode")


def _not_admitted(raw: Raw, where: str) -> Diagnosis | None:
    if is_condition_true(raw, names.ADMITTED):
        return None
    return Diagnosis(
        "AdmissionCheck", "Waits", "NotAdmitted", where, "All of its checks are ready, and Kueue is about to admit it."
    )
