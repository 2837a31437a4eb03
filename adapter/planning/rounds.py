"""Plans a gang on the capacity that the gangs before it leave, and makes the next round of its Placement from the plan.

The gangs before it are planned first, so that no two are promised the same capacity.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from adapter import actions
from adapter.admission.policy import ResolvedPolicy
from adapter.names import ReasonCode
from adapter.objects.placement import MAX_SHARES, Exclusion, Placement, Share, describe_shares, placement_name
from adapter.objects.unstructured import Raw, parse_time
from adapter.objects.workload import Job
from adapter.planning import ordering, planner
from adapter.planning.borrowing_shares import divide_borrowing
from adapter.planning.ordering import WaitingGang
from adapter.planning.plan_request import (
    Candidate,
    GangRequest,
    keeps_a_cluster,
    kept_clusters,
    remaining_request,
    request_without,
    scale_up_request,
)
from adapter.planning.planner import GangPlan
from adapter.planning.split_shares import number_rounds, split_by_worker


@dataclass(frozen=True, slots=True)
class PlanRequest:
    request: GangRequest
    clusters: Sequence[str] = ()  # of its policy, in its order
    exclusions: Sequence[Exclusion] = ()
    unproven_clusters: Mapping[str, str] = field(default_factory=dict)  # left out by its policy, or its job -> why


GangsAhead = Sequence[tuple[WaitingGang, PlanRequest]]  # in the scheduling order
PromisedCapacity = Sequence[tuple[GangRequest, Sequence[Share]]]  # not in the clusters' figures


@dataclass(frozen=True, slots=True)
class CapacityHold:
    job: Job | None
    until: datetime


@dataclass(frozen=True, slots=True)
class RemainingCapacity:
    """The involved clusters less the deductions (`promised`) for the gangs before, and the deductions' holds."""

    candidates: Sequence[Candidate]
    holds: Sequence[CapacityHold] = ()
    promised: PromisedCapacity = ()


@dataclass(frozen=True, slots=True)
class PlanResult:
    request: GangRequest
    candidates: Sequence[Candidate]  # in the policy's order, with deductions
    plan: GangPlan
    holds: Sequence[CapacityHold] = ()  # of free capacity
    holds_if_preempting: Sequence[CapacityHold] = ()  # of capacity that preemption frees
    promised: PromisedCapacity = ()  # deducted from the clusters' figures

    @property
    def hold_note(self) -> str:
        """A sentence on the jobs for which capacity is held that this gang could use; empty without any.

        Jobs of other namespaces stay unnamed, since the reader may have no access there.
        """
        jobs, namespace = [hold.job for hold in self.holds if hold.job], self.request.namespace
        holders = [f"{job.kind} {job.name}" for job in jobs if job.namespace == namespace]
        if others := len(jobs) - len(holders):
            holders.append("a job of another namespace" if others == 1 else f"{others} jobs of other namespaces")
        return (
            f" Capacity is held for {', '.join(holders)}, which waited longer."
            if holders and not self.plan.shares
            else ""
        )

    def replan_at(self, counted_at: datetime | None, asks_at: datetime | None = None) -> datetime | None:
        """When a gang without capacity must be planned again although nothing changes.

        That is when the first hold ends, when nothing is deducted twice any more (`counted_at`), when Kueue may be
        asked again about uncovered resources (`asks_at`), or when a dry run expires. The cluster may accept the pods
        then, or add less to them.
        """
        holds = (hold.until for hold in (*self.holds, *self.holds_if_preempting))
        times = [*holds, *self._dry_run_expiries(), *filter(None, (counted_at, asks_at))]
        return None if self.plan.shares else min(times, default=None)

    def _dry_run_expiries(self) -> list[datetime]:
        results = (
            group.dry_run_results.get(candidate.name) for group in self.request.groups for candidate in self.candidates
        )
        return [result.valid_until for result in results if result and not result.unknown_reason]


def plannable_policy(policy: ResolvedPolicy | None, obstacles: Iterable[str]) -> ResolvedPolicy | None:
    """The policy that a waiting gang is planned by; None if an obstacle, evaluated lazily, is not empty."""
    return None if policy is None or any(obstacles) else policy


def involved_clusters(plan_request: PlanRequest, ahead: GangsAhead) -> list[str]:
    """The clusters of a gang, and those where the gangs before it may go instead.

    They are sorted, so that results can be reused for another gang.
    """
    return sorted({*plan_request.clusters, *(name for _, other in ahead for name in other.clusters)})


def request_beside_shares(
    plan_request: PlanRequest,
    kept_shares: Sequence[Share],
    draining: Collection[str],
    unusable_slots: Mapping[str, int] | None = None,
    withheld_workers: Mapping[str, int] | None = None,
    *,
    elastic: bool,
) -> PlanRequest:
    """What a running gang requests beside its kept shares, and from which clusters.

    An elastic job grows by whatever fits. A job that must be in one cluster stays in its own, or its workers move
    together if it has to leave that.
    """
    request = request_without(plan_request.request, withheld_workers or {})
    together = request.mode == "SameCluster"
    remaining = remaining_request(request, kept_shares, draining, unusable_slots)
    keeps_cluster = together and keeps_a_cluster(request, remaining, kept_shares, draining)
    if together and not keeps_cluster:
        return replace(plan_request, request=remaining)
    if keeps_cluster:
        clusters = kept_clusters(plan_request.clusters, kept_shares, draining)
        request, plan_request = replace(request, mode="BestEffort"), replace(plan_request, clusters=clusters)
    grow = scale_up_request if elastic else remaining_request
    return replace(plan_request, request=grow(request, kept_shares, draining, unusable_slots))


def complete_result(
    request: GangRequest, kept_shares: Iterable[Share], withheld_workers: Mapping[str, int] | None = None
) -> PlanResult:
    where, workers = describe_shares(kept_shares), "All other workers" if withheld_workers else "All workers"
    return PlanResult(
        request,
        (),
        GangPlan((), (), f"{workers} are placed: {where}." if where else "No worker needs to be placed."),
    )


def deduct_shares(
    request: GangRequest, shares: Sequence[Share], remaining: RemainingCapacity, *, waiting: bool = False
) -> RemainingCapacity:
    """The remaining capacity less these shares: promised ones, or those that a `waiting` gang would take or holds."""
    fleet = planner.charge_shares(request, remaining.candidates, shares, waiting=waiting)
    return replace(remaining, candidates=fleet, promised=(*remaining.promised, (request, shares)))


def deduction_key(gang: WaitingGang, plan_request: PlanRequest, now: datetime) -> object:
    """The input of `capacity_after` except the remaining capacity."""
    return plan_request, gang.known_not_to_fit, ordering.holds_capacity_until(gang, now), gang.workload.job


def capacity_after(
    gang: WaitingGang, plan_request: PlanRequest, remaining: RemainingCapacity, now: datetime
) -> RemainingCapacity:
    """The remaining capacity after one more gang takes what it can, or holds what it could use.

    From another ClusterQueue that is only what this queue could not use within its own nominal quota.
    """
    until = ordering.holds_capacity_until(gang, now)
    candidates = _requested_candidates(plan_request, remaining.candidates)
    shares = () if gang.known_not_to_fit else planner.plan(plan_request.request, candidates).shares
    holds = remaining.holds
    if not shares and until and (shares := planner.shares_to_hold(plan_request.request, candidates)):
        holds = (*holds, CapacityHold(gang.workload.job, until))
    if not shares:
        return remaining
    return deduct_shares(plan_request.request, shares, replace(remaining, holds=holds), waiting=True)


def plan_gang(plan_request: PlanRequest, remaining: RemainingCapacity) -> PlanResult:
    candidates = _requested_candidates(plan_request, remaining.candidates)
    return PlanResult(
        plan_request.request,
        candidates,
        planner.plan(plan_request.request, candidates),
        remaining.holds,
        promised=remaining.promised,
    )


def plan_preempting(
    plan_request: PlanRequest, result: PlanResult, remaining_if_preempting: RemainingCapacity
) -> PlanResult:
    """Plan a gang without capacity again, on the clusters without gangs of lower priority."""
    preempting = planner.plan_with_preemption(
        plan_request.request, result.candidates, _requested_candidates(plan_request, remaining_if_preempting.candidates)
    )
    plan = preempting if preempting.shares else result.plan
    return replace(
        result,
        plan=plan,
        holds_if_preempting=remaining_if_preempting.holds,
        promised=(*result.promised, *remaining_if_preempting.promised),
    )


def next_placement(
    action: actions.Plan,
    result: PlanResult,
    wanted_workers: int,
    now: datetime,
    min_by_group: Mapping[str, int] | None = None,
) -> Placement:
    """The Placement with the next round, and with the kept shares of earlier rounds.

    The reason why workers lost their slots stays until all workers have a slot again, and none is withheld.
    """
    workload, before, runs = action.workload, action.placement, action.kept_shares is not None
    # In another attempt an elastic job starts again; only its round numbers continue.
    same_attempt = before is not None and before.attempt == workload.attempt
    kept_shares = [replace(share, round=before.round_of(share)) for share in action.kept_shares or ()] if before else []
    lost_reason = (
        (action.lost_reason or (before.lost_reason if before and same_attempt else ""))
        if result.request.workers or action.withheld_workers
        else ""
    )
    last_round = max(before.round if before else 0, action.last_round)
    shares, round_number = number_rounds(_split_shares(action, result, len(kept_shares), min_by_group), last_round)
    return Placement(
        namespace=workload.namespace,
        name=placement_name(workload),
        uid="",
        workload_uid=workload.uid,
        workload=workload.name,
        attempt=workload.attempt,
        round=round_number,
        failed_rounds=_failed_rounds(before) + before.withdrawing + action.failures if before and same_attempt else 0,
        planned_at=now,
        shares=(*kept_shares, *shares),
        wanted_workers=wanted_workers,
        exclusions=action.exclusions,
        explanation=" ".join(part for part in (lost_reason, result.plan.sentence + result.hold_note) if part),
        lost_reason=lost_reason,
        withdrawn_round=0,
        placed_round=0,
        blocked=(),
        status={},
        start_timeouts=(before.start_timeouts if before and same_attempt else action.start_timeouts_before)
        + action.start_timed_out,
        job=workload.job if workload.elastic else None,
        code=_code(result),
        first_round_of_plan=last_round + 1 if runs or (workload.elastic and round_number > last_round + 1) else 0,
        waiting_since=_waiting_since(before if same_attempt else None, result, now),
    )


def _waiting_since(before: Placement | None, result: PlanResult, now: datetime) -> datetime | None:
    """Since when the workers without a slot wait; None if all have one.

    The wait begins again with each plan that gains some of them a slot. A beginning in the future counts as now: the
    manager cluster's clock was put back.
    """
    if sum(share.workers for share in result.plan.shares) >= result.request.workers:
        return None
    recorded = before.waiting_since if before and not result.plan.shares else None
    return min(recorded or now, now)


def _code(result: PlanResult) -> ReasonCode | None:
    if result.plan.shares or not result.request.workers:
        return None
    return ReasonCode.NEVER_FITS if result.plan.never_fits else ReasonCode.INSUFFICIENT_CAPACITY


def _failed_rounds(previous: Placement) -> int:
    """The failed rounds in a row; a placed round of an elastic job, which is planned while it runs, resets them."""
    return 0 if previous.job and previous.placed_round >= previous.round else previous.failed_rounds


def _split_shares(
    action: actions.Plan, result: PlanResult, kept_count: int, min_by_group: Mapping[str, int] | None
) -> tuple[Share, ...]:
    """The shares of the plan; those that borrow and those of an elastic job are split.

    An elastic job starts with its minimum in one share for each cluster, and grows by single workers.

    A running job that must be in one cluster moves as a whole.
    """
    is_start = action.kept_shares is None
    together = min_by_group if is_start else None if result.request.mode == "SameCluster" else {}
    max_shares = MAX_SHARES - kept_count
    shares = split_by_worker(
        result.plan.shares,
        together if action.workload.elastic else None,
        max_shares=max_shares,
        starting=is_start,
    )
    return divide_borrowing(result.request, result.candidates, shares, max_shares=max_shares, starting=is_start)


def is_unchanged(action: actions.Plan, previous: Placement, spec: Raw) -> bool:
    exclusions = [
        {(exclusion.cluster, exclusion.until) for exclusion in exclusion_list}
        for exclusion_list in (previous.exclusions, action.exclusions)
    ]
    if (
        not previous.round
        or previous.withdrawing
        or exclusions[0] != exclusions[1]
        or previous.attempt != action.workload.attempt
        or previous.waiting_since != parse_time(spec.get("waitingSince"))
    ):
        return False
    has_same_shares = len(spec["shares"]) == len(previous.shares) == len(action.kept_shares or ())
    return has_same_shares and bool(
        (previous.explanation, previous.wanted_workers) == (spec["explanation"], spec["wanted"])
    )


def _requested_candidates(plan_request: PlanRequest, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The gang's candidates in the policy's order; a reason to leave a cluster out becomes its problem."""
    by_name, reasons = (
        {candidate.name: candidate for candidate in candidates},
        {exclusion.cluster: exclusion.reason for exclusion in plan_request.exclusions},
    )
    ordered = (by_name[name] for name in plan_request.clusters if name in by_name)
    return [
        _with_problem(
            candidate,
            reasons.get(candidate.name) or candidate.problem or plan_request.unproven_clusters.get(candidate.name, ""),
        )
        for candidate in ordered
    ]


def _with_problem(candidate: Candidate, problem: str) -> Candidate:
    return candidate if problem == candidate.problem else replace(candidate, problem=problem)
