"""How does a gang get its round: snapshot for the planner in, Placement object out?

One plan at a time, so that no two gangs are promised the same room: the next plan sees the Placements of all earlier
ones, and deducts what their clusters do not show as used yet. Those that wait and whose turn comes first are planned before, each
by its own policy; what a turn means is for `planning.ordering` and the planner to say.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from adapter import names
from adapter.actions import Plan
from adapter.admission.policy import Chosen
from adapter.gang import status
from adapter.gang.deadlines import excluded
from adapter.objects.placement import Exclusion, Placement, Share, manifest, placement, placement_name
from adapter.objects.raw import is_true
from adapter.objects.workload import Job, Workload, workload
from adapter.planning import ordering, planner
from adapter.planning import request as candidate
from adapter.planning.request import Candidate, Request
from adapter.quota import tree
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager import Home
from adapter.shell.observe.gangs import Observer
from adapter.shell.observe.memory import BACK_WITHIN, Memory
from adapter.shell.planning.snapshot import Room


@dataclass(frozen=True, slots=True)
class Hold:
    """Room that is kept from a gang: for whom, and when that pauses or ends."""

    job: Job | None
    until: datetime


@dataclass(frozen=True, slots=True)
class Made:
    """A plan with what it was made of, and what is to be said beside its own sentence."""

    request: Request
    fleet: Sequence[Candidate]  # in the policy's order, as the plan found them
    plan: planner.Plan
    more: str
    eases: datetime | None = None  # when the first of those that keep room from it keeps none


class Waiters:
    """The gangs that are to be planned, as the stores and the memory show them."""

    def __init__(self, home: Home, fleet: Fleet, observer: Observer, memory: Memory) -> None:
        self._home, self._fleet, self._observer, self._memory = home, fleet, observer, memory

    def before(self, me: Workload, now: datetime) -> list[tuple[ordering.Waiting, Chosen]]:
        """The others whose turn comes first, in their order, each with its clusters; those that nothing can be planned for
        take nothing from anybody."""
        return [(one, theirs) for one in ordering.before(me, self._waiting(now)) if (theirs := self._policy_of(one))]

    def _policy_of(self, one: ordering.Waiting) -> Chosen | None:
        """How a waiting gang is going to be planned; None when it is not, so that it takes nothing from anybody."""
        check = self._observer.policies.check_of(one.work)
        chosen, problem = self._observer.policies.policy(check)
        stuck = (
            not chosen
            or problem
            or self._observer.policies.rivals(one.work)
            or self._observer.refusals.absent(one.work, check)
        )
        return None if stuck or self._observer.refusals.refusal(one.work, check, chosen) else chosen

    def _waiting(self, now: datetime) -> list[ordering.Waiting]:
        """The gangs that hold the manager's quota and have no share, or are giving back those that they had; and who was one
        of them a moment ago."""
        placed = {(place.workload_uid, place.attempt): place for place in map(placement, self._home.placements)}
        found = []
        for raw in self._home.workloads:
            if not is_true(raw, names.QUOTA_RESERVED) or is_true(raw, names.FINISHED):
                continue
            work = workload(raw)
            check = self._observer.policies.check_of(work)
            if not check or not work.holds_quota or work.checks[check].state != names.CHECK_PENDING:
                continue
            if self._observer.leaving(work):
                continue
            current = placed.get((work.uid, work.attempt))
            if current is None or current.withdrawing or not current.shares:
                of = current.uid if current and not current.withdrawing else ""
                looked = self._memory.looked(of, self._fleet.room_version, now)
                found.append(ordering.Waiting(work, looked, excluded(current, now)))
        return [*found, *self._aside(now)]

    def _aside(self, now: datetime) -> Iterable[ordering.Waiting]:
        """The gangs that stepped aside just now: they take nothing, but keep what they gathered.

        As they were then. Their Workloads do not show the flavors any more, nor a check that is limited to some of them,
        nor, once they are back in the queue, that they had left it.
        """
        for work, since in self._memory.aside.values():
            raw = self._home.workloads.get(work.key)
            current = workload(raw) if raw else None
            if current is None or current.uid != work.uid or current.deleted:
                continue
            back = current.holds_quota and self._observer.policies.check_of(current)
            if not back and now < since + BACK_WITHIN:
                yield ordering.Waiting(work, looked=True, until=since + BACK_WITHIN)


class Planning:
    """Makes plans from what the stores show; it writes nothing, neither to them nor elsewhere."""

    def __init__(self, home: Home, fleet: Fleet, observer: Observer, memory: Memory) -> None:
        self._fleet, self._observer = fleet, observer
        self._room, self._waiters = Room(home, fleet, observer), Waiters(home, fleet, observer, memory)

    def body(self, action: Plan, now: datetime) -> tuple[dict[str, Any], planner.Plan, datetime | None]:
        """Plan a gang; returns its Placement object as it is to be written, the plan, and when to plan again unasked.

        Only a gang that found no room is planned again so.
        A share that a cluster may count already is deducted once more for STATUS_LAG: a gang that did not fit for that
        reason would else wait until something changes, which may be hours. So would one from which room is kept, when that
        ends.
        """
        work, before = action.workload, action.placement
        check = self._observer.policies.check_of(work)
        chosen, _ = self._observer.policies.policy(check)
        found = self.plan(work, check, chosen, action.excluded, now, action.kept)
        made = found.plan
        kept = [replace(share, round=before.round_of(share)) for share in action.kept or ()] if before else []
        lost = (action.lost or (before.lost if before else "")) if found.request.workers else ""
        place = Placement(
            namespace=work.namespace,
            name=placement_name(work),
            uid="",
            workload_uid=work.uid,
            workload=work.name,
            attempt=work.attempt,
            round=before.round + 1 if before else 1,
            given_up=before.given_up + before.withdrawing + action.refused if before else 0,
            planned_at=now,
            shares=(*kept, *made.shares),
            wanted=self._room.request(work, check).workers,
            excluded=action.excluded,
            explanation=" ".join(part for part in (lost, made.sentence + found.more) if part),
            lost=lost,
            withdrawn_round=0,
            placed_round=0,
            blocked=(),
            status={},
        )
        body = manifest(place, work.job, check, made.verdicts)
        moments = [] if made.shares else [when for when in (self._room.settles(work, now), found.eases) if when]
        return body, made, min(moments, default=None)

    def plan(
        self,
        work: Workload,
        check: str,
        chosen: Chosen | None,
        excluded: Iterable[Exclusion],
        now: datetime,
        kept: Sequence[Share] | None = None,
    ) -> Made:
        """Plan a gang on the clusters as they stand, after those whose turn comes before its own; of one that runs, and keeps
        shares, only the workers that have no place, or must leave theirs."""
        request = self._room.request(work, check, chosen.policy if chosen else None)
        if kept is not None:
            draining = self._fleet.draining()
            request = candidate.rest(request, [share for share in kept if share.cluster not in draining])
        if kept is not None and not request.workers:
            return Made(request, (), planner.Plan((), (), f"All workers have a place: {status.counted(kept)}."), "")
        order = chosen.clusters if chosen else ()
        earlier = self._waiters.before(work, now)
        fleet, holds = self._left_for(work, order, earlier, excluded, now, kept=kept or ())
        fleet = self._room.allowed(chosen, fleet) if chosen else fleet
        made = planner.plan(request, fleet)
        waiting_jobs = [f"{hold.job.kind} {hold.job.name}" for hold in holds if hold.job]
        if not made.shares and (trees := self._room.relieved(order, work.priority or 0)):
            freed, more = self._left_for(work, order, earlier, excluded, now, trees, kept or ())
            freed = self._room.allowed(chosen, freed) if chosen else freed
            over, holds = planner.outranking(request, fleet, freed), [*holds, *more]
            made = over if over.shares else made
        said = (
            f" Room is kept for {', '.join(waiting_jobs)}, which waited longer."
            if waiting_jobs and not made.shares
            else ""
        )
        return Made(request, fleet, made, said, min((hold.until for hold in holds), default=None))

    def _left_for(
        self,
        work: Workload,
        order: Sequence[str],
        earlier: Sequence[tuple[ordering.Waiting, Chosen]],
        excluded: Iterable[Exclusion],
        now: datetime,
        trees: Mapping[str, tree.Tree] | None = None,
        kept: Sequence[Share] = (),
    ) -> tuple[list[Candidate], list[Hold]]:
        """What a gang may take in its policy's clusters, after those whose turn is earlier, and who of them keeps room.

        `trees`: quotas to be reckoned with instead of those of these clusters.
        """
        # Those before it go where their own policies send them, which may be to clusters that this gang does not ask.
        involved = dict.fromkeys([*order, *(name for _, theirs in earlier for name in theirs.clusters)])
        fleet, holds = self._after_others(earlier, self._room.left(involved, work, now, trees or {}, kept), now)
        return _without((one for one in fleet if one.name in order), excluded), holds

    def _after_others(
        self, earlier: Iterable[tuple[ordering.Waiting, Chosen]], fleet: list[Candidate], now: datetime
    ) -> tuple[list[Candidate], list[Hold]]:
        """What is left for a gang once those whose turn comes first have taken what they can, and who holds room back."""
        holds = []
        for one, chosen in earlier:
            request = self._room.request(one.work, self._observer.policies.check_of(one.work), chosen.policy)
            theirs = [candidate for name in chosen.clusters for candidate in fleet if candidate.name == name]
            theirs = self._room.allowed(chosen, _without(theirs, one.excluded))
            shares: Sequence[Share] = () if one.looked else planner.plan(request, theirs).shares
            if not shares and (until := ordering.holds_until(one, now)) and (shares := planner.keep(request, theirs)):
                holds.append(Hold(one.work.job, until))
            fleet = planner.charged(request, fleet, shares)
        return fleet, holds


def _without(fleet: Iterable[Candidate], excluded: Iterable[Exclusion]) -> list[Candidate]:
    reasons = {e.cluster: e.reason for e in excluded}
    return [replace(one, problem=reasons.get(one.name) or one.problem) for one in fleet]
