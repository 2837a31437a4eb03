"""What is different for a gang whose job may grow and shrink while it runs?

Kueue lets an elastic job run on while one Workload follows another (docs/upstream.md, "Elastic jobs"): the new one holds quota for
all of its workers and asks our check anew, and the old one is finished. So what runs is never asked again whether it may. The check
is answered at once, the Placement is pointed to the new Workload, and what it lacks is planned beside what stands (running.py), as
much as fits, worker by worker (scale_up.py). The first start, and every start after an eviction, is that of any other gang: all or
nothing.
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
NOT_DISPATCHED_MESSAGE = "The job runs already, and none of its workers was placed elsewhere: they all run in the manager cluster until it is started anew."


def adopt_slice(gang: Gang, workload: Workload, current: Placement | None) -> list[Action]:
    """Let a job that runs go on with the slice that it has now, and its Placement stand for that; empty when all of it is so."""
    actions: list[Action] = _retarget_placement(gang, workload, current) if current else []
    if workload.checks[gang.check].state != names.CHECK_PENDING:
        return actions
    ours = current is not None or _was_dispatched(gang, workload)
    # The same on every slice: what Kueue gives pods that come later is read from the last one.
    updates = reserve.podset_locks(gang, placement_name(workload)) if ours else ()
    text = RUNS_ON_MESSAGE if ours else NOT_DISPATCHED_MESSAGE
    done = SetCheck(workload, gang.check, names.CHECK_READY, text, updates)
    return [*actions, *_report_problems(gang, workload), done, RequeueAfter(SOON)]


def _retarget_placement(gang: Gang, workload: Workload, current: Placement) -> list[Action]:
    wanted = sum(gang.wanted_workers.values())
    if (current.attempt, current.wanted_workers) == (workload.attempt, wanted):
        return []
    return [RetargetPlacement(current, workload, wanted)]


def _was_dispatched(gang: Gang, workload: Workload) -> bool:
    """Whether its worker groups were given to us when it started."""
    groups = (*gang.job.remote_podsets, *gang.job.idle_podsets)
    return _has_placement_label(workload, (one.template for one in workload.podsets if one.name in groups))


def _has_placement_label(workload: Workload, templates: Iterable[Raw]) -> bool:
    """Whether what our check added when the job started stands in one of these templates since."""
    own = placement_name(workload)
    return any(label(template, names.PLACEMENT_LABEL) == own for template in templates)


def was_started_by_kueue(
    workload: Workload, covered_podsets: Iterable[str], job: JobObject, slices: Iterable[Raw]
) -> bool:
    """Whether a job that runs was let run by Kueue: what our check added stands in its templates since, in one write with
    spec.suspend, or one of its `slices` is admitted. Anybody may set spec.suspend to false, and Kueue leaves an elastic job so
    (kueue:pkg/controller/jobframework/reconciler.go)."""
    own = set(covered_podsets)
    templates = [podset.template for podset in workload.podsets if podset.name in own]
    templates += [group.template for group in job.cluster.groups]
    return _has_placement_label(workload, templates) or any(is_condition_true(one, names.ADMITTED) for one in slices)


def _report_problems(gang: Gang, workload: Workload) -> list[Action]:
    """What would keep a job from starting keeps none from running on; it is said."""
    if why := gang.job.rejection or gang.job.planning_problem or gang.job.missing_object:
        text = f"The job runs on, but new workers may not start elsewhere: {why}"
        return emit_event(workload.job, names.EventReason.FAILED_DISPATCH, text, warning=True)
    return []


def drop_shares(workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    """Give up all that an elastic job's Placement wants, with the manager's quota; its name and its rounds are for the next attempt."""
    if placement.shares:
        return [RetargetPlacement(placement, workload, placement.wanted_workers, drops_shares=True)]
    return messages.update_status(placement, messages.no_quota_status(placement, now))


def plan_resized(gang: Gang, workload: Workload, current: Placement, now: datetime) -> list[Action]:
    """Plan one anew that wants fewer workers than it was planned for before it ever ran: Kueue changes its Workload in place then."""
    if current.shares:
        text = f"The job wants {sum(gang.wanted_workers.values())} workers now, and not {current.wanted_workers}"
        reason = Reason(names.ReasonCode.NOT_NEEDED, text)
        return [UpdatePlacementStatus(current, messages.withdrawing_status(current, {}, reason, now, now))]
    return [Plan(workload, current, current_exclusions(current, now, gang.policy.start_timeout)), RequeueAfter(SOON)]


def placement_message(gang: Gang, current: Placement, unplaced: Mapping[str, int]) -> str:
    """How many workers of one that runs have a place, and what the others wait for, `lacking` by worker group."""
    wanted, where, missing = (
        sum(gang.wanted_workers.values()),
        messages.describe_placement(current),
        sum(unplaced.values()),
    )
    if not missing:
        return f"All workers have a place: {where}." if where else "No worker of this job is to run elsewhere now."
    have = f"{wanted - missing} of {wanted} workers have a place{where and f': {where}'}"
    groups = ", ".join(f"{count} {name}" for name, count in unplaced.items() if count)
    others = f"the others ({groups})" if len(gang.wanted_workers) > 1 else "the others"
    if has_max_shares(current):
        return f"{have}; {others} wait until a share is empty, for a job has {MAX_SHARES} shares at most."
    return f"{have}; {others} wait for room, and run when it comes. {current.explanation}"


def has_max_shares(current: Placement) -> bool:
    """Whether an elastic job has as many shares as a Placement takes."""
    return current.job is not None and len(current.shares) >= MAX_SHARES


def unplaced_by_group(gang: Gang, slots_by_group: Mapping[str, int]) -> dict[str, int]:
    """How many workers of each group have no place, by how many places it has: one group's are of no use to another."""
    return {group: max(wanted - slots_by_group.get(group, 0), 0) for group, wanted in gang.wanted_workers.items()}


def spare_shares(gang: Gang, empty_shares: Iterable[Share], slots_by_group: Mapping[str, int]) -> tuple[Share, ...]:
    """Those of the shares that no worker is on without which each group has places enough, the latest first; they hold quota
    for nobody."""
    left, more = Counter(slots_by_group), list[Share]()
    for share in reversed(list(empty_shares)):
        own = {group.name: group.count for group in share.groups}
        if all(left[name] - count >= gang.wanted_workers.get(name, 0) for name, count in own.items()):
            more.append(share)
            left.subtract(own)
    return tuple(more)
