"""What is planned for a gang in its turn: on what is left by those before it, and what of that becomes its next round?

Those whose turn comes first are planned before it, each by its own policy, so that no two gangs are promised the same room.
Who they are is said in ordering.py, what the clusters have in capacity.py, and how one gang is placed in planner.py.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from adapter import actions
from adapter.admission.policy import ResolvedPolicy
from adapter.objects.placement import MAX_SHARES, Exclusion, Placement, Share, describe_shares, placement_name
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Job
from adapter.planning import ordering, planner
from adapter.planning.ordering import Waiting
from adapter.planning.plan_request import Candidate, Request, growth, near, rest, stays
from adapter.planning.planner import Plan
from adapter.planning.split_shares import apart, numbered


@dataclass(frozen=True, slots=True)
class Asking:
    """A gang that asks for room, and whom it asks."""

    request: Request
    clusters: Sequence[str] = ()  # its policy's, first choice first
    excluded: Sequence[Exclusion] = ()  # those that it does not ask now
    unproven: Mapping[str, str] = field(default_factory=dict)  # those that its policy passes over, and why


Ahead = Sequence[tuple[Waiting, Asking]]  # those whose turn comes first, in their order
Promised = Sequence[tuple[Request, Sequence[Share]]]  # room that no cluster's figures hold, and who has it


@dataclass(frozen=True, slots=True)
class Hold:
    """Room that is kept from a gang: for whom, and when that pauses or ends."""

    job: Job | None
    until: datetime


@dataclass(frozen=True, slots=True)
class Left:
    """The clusters involved, less what those whose turn comes first take, and who of them holds room back; `promised` is all that
    was deducted."""

    fleet: Sequence[Candidate]
    holds: Sequence[Hold] = ()
    promised: Promised = ()


@dataclass(frozen=True, slots=True)
class Made:
    """A plan with what it was made of."""

    request: Request
    fleet: Sequence[Candidate]  # in the policy's order, as the plan found them
    plan: Plan
    holds: Sequence[Hold] = ()  # of what is free
    freed: Sequence[Hold] = ()  # and of what preemption would free
    promised: Promised = ()  # what was deducted from the clusters' own figures

    @property
    def more(self) -> str:
        """What is to be said beside the plan's own sentence: for whom room is kept that this gang could use. Those of other
        namespaces stay unnamed, for whoever reads this may not read there."""
        jobs, mine = [hold.job for hold in self.holds if hold.job], self.request.namespace
        said = [f"{job.kind} {job.name}" for job in jobs if job.namespace == mine]
        if others := len(jobs) - len(said):
            said.append("a job of another namespace" if others == 1 else f"{others} jobs of other namespaces")
        return f" Room is kept for {', '.join(said)}, which waited longer." if said and not self.plan.shares else ""

    def again_at(self, settles: datetime | None) -> datetime | None:
        """When a gang that found no room is to be planned again unasked: when the first of those that keep room from it keeps
        none, when nothing is deducted twice any more, or when what a cluster said of its pods counts no more: it may take them then, or
        add less to them. Nothing else may change for hours."""
        holds = (hold.until for hold in (*self.holds, *self.freed))
        moments = [*holds, *self._answers(), *([settles] if settles else [])]
        return None if self.plan.shares else min(moments, default=None)

    def _answers(self) -> list[datetime]:
        """When what clusters said of its pods counts no more."""
        found = (group.tried.get(one.name) for group in self.request.groups for one in self.fleet)
        return [tried.valid_until for tried in found if tried and not tried.unknown_reason]


def usable(chosen: ResolvedPolicy | None, obstacles: Iterable[str]) -> ResolvedPolicy | None:
    """The policy that a waiting gang is going to be planned by; None when it is not, so that it takes nothing from anybody.

    `obstacles` are the reasons there may be for that, most of them empty; none is asked for once there is one.
    """
    return None if chosen is None or any(obstacles) else chosen


def involved(me: Asking, ahead: Ahead) -> list[str]:
    """The clusters that count for a gang's plan: its own, and those where the gangs before it may go instead. In the same order for
    whoever has the same ones: what is found on them for one is the same for another."""
    return sorted({*me.clusters, *(name for _, theirs in ahead for name in theirs.clusters)})


def beside(
    me: Asking,
    kept: Sequence[Share],
    draining: Collection[str],
    without: Mapping[str, int] | None = None,
    *,
    elastic: bool,
) -> Asking:
    """What a gang that runs asks for beside the shares that it keeps, and whom: an elastic job grows by whatever fits, but where all
    must be in one cluster, and none is that stays in one, they find one together."""
    asked, together = rest(me.request, kept, draining, without), me.request.gang == "SameCluster"
    if not elastic or (together and not stays(me.request, asked, kept, draining)):
        return replace(me, request=asked)
    clusters = near(me.clusters, kept, draining) if together else me.clusters
    return replace(me, request=growth(me.request, kept, draining, without), clusters=clusters)


def complete(request: Request, kept: Iterable[Share]) -> Made:
    """Of a gang that runs, no worker wants a place."""
    where = describe_shares(kept)
    return Made(
        request, (), Plan((), (), f"All workers have a place: {where}." if where else "No worker is to run elsewhere.")
    )


def deducted(request: Request, shares: Sequence[Share], left: Left) -> Left:
    """What is left once shares that the figures do not hold are deducted."""
    fleet = planner.charged(request, left.fleet, shares)
    return replace(left, fleet=fleet, promised=(*left.promised, (request, shares)))


def hangs_on(one: Waiting, asking: Asking, now: datetime) -> object:
    """All that `after` reads but for what is left: alike it gives alike."""
    return asking, one.looked, ordering.holds_until(one, now), one.work.job


def after(one: Waiting, asking: Asking, left: Left, now: datetime) -> Left:
    """What is left once one more of those whose turn comes first has taken what it can, or keeps what it could use."""
    until = ordering.holds_until(one, now)
    theirs = _offered(asking, left.fleet)
    shares = () if one.looked else planner.plan(asking.request, theirs).shares
    holds = left.holds
    if not shares and until and (shares := planner.keep(asking.request, theirs)):
        holds = (*holds, Hold(one.work.job, until))
    return deducted(asking.request, shares, replace(left, holds=holds)) if shares else left


def planned(me: Asking, left: Left) -> Made:
    """Plan a gang on what those whose turn comes first have left of the clusters involved."""
    offered = _offered(me, left.fleet)
    return Made(me.request, offered, planner.plan(me.request, offered), left.holds, promised=left.promised)


def preempting(me: Asking, made: Made, freed: Left) -> Made:
    """Plan a gang that found no room once more, on what they have left of the clusters as these were without gangs of lower
    priority."""
    over = planner.outranking(me.request, made.fleet, _offered(me, freed.fleet))
    plan = over if over.shares else made.plan
    return replace(made, plan=plan, freed=freed.holds, promised=(*made.promised, *freed.promised))


def next_round(
    action: actions.Plan, made: Made, wanted: int, now: datetime, least: Mapping[str, int] | None = None
) -> Placement:
    """The Placement that a plan becomes: the round after the last one, with the shares of earlier ones that stay.

    `wanted` is how many workers the gang has in all, and `least` how many of each group an elastic job never has fewer of, None where
    nobody knows. Why workers lost their place is said until all have one again.
    """
    work, before = action.workload, action.placement
    again = (
        before is not None and before.attempt == work.attempt
    )  # else an elastic job starts anew, and only its rounds go on
    kept = [replace(share, round=before.round_of(share)) for share in action.kept or ()] if before else []
    lost = (action.lost or (before.lost_reason if before and again else "")) if made.request.workers else ""
    last = before.round if before else 0
    shares, number = numbered(_apart(action, made, len(kept), least), last)
    return Placement(
        namespace=work.namespace,
        name=placement_name(work),
        uid="",
        workload_uid=work.uid,
        workload=work.name,
        attempt=work.attempt,
        round=number,
        failed_rounds=_given_up(before) + before.withdrawing + action.refused if before and again else 0,
        planned_at=now,
        shares=(*kept, *shares),
        wanted_workers=wanted,
        exclusions=action.excluded,
        explanation=" ".join(part for part in (lost, made.plan.sentence + made.more) if part),
        lost_reason=lost,
        withdrawn_round=0,
        placed_round=0,
        blocked=(),
        status={},
        start_timeouts=(before.start_timeouts if before and again else 0) + action.unstarted,
        job=work.job if work.elastic else None,
        first_round_of_plan=last + 1 if number > last + 1 else 0,
    )


def _given_up(before: Placement) -> int:
    """How often in a row its plans failed: an elastic job makes plans for as long as it runs."""
    return 0 if before.job and before.placed_round >= before.round else before.failed_rounds


def _apart(action: actions.Plan, made: Made, kept: int, least: Mapping[str, int] | None) -> tuple[Share, ...]:
    """The shares of a plan as they are asked for: a job that may change its size starts with what it never goes below in one share for
    each cluster, and grows one by one. One that must be in one cluster, and leaves it while it runs, finds another one as a whole."""
    starts = action.kept is None
    together = least if starts else None if made.request.gang == "SameCluster" else {}
    return apart(made.plan.shares, together if action.workload.elastic else None, most=MAX_SHARES - kept, starts=starts)


def unchanged(action: actions.Plan, before: Placement, spec: Raw) -> bool:
    """Whether the round that a plan becomes, as its Placement's `spec`, says nothing new beside the one that stands: the same
    shares, as many workers in all, the same clusters left out, and the same sentence."""
    left_out = [{(one.cluster, one.until) for one in listed} for listed in (before.exclusions, action.excluded)]
    if (
        not before.round
        or before.withdrawing
        or left_out[0] != left_out[1]
        or before.attempt != action.workload.attempt
    ):
        return False
    same = len(spec["shares"]) == len(before.shares) == len(action.kept or ())
    return same and bool((before.explanation, before.wanted_workers) == (spec["explanation"], spec["wanted"]))


def _offered(asking: Asking, fleet: Iterable[Candidate]) -> list[Candidate]:
    """The clusters that a gang asks, in its policy's order; what keeps it from one is that cluster's problem."""
    named, reasons = {one.name: one for one in fleet}, {e.cluster: e.reason for e in asking.excluded}
    asked = (named[name] for name in asking.clusters if name in named)
    return [_but_for(one, reasons.get(one.name) or one.problem or asking.unproven.get(one.name, "")) for one in asked]


def _but_for(one: Candidate, problem: str) -> Candidate:
    return one if problem == one.problem else replace(one, problem=problem)
