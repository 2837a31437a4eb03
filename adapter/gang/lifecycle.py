"""The next actions for one gang, decided on its facts and the time.

Theory of operation. A gang is one Workload of the manager; while the Workload holds quota, one Placement represents the
attempt. The Placement's spec says in one write what is wanted in the worker clusters: a round with its shares. Any
other share is a leftover, and is deleted before anything new is created. So the worker clusters converge to the
manager's objects. After a crash between two writes, the next reconcile reads the same state and takes the same step.

    no placement -> plan -> reserving -> placed -> ended
                      ^        |  not admitted in time
                      |   withdrawing (leftovers are deleted)     placed -> a share is lost -> plan for its workers
                      +--------+----> waiting (nothing reserved; plans again when capacity changes)

RULES has the rules in order, most terminal first. The first that applies gives the actions, after deletions of
leftovers. docs/architecture.md lists the rules.

dry_run.py requires dry runs before a plan and before a share is created. planning/planner.py plans, messages.py has the
texts for people, and timeouts.py all times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from adapter import names
from adapter.actions import (
    Action,
    DeletePlacement,
    Plan,
    RequeueAfter,
    Reserve,
    SetCheck,
    UpdatePlacementStatus,
    emit_event,
)
from adapter.gang import carry_over, cleanup, dry_run, elastic, messages, requeue, reserve, running
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import MISSING_OBJECTS_RETRY, RESYNC, current_exclusions
from adapter.objects.placement import Placement, placement_name
from adapter.objects.reason import Reason
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload
from adapter.rules import Rule, always, no_actions


@dataclass(frozen=True, slots=True)
class GangState:
    """The facts, prepared for the rules. Earlier rules ensure what the properties assert."""

    gang: Gang  # without leftovers: a running gang replaces lost workers before the leftovers are deleted
    leftovers: tuple[Reservation, ...]  # to delete
    current: Placement | None  # of the present attempt
    now: datetime

    @property
    def workload(self) -> Workload:
        assert self.gang.workload is not None
        return self.gang.workload

    @property
    def placement(self) -> Placement:
        assert self.current is not None
        return self.current

    @property
    def check_state(self) -> str:
        return self.workload.checks[self.gang.check].state

    @property
    def ready(self) -> bool:
        """Whether our check lets the job run."""
        return self.check_state == names.CHECK_READY


def decide(gang: Gang, now: datetime) -> list[Action]:
    """Decide the next actions; the shell executes those of one cluster in order, and clusters concurrently."""
    state = gang_state(gang, now)
    rule = first_rule(state)
    actions = [action for action in rule.actions(state) if not _is_premature(state, action)]
    return [
        *dry_run.defer_until_answered(state.gang, [*rule.cleanup(state), *actions]),
        *_warn_of_ignored_clusters(state.gang),
    ]


def _warn_of_ignored_clusters(gang: Gang) -> list[Action]:
    """Report what is ignored of a job's annotation, as long as that is so; the annotation may change at any time."""
    workload, text = gang.workload, gang.job.move_warning
    if workload is None or workload.finished or not text:
        return []
    return emit_event(workload.job, names.EventReason.MOVE_FROM_IGNORED, text, warning=True, names_job=True)


def gang_state(gang: Gang, now: datetime) -> GangState:
    leftovers = cleanup.unwanted_shares(gang)
    return GangState(gang.without_reservations(leftovers), leftovers, gang.current_placement, now)


def _is_premature(state: GangState, action: Action) -> bool:
    """Whether a leftover still has the name of a share to create; the leftover's deletion enqueues the gang."""
    return isinstance(action, Reserve) and any(
        (leftover.placement, leftover.key) == (action.placement.name, action.placement.share_key(action.share))
        for leftover in state.leftovers
    )


# --- deletion of leftovers -------------------------------------------------------------------------------------------


def _delete_leftovers(state: GangState) -> list[Action]:
    return cleanup.delete_shares(state.gang, state.leftovers)


def _delete_leftovers_and_placements(state: GangState) -> list[Action]:
    gang = state.gang
    outdated = [placement for placement in gang.placements if placement not in (state.current, gang.elastic_placement)]
    return [
        *carry_over.delete_placements(gang, state.workload, outdated, state.now),
        *_deletion_denied_events(state),
        *_delete_leftovers(state),
    ]


def _clean_up(state: GangState) -> list[Action]:
    ending = cleanup.ending_workers_message(state.gang, state.leftovers)
    events = emit_event(state.workload.job, names.EventReason.WAITING_FOR_TERMINATION, ending) if ending else []
    return [*_delete_leftovers_and_placements(state), *events]


def _deletion_denied_events(state: GangState) -> list[Action]:
    denials = state.gang.shares.deletion_denials
    texts = [
        f"Worker cluster {leftover.cluster} denies the deletion of Workload {leftover.name} of this job, which still "
        f"holds quota there: {denials[leftover.uid]}"
        for leftover in state.leftovers
        if leftover.uid in denials
    ]
    reason = names.EventReason.FAILED_SHARE_DELETION
    return [event for text in texts for event in emit_event(state.workload.job, reason, text, warning=True)]


# --- the rules, in their order ---------------------------------------------------------------------------------------


def _is_deleted(state: GangState) -> bool:
    """Whether Workload or job is deleted; the garbage collector may delete the Workload seconds after the job."""
    workload = state.gang.workload
    return workload is None or workload.deleting or state.gang.job.deleted


def _is_finished(state: GangState) -> bool:
    return state.workload.finished


def _record_end(state: GangState) -> list[Action]:
    actions: list[Action] = []
    for placement in state.gang.placements:
        ending = cleanup.ending_workers_message(
            state.gang, (r for r in state.leftovers if r.placement == placement.name)
        )
        actions += messages.update_status(placement, messages.ended_status(placement, state.now, ending))
    return actions


def _is_replaced(state: GangState) -> bool:
    return state.workload.replaced


def _resync(_: GangState) -> list[Action]:
    return [RequeueAfter(RESYNC)]


def _runs_without_check(state: GangState) -> bool:
    is_placed = state.current is not None and bool(state.current.placed_round)
    return state.workload.holds_quota and not state.gang.check and is_placed


def _holds_no_quota(state: GangState) -> bool:
    return not state.workload.holds_quota or not state.gang.check


def _drop_placements(state: GangState) -> list[Action]:
    placements, workload = state.gang.placements, state.workload
    if unrecorded := carry_over.record_before_deletion(state.gang, workload, placements, state.now):
        return unrecorded
    deletions = [DeletePlacement(placement) for placement in placements if not placement.job]
    dropped = [elastic.drop_shares(workload, placement, state.now) for placement in placements if placement.job]
    return [*deletions, *chain.from_iterable(dropped), *requeue.reactivate(workload, state.now)]


def _precedes_earlier_jobs(state: GangState) -> bool:
    """Whether a gang took its quota back before others were tried; one with shares keeps it, as it may start soon."""
    waits = not state.gang.is_running and state.check_state == names.CHECK_PENDING
    has_shares = state.current is not None and bool(state.current.shares)
    return waits and not has_shares and state.gang.capacity.earlier_jobs_wait


def _let_earlier_jobs_first(state: GangState) -> list[Action]:
    return requeue.let_earlier_jobs_first(state.workload)


def _leftovers_hold_up(state: GangState) -> bool:
    """Whether leftovers delay a plan; those that are unreachable, or whose deletion is denied, do not."""
    return not state.gang.is_running and bool(
        cleanup.leftover_wait(state.gang, state.workload, state.leftovers, state.now)
    )


def _wait_for_leftovers(state: GangState) -> list[Action]:
    text = cleanup.ending_workers_message(state.gang, state.leftovers)
    writes_check = text and state.check_state == names.CHECK_PENDING  # Kueue has to act on other states
    pending = messages.set_pending(state.gang, state.workload, text) if writes_check else []
    return [*pending, RequeueAfter(cleanup.leftover_wait(state.gang, state.workload, state.leftovers, state.now))]


def _kueue_must_act(state: GangState) -> bool:
    """Whether the check has a state that Kueue has yet to act on; a write now would take it back."""
    return state.check_state in (names.CHECK_RETRY, names.CHECK_REJECTED)


def _continues_with_slice(state: GangState) -> bool:
    return state.gang.job.unsuspended and bool(_continue_with_slice(state))


def _continue_with_slice(state: GangState) -> list[Action]:
    return elastic.adopt_slice(state.gang, state.workload, state.current)


def _is_invalid(state: GangState) -> bool:
    return not state.ready and bool(state.gang.job.rejection)


def _reject(state: GangState) -> list[Action]:
    return _reject_for(state, state.gang.job.rejection)


def _reject_for(state: GangState, text: str) -> list[Action]:
    check = messages.set_check(state.gang, state.workload, names.CHECK_REJECTED, text)
    event = emit_event(state.workload.job, names.EventReason.REJECTED, text, warning=True, names_job=True)
    return [*event, check]


def _has_nothing_remote(state: GangState) -> bool:
    return not state.ready and not state.gang.job.remote_podsets


def _let_run(state: GangState) -> list[Action]:
    updates = reserve.podset_locks(state.gang, placement_name(state.workload))
    text = "No worker of this job needs to be placed."
    return [SetCheck(state.workload, state.gang.check, names.CHECK_READY, text, updates)]


def _obstacle(state: GangState) -> Reason | None:
    """Why the gang cannot be planned now."""
    job = state.gang.job
    if text := job.planning_problem or job.missing_object:
        return Reason(names.ReasonCode.FAILED_DISPATCH, text)
    return Reason(names.ReasonCode.REJECTED_BY_KUBERAY, job.kuberay_rejection) if job.kuberay_rejection else None


def _must_release_shares(state: GangState) -> bool:
    current = state.current
    holds_shares = current is not None and bool(current.shares) and not current.withdrawing
    return not state.ready and _obstacle(state) is not None and holds_shares


def _release_shares(state: GangState) -> list[Action]:
    reason = _obstacle(state)
    assert reason is not None
    status = messages.withdrawing_status(state.placement, {}, reason, state.now, state.now)
    return [UpdatePlacementStatus(state.placement, status)]


def _cannot_be_planned(state: GangState) -> bool:
    return not state.ready and bool(state.gang.job.planning_problem)


def _report_problem(state: GangState) -> list[Action]:
    return [*_cannot_dispatch(state, state.gang.job.planning_problem), RequeueAfter(RESYNC)]


def _cannot_dispatch(
    state: GangState,
    text: str,
    *,
    names_job: bool = False,
    reason: names.EventReason = names.EventReason.FAILED_DISPATCH,
) -> list[Action]:
    events = emit_event(state.workload.job, reason, text, warning=True, names_job=names_job)
    return [*events, *messages.set_pending(state.gang, state.workload, text)]


def _wait_for_user(state: GangState, text: str, reason: names.EventReason, retry: timedelta) -> list[Action]:
    """Wait for what the job's user must do; deactivate when other gangs queue, because they do not wait for it."""
    if deactivated := requeue.deactivate(state.gang, state.workload, text, state.now):
        return deactivated
    return [*_cannot_dispatch(state, text, names_job=True, reason=reason), RequeueAfter(retry)]


def _lacks_object(state: GangState) -> bool:
    return not state.ready and bool(state.gang.job.missing_object)


def _wait_for_object(state: GangState) -> list[Action]:
    reason = names.EventReason.FAILED_DISPATCH
    return _wait_for_user(state, state.gang.job.missing_object, reason, MISSING_OBJECTS_RETRY)


def _is_rejected_by_kuberay(state: GangState) -> bool:
    return not state.ready and bool(state.gang.job.kuberay_rejection)


def _wait_for_edit(state: GangState) -> list[Action]:
    """Wait until the job is edited; deactivate when other gangs queue. A watched event or the edit enqueues the gang.

    The check is not Rejected, because a Workload stays rejected, and an edited job may be valid.
    """
    reason = names.EventReason.REJECTED_BY_KUBERAY
    return _wait_for_user(state, state.gang.job.kuberay_rejection, reason, RESYNC)


def _was_placed_without_pods(state: GangState) -> bool:
    """Whether a placed job has no pods, because KubeRay rejects it; the pods of a running one stay after an edit."""
    pods = state.gang.pods
    has_pods = pods.shares_with_manager_pods or pods.shares_with_remote_pods or pods.has_unplaced_workers
    is_placed = state.current is not None and bool(state.current.shares)
    return state.ready and is_placed and bool(state.gang.job.kuberay_rejection) and not has_pods


def _evict_rejected(state: GangState) -> list[Action]:
    """Return the job to its queue: Kueue evicts it, and all shares are deleted once it holds no quota."""
    text, reason = state.gang.job.kuberay_rejection, names.EventReason.REJECTED_BY_KUBERAY
    return messages.queue_again(state.gang, state.workload, reason, text, names_job=True)


def _has_unlabelled_hosts(state: GangState) -> bool:
    return state.ready and bool(state.gang.job.unlabelled_hosts)


def _reject_unlabelled_hosts(state: GangState) -> list[Action]:
    return _reject_for(state, state.gang.job.unlabelled_hosts)


def _runs_locally(state: GangState) -> bool:
    return state.ready and not state.gang.job.remote_podsets and not (state.workload.elastic and state.current)


def _ran_before_our_check(state: GangState) -> bool:
    runs_elastic = state.ready and state.workload.elastic
    return state.current is None and runs_elastic and not state.workload.checks[state.gang.check].updates


def _needs_round(state: GangState) -> bool:
    return state.current is None or (state.current.withdrawing and not state.ready)


def _plan(state: GangState) -> list[Action]:
    kept_shares = () if state.ready else None  # a running job takes whatever fits
    gang, workload, now = state.gang, state.workload, state.now
    exclusions = (
        current_exclusions(state.current, now, gang.policy.start_timeout)
        if state.current
        else carry_over.exclusions_for_start(gang, workload, now)
    )
    placement, last_round = state.current or state.gang.elastic_placement, state.gang.shares.last_round
    before = carry_over.start_timeouts_before(gang, workload, now)
    return [Plan(workload, placement, exclusions, kept_shares, last_round=last_round, start_timeouts_before=before)]


def _is_resized(state: GangState) -> bool:
    placement = state.placement
    return (
        not state.ready
        and placement.job is not None
        and placement.wanted_workers != sum(state.gang.wanted_workers.values())
    )


def _replan_resized(state: GangState) -> list[Action]:
    return elastic.plan_resized(state.gang, state.workload, state.placement, state.now)


def _has_no_capacity(state: GangState) -> bool:
    return not state.ready and not state.placement.shares


def _wait_for_capacity(state: GangState) -> list[Action]:
    return requeue.wait_for_capacity(state.gang, state.workload, state.placement, state.now)


def _is_ready(state: GangState) -> bool:
    return state.ready


def _keep_running(state: GangState) -> list[Action]:
    return running.decide(state.gang, state.workload, state.placement, state.now)


def _plan_or_reserve(state: GangState) -> list[Action]:
    placement = state.placement
    return reserve.reserve_round(state.gang, state.workload, placement, placement.shares, state.ready, state.now)


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GangRule(Rule[GangState]):
    """A rule, with deletions before its actions."""

    cleanup: Callable[[GangState], list[Action]] = _clean_up


RULES: Final = (
    GangRule(
        "Workload or job deleted",
        "Its shares are deleted, their pods first.",
        _is_deleted,
        no_actions,
        _delete_leftovers,
    ),
    GangRule(
        "Workload finished",
        "Its shares are deleted; its Placement stays as a record.",
        _is_finished,
        _record_end,
        _delete_leftovers,
    ),
    GangRule(
        "slice replaced",
        "Nothing is done until the next slice of the elastic job is observed.",
        _is_replaced,
        _resync,
        no_actions,
    ),
    GangRule(
        "runs, and its check was removed",
        "It keeps running, as Kueue lets it.",
        _runs_without_check,
        no_actions,
        no_actions,
    ),
    GangRule(
        "no quota, or not ours",
        "Its shares and its Placement are deleted; if we deactivated it, it is reactivated.",
        _holds_no_quota,
        _drop_placements,
        _delete_leftovers,
    ),
    GangRule(
        "queued again, and has its quota back first",
        "It is deactivated for a moment when jobs that were queued before it wait for the quota.",
        _precedes_earlier_jobs,
        _let_earlier_jobs_first,
    ),
    GangRule(
        "leftover shares exist",
        "It waits until shares of earlier attempts and rounds are deleted.",
        _leftovers_hold_up,
        _wait_for_leftovers,
        _delete_leftovers_and_placements,
    ),
    GangRule(
        "Kueue must act first",
        "The check is Retry or Rejected, so nothing is written.",
        _kueue_must_act,
        _resync,
    ),
    GangRule(
        "elastic job has a new slice",
        "The check is answered at once, and the Placement is retargeted to the new Workload.",
        _continues_with_slice,
        _continue_with_slice,
    ),
    GangRule(
        "can never run remotely",
        "The check is Rejected, with the reason.",
        _is_invalid,
        _reject,
    ),
    GangRule(
        "nothing to place",
        "The check is Ready at once.",
        _has_nothing_remote,
        _let_run,
    ),
    GangRule(
        "holds shares, and cannot be planned now",
        "Its round is withdrawn.",
        _must_release_shares,
        _release_shares,
    ),
    GangRule(
        "cannot be planned now",
        "It waits, with the reason on its check.",
        _cannot_be_planned,
        _report_problem,
    ),
    GangRule(
        "a Secret or ConfigMap is missing",
        "It waits, and is deactivated for a moment when others queue behind it.",
        _lacks_object,
        _wait_for_object,
    ),
    GangRule(
        "KubeRay rejects the job",
        "It waits, with KubeRay's words on its check, and is deactivated for a moment when others queue behind it.",
        _is_rejected_by_kuberay,
        _wait_for_edit,
    ),
    GangRule(
        "was placed, and KubeRay rejects it",
        "It has no pods, so the check is Retry: Kueue evicts it, and its shares are deleted.",
        _was_placed_without_pods,
        _evict_rejected,
    ),
    GangRule(
        "was placed, and KubeRay labels no host",
        "The check is Rejected: without the labels no replica of several hosts can be told from another.",
        _has_unlabelled_hosts,
        _reject_unlabelled_hosts,
    ),
    GangRule(
        "runs, and nothing to place",
        "Nothing is done.",
        _runs_locally,
        no_actions,
    ),
    GangRule(
        "ran before it had our check",
        "Nothing is done: its workers run in the manager cluster.",
        _ran_before_our_check,
        no_actions,
    ),
    GangRule(
        "no round, or the last one is withdrawn",
        "It is planned.",
        _needs_round,
        _plan,
    ),
    GangRule(
        "resized while it waits",
        "Its round is withdrawn, or it is planned for its new size.",
        _is_resized,
        _replan_resized,
    ),
    GangRule(
        "no capacity",
        "It waits for capacity to change, and is deactivated for a moment when others queue behind it.",
        _has_no_capacity,
        _wait_for_capacity,
    ),
    GangRule(
        "job runs",
        "Workers that lost their slots are planned again; all else stays.",
        _is_ready,
        _keep_running,
    ),
    GangRule(
        "round not admitted yet",
        "Missing shares are created; a round that is not admitted in time is withdrawn as a whole.",
        always,
        _plan_or_reserve,
    ),
)


def first_rule(state: GangState) -> GangRule:
    return next(rule for rule in RULES if rule.applies(state))
