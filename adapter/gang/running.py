"""A gang whose job runs: shares that are lost, to be drained, or not needed any more.

The job runs on. Only the workers that lost their slots are planned again, in a further round of the same Placement;
the rest of the gang stays. If its policy says so, the whole gang restarts instead. worker/dispatch.py decides whether
a single worker lives, reserve.py how a round is created and withdrawn, and scale_up.py how single workers are added.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from adapter import names
from adapter.actions import Action, DeletePod, Plan, RequeueAfter, UpdatePlacementStatus, emit_event
from adapter.gang import elastic, messages, scale_up, start_timeout
from adapter.gang.gang_facts import Gang
from adapter.gang.reserve import blocked_shares, not_admitted_reason, reserve_round
from adapter.gang.scale_up import PendingShares
from adapter.gang.start_timeout import StartTimeouts
from adapter.gang.timeouts import RESYNC, SOON, current_exclusions, exclusion_duration, may_fit
from adapter.objects.placement import Exclusion, Placement, PlacementState, Share
from adapter.objects.reason import Reason, clause
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload

NOT_NEEDED = Reason(names.ReasonCode.NOT_NEEDED, "Nobody needs it any more")


@dataclass(frozen=True, slots=True)
class _LostShares:
    """The shares that were admitted and will not be again."""

    reasons: Mapping[Share, str]  # of all lost shares
    with_workers: tuple[Share, ...]  # an elastic job may lose a share that its last worker has left already
    pods_denied: tuple[Share, ...]  # their clusters deny the gang's pods, and would do so again
    message: str  # a sentence on the lost workers; empty when none was lost

    @property
    def restart_helps(self) -> bool:
        """Only the next plan excludes a cluster that denies the pods; a new attempt would not."""
        return any(not share.single_worker and share not in self.pods_denied for share in self.with_workers)


def decide(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    """Decide the next actions for a gang whose job runs: place lost workers again, and leave all else as it is."""
    recorded, placement = placement, _with_implied_round(placement, workload)
    pending = scale_up.pending_shares(gang, placement)
    lost = _lost_shares(gang, placement, pending)
    timed_out = scale_up.timed_out_shares(gang, placement, pending, now)
    reason = names.EventReason.SHARE_LOST
    lost_events = emit_event(workload.job, reason, lost.message, warning=True) if lost.message else []
    events = [*lost_events, *scale_up.report_timed_out(workload, timed_out)]
    if gang.policy.restarts_on_share_loss and lost.restart_helps:
        text = f"{lost.message} The whole job starts again, as its policy's onShareLost says."
        return [*events, messages.set_check(gang, workload, names.CHECK_RETRY, text)]
    remaining = [
        share
        for share in (*_admitted_shares(placement, pending), *pending)
        if share not in lost.reasons and share not in timed_out
    ]
    start_timeouts = start_timeout.find_late_workers(gang, placement, now)
    spare = set(_spare_shares(gang, placement, remaining, start_timeouts))
    if lost.reasons or spare or timed_out or recorded.withdrawing:
        exclusions = (
            *current_exclusions(recorded, now, gang.policy.start_timeout),
            *_exclusions_of_denials(recorded, lost, now),
            *scale_up.exclusions_for(recorded, timed_out, now),
        )
        kept_shares = tuple(share for share in remaining if share not in spare)
        given_up = len(lost.pods_denied) + bool(timed_out)
        plan = _replan(gang, workload, recorded, exclusions, kept_shares, start_timeouts, lost.message, given_up)
        return [*events, *plan]
    requested = _requested_shares(placement)
    if requested and recorded.job and not _lacks_slots(gang, placement, remaining, start_timeouts):
        status = messages.withdrawing_status(recorded, {}, NOT_NEEDED, now, now)
        return [UpdatePlacementStatus(recorded, status)]
    if requested:
        # The round counts as placed once single-worker shares are admitted too: a placed share without quota is lost.
        return reserve_round(gang, workload, recorded, [*requested, *pending], True, now)
    return _continue(gang, workload, recorded, placement, pending, start_timeouts, now)


def _with_implied_round(placement: Placement, workload: Workload) -> Placement:
    """The Placement with a placed round: a running job was placed. Only an elastic job may have started without a
    round."""
    if placement.placed_round or workload.elastic:
        return placement
    return replace(placement, placed_round=placement.round)


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
        message=_loss_message({share: lost[share] for share in with_workers}),
    )


def _exclusions_of_denials(placement: Placement, lost: _LostShares, now: datetime) -> list[Exclusion]:
    until = now + exclusion_duration(placement)
    return [Exclusion(share.cluster, until, lost.reasons[share]) for share in lost.pods_denied]


def _replan(
    gang: Gang,
    workload: Workload,
    placement: Placement,
    exclusions: tuple[Exclusion, ...],
    kept_shares: tuple[Share, ...],
    start_timeouts: StartTimeouts,
    loss_message: str = "",
    given_up: int = 0,
) -> list[Action]:
    """Plan the workers without a slot on the kept shares, also those that did not start in time."""
    timed_out = bool(start_timeouts.exclusions)
    reason = names.EventReason.START_TIMEOUT
    events = emit_event(workload.job, reason, start_timeouts.message, warning=True) if timed_out else []
    short = Counter[str]()
    for share in _undrained(gang, kept_shares):
        short += start_timeouts.unusable_slots.get(placement.share_key(share), Counter())
    message = " ".join(text for text in (loss_message, start_timeouts.message) if text)
    all_exclusions = (*exclusions, *start_timeouts.exclusions)
    plan = Plan(workload, placement, all_exclusions, kept_shares, message, given_up, short, timed_out)
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
    """The actions while no share is lost and no round is requested.

    More workers may fit, workers are drained, and single-worker shares are created.
    """
    exclusions = current_exclusions(recorded, now, gang.policy.start_timeout)
    lacking = _lacking_slots(gang, placement, start_timeouts)
    missing = sum(lacking.values())
    has_new_shares = any(map(placement.is_from_last_plan, placement.active_shares))  # the last plan made some
    # Without new shares, what the last plan says of lost workers is not true any more.
    waits = bool(missing or (placement.lost_reason and not has_new_shares)) and not elastic.has_max_shares(placement)
    # They precede any plan: where capacity changes all the time, each reconcile plans.
    creations = scale_up.reserve_pending(gang, workload, recorded, pending, now)
    can_move = missing and start_timeouts.late_pods and has_new_shares
    if start_timeouts.exclusions or can_move or (waits and may_fit(gang, recorded, exclusions, now)):
        return [*creations, *_replan(gang, workload, recorded, exclusions, placement.active_shares, start_timeouts)]
    status = _running_status(gang, placement, pending, lacking, now)
    recordings = messages.update_status(recorded, status)
    events = _waiting_or_placed_events(gang, workload, recorded, pending, lacking, bool(recordings))
    expiries = [*(exclusion.until for exclusion in exclusions), gang.capacity.deductions_expire_at] if waits else []
    delays = [at - now for at in (*expiries, start_timeouts.recheck_at) if at]
    delays += [RESYNC] if waits or _blocked_clusters(gang, placement) else []
    return [
        *creations,
        *_drain_pods(gang),
        *start_timeout.fail_late_pods(gang, start_timeouts, now),
        *recordings,
        *events,
        *([RequeueAfter(min(delays))] if delays else []),
    ]


def _drain_pods(gang: Gang) -> list[Action]:
    return [
        DeletePod(cluster, pod, f"worker cluster {cluster} is being drained")
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
    """The events of an elastic job that waits for slots, or has all of them now; `is_new` if its status changes."""
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


def _spare_shares(
    gang: Gang, placement: Placement, shares: Iterable[Share], start_timeouts: StartTimeouts
) -> tuple[Share, ...]:
    """The shares without pods that are drained, or that no worker needs: others hold the whole gang."""
    remaining = tuple(shares)
    empty = [share for share in remaining if placement.share_key(share) not in gang.pods.shares_with_pods]
    drained = [share for share in empty if share.cluster in gang.clusters.draining]
    undrained = [share for share in empty if share.cluster not in gang.clusters.draining]
    if placement.job:
        unneeded = [share for share in undrained if not start_timeout.may_receive_worker(gang, share)]
        slots = _slots_by_group(gang, placement, remaining, start_timeouts)
        return (*drained, *elastic.spare_shares(gang, unneeded, slots))
    # A worker between two slots may need any of them.
    between_slots = start_timeout.has_worker_in_transit(gang)
    surplus = 0 if between_slots else _slots(gang, placement, remaining, start_timeouts) - placement.wanted_workers
    spare = []
    for share in reversed(undrained):
        if share.workers <= surplus:
            spare.append(share)
            surplus -= share.workers
    return (*drained, *spare)


def _undrained(gang: Gang, shares: Iterable[Share]) -> list[Share]:
    return [share for share in shares if share.cluster not in gang.clusters.draining]


def _slots(gang: Gang, placement: Placement, shares: Iterable[Share], start_timeouts: StartTimeouts) -> int:
    """Number of workers that have a slot on these shares and need not leave it."""
    return sum(start_timeouts.usable_slots(share, placement.share_key(share)) for share in _undrained(gang, shares))


def _slots_by_group(
    gang: Gang, placement: Placement, shares: Iterable[Share], start_timeouts: StartTimeouts
) -> Counter[str]:
    """As `_slots`, by worker group."""
    slots = Counter[str]()
    for share in _undrained(gang, shares):
        slots.update({group.name: group.count for group in share.groups})
        slots.subtract(start_timeouts.unusable_slots.get(placement.share_key(share), {}))
    return slots


def _admitted_shares(placement: Placement, pending: PendingShares) -> list[Share]:
    """The shares of rounds that were admitted as a whole, and the single-worker shares that were admitted."""
    shares = (s for s in placement.active_shares if s.single_worker or placement.round_of(s) <= placement.placed_round)
    return [share for share in shares if share not in pending]


def _requested_shares(placement: Placement) -> list[Share]:
    """The shares of the round that is to be admitted as a whole."""
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


def _lacks_slots(gang: Gang, placement: Placement, shares: Iterable[Share], start_timeouts: StartTimeouts) -> bool:
    """Whether workers of an elastic job lack a slot on these shares."""
    return any(elastic.unplaced_by_group(gang, _slots_by_group(gang, placement, shares, start_timeouts)).values())


def _lacking_slots(gang: Gang, placement: Placement, start_timeouts: StartTimeouts) -> Mapping[str, int]:
    """Number of workers that have no slot or must leave it; by worker group for an elastic job."""
    if placement.job:
        return elastic.unplaced_by_group(
            gang, _slots_by_group(gang, placement, placement.active_shares, start_timeouts)
        )
    return {"": max(placement.wanted_workers - _slots(gang, placement, placement.active_shares, start_timeouts), 0)}


def _blocked_clusters(gang: Gang, placement: Placement) -> dict[str, Reason]:
    """The clusters of a running gang that are unreachable, or whose share is not admitted now, and why."""
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
    """The Placement's status while no round is requested."""
    if pending:
        status = messages.reserving_status(placement, blocked_shares(gang, pending), now)
    elif blocked := _blocked_clusters(gang, placement):
        status = messages.degraded_status(placement, blocked, gang.clusters.unreachable, now)
    else:
        status = messages.placed_status(
            placement, now, elastic.placement_message(gang, placement, unplaced) if placement.job else ""
        )
    return {**status, "placedRound": scale_up.last_placed_round(placement, pending)} if placement.job else status


def _loss_reason(gang: Gang, placement: Placement, share: Share, reservation: Reservation | None) -> str:
    """Why a share that was admitted is lost; empty when it is not. An unreachable share is not lost."""
    if share.cluster in gang.clusters.unreachable:
        return _unreachable_loss_reason(gang, placement, share)
    if reservation is None:
        return "its reservation is gone there"
    # A cluster that runs some of its pods may deny others for a while: the running ones stay.
    key = placement.share_key(share)
    if key not in gang.pods.shares_with_remote_pods and (denial := gang.pods.pod_denials.get(key)):
        return denial
    has_quota = reservation.reserved_at is not None and not reservation.stranded
    if reservation.admitted or reservation.deleting or has_quota:
        return ""
    if reservation.eviction_message:
        return f"its workers were stopped there: {reservation.eviction_message}"
    # In its queue it would wait behind others, while other clusters may have capacity.
    return f"it lost its quota there: {reservation.message}"


def _unreachable_loss_reason(gang: Gang, placement: Placement, share: Share) -> str:
    pods, clusters, key = gang.pods, gang.clusters, placement.share_key(share)
    if key in pods.shares_with_live_manager_pods:
        return ""
    if reason := clusters.lost.get(share.cluster):
        return reason
    # No manager pod counts as running where remote pods were: Ray lost them all, so replacements need not wait.
    if pods.has_unplaced_workers and key in pods.shares_with_remote_pods:
        return f"the worker cluster {clusters.unreachable[share.cluster]}"
    return ""
