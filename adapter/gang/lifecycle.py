"""The next actions for one gang, decided on its facts and the time.

Theory of operation. A gang is one manager's Workload. While that Workload holds quota, one Placement represents the
attempt. Its spec says in one write what is wanted in the worker clusters: a round with its shares. A share in a worker
cluster that is not of that round is a leftover, and is deleted before anything new is created. So the worker clusters
converge to what the manager's objects say. A crash between two writes loses nothing: the next reconcile reads the same
state and takes the same step.

    no placement -> plan -> reserving -> placed -> ended
                      ^        |  not admitted in time
                      |   withdrawing (leftovers are deleted)     placed -> a share is lost -> plan for its workers
                      +--------+----> waiting (nothing reserved; plans again when capacity changes)

RULES has the rules in order, most terminal first. The first that applies gives the actions. Actions that delete
leftovers precede them. docs/architecture.md lists the rules.

Before a plan, and before a share is created, dry_run.py has the clusters asked what a remote pod would become there.
This file neither plans (planning/planner.py) nor words what people read (messages.py), and timeouts.py has all times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from adapter import names
from adapter.actions import Action, DeletePlacement, Plan, RequeueAfter, SetCheck, UpdatePlacementStatus, emit_event
from adapter.gang import cleanup, dry_run, elastic, messages, requeue, reserve, running
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import MISSING_OBJECTS_RETRY, RESYNC, current_exclusions
from adapter.objects.placement import Placement, placement_name
from adapter.objects.reason import Reason
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload
from adapter.rules import Rule, always, no_actions


@dataclass(frozen=True, slots=True)
class GangState:
    """What the rules are evaluated on."""

    gang: Gang  # without the leftovers: a running gang places lost workers again before those are deleted
    leftovers: tuple[Reservation, ...]  # reservations that are to be deleted
    current: Placement | None  # the Placement of the present attempt
    now: datetime

    @property
    def workload(self) -> Workload:
        """The gang's Workload; the first rule leaves only gangs that have one."""
        assert self.gang.workload is not None
        return self.gang.workload

    @property
    def placement(self) -> Placement:
        """The current Placement, for rules that apply only where there is one."""
        assert self.current is not None
        return self.current

    @property
    def check_state(self) -> str:
        """The state of our admission check on the Workload."""
        return self.workload.checks[self.gang.check].state

    @property
    def ready(self) -> bool:
        """Whether our admission check is Ready, so that Kueue lets the job run."""
        return self.check_state == names.CHECK_READY


def decide(gang: Gang, now: datetime) -> list[Action]:
    """Decide the next actions for a gang: in order in one cluster, concurrently in different ones."""
    state = gang_state(gang, now)
    rule = first_rule(state)
    return dry_run.defer_until_answered(state.gang, [*rule.cleanup(state), *rule.actions(state)])


def gang_state(gang: Gang, now: datetime) -> GangState:
    """Separate the leftovers from the other facts."""
    leftovers = cleanup.unwanted_shares(gang)
    return GangState(gang.without_reservations(leftovers), leftovers, gang.current_placement, now)


# --- deletion of leftovers, before the actions of a rule -------------------------------------------------------------


def _delete_leftovers(state: GangState) -> list[Action]:
    return cleanup.delete_shares(state.gang, state.leftovers)


def _delete_leftovers_and_placements(state: GangState) -> list[Action]:
    gang = state.gang
    outdated = [DeletePlacement(p) for p in gang.placements if p not in (state.current, gang.elastic_placement)]
    return [*outdated, *_deletion_denied_events(state), *_delete_leftovers(state)]


def _clean_up(state: GangState) -> list[Action]:
    ending = cleanup.ending_workers_message(state.gang, state.leftovers)
    events = emit_event(state.workload.job, names.EventReason.WAITING_FOR_TERMINATION, ending) if ending else []
    return [*_delete_leftovers_and_placements(state), *events]


def _deletion_denied_events(state: GangState) -> list[Action]:
    """Report leftovers that a cluster does not let be deleted: they hold quota there for nothing."""
    denials = state.gang.shares.deletion_denials
    texts = [
        f"Worker cluster {leftover.cluster} refuses to have Workload {leftover.name} of this job deleted, "
        f"which holds quota there for nothing: {denials[leftover.uid]}"
        for leftover in state.leftovers
        if leftover.uid in denials
    ]
    reason = names.EventReason.FAILED_SHARE_DELETION
    return [event for text in texts for event in emit_event(state.workload.job, reason, text, warning=True)]


# --- conditions and actions of the rules, in their order -------------------------------------------------------------


def _is_deleted(state: GangState) -> bool:
    """The job's own deletion counts: the garbage collector may take seconds until it deletes the Workload."""
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
    """Kueue does not stop what it admitted when its queue loses an admission check; neither do we."""
    is_placed = state.current is not None and bool(state.current.placed_round)
    return state.workload.holds_quota and not state.gang.check and is_placed


def _holds_no_quota(state: GangState) -> bool:
    return not state.workload.holds_quota or not state.gang.check


def _drop_placements(state: GangState) -> list[Action]:
    """Delete the Placements; that of an elastic job keeps its name and its rounds."""
    actions: list[Action] = []
    for placement in state.gang.placements:
        actions += (
            elastic.drop_shares(state.workload, placement, state.now) if placement.job else [DeletePlacement(placement)]
        )
    return [*actions, *requeue.reactivate(state.workload, state.now)]


def _leftovers_hold_up(state: GangState) -> bool:
    """A leftover that cannot be observed, or that its cluster does not let be deleted, holds up nothing."""
    return not state.gang.is_running and bool(
        cleanup.leftover_wait(state.gang, state.workload, state.leftovers, state.now)
    )


def _wait_for_leftovers(state: GangState) -> list[Action]:
    text = cleanup.ending_workers_message(state.gang, state.leftovers)
    writes_check = text and state.check_state == names.CHECK_PENDING  # any other state is for Kueue to act on first
    pending = messages.set_pending(state.gang, state.workload, text) if writes_check else []
    return [*pending, RequeueAfter(cleanup.leftover_wait(state.gang, state.workload, state.leftovers, state.now))]


def _kueue_must_act(state: GangState) -> bool:
    """Another state of the check now would take back the one that Kueue is to act on."""
    return state.check_state in (names.CHECK_RETRY, names.CHECK_REJECTED)


def _continues_with_slice(state: GangState) -> bool:
    return state.gang.job.unsuspended and bool(_continue_with_slice(state))


def _continue_with_slice(state: GangState) -> list[Action]:
    return elastic.adopt_slice(state.gang, state.workload, state.current)


def _is_invalid(state: GangState) -> bool:
    return not state.ready and bool(state.gang.job.rejection)


def _reject(state: GangState) -> list[Action]:
    """Reject before any quota is held in a worker cluster."""
    gang, workload, text = state.gang, state.workload, state.gang.job.rejection
    check = messages.set_check(gang, workload, names.CHECK_REJECTED, text)
    event = emit_event(workload.job, names.EventReason.REJECTED, text, warning=True, names_job=True)
    return [*event, check]


def _has_nothing_remote(state: GangState) -> bool:
    return not state.ready and not state.gang.job.remote_podsets


def _let_run(state: GangState) -> list[Action]:
    updates = reserve.podset_locks(state.gang, placement_name(state.workload))
    text = "No worker of this job is to run elsewhere."
    return [SetCheck(state.workload, state.gang.check, names.CHECK_READY, text, updates)]


def _obstacle(state: GangState) -> str:
    return state.gang.job.planning_problem or state.gang.job.missing_object


def _must_release_shares(state: GangState) -> bool:
    """A gang that cannot be planned must hold nothing in the worker clusters."""
    current = state.current
    holds_shares = current is not None and bool(current.shares) and not current.withdrawing
    return not state.ready and bool(_obstacle(state)) and holds_shares


def _release_shares(state: GangState) -> list[Action]:
    reason = Reason(names.ReasonCode.FAILED_DISPATCH, _obstacle(state))
    status = messages.withdrawing_status(state.placement, {}, reason, state.now, state.now)
    return [UpdatePlacementStatus(state.placement, status)]


def _cannot_be_planned(state: GangState) -> bool:
    return not state.ready and bool(state.gang.job.planning_problem)


def _report_problem(state: GangState) -> list[Action]:
    return [*_cannot_dispatch(state, state.gang.job.planning_problem), RequeueAfter(RESYNC)]


def _cannot_dispatch(state: GangState, text: str, *, names_job: bool = False) -> list[Action]:
    reason = names.EventReason.FAILED_DISPATCH
    events = emit_event(state.workload.job, reason, text, warning=True, names_job=names_job)
    return [*events, *messages.set_pending(state.gang, state.workload, text)]


def _lacks_object(state: GangState) -> bool:
    return not state.ready and bool(state.gang.job.missing_object)


def _wait_for_object(state: GangState) -> list[Action]:
    """Deactivate when others queue: unlike a problem of the queue, a missing object concerns this gang alone."""
    text = state.gang.job.missing_object
    if deactivated := requeue.deactivate(state.gang, state.workload, text, state.now):
        return deactivated
    return [*_cannot_dispatch(state, text, names_job=True), RequeueAfter(MISSING_OBJECTS_RETRY)]


def _runs_locally(state: GangState) -> bool:
    return state.ready and not state.gang.job.remote_podsets and not (state.workload.elastic and state.current)


def _ran_before_our_check(state: GangState) -> bool:
    runs_elastic = state.ready and state.workload.elastic
    return state.current is None and runs_elastic and not state.workload.checks[state.gang.check].updates


def _needs_round(state: GangState) -> bool:
    return state.current is None or (state.current.withdrawing and not state.ready)


def _plan(state: GangState) -> list[Action]:
    kept_shares = () if state.ready and state.workload.elastic else None  # a running job takes whatever fits
    exclusions = current_exclusions(state.current, state.now, state.gang.policy.start_timeout)
    return [Plan(state.workload, state.current or state.gang.elastic_placement, exclusions, kept_shares)]


def _is_resized(state: GangState) -> bool:
    """Whether an elastic job was scaled in while it was queued."""
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
    """A rule, with the deletions that precede its actions."""

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
        "It runs on, as Kueue lets it.",
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
        "leftovers hold it up",
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
    """Return the first rule that applies."""
    return next(rule for rule in RULES if rule.applies(state))
