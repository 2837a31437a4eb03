"""What is planned for a gang in its turn: on what is left by those before it, and what of that becomes its next round?

Those whose turn comes first are planned before it, each by its own policy, so that no two gangs are promised the same room.
Who they are is said in ordering.py, what the clusters have in capacity.py, and how one gang is placed in planner.py.
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
    """A gang that asks for room, and whom it asks."""

    request: GangRequest
    clusters: Sequence[str] = ()  # its policy's, first choice first
    exclusions: Sequence[Exclusion] = ()  # those that it does not ask now
    unproven_clusters: Mapping[str, str] = field(default_factory=dict)  # those that its policy passes over, and why


GangsAhead = Sequence[tuple[WaitingGang, PlanRequest]]  # those whose turn comes first, in their order
PromisedCapacity = Sequence[tuple[GangRequest, Sequence[Share]]]  # room that no cluster's figures hold, and who has it


@dataclass(frozen=True, slots=True)
class CapacityHold:
    """Room that is kept from a gang: for whom, and when that pauses or ends."""

    job: Job | None
    until: datetime


@dataclass(frozen=True, slots=True)
class RemainingCapacity:
    """The clusters involved, less what those whose turn comes first take, and who of them holds room back; `promised` is all that
    was deducted."""

    candidates: Sequence[Candidate]
    holds: Sequence[CapacityHold] = ()
    promised: PromisedCapacity = ()


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan with what it was made of."""

    request: GangRequest
    candidates: Sequence[Candidate]  # in the policy's order, as the plan found them
    plan: GangPlan
    holds: Sequence[CapacityHold] = ()  # of what is free
    holds_if_preempting: Sequence[CapacityHold] = ()  # and of what preemption would free
    promised: PromisedCapacity = ()  # what was deducted from the clusters' own figures

    @property
    def hold_note(self) -> str:
        """What is to be said beside the plan's own sentence: for whom room is kept that this gang could use. Those of other
        namespaces stay unnamed, for whoever reads this may not read there."""
        jobs, mine = [hold.job for hold in self.holds if hold.job], self.request.namespace
        said = [f"{job.kind} {job.name}" for job in jobs if job.namespace == mine]
        if others := len(jobs) - len(said):
            said.append("a job of another namespace" if others == 1 else f"{others} jobs of other namespaces")
        return f" Room is kept for {', '.join(said)}, which waited longer." if said and not self.plan.shares else ""

    def replan_at(self, counted_at: datetime | None) -> datetime | None:
        """When a gang that found no room is to be planned again unasked: when the first of those that keep room from it keeps
        none, when nothing is deducted twice any more, or when what a cluster said of its pods counts no more: it may take them then, or
        add less to them. Nothing else may change for hours."""
        holds = (hold.until for hold in (*self.holds, *self.holds_if_preempting))
        moments = [*holds, *self._dry_run_expiries(), *([counted_at] if counted_at else [])]
        return None if self.plan.shares else min(moments, default=None)

    def _dry_run_expiries(self) -> list[datetime]:
        """When what clusters said of its pods counts no more."""
        found = (group.dry_run_results.get(one.name) for group in self.request.groups for one in self.candidates)
        return [tried.valid_until for tried in found if tried and not tried.unknown_reason]


def plannable_policy(policy: ResolvedPolicy | None, obstacles: Iterable[str]) -> ResolvedPolicy | None:
    """The policy that a waiting gang is going to be planned by; None when it is not, so that it takes nothing from anybody.

    `obstacles` are the reasons there may be for that, most of them empty; none is asked for once there is one.
    """
    return None if policy is None or any(obstacles) else policy


def involved_clusters(plan_request: PlanRequest, ahead: GangsAhead) -> list[str]:
    """The clusters that count for a gang's plan: its own, and those where the gangs before it may go instead. In the same order for
    whoever has the same ones: what is found on them for one is the same for another."""
    return sorted({*plan_request.clusters, *(name for _, theirs in ahead for name in theirs.clusters)})


def request_beside_shares(
    plan_request: PlanRequest,
    kept_shares: Sequence[Share],
    draining: Collection[str],
    unusable_slots: Mapping[str, int] | None = None,
    *,
    elastic: bool,
) -> PlanRequest:
    """What a gang that runs asks for beside the shares that it keeps, and whom: an elastic job grows by whatever fits, but where all
    must be in one cluster, and none is that stays in one, they find one together."""
    asked, together = (
        remaining_request(plan_request.request, kept_shares, draining, unusable_slots),
        plan_request.request.mode == "SameCluster",
    )
    if not elastic or (together and not keeps_a_cluster(plan_request.request, asked, kept_shares, draining)):
        return replace(plan_request, request=asked)
    clusters = kept_clusters(plan_request.clusters, kept_shares, draining) if together else plan_request.clusters
    return replace(
        plan_request,
        request=scale_up_request(plan_request.request, kept_shares, draining, unusable_slots),
        clusters=clusters,
    )


def complete_result(request: GangRequest, kept_shares: Iterable[Share]) -> PlanResult:
    """Of a gang that runs, no worker wants a place."""
    where = describe_shares(kept_shares)
    return PlanResult(
        request,
        (),
        GangPlan((), (), f"All workers have a place: {where}." if where else "No worker is to run elsewhere."),
    )


def deduct_shares(request: GangRequest, shares: Sequence[Share], remaining: RemainingCapacity) -> RemainingCapacity:
    """What is left once shares that the figures do not hold are deducted."""
    fleet = planner.charge_shares(request, remaining.candidates, shares)
    return replace(remaining, candidates=fleet, promised=(*remaining.promised, (request, shares)))


def deduction_key(gang: WaitingGang, plan_request: PlanRequest, now: datetime) -> object:
    """All that `after` reads but for what is left: alike it gives alike."""
    return plan_request, gang.known_not_to_fit, ordering.holds_capacity_until(gang, now), gang.workload.job


def capacity_after(
    gang: WaitingGang, plan_request: PlanRequest, remaining: RemainingCapacity, now: datetime
) -> RemainingCapacity:
    """What is left once one more of those whose turn comes first has taken what it can, or keeps what it could use."""
    until = ordering.holds_capacity_until(gang, now)
    theirs = _requested_candidates(plan_request, remaining.candidates)
    shares = () if gang.known_not_to_fit else planner.plan(plan_request.request, theirs).shares
    holds = remaining.holds
    if not shares and until and (shares := planner.shares_to_hold(plan_request.request, theirs)):
        holds = (*holds, CapacityHold(gang.workload.job, until))
    return deduct_shares(plan_request.request, shares, replace(remaining, holds=holds)) if shares else remaining


def plan_gang(plan_request: PlanRequest, remaining: RemainingCapacity) -> PlanResult:
    """Plan a gang on what those whose turn comes first have left of the clusters involved."""
    offered = _requested_candidates(plan_request, remaining.candidates)
    return PlanResult(
        plan_request.request,
        offered,
        planner.plan(plan_request.request, offered),
        remaining.holds,
        promised=remaining.promised,
    )


def plan_preempting(
    plan_request: PlanRequest, result: PlanResult, remaining_if_preempting: RemainingCapacity
) -> PlanResult:
    """Plan a gang that found no room once more, on what they have left of the clusters as these were without gangs of lower
    priority."""
    over = planner.plan_with_preemption(
        plan_request.request, result.candidates, _requested_candidates(plan_request, remaining_if_preempting.candidates)
    )
    plan = over if over.shares else result.plan
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
    """The Placement that a plan becomes: the round after the last one, with the shares of earlier ones that stay.

    `wanted` is how many workers the gang has in all, and `least` how many of each group an elastic job never has fewer of, None where
    nobody knows. Why workers lost their place is said until all have one again.
    """
    work, before = action.workload, action.placement
    again = (
        before is not None and before.attempt == work.attempt
    )  # else an elastic job starts anew, and only its rounds go on
    kept = [replace(share, round=before.round_of(share)) for share in action.kept_shares or ()] if before else []
    lost = (action.lost_reason or (before.lost_reason if before and again else "")) if result.request.workers else ""
    last = before.round if before else 0
    shares, number = number_rounds(_split_by_worker(action, result, len(kept), min_by_group), last)
    return Placement(
        namespace=work.namespace,
        name=placement_name(work),
        uid="",
        workload_uid=work.uid,
        workload=work.name,
        attempt=work.attempt,
        round=number,
        failed_rounds=_failed_rounds(before) + before.withdrawing + action.failures if before and again else 0,
        planned_at=now,
        shares=(*kept, *shares),
        wanted_workers=wanted_workers,
        exclusions=action.exclusions,
        explanation=" ".join(part for part in (lost, result.plan.sentence + result.hold_note) if part),
        lost_reason=lost,
        withdrawn_round=0,
        placed_round=0,
        blocked=(),
        status={},
        start_timeouts=(before.start_timeouts if before and again else 0) + action.start_timed_out,
        job=work.job if work.elastic else None,
        code=_code(result),
        first_round_of_plan=last + 1 if number > last + 1 else 0,
    )


def _code(made: PlanResult) -> ReasonCode | None:
    """Why a plan places no worker, None where it places some or is asked for none."""
    if made.plan.shares or not made.request.workers:
        return None
    return ReasonCode.NEVER_FITS if made.plan.never_fits else ReasonCode.INSUFFICIENT_CAPACITY


def _failed_rounds(previous: Placement) -> int:
    """How often in a row its plans failed: an elastic job makes plans for as long as it runs."""
    return 0 if previous.job and previous.placed_round >= previous.round else previous.failed_rounds


def _split_by_worker(
    action: actions.Plan, result: PlanResult, kept_count: int, min_by_group: Mapping[str, int] | None
) -> tuple[Share, ...]:
    """The shares of a plan as they are asked for: a job that may change its size starts with what it never goes below in one share for
    each cluster, and grows one by one. One that must be in one cluster, and leaves it while it runs, finds another one as a whole."""
    starts = action.kept_shares is None
    together = min_by_group if starts else None if result.request.mode == "SameCluster" else {}
    return split_by_worker(
        result.plan.shares,
        together if action.workload.elastic else None,
        max_shares=MAX_SHARES - kept_count,
        starting=starts,
    )


def is_unchanged(action: actions.Plan, previous: Placement, spec: Raw) -> bool:
    """Whether the round that a plan becomes, as its Placement's `spec`, says nothing new beside the one that stands: the same
    shares, as many workers in all, the same clusters left out, and the same sentence."""
    left_out = [{(one.cluster, one.until) for one in listed} for listed in (previous.exclusions, action.exclusions)]
    if (
        not previous.round
        or previous.withdrawing
        or left_out[0] != left_out[1]
        or previous.attempt != action.workload.attempt
    ):
        return False
    same = len(spec["shares"]) == len(previous.shares) == len(action.kept_shares or ())
    return same and bool((previous.explanation, previous.wanted_workers) == (spec["explanation"], spec["wanted"]))


def _requested_candidates(plan_request: PlanRequest, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The clusters that a gang asks, in its policy's order; what keeps it from one is that cluster's problem."""
    named, reasons = {one.name: one for one in candidates}, {e.cluster: e.reason for e in plan_request.exclusions}
    asked = (named[name] for name in plan_request.clusters if name in named)
    return [
        _with_problem(one, reasons.get(one.name) or one.problem or plan_request.unproven_clusters.get(one.name, ""))
        for one in asked
    ]


def _with_problem(candidate: Candidate, problem: str) -> Candidate:
    return candidate if problem == candidate.problem else replace(candidate, problem=problem)
