"""How does a gang get its round: stores in, Placement object out?

One plan at a time, so that no two gangs are promised the same room: the next plan sees the Placements of all earlier ones. It
reads what `planning.rounds` takes, and decides nothing: who waits and whose turn comes first is for `planning.ordering` to say.
A plan takes a pause after each gang that it goes through, for a queue may be long, and on the same loop the Lease is renewed. What
the stores hear meanwhile is for the next plan.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from adapter import actions
from adapter.admission.policy import ResolvedPolicy, worker_start_timeout
from adapter.gang.timeouts import current_exclusions
from adapter.objects.placement import Exclusion, Share, placement_manifest
from adapter.objects.rayjob import is_running
from adapter.objects.workload import Workload
from adapter.planning import ordering, rounds
from adapter.planning.ordering import OrderKey, WaitingGang
from adapter.planning.plan_request import GangRequest
from adapter.planning.planner import GangPlan
from adapter.planning.rounds import PlanRequest, PlanResult
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.job_problems import JobProblems
from adapter.shell.observe.planning_order import PlanningOrder, aged_workload, order_key
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.transient_state import REACTIVATED_WITHIN, TransientState
from adapter.shell.planning.deductions import Deduction, DeductionCache
from adapter.shell.planning.snapshot import Snapshot


class WaitingGangs:
    """The gangs that are to be planned, as the stores and the memory show them."""

    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        policies: PolicyObserver,
        job_problems: JobProblems,
        reservations: ReservationObserver,
        transient: TransientState,
        replan_check: ReplanCheck,
        snapshot: Snapshot,
    ) -> None:
        self._manager, self._fleet, self._transient, self._replan_check, self._snapshot = (
            manager,
            fleet,
            transient,
            replan_check,
            snapshot,
        )
        self._policies, self._job_problems, self._reservations, self._planning_order = (
            policies,
            job_problems,
            reservations,
            PlanningOrder(manager),
        )

    async def gangs_before(self, workload: Workload, now: datetime) -> list[tuple[WaitingGang, PlanRequest]]:
        """The others whose turn comes first and who may take or keep room, in their order, each with what it asks for."""
        workload = aged_workload(self._manager, workload)
        mine = order_key(self._manager, workload)
        waiting = (
            one
            for one in (*self._waiting_before(mine, now), *self._deactivated_gangs(now))
            if ordering.may_take_or_hold(one, now)
        )
        found = []
        for one in ordering.gangs_before(workload, waiting, mine):
            if asking := self._request_of(one, now):
                found.append((one, asking))
            await asyncio.sleep(0)
        return found

    def _request_of(self, waiting_gang: WaitingGang, now: datetime) -> PlanRequest | None:
        check = self._policies.check_of(waiting_gang.workload)
        chosen, problem = self._policies.policy_of(check)
        chosen = rounds.plannable_policy(
            chosen, self._planning_obstacles(waiting_gang.workload, check, chosen, problem)
        )
        if chosen is None:
            return None
        left_out = current_exclusions(waiting_gang.placement, now, worker_start_timeout(chosen))
        me = self._snapshot.plan_request(
            self._snapshot.request_of(waiting_gang.workload, check, chosen.policy), chosen, left_out
        )
        if not waiting_gang.is_scale_up or waiting_gang.placement is None:
            return me
        more = rounds.request_beside_shares(
            me, waiting_gang.placement.active_shares, self._fleet.draining(), elastic=True
        )
        return more if more.request.workers else None

    def _planning_obstacles(
        self, workload: Workload, check: str, chosen: ResolvedPolicy | None, problem: str
    ) -> Iterator[str]:
        yield problem
        yield self._policies.rival_checks_problem(workload)
        yield self._job_problems.missing_objects(workload, check)
        yield self._job_problems.rejection_reason(workload, check, chosen)

    def _waiting_before(self, own_key: OrderKey, now: datetime) -> Iterator[WaitingGang]:
        """The gangs whose turn comes before `mine`, that hold the manager's quota and have no share, or are giving back those that they
        had; and elastic jobs that want more than they have. But for those that were planned last without finding room, and keep none
        either."""
        placed = {(place.workload_uid, place.attempt): place for place in self._manager.read_placements()}
        policies = dict[str, ResolvedPolicy | None]()  # by check
        for theirs, work in self._planning_order.workloads_before(own_key):
            current = placed.get((work.uid, work.attempt))
            check = self._policies.check_of(work)
            if check not in policies:
                policies[check], _ = self._policies.policy_of(check)
            of = current.uid if current and not current.withdrawing else ""
            looked = self._replan_check.is_up_to_date(of, work, policies[check], now)
            if looked and not ordering.is_starved(work, now):
                continue  # most of the others, in a crowd: nobody asks whether they wait
            grows = ordering.needs_scale_up(work, check, current)
            waits = ordering.needs_plan(work, check, current) and not self._keeps_running(work)
            if (grows or waits) and not self._reservations.is_leaving(work):
                yield WaitingGang(work, looked, current, is_scale_up=grows, order_key=theirs)

    def _keeps_running(self, workload: Workload) -> bool:
        """Whether an elastic job runs: its next Workload is let run at once, and asks for no room but what it lacks."""
        return bool(
            workload.elastic and workload.job and is_running(workload.job, self._manager.job_object(workload.job))
        )

    def _deactivated_gangs(self, now: datetime) -> Iterator[WaitingGang]:
        for work, since in self._transient.deactivated.values():
            raw = self._manager.gang_workload(work.gang_key)
            current = self._manager.read_workload(raw) if raw else None
            check = self._policies.check_of(current) if current else ""
            if found := ordering.deactivated_gang(
                aged_workload(self._manager, work), since + REACTIVATED_WITHIN, current, check, now
            ):
                yield found


class PlannedRound(NamedTuple):
    """What a plan becomes."""

    body: dict[str, Any]  # its Placement object as it is to be written
    plan: GangPlan
    replan_at: datetime | None  # when to plan again unasked
    independent: bool  # it found no room on what its own clusters show, and nothing that was deducted from that counted


class GangPlanner:
    """Makes plans from what the stores show; it writes nothing, neither to them nor elsewhere."""

    def __init__(
        self,
        fleet: Fleet,
        policies: PolicyObserver,
        replan_check: ReplanCheck,
        snapshot: Snapshot,
        waiting_gangs: WaitingGangs,
    ) -> None:
        self._fleet, self._policies, self._replan_check, self._snapshot, self._waiting_gangs = (
            fleet,
            policies,
            replan_check,
            snapshot,
            waiting_gangs,
        )
        self._deductions, self._preempting_deductions = DeductionCache(), DeductionCache()

    async def plan_round(self, action: actions.Plan, now: datetime) -> PlannedRound:
        """Plan a gang."""
        work = action.workload
        check = self._policies.check_of(work)
        chosen, _ = self._policies.policy_of(check)
        began = asyncio.get_running_loop().time()
        made = await self.plan_gang(
            work, check, chosen, action.exclusions, now, action.kept_shares, action.unusable_slots
        )
        now += timedelta(seconds=int(asyncio.get_running_loop().time() - began))  # its shares are asked for only now
        wanted, least = self._snapshot.request_of(work, check).workers, self._snapshot.least_workers(work)
        place = rounds.next_placement(action, made, wanted, now, least)
        again = made.replan_at(None if made.plan.shares else self._snapshot.settled_at(now))
        # What a gang that runs lacks changes with its own pods, too: it is planned again for whatever is news.
        alone = action.kept_shares is None and self._is_independent(work, chosen, made)
        return PlannedRound(placement_manifest(place, work.job, check, made.plan.verdicts), made.plan, again, alone)

    def _is_independent(self, workload: Workload, chosen: ResolvedPolicy | None, result: PlanResult) -> bool:
        """Whether a plan would be the same whatever others are promised, take first, or keep."""
        kept = result.plan.shares or result.holds or result.holds_if_preempting
        return not (kept or self._replan_check.depends_on_promised(workload, chosen, result.promised))

    async def plan_gang(
        self,
        workload: Workload,
        check: str,
        chosen: ResolvedPolicy | None,
        excluded: Sequence[Exclusion],
        now: datetime,
        kept_shares: Sequence[Share] | None = None,
        unusable_slots: Mapping[str, int] | None = None,
    ) -> PlanResult:
        """Plan a gang on the clusters as they stand, after those whose turn comes before its own; of one that runs, and keeps
        shares, only the workers that have no place, or must leave theirs. `without`: slots on them that are no place, by group."""
        me = self._snapshot.plan_request(
            self._snapshot.request_of(workload, check, chosen.policy if chosen else None), chosen, excluded
        )
        if kept_shares is not None:
            me = rounds.request_beside_shares(
                me, kept_shares, self._fleet.draining(), unusable_slots, elastic=workload.elastic
            )
            if not me.request.workers:
                return rounds.complete_result(me.request, kept_shares)
        ahead = await self._waiting_gangs.gangs_before(workload, now)
        involved = rounds.involved_clusters(me, ahead)
        owed = enumerate(self._snapshot.uncounted_shares(workload, now, kept_shares or ()))
        steps = [
            *(_uncounted_deduction(number, *one) for number, one in owed),
            *(_earlier_gang_deduction(*one, now) for one in ahead),
        ]
        made = rounds.plan_gang(
            me, await self._deductions.capacity_after(self._snapshot.candidates(involved, {}), steps)
        )
        if not made.plan.shares and (
            trees := self._snapshot.trees_after_preemption(me.clusters, workload.priority or 0)
        ):
            freed = await self._preempting_deductions.capacity_after(self._snapshot.candidates(involved, trees), steps)
            made = rounds.plan_preempting(me, made, freed)
        return made


def _uncounted_deduction(number: int, request: GangRequest, shares: Sequence[Share]) -> Deduction:
    """Somebody has a share that its cluster does not count yet."""
    return Deduction(number, (request, shares), lambda left: rounds.deduct_shares(request, shares, left))


def _earlier_gang_deduction(waiting_gang: WaitingGang, asking: PlanRequest, now: datetime) -> Deduction:
    """Somebody whose turn comes first takes what it can."""
    return Deduction(
        waiting_gang.workload.uid,
        rounds.deduction_key(waiting_gang, asking, now),
        lambda left: rounds.capacity_after(waiting_gang, asking, left, now),
    )
