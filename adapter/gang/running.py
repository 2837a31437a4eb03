"""A gang whose job runs: shares that are lost, to be drained, or not needed any more.

Only workers that have no slot, or did not start in time, are planned again, in a further round. If its policy says so,
the whole gang restarts instead when shares are lost. worker/dispatch.py decides on single workers, reserve.py on
rounds, scale_up.py on single-worker shares.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from adapter import names
from adapter.actions import Action, DeletePod, Plan, RequeueAfter, UpdatePlacementStatus, emit_event
from adapter.gang import (
    carry_over,
    elastic,
    group_slots,
    incomplete_gang,
    messages,
    min_workers,
    readiness_timeout,
    scale_up,
    share_priority,
    start_timeout,
    uncreated_workers,
    unused_quota,
    withheld_workers,
)
from adapter.gang.gang_facts import Gang
from adapter.gang.reserve import blocked_shares, not_admitted_reason, reserve_round
from adapter.gang.scale_up import PendingShares
from adapter.gang.start_timeout import StartTimeouts
from adapter.gang.timeouts import RESYNC, SOON, exclusion_duration, may_fit, without_old_timeouts
from adapter.gang.uncreated_workers import NO_UNUSABLE_SHARES, UnusableShares
from adapter.objects.placement import Exclusion, Placement, PlacementState, Share
from adapter.objects.reason import Reason, clause
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload

NOT_NEEDED = Reason(names.ReasonCode.NOT_NEEDED, "No worker needs these shares any more")


@dataclass(frozen=True, slots=True)
class _LostShares:
    """Shares that were admitted and will not be again."""

    reasons: Mapping[Share, str]
    with_workers: tuple[Share, ...]  # without those that an elastic job's last worker has left
    pods_denied: tuple[Share, ...]  # those whose clusters deny the pods
    refused: tuple[Share, ...]  # those that an admission check took back, such as one whose nodes were revoked
    message: str  # on lost workers; may be empty

    @property
    def restart_helps(self) -> bool:
        """Whether workers were lost whose loss a restart of the whole gang can mend.

        A share whose cluster denies pods is replaced without a restart: the next plan excludes that cluster.
        Single-worker shares do not count.
        """
        return any(not share.single_worker and share not in self.pods_denied for share in self.with_workers)


def decide(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    """Queue a gang without remote pods again; otherwise place lost workers again and replace unready ones in time."""
    placement = without_old_timeouts(placement, now, gang.policy.start_timeout)
    if unused_quota.is_overdue(gang, now):
        return unused_quota.queue_again(gang, workload, placement, now)
    if uncreated_workers.must_queue_again(gang, workload, placement, now):
        return uncreated_workers.queue_again(gang, workload, placement, now)
    if incomplete_gang.must_queue_again(gang, workload, placement, now):
        return incomplete_gang.queue_again(gang, workload, placement, now)
    if min_workers.is_overdue(gang, placement, now):
        return min_workers.queue_again(gang, workload, placement, now)
    if recording := min_workers.record_shortage(gang, placement, now):
        return recording
    return [
        *_decide_shares(gang, workload, placement, now),
        *unused_quota.recheck(gang, now),
        *uncreated_workers.recheck(gang, now),
        *min_workers.recheck(gang, placement, now),
        *readiness_timeout.replace_unready_workers(gang, workload, placement, now),
    ]


def _decide_shares(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    recorded, placement = placement, _with_implied_round(placement, workload)
    pending = scale_up.pending_shares(gang, placement)
    lost = _lost_shares(gang, placement, pending)
    timed_out = scale_up.timed_out_shares(gang, placement, pending, now)
    reason = names.EventReason.SHARE_LOST
    # Retry would also take back what another check has answered, such as an approval; nothing has started to restart.
    has_started = gang.job.unsuspended or unused_quota.are_checks_ready(gang)
    is_reported = has_started and lost.message
    lost_events = emit_event(workload.job, reason, lost.message, warning=True) if is_reported else []
    events = [*lost_events, *scale_up.report_timed_out(workload, timed_out)]
    if has_started and gang.policy.restarts_on_share_loss and lost.restart_helps:
        text = f"{lost.message} The whole job restarts, because its policy has onShareLost: Restart."
        denied = _exclusions_after_loss(recorded, lost, now)
        record = carry_over.record_exclusions(gang, workload, recorded, denied, now) if denied else None
        return [*events, messages.retry_check(gang, workload, text, record)]
    remaining = [
        share
        for share in (*_admitted_shares(placement, pending), *pending)
        if share not in lost.reasons and share not in timed_out
    ]
    start_timeouts = start_timeout.find_late_workers(gang, placement, now)
    spare = set(group_slots.spare_shares(gang, placement, remaining, start_timeouts, now))
    unusable = uncreated_workers.find_unusable_shares(gang, placement, remaining, now)
    if lost.reasons or spare or unusable.shares or timed_out or recorded.withdrawing:
        exclusions = (
            *start_timeout.lasting_exclusions(gang, recorded, start_timeouts.late_pods, now),
            *_exclusions_after_loss(recorded, lost, now),
            *scale_up.exclusions_for(recorded, timed_out, now),
        )
        kept_shares = tuple(share for share in remaining if share not in spare and share not in unusable.shares)
        given_up = len(lost.pods_denied) + len(lost.refused) + bool(timed_out)
        plan = _replan(
            gang, workload, recorded, exclusions, kept_shares, start_timeouts, lost.message, given_up, unusable
        )
        return [*events, *plan]
    requested = _requested_shares(placement)
    if (
        requested
        and recorded.job
        and not any(group_slots.lacking_slots(gang, placement, remaining, start_timeouts).values())
    ):
        status = messages.withdrawing_status(recorded, {}, NOT_NEEDED, now, now)
        return [UpdatePlacementStatus(recorded, status)]
    if requested:
        # The round counts as placed only when the pending single-worker shares are admitted too. If it counted earlier,
        # these shares would count as lost, since they have no quota yet.
        return reserve_round(gang, workload, recorded, [*requested, *pending], True, now)
    return _continue(gang, workload, recorded, placement, pending, start_timeouts, now)


def _with_implied_round(placement: Placement, workload: Workload) -> Placement:
    """A running job was placed, unless it is elastic and started without a round."""
    return placement if workload.elastic else replace(placement, placed_round=placement.implied_placed_round)


def _lost_shares(gang: Gang, placement: Placement, pending: PendingShares) -> _LostShares:
    reservations = gang.reservations_of(placement, _admitted_shares(placement, pending))
    reasons = {share: _loss_reason(gang, placement, share, reservation) for share, reservation in reservations.items()}
    lost = {share: reason for share, reason in reasons.items() if reason}
    occupied = gang.pods.shares_with_manager_pods
    with_workers = tuple(share for share in lost if not placement.job or placement.share_key(share) in occupied)
    return _LostShares(
        reasons=lost,
        with_workers=with_workers,
        pods_denied=_shares_denying_pods(gang, placement, lost),
        refused=tuple(share for share in lost if (reservation := reservations[share]) and reservation.refusal),
        message=_loss_message({share: lost[share] for share in with_workers}),
    )


def _exclusions_after_loss(placement: Placement, lost: _LostShares, now: datetime) -> list[Exclusion]:
    until = now + exclusion_duration(placement, is_refused=bool(lost.refused))
    return [Exclusion(share.cluster, until, lost.reasons[share]) for share in (*lost.pods_denied, *lost.refused)]


def _replan(
    gang: Gang,
    workload: Workload,
    placement: Placement,
    exclusions: tuple[Exclusion, ...],
    kept_shares: tuple[Share, ...],
    start_timeouts: StartTimeouts,
    loss_message: str = "",
    given_up: int = 0,
    unusable: UnusableShares = NO_UNUSABLE_SHARES,
) -> list[Action]:
    """Plan workers without a slot, or that did not start in time, beside the kept shares."""
    texts = [start_timeouts.message] if start_timeouts.exclusions else []
    texts += [unusable.message] if unusable.shares else []
    reason = names.EventReason.START_TIMEOUT
    events = [event for text in texts for event in emit_event(workload.job, reason, text, warning=True)]
    short = Counter[str]()
    for share in group_slots.undrained_shares(gang, kept_shares):
        short += start_timeouts.unusable_slots.get(placement.share_key(share), Counter())
    message = " ".join(text for text in (loss_message, unusable.message, start_timeouts.message) if text)
    all_exclusions = (*exclusions, *start_timeouts.exclusions, *unusable.exclusions)
    plan = Plan(
        workload,
        placement,
        all_exclusions,
        kept_shares,
        message,
        given_up,
        short,
        bool(texts),
        withheld_workers=withheld_workers.withheld_after_plan(gang, unusable.withheld),
        newly_withheld=unusable.withheld,
        withheld_for=unusable.withheld_for,
    )
    return [*events, plan, RequeueAfter(SOON)]


def _continue(
    gang: Gang,
    workload: Workload,
    recorded: Placement,
    placement: Placement,
    pending: PendingShares,
    start_timeouts: StartTimeouts,
    now: datetime,
) -> list[Action]:
    """No share is lost or requested: plan if more workers may fit, else drain; create single-worker shares."""
    exclusions = start_timeout.lasting_exclusions(gang, recorded, start_timeouts.late_pods, now)
    lacking = group_slots.lacking_slots(gang, placement, placement.active_shares, start_timeouts)
    missing = sum(lacking.values())
    has_new_shares = any(map(placement.is_from_last_plan, placement.active_shares))
    # If the last plan found no shares, but no worker lacks a slot now, the plan's reason for lost workers is outdated.
    # Another plan clears the reason.
    # While workers are withheld, it is their reason.
    has_outdated_reason = placement.lost_reason and not (has_new_shares or gang.pods.withheld_workers)
    waits = bool(missing or has_outdated_reason) and not elastic.has_max_shares(placement)
    # Missing shares are created even if this reconcile plans. Where capacity changes all the time, each reconcile
    # plans, and the shares would never be created otherwise.
    creations = scale_up.reserve_pending(gang, workload, recorded, pending, now)
    can_move = missing and start_timeouts.late_pods and has_new_shares
    wait_is_over = not pending and _has_stopped_waiting(gang, placement, start_timeouts)
    if start_timeouts.exclusions or can_move or wait_is_over or (waits and may_fit(gang, recorded, exclusions, now)):
        return [*creations, *_replan(gang, workload, recorded, exclusions, placement.active_shares, start_timeouts)]
    status = _running_status(gang, placement, pending, lacking, now)
    recordings = messages.update_status(recorded, status)
    events = _waiting_or_placed_events(gang, workload, recorded, pending, lacking, bool(recordings))
    expiries = [*(exclusion.until for exclusion in exclusions), gang.capacity.deductions_expire_at] if waits else []
    delays = [at - now for at in (*expiries, start_timeouts.recheck_at, gang.pods.withheld_until) if at]
    delays += [RESYNC] if waits or _blocked_clusters(gang, placement) else []
    return [
        *creations,
        *_drain_pods(gang),
        *start_timeout.fail_late_pods(gang, start_timeouts, now),
        *readiness_timeout.warn_of_eviction(gang, workload, missing, now),
        *share_priority.warn_of_outdated_priority(gang, workload, placement),
        *recordings,
        *events,
        *([RequeueAfter(min(delays))] if delays else []),
    ]


def _drain_pods(gang: Gang) -> list[Action]:
    return [
        DeletePod(cluster, pod, f"the workers of its job move out of worker cluster {cluster}")
        for cluster, pod in gang.pods.pods_to_drain
    ]


def _waiting_or_placed_events(
    gang: Gang,
    workload: Workload,
    placement: Placement,
    pending: PendingShares,
    lacking: Mapping[str, int],
    is_new: bool,
) -> list[Action]:
    """An elastic job waits for slots, or now has all; `is_new` if its status changes."""
    if not placement.job:
        return []
    if sum(lacking.values()):
        text = elastic.placement_message(gang, placement, lacking)
        warning = gang.job.waiting_warning
        return [
            *emit_event(workload.job, names.EventReason.WAITING, text),
            *(emit_event(workload.job, names.EventReason.AUTOSCALER_TIMEOUT, warning) if warning else []),
        ]
    if is_new and not pending and placement.status.get("state") == PlacementState.RESERVING:
        reason = names.EventReason.REPLACED if placement.lost_reason else names.EventReason.PLACED
        return emit_event(workload.job, reason, placement.explanation)
    return []


def _admitted_shares(placement: Placement, pending: PendingShares) -> list[Share]:
    shares = (s for s in placement.active_shares if s.single_worker or placement.round_of(s) <= placement.placed_round)
    return [share for share in shares if share not in pending]


def _requested_shares(placement: Placement) -> list[Share]:
    """The shares of the round to be admitted as a whole."""
    return [
        s for s in placement.active_shares if not s.single_worker and placement.round_of(s) > placement.placed_round
    ]


def _shares_denying_pods(gang: Gang, placement: Placement, lost: Iterable[Share]) -> tuple[Share, ...]:
    observed = (share for share in lost if share.cluster not in gang.clusters.unreachable)
    return tuple(share for share in observed if placement.share_key(share) in gang.pods.pod_denials)


def _loss_message(lost: Mapping[Share, str]) -> str:
    counts = Counter[tuple[str, str]]()
    for share, reason in lost.items():
        counts[share.cluster, clause(reason)] += share.workers
    parts = [f"{count} in {cluster}: {reason}" for (cluster, reason), count in counts.items()]
    return f"Workers were lost, {'; '.join(parts)}." if parts else ""


def _has_stopped_waiting(gang: Gang, placement: Placement, start_timeouts: StartTimeouts) -> bool:
    """Whether all workers have a slot now, although the last plan found too few slots.

    The workers that lacked a slot started late, left, or may stay because their cluster is not drained any more. The
    gang is planned at once, to record that no worker waits. Otherwise it would hold capacity for nobody.
    """
    if placement.waiting_since is None:
        return False
    return not any(group_slots.lacking_slots(gang, placement, placement.active_shares, start_timeouts).values())


def _blocked_clusters(gang: Gang, placement: Placement) -> dict[str, Reason]:
    """The clusters that are unreachable, or whose share is not admitted."""
    clusters = (share.cluster for share in placement.active_shares)
    unreachable = gang.clusters.unreachable
    code = names.ReasonCode.CLUSTER_UNREACHABLE
    blocked = {cluster: Reason(code, unreachable[cluster]) for cluster in clusters if cluster in unreachable}
    for reservation in gang.reservations_of(placement, placement.active_shares).values():
        if reservation and (reservation.deleting or not reservation.admitted):
            blocked[reservation.cluster] = not_admitted_reason(reservation)
    return blocked


def _running_status(
    gang: Gang, placement: Placement, pending: PendingShares, unplaced: Mapping[str, int], now: datetime
) -> dict[str, object]:
    missing = sum(unplaced.values()) + sum(gang.pods.withheld_workers.values())
    if pending:
        status = messages.reserving_status(placement, blocked_shares(gang, pending), now)
    elif blocked := _blocked_clusters(gang, placement):
        status = messages.degraded_status(placement, blocked, gang.clusters.unreachable, now, unplaced=missing)
    else:
        text = elastic.placement_message(gang, placement, unplaced) if placement.job else ""
        status = messages.placed_status(placement, now, text, unplaced=missing)
    return {**status, "placedRound": scale_up.last_placed_round(placement, pending)} if placement.job else status


def _loss_reason(gang: Gang, placement: Placement, share: Share, reservation: Reservation | None) -> str:
    if share.cluster in gang.clusters.unreachable:
        return _unreachable_loss_reason(gang, placement, share)
    if reservation is None:
        return "its reservation is gone there"
    # A cluster that runs some of its pods may deny others for a while; the running ones stay.
    key = placement.share_key(share)
    if key not in gang.pods.shares_with_remote_pods and (denial := gang.pods.pod_denials.get(key)):
        return denial
    has_quota = reservation.reserved_at is not None and not (reservation.stranded or reservation.ended)
    if reservation.admitted or reservation.deleting or has_quota:
        return ""
    if reservation.eviction_message:
        return f"its workers were stopped there: {reservation.eviction_message}"
    # In its queue it would wait, while other clusters may have capacity.
    return f"it lost its quota there: {reservation.quota_message}"


def _unreachable_loss_reason(gang: Gang, placement: Placement, share: Share) -> str:
    pods, clusters, key = gang.pods, gang.clusters, placement.share_key(share)
    if key in pods.shares_with_live_manager_pods:
        return ""
    if reason := clusters.lost.get(share.cluster):
        return reason
    # Here no manager pod of the share is live. If the share has remote pods, Ray lost all of them. So replacements,
    # which have no slot yet, need not wait until the cluster counts as lost.
    if pods.has_unplaced_workers and key in pods.shares_with_remote_pods:
        return f"the worker cluster {clusters.unreachable[share.cluster]}"
    return ""
