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
from adapter.admission.policy import Chosen, start_timeout
from adapter.gang.timeouts import excluded
from adapter.objects.placement import Exclusion, Share, manifest
from adapter.objects.rayjob import is_running
from adapter.objects.workload import Workload
from adapter.planning import ordering, rounds
from adapter.planning.ordering import Turn, Waiting
from adapter.planning.plan_request import Request
from adapter.planning.planner import Plan
from adapter.planning.rounds import Asking, Made
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.observe.job_problems import Refusals
from adapter.shell.observe.planning_order import Turns, aged, turn
from adapter.shell.observe.replan import Seen
from adapter.shell.observe.reservations import Shares
from adapter.shell.observe.transient_state import BACK_WITHIN, Memory
from adapter.shell.planning.deductions import Step, Steps
from adapter.shell.planning.snapshot import Snapshot


class Waiters:
    """The gangs that are to be planned, as the stores and the memory show them."""

    def __init__(
        self,
        manager: Manager,
        fleet: Fleet,
        policies: Policies,
        refusals: Refusals,
        shares: Shares,
        memory: Memory,
        seen: Seen,
        snapshot: Snapshot,
    ) -> None:
        self._manager, self._fleet, self._memory, self._seen, self._snapshot = manager, fleet, memory, seen, snapshot
        self._policies, self._refusals, self._shares, self._turns = policies, refusals, shares, Turns(manager)

    async def before(self, me: Workload, now: datetime) -> list[tuple[Waiting, Asking]]:
        """The others whose turn comes first and who may take or keep room, in their order, each with what it asks for."""
        me = aged(self._manager, me)
        mine = turn(self._manager, me)
        waiting = (one for one in (*self._waiting(mine, now), *self._aside(now)) if ordering.takes_part(one, now))
        found = []
        for one in ordering.before(me, waiting, mine):
            if asking := self._asking(one, now):
                found.append((one, asking))
            await asyncio.sleep(0)
        return found

    def _asking(self, one: Waiting, now: datetime) -> Asking | None:
        check = self._policies.check_of(one.work)
        chosen, problem = self._policies.policy(check)
        chosen = rounds.usable(chosen, self._obstacles(one.work, check, chosen, problem))
        if chosen is None:
            return None
        left_out = excluded(one.current, now, start_timeout(chosen))
        me = self._snapshot.asking(self._snapshot.request(one.work, check, chosen.policy), chosen, left_out)
        if not one.grows or one.current is None:
            return me
        more = rounds.beside(me, one.current.live, self._fleet.draining(), elastic=True)
        return more if more.request.workers else None

    def _obstacles(self, work: Workload, check: str, chosen: Chosen | None, problem: str) -> Iterator[str]:
        yield problem
        yield self._policies.rivals(work)
        yield self._refusals.absent(work, check)
        yield self._refusals.refusal(work, check, chosen)

    def _waiting(self, mine: Turn, now: datetime) -> Iterator[Waiting]:
        """The gangs whose turn comes before `mine`, that hold the manager's quota and have no share, or are giving back those that they
        had; and elastic jobs that want more than they have. But for those that were planned last without finding room, and keep none
        either."""
        placed = {(place.workload_uid, place.attempt): place for place in self._manager.placed()}
        policies = dict[str, Chosen | None]()  # by check
        for theirs, work in self._turns.before(mine):
            current = placed.get((work.uid, work.attempt))
            check = self._policies.check_of(work)
            if check not in policies:
                policies[check], _ = self._policies.policy(check)
            of = current.uid if current and not current.withdrawing else ""
            looked = self._seen.looked(of, work, policies[check], now)
            if looked and not ordering.starves(work, now):
                continue  # most of the others, in a crowd: nobody asks whether they wait
            grows = ordering.grows(work, check, current)
            waits = ordering.waits(work, check, current) and not self._goes_on(work)
            if (grows or waits) and not self._shares.leaving(work):
                yield Waiting(work, looked, current, grows=grows, turn=theirs)

    def _goes_on(self, work: Workload) -> bool:
        """Whether an elastic job runs: its next Workload is let run at once, and asks for no room but what it lacks."""
        return bool(work.elastic and work.job and is_running(work.job, self._manager.job(work.job)))

    def _aside(self, now: datetime) -> Iterator[Waiting]:
        for work, since in self._memory.aside.values():
            raw = self._manager.gang(work.gang_key)
            current = self._manager.work(raw) if raw else None
            check = self._policies.check_of(current) if current else ""
            if found := ordering.aside(aged(self._manager, work), since + BACK_WITHIN, current, check, now):
                yield found


class Round(NamedTuple):
    """What a plan becomes."""

    body: dict[str, Any]  # its Placement object as it is to be written
    plan: Plan
    again: datetime | None  # when to plan again unasked
    alone: bool  # it found no room on what its own clusters show, and nothing that was deducted from that counted


class Planning:
    """Makes plans from what the stores show; it writes nothing, neither to them nor elsewhere."""

    def __init__(self, fleet: Fleet, policies: Policies, seen: Seen, snapshot: Snapshot, waiters: Waiters) -> None:
        self._fleet, self._policies, self._seen, self._snapshot, self._waiters = (
            fleet,
            policies,
            seen,
            snapshot,
            waiters,
        )
        self._steps, self._freed = Steps(), Steps()

    async def body(self, action: actions.Plan, now: datetime) -> Round:
        """Plan a gang."""
        work = action.workload
        check = self._policies.check_of(work)
        chosen, _ = self._policies.policy(check)
        began = asyncio.get_running_loop().time()
        made = await self.plan(work, check, chosen, action.excluded, now, action.kept, action.without)
        now += timedelta(seconds=int(asyncio.get_running_loop().time() - began))  # its shares are asked for only now
        wanted, least = self._snapshot.request(work, check).workers, self._snapshot.least(work)
        place = rounds.next_round(action, made, wanted, now, least)
        again = made.again_at(None if made.plan.shares else self._snapshot.settles(now))
        # What a gang that runs lacks changes with its own pods, too: it is planned again for whatever is news.
        alone = action.kept is None and self._alone(work, chosen, made)
        return Round(manifest(place, work.job, check, made.plan.verdicts), made.plan, again, alone)

    def _alone(self, work: Workload, chosen: Chosen | None, made: Made) -> bool:
        """Whether a plan would be the same whatever others are promised, take first, or keep."""
        kept = made.plan.shares or made.holds or made.freed
        return not (kept or self._seen.touches(work, chosen, made.promised))

    async def plan(
        self,
        work: Workload,
        check: str,
        chosen: Chosen | None,
        excluded: Sequence[Exclusion],
        now: datetime,
        kept: Sequence[Share] | None = None,
        without: Mapping[str, int] | None = None,
    ) -> Made:
        """Plan a gang on the clusters as they stand, after those whose turn comes before its own; of one that runs, and keeps
        shares, only the workers that have no place, or must leave theirs. `without`: slots on them that are no place, by group."""
        me = self._snapshot.asking(
            self._snapshot.request(work, check, chosen.policy if chosen else None), chosen, excluded
        )
        if kept is not None:
            me = rounds.beside(me, kept, self._fleet.draining(), without, elastic=work.elastic)
            if not me.request.workers:
                return rounds.complete(me.request, kept)
        ahead = await self._waiters.before(work, now)
        involved = rounds.involved(me, ahead)
        owed = enumerate(self._snapshot.owed(work, now, kept or ()))
        steps = [*(_owed(number, *one) for number, one in owed), *(_before(*one, now) for one in ahead)]
        made = rounds.planned(me, await self._steps.after(self._snapshot.fleet(involved, {}), steps))
        if not made.plan.shares and (trees := self._snapshot.relieved(me.clusters, work.priority or 0)):
            freed = await self._freed.after(self._snapshot.fleet(involved, trees), steps)
            made = rounds.preempting(me, made, freed)
        return made


def _owed(number: int, request: Request, shares: Sequence[Share]) -> Step:
    """Somebody has a share that its cluster does not count yet."""
    return Step(number, (request, shares), lambda left: rounds.deducted(request, shares, left))


def _before(one: Waiting, asking: Asking, now: datetime) -> Step:
    """Somebody whose turn comes first takes what it can."""
    return Step(one.work.uid, rounds.hangs_on(one, asking, now), lambda left: rounds.after(one, asking, left, now))
