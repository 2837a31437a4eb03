"""The special rules for a gang whose job grows and shrinks while it runs.

An elastic job runs on while a new slice replaces its Workload (docs/upstream.md, "Elastic jobs"). The slice holds quota
for all workers and has our check pending, so the check is answered at once and the Placement is retargeted. Unplaced
workers are planned beside the existing shares (running.py), as many as fit, one by one (scale_up.py). Each start of the
job is all or nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from adapter import names
from adapter.actions import Action, Plan, RequeueAfter, RetargetPlacement, SetCheck, UpdatePlacementStatus, emit_event
from adapter.gang import messages, reserve
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import SOON, current_exclusions
from adapter.objects.placement import MAX_SHARES, Placement, placement_name
from adapter.objects.rayjob import JobObject
from adapter.objects.reason import Reason
from adapter.objects.unstructured import Raw, is_condition_true, label
from adapter.objects.workload import Workload

RUNS_ON_MESSAGE = "The job keeps running; unplaced workers are placed as soon as there is capacity."
NOT_DISPATCHED_MESSAGE = (
    "The job already runs, and none of its workers is in a worker cluster: they all run in the manager cluster until "
    "it is started again."
)


def adopt_slice(gang: Gang, workload: Workload, current: Placement | None) -> list[Action]:
    """The actions that continue a running job with its new slice; empty if they are done."""
    actions: list[Action] = _retarget_placement(gang, workload, current) if current else []
    if workload.checks[gang.check].state != names.CHECK_PENDING:
        return actions
    dispatched = current is not None or _was_dispatched(gang, workload)
    # The updates are equal for every slice, because Kueue gives later pods those of the last slice.
    updates = reserve.podset_locks(gang, placement_name(workload)) if dispatched else ()
    text = RUNS_ON_MESSAGE if dispatched else NOT_DISPATCHED_MESSAGE
    ready = SetCheck(workload, gang.check, names.CHECK_READY, text, updates)
    return [*actions, *_report_problems(gang, workload), ready, RequeueAfter(SOON)]


def _retarget_placement(gang: Gang, workload: Workload, current: Placement) -> list[Action]:
    wanted = sum(gang.wanted_workers.values())
    if (current.attempt, current.wanted_workers) == (workload.attempt, wanted):
        return []
    return [RetargetPlacement(current, workload, wanted)]


def _was_dispatched(gang: Gang, workload: Workload) -> bool:
    groups = (*gang.job.remote_podsets, *gang.job.idle_podsets)
    return _has_placement_label(workload, (podset.template for podset in workload.podsets if podset.name in groups))


def _has_placement_label(workload: Workload, templates: Iterable[Raw]) -> bool:
    name = placement_name(workload)
    return any(label(template, names.PLACEMENT_LABEL) == name for template in templates)


def was_started_by_kueue(
    workload: Workload, covered_podsets: Iterable[str], job: JobObject, slices: Iterable[Raw]
) -> bool:
    """Whether Kueue started a running job: its templates have our label, or one of its `slices` is admitted.

    Kueue writes the label when it sets spec.suspend to false. If a user sets that field, Kueue leaves an elastic job
    running (kueue:pkg/controller/jobframework/reconciler.go).
    """
    groups = set(covered_podsets)
    templates = [podset.template for podset in workload.podsets if podset.name in groups]
    templates += [worker_group.template for worker_group in job.cluster.groups]
    return _has_placement_label(workload, templates) or any(is_condition_true(raw, names.ADMITTED) for raw in slices)


def _report_problems(gang: Gang, workload: Workload) -> list[Action]:
    """Report a problem that keeps jobs from starting; a running job is not stopped for it."""
    if reason := gang.job.rejection or gang.job.planning_problem or gang.job.missing_object:
        text = f"The job keeps running, but new workers may not start in worker clusters: {reason}"
        return emit_event(workload.job, names.EventReason.FAILED_DISPATCH, text, warning=True)
    return []


def drop_shares(workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    """Drop all shares; the Placement's name and rounds stay for the next attempt."""
    if placement.shares:
        return [RetargetPlacement(placement, workload, placement.wanted_workers, drops_shares=True)]
    return messages.update_status(placement, messages.no_quota_status(placement, now))


def plan_resized(gang: Gang, workload: Workload, current: Placement, now: datetime) -> list[Action]:
    """Withdraw the shares of a job that was scaled in before it ran, or plan it if it has none.

    Kueue changes the Workload of such a job in place.
    """
    if current.shares:
        text = f"The job now wants {sum(gang.wanted_workers.values())} workers instead of {current.wanted_workers}"
        reason = Reason(names.ReasonCode.NOT_NEEDED, text)
        return [UpdatePlacementStatus(current, messages.withdrawing_status(current, {}, reason, now, now))]
    return [Plan(workload, current, current_exclusions(current, now, gang.policy.start_timeout)), RequeueAfter(SOON)]


def placement_message(gang: Gang, current: Placement, unplaced: Mapping[str, int]) -> str:
    """How many workers have a slot, and what the others (`unplaced`, by group) wait for."""
    wanted, where, missing = (
        sum(gang.wanted_workers.values()),
        messages.describe_placement(current),
        sum(unplaced.values()),
    )
    if gang.pods.withheld_workers and not missing:
        return current.explanation
    if not missing:
        return f"All workers are placed: {where}." if where else "No worker of this job needs to be placed now."
    status = f"{wanted - missing} of {wanted} workers are placed{where and f': {where}'}"
    groups = ", ".join(f"{count} {name}" for name, count in unplaced.items() if count)
    others = f"the others ({groups})" if len(gang.wanted_workers) > 1 else "the others"
    if has_max_shares(current):
        return f"{status}; {others} wait until a share is empty, because a job has at most {MAX_SHARES} shares."
    return f"{status}; {others} start as soon as there is capacity. {current.explanation}"


def has_max_shares(current: Placement) -> bool:
    return current.job is not None and len(current.shares) >= MAX_SHARES
