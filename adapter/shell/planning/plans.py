"""Plans the round of a gang from the stores, and returns its Placement object.

One plan runs at a time, so that no two gangs are promised the same capacity. A plan yields to the event loop after each
gang before it: a queue may be long, and the same loop renews the Lease. Changes meanwhile count for the next plan.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from adapter import actions
from adapter.admission.policy import ResolvedPolicy, needs_same_cluster, worker_start_timeout
from adapter.gang.timeouts import current_exclusions, past_exclusions
from adapter.objects.placement import Exclusion, Placement, Share, placement_manifest
from adapter.objects.rayjob import JobObject, is_running
from adapter.objects.workload import Workload
from adapter.planning import ordering, rounds
from adapter.planning.ordering import OrderKey, WaitingGang
from adapter.planning.plan_request import GangRequest
from adapter.planning.planner import GangPlan, next_question_at
from adapter.planning.rounds import PlanRequest, PlanResult
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.drains import DrainObserver
from adapter.shell.observe.job_problems import JobProblems
from adapter.shell.observe.planning_order import PlanningOrder, aged_workload, order_key
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.transient_state import REACTIVATED_WITHIN, TransientState
from adapter.shell.planning.deductions import Deduction, DeductionCache
from adapter.shell.planning.snapshot import Snapshot


class WaitingGangs:
    def __init__(
        self,
        manager: ManagerCache,
        drains: DrainObserver,
        policies: PolicyObserver,
        job_problems: JobProblems,
        reservations: ReservationObserver,
        transient: TransientState,
        replan_check: ReplanCheck,
        snapshot: Snapshot,
    ) -> None:
        self._manager, self._drains, self._transient, self._replan_check, self._snapshot = (
            manager,
            drains,
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
        """The gangs before this one that may take or hold capacity, in planning order, each with its request.

        Of each namespace only the first ones, so that a plan's cost is bounded. Those that cannot be planned now, as
        they lack a Secret for example, take no place of the others.
        """
        workload = aged_workload(self._manager, workload)
        own_key = order_key(self._manager, workload)
        waiting = (
            gang
            for gang in (*self._waiting_before(own_key, now), *self._deactivated_gangs(now))
            if ordering.may_take_or_hold(gang, now)
        )
        gangs, places = [], ordering.NamespacePlaces(workload.namespace)
        before = ordering.gangs_before(workload, waiting, own_key)
        for gang in filter(places.has_free_place, before):
            if plan_request := self._request_of(gang, now):
                places.take_place(gang)
                gangs.append((gang, plan_request))
            await asyncio.sleep(0)
        return gangs

    def _request_of(self, waiting_gang: WaitingGang, now: datetime) -> PlanRequest | None:
        workload, placement = waiting_gang.workload, waiting_gang.placement
        check = self._policies.check_of(workload)
        policy, problem = self._policies.policy_of(check)
        if not waiting_gang.is_running:  # what keeps a job from starting does not keep a running one from a plan
            policy = rounds.plannable_policy(policy, self._planning_obstacles(workload, check, policy, problem))
        if policy is None:
            return None
        start_timeout = worker_start_timeout(policy)
        exclusions = (
            current_exclusions(placement, now, start_timeout)
            if placement
            else past_exclusions(workload, now, start_timeout)
        )
        plan_request = self._snapshot.plan_request(
            self._snapshot.request_of(workload, check, policy.policy), policy, exclusions
        )
        if not waiting_gang.is_running or placement is None:
            return plan_request
        unusable_slots = self._transient.unusable_slots.get(placement.uid)
        missing = rounds.request_beside_shares(
            plan_request,
            placement.active_shares,
            self._drains.clusters_of(workload.job),
            unusable_slots,
            self._transient.planned_without.get(placement.uid),
            elastic=workload.elastic,
        )
        return missing if missing.request.workers else None

    def _planning_obstacles(
        self, workload: Workload, check: str, chosen: ResolvedPolicy | None, problem: str
    ) -> Iterator[str]:
        yield problem
        yield self._policies.rival_checks_problem(workload)
        yield self._job_problems.missing_objects(workload, check)
        yield self._job_problems.kuberay_rejection(workload, check)
        yield self._job_problems.rejection_reason(workload, check, chosen)

    def _waiting_before(self, own_key: OrderKey, now: datetime) -> Iterator[WaitingGang]:
        """The gangs before `own_key` that hold the manager's quota and may take or hold capacity.

        These have no share, or withdraw the shares that they had, or run with fewer slots than workers. Gangs whose
        last plan is current and had no capacity are left out, unless they are starved.
        """
        placements = {
            (placement.workload_uid, placement.attempt): placement for placement in self._manager.read_placements()
        }
        policies, draining = dict[str, ResolvedPolicy | None](), self._drains.fleet_draining()
        for gang_key, workload in self._planning_order.workloads_before(own_key):
            placement = placements.get((workload.uid, workload.attempt))
            check = self._policies.check_of(workload)
            is_admitted = ordering.is_admitted(workload, check)
            if is_admitted and not self._lacks_slots(workload, placement, draining):
                continue  # most gangs that run
            if check not in policies:
                policies[check], _ = self._policies.policy_of(check)
            uid = placement.uid if placement and not placement.withdrawing else ""
            is_up_to_date = self._replan_check.is_up_to_date(uid, workload, policies[check], now)
            waiting_since = placement.waiting_since if is_admitted and placement else workload.queued_at
            if is_up_to_date and not ordering.is_starved(waiting_since, now):
                continue  # most gangs of a crowd: the checks below are skipped for them
            needs_plan = ordering.needs_plan(workload, check, placement) and not self._keeps_running(workload)
            if (is_admitted or needs_plan) and not self._reservations.is_leaving(workload):
                yield WaitingGang(
                    workload,
                    is_up_to_date,
                    placement,
                    is_running=is_admitted,
                    takes_single_slots=workload.elastic and not needs_same_cluster(policies[check]),
                    order_key=gang_key,
                )

    def _lacks_slots(self, workload: Workload, placement: Placement | None, fleet_draining: frozenset[str]) -> bool:
        uid, memory = placement.uid if placement else "", self._transient
        unusable_slots = Counter(memory.unusable_slots.get(uid, {}))
        unusable_slots.subtract(memory.planned_without.get(uid, {}))  # a withheld worker needs no slot
        draining = self._drains.clusters_of(workload.job, fleet_draining)
        return ordering.lacks_slots(workload, placement, draining, unusable_slots)

    def _keeps_running(self, workload: Workload) -> bool:
        """Whether an elastic job runs: it needs capacity only for missing workers."""
        return bool(
            workload.elastic and workload.job and is_running(workload.job, self._manager.job_object(workload.job))
        )

    def _deactivated_gangs(self, now: datetime) -> Iterator[WaitingGang]:
        for workload, since in self._transient.deactivated.values():
            raw = self._manager.gang_workload(workload.gang_key)
            current = self._manager.read_workload(raw) if raw else None
            check = self._policies.check_of(current) if current else ""
            if gang := ordering.deactivated_gang(
                aged_workload(self._manager, workload), since + REACTIVATED_WITHIN, current, check, now
            ):
                yield gang


class PlannedRound(NamedTuple):
    body: dict[str, Any]  # the Placement object
    plan: GangPlan
    replan_at: datetime | None  # when to plan again though nothing changed
    # The gang's own clusters have no capacity, whatever other gangs take.
    independent: bool


class GangPlanner:
    def __init__(
        self,
        drains: DrainObserver,
        policies: PolicyObserver,
        replan_check: ReplanCheck,
        snapshot: Snapshot,
        waiting_gangs: WaitingGangs,
    ) -> None:
        self._drains, self._policies, self._replan_check, self._snapshot, self._waiting_gangs = (
            drains,
            policies,
            replan_check,
            snapshot,
            waiting_gangs,
        )
        self._deductions, self._preempting_deductions = DeductionCache(), DeductionCache()

    async def plan_round(self, action: actions.Plan, now: datetime) -> PlannedRound:
        workload = action.workload
        check = self._policies.check_of(workload)
        policy, _ = self._policies.policy_of(check)
        started_at = asyncio.get_running_loop().time()
        result = await self.plan_gang(
            workload,
            check,
            policy,
            action.exclusions,
            now,
            action.kept_shares,
            action.unusable_slots,
            withheld_workers=action.withheld_workers,
        )
        # The time after the plan, because shares are requested only then.
        now += timedelta(seconds=int(asyncio.get_running_loop().time() - started_at))
        workers, least = self._snapshot.request_of(workload, check).workers, self._snapshot.least_workers(workload)
        placement = rounds.next_placement(action, result, workers, now, least)
        replan_at = None
        if not result.plan.shares:
            replan_at = result.replan_at(self._snapshot.settled_at(now), _asks_at(result, now))
        # A running gang's missing workers change with its own pods too, so any change leads to another plan.
        independent = action.kept_shares is None and self._is_independent(workload, policy, result)
        return PlannedRound(
            placement_manifest(placement, workload.job, check, result.plan.verdicts),
            result.plan,
            replan_at,
            independent,
        )

    def _is_independent(self, workload: Workload, chosen: ResolvedPolicy | None, result: PlanResult) -> bool:
        depends_on_holds = result.plan.shares or result.holds or result.holds_if_preempting
        return not (depends_on_holds or self._replan_check.depends_on_promised(workload, chosen, result.promised))

    async def plan_gang(
        self,
        workload: Workload,
        check: str,
        chosen: ResolvedPolicy | None,
        excluded: Sequence[Exclusion],
        now: datetime,
        kept_shares: Sequence[Share] | None = None,
        unusable_slots: Mapping[str, int] | None = None,
        unsubmitted: JobObject | None = None,
        withheld_workers: Mapping[str, int] | None = None,
    ) -> PlanResult:
        """Plan a gang after the gangs before it in planning order; `unsubmitted` is its job if it is in no store.

        With `kept_shares` the gang runs, and only its workers that have no slot or must leave their slot are planned.
        `unusable_slots`: by group, how many slots of the kept shares no worker may take. `withheld_workers`: by group,
        how many workers get no slot now.
        """
        plan_request = self._snapshot.plan_request(
            self._snapshot.request_of(workload, check, chosen.policy if chosen else None, unsubmitted), chosen, excluded
        )
        if kept_shares is not None:
            plan_request = rounds.request_beside_shares(
                plan_request,
                kept_shares,
                self._drains.clusters_of(workload.job),
                unusable_slots,
                withheld_workers,
                elastic=workload.elastic,
            )
            if not plan_request.request.workers:
                return rounds.complete_result(plan_request.request, kept_shares, withheld_workers)
        gangs_before = await self._waiting_gangs.gangs_before(workload, now)
        involved = rounds.involved_clusters(plan_request, gangs_before)
        uncounted = enumerate(self._snapshot.uncounted_shares(workload, now, kept_shares or ()))
        steps = [
            *(_uncounted_deduction(number, *request_and_shares) for number, request_and_shares in uncounted),
            *(_earlier_gang_deduction(*gang_and_request, now) for gang_and_request in gangs_before),
        ]
        result = rounds.plan_gang(
            plan_request,
            await self._deductions.capacity_after(self._snapshot.candidates(involved, {}, workload.namespace), steps),
        )
        if not result.plan.shares and (
            trees := self._snapshot.trees_after_preemption(
                plan_request.clusters, workload.priority or 0, (workload.namespace, workload.queue)
            )
        ):
            freed = await self._preempting_deductions.capacity_after(
                self._snapshot.candidates(involved, trees, workload.namespace), steps
            )
            result = rounds.plan_preempting(plan_request, result, freed)
        return result


def _asks_at(result: PlanResult, now: datetime) -> datetime | None:
    """When a worker cluster's Kueue may be asked again about resources that keep the gang out."""
    asks_at = next_question_at(result.request, result.candidates)
    return None if asks_at is None else now + timedelta(seconds=max(asks_at - time.monotonic(), 1))


def _uncounted_deduction(number: int, request: GangRequest, shares: Sequence[Share]) -> Deduction:
    return Deduction(number, (request, shares), lambda remaining: rounds.deduct_shares(request, shares, remaining))


def _earlier_gang_deduction(waiting_gang: WaitingGang, asking: PlanRequest, now: datetime) -> Deduction:
    return Deduction(
        waiting_gang.workload.uid,
        rounds.deduction_key(waiting_gang, asking, now),
        lambda remaining: rounds.capacity_after(waiting_gang, asking, remaining, now),
    )
