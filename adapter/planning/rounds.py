"""Plans a gang on the capacity that the gangs before it leave, and makes the next round of its Placement from the plan.

The gangs before it are planned first, each by its own policy, so that no two gangs are promised the same capacity.
ordering.py has the order, capacity.py the clusters' capacity, and planner.py places one gang.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from adapter import actions
from adapter.admission.policy import ResolvedPolicy
from adapter.names import ReasonCode
from adapter.objects.placement import MAX_SHARES, Exclusion, Placement, Share, describe_shares, placement_name
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Job
from adapter.planning import ordering, planner
from adapter.planning.ordering import WaitingGang
from adapter.planning.plan_request import (
    Candidate,
    GangRequest,
    keeps_a_cluster,
    kept_clusters,
    remaining_request,
    scale_up_request,
)
from adapter.planning.planner import GangPlan
from adapter.planning.split_shares import number_rounds, split_by_worker


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A gang that wants capacity, and the clusters that it may go to."""

    request: GangRequest
    clusters: Sequence[str] = ()  # of its policy, first choice first
    exclusions: Sequence[Exclusion] = ()
    unproven_clusters: Mapping[str, str] = field(default_factory=dict)  # clusters that its policy leaves out -> why


GangsAhead = Sequence[tuple[WaitingGang, PlanRequest]]  # gangs that are planned first, in their order
PromisedCapacity = Sequence[tuple[GangRequest, Sequence[Share]]]  # shares that no cluster's figures contain


@dataclass(frozen=True, slots=True)
class CapacityHold:
    """Capacity that is held from a gang: for which job, and until when."""

    job: Job | None
    until: datetime


@dataclass(frozen=True, slots=True)
class RemainingCapacity:
    """The involved clusters less what the gangs before take, and the holds among these.

    `promised` are all deductions.
    """

    candidates: Sequence[Candidate]
    holds: Sequence[CapacityHold] = ()
    promised: PromisedCapacity = ()


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan with its input."""

    request: GangRequest
    candidates: Sequence[Candidate]  # in the policy's order, less the deductions
    plan: GangPlan
    holds: Sequence[CapacityHold] = ()  # of free capacity
    holds_if_preempting: Sequence[CapacityHold] = ()  # of capacity that preemption would free
    promised: PromisedCapacity = ()  # deducted from the clusters' own figures

    @property
    def hold_note(self) -> str:
        """A sentence on the jobs for which capacity is held that this gang could use; empty if there are none.

        Jobs of other namespaces stay unnamed, since the reader may have no access there.
        """
        jobs, namespace = [hold.job for hold in self.holds if hold.job], self.request.namespace
        holders = [f"{job.kind} {job.name}" for job in jobs if job.namespace == namespace]
        if others := len(jobs) - len(holders):
            holders.append("a job of another namespace" if others == 1 else f"{others} jobs of other namespaces")
        return (
            f" Room is kept for {', '.join(holders)}, which waited longer." if holders and not self.plan.shares else ""
        )

    def replan_at(self, counted_at: datetime | None) -> datetime | None:
        """When a gang without capacity must be planned again although nothing changes.

        That is when the first hold ends, when nothing is deducted twice any more (`counted_at`), or when a dry run
        expires: its cluster may accept the pods then, or add less to them. Nothing else may change for hours.
        """
        holds = (hold.until for hold in (*self.holds, *self.holds_if_preempting))
        times = [*holds, *self._dry_run_expiries(), *([counted_at] if counted_at else [])]
        return None if self.plan.shares else min(times, default=None)

    def _dry_run_expiries(self) -> list[datetime]:
        """When the dry runs of its pods expire."""
        results = (
            group.dry_run_results.get(candidate.name) for group in self.request.groups for candidate in self.candidates
        )
        return [result.valid_until for result in results if result and not result.unknown_reason]


def plannable_policy(policy: ResolvedPolicy | None, obstacles: Iterable[str]) -> ResolvedPolicy | None:
    """The policy that a waiting gang is planned by; None if it is not planned, and so takes no capacity.

    `obstacles` are possible reasons for that, most of them empty. They are evaluated up to the first reason.
    """
    return None if policy is None or any(obstacles) else policy


def involved_clusters(plan_request: PlanRequest, ahead: GangsAhead) -> list[str]:
    """The clusters that count for a gang's plan: its own, and those where the gangs before it may go instead.

    Their order depends on the set alone, so that results for one gang can be reused for another.
    """
    return sorted({*plan_request.clusters, *(name for _, other in ahead for name in other.clusters)})


def request_beside_shares(
    plan_request: PlanRequest,
    kept_shares: Sequence[Share],
    draining: Collection[str],
    unusable_slots: Mapping[str, int] | None = None,
    *,
    elastic: bool,
) -> PlanRequest:
    """What a running gang requests beside its kept shares, and from which clusters.

    An elastic job grows by whatever fits. But if all of its workers must be in one cluster and none stays, the workers
    move to another cluster together.
    """
    remaining, together = (
        remaining_request(plan_request.request, kept_shares, draining, unusable_slots),
        plan_request.request.mode == "SameCluster",
    )
    if not elastic or (together and not keeps_a_cluster(plan_request.request, remaining, kept_shares, draining)):
        return replace(plan_request, request=remaining)
    clusters = kept_clusters(plan_request.clusters, kept_shares, draining) if together else plan_request.clusters
    return replace(
        plan_request,
        request=scale_up_request(plan_request.request, kept_shares, draining, unusable_slots),
        clusters=clusters,
    )


def complete_result(request: GangRequest, kept_shares: Iterable[Share]) -> PlanResult:
    """The result for a running gang without unplaced workers."""
    where = describe_shares(kept_shares)
    return PlanResult(
        request,
        (),
        GangPlan((), (), f"All workers have a place: {where}." if where else "No worker is to run elsewhere."),
    )


def deduct_shares(request: GangRequest, shares: Sequence[Share], remaining: RemainingCapacity) -> RemainingCapacity:
    """The remaining capacity after shares that the figures do not contain are deducted."""
    fleet = planner.charge_shares(request, remaining.candidates, shares)
    return replace(remaining, candidates=fleet, promised=(*remaining.promised, (request, shares)))


def deduction_key(gang: WaitingGang, plan_request: PlanRequest, now: datetime) -> object:
    """The input of `capacity_after` except the remaining capacity: equal keys give equal results."""
    return plan_request, gang.known_not_to_fit, ordering.holds_capacity_until(gang, now), gang.workload.job


def capacity_after(
    gang: WaitingGang, plan_request: PlanRequest, remaining: RemainingCapacity, now: datetime
) -> RemainingCapacity:
    """The remaining capacity after one more gang has taken what it can, or holds what it could use."""
    until = ordering.holds_capacity_until(gang, now)
    candidates = _requested_candidates(plan_request, remaining.candidates)
    shares = () if gang.known_not_to_fit else planner.plan(plan_request.request, candidates).shares
    holds = remaining.holds
    if not shares and until and (shares := planner.shares_to_hold(plan_request.request, candidates)):
        holds = (*holds, CapacityHold(gang.workload.job, until))
    return deduct_shares(plan_request.request, shares, replace(remaining, holds=holds)) if shares else remaining


def plan_gang(plan_request: PlanRequest, remaining: RemainingCapacity) -> PlanResult:
    """Plan a gang on the capacity that the gangs before it leave."""
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
    """Plan a gang without capacity again, on the clusters as they would be without gangs of lower priority."""
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
    """The Placement that a plan becomes: the round after the last one, with the kept shares of earlier rounds.

    `wanted_workers` counts the whole gang. `min_by_group` is the minimum size of each group of an elastic job; None if
    not known. The reason why workers lost their slots stays until all have one again.
    """
    workload, before = action.workload, action.placement
    # In another attempt an elastic job starts again, and only the numbers of its rounds continue.
    same_attempt = before is not None and before.attempt == workload.attempt
    kept_shares = [replace(share, round=before.round_of(share)) for share in action.kept_shares or ()] if before else []
    lost_reason = (
        (action.lost_reason or (before.lost_reason if before and same_attempt else ""))
        if result.request.workers
        else ""
    )
    last_round = before.round if before else 0
    shares, round_number = number_rounds(_split_by_worker(action, result, len(kept_shares), min_by_group), last_round)
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
        start_timeouts=(before.start_timeouts if before and same_attempt else 0) + action.start_timed_out,
        job=workload.job if workload.elastic else None,
        code=_code(result),
        first_round_of_plan=last_round + 1 if round_number > last_round + 1 else 0,
    )


def _code(result: PlanResult) -> ReasonCode | None:
    """Why a plan places no worker; None if it places some or was asked for none."""
    if result.plan.shares or not result.request.workers:
        return None
    return ReasonCode.NEVER_FITS if result.plan.never_fits else ReasonCode.INSUFFICIENT_CAPACITY


def _failed_rounds(previous: Placement) -> int:
    """The failed rounds in a row. An elastic job is planned for as long as it runs, so its placed rounds reset them."""
    return 0 if previous.job and previous.placed_round >= previous.round else previous.failed_rounds


def _split_by_worker(
    action: actions.Plan, result: PlanResult, kept_count: int, min_by_group: Mapping[str, int] | None
) -> tuple[Share, ...]:
    """The shares of a plan as they are requested.

    An elastic job starts with its minimum in one share for each cluster, and grows by single workers. A job that must
    be in one cluster, and leaves it while it runs, moves as a whole.
    """
    is_start = action.kept_shares is None
    together = min_by_group if is_start else None if result.request.mode == "SameCluster" else {}
    return split_by_worker(
        result.plan.shares,
        together if action.workload.elastic else None,
        max_shares=MAX_SHARES - kept_count,
        starting=is_start,
    )


def is_unchanged(action: actions.Plan, previous: Placement, spec: Raw) -> bool:
    """Whether a planned round, as its Placement's `spec`, equals the present one.

    Shares, number of workers, exclusions and sentence are compared.
    """
    exclusions = [
        {(exclusion.cluster, exclusion.until) for exclusion in exclusion_list}
        for exclusion_list in (previous.exclusions, action.exclusions)
    ]
    if (
        not previous.round
        or previous.withdrawing
        or exclusions[0] != exclusions[1]
        or previous.attempt != action.workload.attempt
    ):
        return False
    has_same_shares = len(spec["shares"]) == len(previous.shares) == len(action.kept_shares or ())
    return has_same_shares and bool(
        (previous.explanation, previous.wanted_workers) == (spec["explanation"], spec["wanted"])
    )


def _requested_candidates(plan_request: PlanRequest, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The clusters that a gang may go to, in its policy's order.

    A reason of the gang to leave one out becomes that candidate's problem.
    """
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
