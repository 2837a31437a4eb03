"""The special rules for a gang whose job grows and shrinks while it runs.

Kueue lets an elastic job run on while one Workload follows another (docs/upstream.md, "Elastic jobs"). The new Workload
holds quota for all of its workers and has our check pending; the old one is finished. So the check of a running job is
answered at once, and its Placement is pointed to the new Workload. Workers without a slot are planned beside the
existing shares (running.py), as many as fit, worker by worker (scale_up.py). The first start, and each start after an
eviction, is all or nothing, as for any other gang.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from adapter import names
from adapter.actions import Action, Plan, RequeueAfter, RetargetPlacement, SetCheck, UpdatePlacementStatus, emit_event
from adapter.gang import messages, reserve
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import SOON, current_exclusions
from adapter.objects.placement import MAX_SHARES, Placement, Share, placement_name
from adapter.objects.rayjob import JobObject
from adapter.objects.reason import Reason
from adapter.objects.unstructured import Raw, is_condition_true, label
from adapter.objects.workload import Workload

RUNS_ON_MESSAGE = "The job runs on; workers that have no place yet are placed as room comes."
NOT_DISPATCHED_MESSAGE = (
    "The job runs already, and none of its workers was placed elsewhere: they all run in the manager cluster until it "
    "is started anew."
)


def adopt_slice(gang: Gang, workload: Workload, current: Placement | None) -> list[Action]:
    """Continue a running job with its present slice, and point its Placement to it; empty if both are done."""
    actions: list[Action] = _retarget_placement(gang, workload, current) if current else []
    if workload.checks[gang.check].state != names.CHECK_PENDING:
        return actions
    dispatched = current is not None or _was_dispatched(gang, workload)
    # Each slice has the same updates: Kueue gives later pods those of the last slice.
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
    """Whether its worker groups were dispatched when it started."""
    groups = (*gang.job.remote_podsets, *gang.job.idle_podsets)
    return _has_placement_label(workload, (podset.template for podset in workload.podsets if podset.name in groups))


def _has_placement_label(workload: Workload, templates: Iterable[Raw]) -> bool:
    """Whether one of these templates has the label that our check added when the job started."""
    name = placement_name(workload)
    return any(label(template, names.PLACEMENT_LABEL) == name for template in templates)


def was_started_by_kueue(
    workload: Workload, covered_podsets: Iterable[str], job: JobObject, slices: Iterable[Raw]
) -> bool:
    """Whether Kueue started a running job.

    Then its templates have what our check added, in one write with spec.suspend, or one of its `slices` is admitted. A
    user may set spec.suspend to false, and Kueue leaves an elastic job running then
    (kueue:pkg/controller/jobframework/reconciler.go).
    """
    groups = set(covered_podsets)
    templates = [podset.template for podset in workload.podsets if podset.name in groups]
    templates += [worker_group.template for worker_group in job.cluster.groups]
    return _has_placement_label(workload, templates) or any(is_condition_true(raw, names.ADMITTED) for raw in slices)


def _report_problems(gang: Gang, workload: Workload) -> list[Action]:
    """Report what would keep the job from starting; it does not stop a running job."""
    if reason := gang.job.rejection or gang.job.planning_problem or gang.job.missing_object:
        text = f"The job runs on, but new workers may not start elsewhere: {reason}"
        return emit_event(workload.job, names.EventReason.FAILED_DISPATCH, text, warning=True)
    return []


def drop_shares(workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    """Drop all shares of an elastic job's Placement; its name and its rounds stay for the next attempt."""
    if placement.shares:
        return [RetargetPlacement(placement, workload, placement.wanted_workers, drops_shares=True)]
    return messages.update_status(placement, messages.no_quota_status(placement, now))


def plan_resized(gang: Gang, workload: Workload, current: Placement, now: datetime) -> list[Action]:
    """Plan a job again that needs fewer workers now and has not run yet: Kueue changes its Workload in place then."""
    if current.shares:
        text = f"The job wants {sum(gang.wanted_workers.values())} workers now, and not {current.wanted_workers}"
        reason = Reason(names.ReasonCode.NOT_NEEDED, text)
        return [UpdatePlacementStatus(current, messages.withdrawing_status(current, {}, reason, now, now))]
    return [Plan(workload, current, current_exclusions(current, now, gang.policy.start_timeout)), RequeueAfter(SOON)]


def placement_message(gang: Gang, current: Placement, unplaced: Mapping[str, int]) -> str:
    """How many workers of a running job have a slot, and what the others wait for; `unplaced` is by worker group."""
    wanted, where, missing = (
        sum(gang.wanted_workers.values()),
        messages.describe_placement(current),
        sum(unplaced.values()),
    )
    if not missing:
        return f"All workers have a place: {where}." if where else "No worker of this job is to run elsewhere now."
    status = f"{wanted - missing} of {wanted} workers have a place{where and f': {where}'}"
    groups = ", ".join(f"{count} {name}" for name, count in unplaced.items() if count)
    others = f"the others ({groups})" if len(gang.wanted_workers) > 1 else "the others"
    if has_max_shares(current):
        return f"{status}; {others} wait until a share is empty, for a job has {MAX_SHARES} shares at most."
    return f"{status}; {others} wait for room, and run when it comes. {current.explanation}"


def has_max_shares(current: Placement) -> bool:
    """Whether an elastic job has the maximum number of shares of a Placement."""
    return current.job is not None and len(current.shares) >= MAX_SHARES


def unplaced_by_group(gang: Gang, slots_by_group: Mapping[str, int]) -> dict[str, int]:
    """How many workers of each group have no slot. Slots of one group are of no use to another."""
    return {group: max(wanted - slots_by_group.get(group, 0), 0) for group, wanted in gang.wanted_workers.items()}


def spare_shares(gang: Gang, empty_shares: Iterable[Share], slots_by_group: Mapping[str, int]) -> tuple[Share, ...]:
    """The empty shares without which each group still has enough slots, the latest first."""
    remaining, spare = Counter(slots_by_group), list[Share]()
    for share in reversed(list(empty_shares)):
        counts = {group.name: group.count for group in share.groups}
        if all(remaining[name] - count >= gang.wanted_workers.get(name, 0) for name, count in counts.items()):
            spare.append(share)
            remaining.subtract(counts)
    return tuple(spare)
