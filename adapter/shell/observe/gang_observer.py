"""What is known about one gang: reads the stores and builds the facts that a decision takes.

It decides nothing and writes nothing. Clusters that cannot be seen contribute no facts but their silence. Each of its parts
answers a question of its own, to whoever asks it.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from adapter import names
from adapter.admission import job_validation
from adapter.admission.policy import lost_after, reservation_timeout, start_timeout, together, when_share_lost
from adapter.gang import elastic
from adapter.gang.cleanup import unwanted
from adapter.gang.gang_facts import Gang, current
from adapter.objects.placement import Placement, ShareKey, placement_name
from adapter.objects.rayjob import UNKNOWN_JOB, is_running
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Key, uid_of
from adapter.objects.workload import PodSet, Workload
from adapter.rewrite import copied_objects
from adapter.rewrite.target import Target
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.observe.cluster_losses import Losses
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.observe.dry_run_answers import Trials
from adapter.shell.observe.job_problems import Refusals
from adapter.shell.observe.replan import Seen
from adapter.shell.observe.reservations import Shares
from adapter.shell.observe.slots import Slots
from adapter.shell.observe.source_objects import Sources
from adapter.shell.observe.targets import Targets
from adapter.shell.observe.transient_state import Memory
from adapter.shell.observe.waiting_workloads import Pending


class Gangs:
    """Reads facts about gangs."""

    def __init__(
        self,
        manager: Manager,
        fleet: Fleet,
        policies: Policies,
        sources: Sources,
        refusals: Refusals,
        targets: Targets,
        shares: Shares,
        slots: Slots,
        losses: Losses,
        memory: Memory,
        trials: Trials,
        seen: Seen,
    ) -> None:
        self._manager, self._fleet, self._memory, self._trials = manager, fleet, memory, trials
        self._seen = seen
        self._pending = Pending(manager)
        self._policies, self._sources, self._refusals = policies, sources, refusals
        self._targets, self._shares, self._slots, self._losses = targets, shares, slots, losses

    def facts(self, key: Key, now: datetime) -> Gang:
        """The facts about a gang."""
        work, check = self._under(key)
        found = tuple(map(self._manager.place, self._manager.placements.group("/".join(key))))
        standing, odd = self._shares.read(key)
        covered = self._policies.covered(work, check) if work else []
        runs_on = bool(work and self._runs(work))
        unsuspended = bool(runs_on and work and self._let_run(work, covered))
        stands = current(work, found, unsuspended)
        chosen, problem = self._policies.policy(check)
        asked = _asked(stands, standing)
        by_plan = self._trials.wanted(work) if work else ()
        gang = Gang(
            workload=work,
            check=check,
            placements=found,
            reservations=tuple(standing),
            job_gone=bool(work and self._shares.job_of(work) != "There"),
            others_wait_from=self._others_wait_from(work, check, now),
            # its policy, and what keeps it from being planned
            timeout=reservation_timeout(chosen),
            on_share_lost=when_share_lost(chosen),
            start_timeout=start_timeout(chosen),
            together=together(chosen),
            unsuspended=unsuspended,
            caution=job_validation.caution(work, chosen) if work else "",
            impatience=job_validation.impatience(work, self._manager.job(work.job))
            if work and work.job and unsuspended
            else "",
            problem=problem
            or self._policies.rivals(work)
            or self._policies.gate_problem(now)
            or self._started(work, early=runs_on and not unsuspended),
            refusal=self._refusals.refusal(work, check, chosen) if work and check else "",
            absent=self._refusals.absent(work, check) if work and check else "",
            targets=self._near(work, stands, by_plan) if work else {},
            tried=self._trials.known(work, (*asked, *by_plan)) if work else {},
            remote_podsets=tuple(p.name for p in covered if p.count),
            idle_podsets=tuple(p.name for p in covered if not p.count),
            # the worker clusters
            silent=self._silent(found, odd),
            given_up=self._losses.given_up({s.cluster for p in found for s in p.shares}, lost_after(chosen), now),
            draining=self._fleet.draining(),
            # what was tried before
            room_changed=self._seen.changed([p.uid for p in found], work, chosen, now),
            settles=min((self._memory.settles[p.uid] for p in found if p.uid in self._memory.settles), default=None),
            refused={cluster: why for p in found for cluster, why in self._memory.refusals(p).items()},
            unusable={share: why for p in found for share, why in self._unusable(p).items()},
            unreleased=dict(self._memory.unreleased),
            # its pods, here and there
            occupied=_all(self._slots.occupied_shares(p) for p in found),
            here=_all(self._slots.shares_of_pods(p) for p in found),
            there=_all(self._slots.shares_of_remote_pods(p) for p in found)
            | _all(map(self._slots.shares_of_dispatched_pods, found)),
            alive=_all(self._slots.shares_of_living_pods(p) for p in found),
            unplaced=any(self._slots.has_unplaced_pod(p) for p in found),
            workers=self._slots.unready_workers(stands, standing) if stands else None,
            movers=tuple(one for p in found for one in self._slots.movers(p, standing)),
        )
        seen = self._memory.first_seen(gang.current, now) if gang.current else None
        since = self._memory.seen_since(gang.current, now) if gang.current else {}
        untried, by_plan = (tuple(pair for pair in some if pair not in gang.tried) for some in (asked, by_plan))
        ending = {one.uid: self._slots.running_remote_pods(one, now) for one in unwanted(gang)}
        return replace(gang, untried=untried, untried_by_plan=by_plan, ending=ending, first_seen=seen, seen_since=since)

    def _runs(self, work: Workload) -> bool:
        """Whether an elastic job is let run, by whomever."""
        return bool(work.elastic and work.job and is_running(work.job, self._manager.job(work.job)))

    def _let_run(self, work: Workload, covered: Iterable[PodSet]) -> bool:
        """Whether that was Kueue."""
        job = self._manager.job(work.job) if work.job else UNKNOWN_JOB
        slices = self._manager.workloads.group("/".join(work.gang_key))
        return elastic.started(work, (one.name for one in covered), job, slices)

    def _near(self, work: Workload, place: Placement | None, asked: Iterable[tuple[str, str]]) -> dict[str, Target]:
        """What the rewriter must know of each cluster that a share is asked for in, or a copy tried, as far as it can be seen."""
        seen = self._fleet.seen()
        clusters = {*(share.cluster for share in (place.live if place else ())), *(cluster for cluster, _ in asked)}
        near = {cluster: seen[cluster] for cluster in clusters if cluster in seen}
        return self._targets.every(near, work, place.name if place else placement_name(work)) if near else {}

    def _under(self, key: Key) -> tuple[Workload | None, str]:
        """A Workload, and our check on it, empty when it has none."""
        raw = self._manager.gang(key)
        work = self._manager.known(self._manager.work(raw)) if raw else None
        return work, self._policies.check_of(work) if work else ""

    async def look(self, key: Key) -> bool:
        """Read what `gang` needs and no store holds: the Secrets and ConfigMaps of a gang that waits for its check. Returns whether
        it lacks another one than before, or none now: those behind it are planned as if it took its share, unless it lacks one.

        And the job of one whose Workload was changed for another: whether what stands for it goes on, or goes, is told by the job
        as it is now, and the stores of Workloads and jobs are not of one moment.
        """
        work, check = self._under(key)
        if work and work.elastic and work.holds_quota:
            made = list(map(self._manager.place, self._manager.placements.group("/".join(key))))
            unasked = bool(check) and not made and work.checks[check].state == names.CHECK_PENDING
            if unasked or any(place.job and place.attempt != work.attempt for place in made):
                await self._manager.read(work.job)
        if work and check and work.holds_quota and work.checks[check].state == names.CHECK_PENDING:
            before, podsets = self._refusals.absent(work, check), self._policies.remote_podsets(work, check)
            wanted = self._sources.wanted(work, podsets)
            if len(wanted) <= copied_objects.MOST_OBJECTS:  # else it is refused, whatever they hold
                await self._sources.look(work.namespace, wanted)
                if self._sources.refusal(work, podsets):  # which is final: not of what somebody has put right meanwhile
                    await self._sources.look(work.namespace, wanted, fresh=True)
            return self._refusals.absent(work, check) != before
        return False

    def _others_wait_from(self, work: Workload | None, check: str, now: datetime) -> datetime | None:
        """Asked for those alone that may give way: most gangs run."""
        pending = work and check and work.checks[check].state == names.CHECK_PENDING
        return self._pending.waits_from(work, now) if work and pending else None

    def _started(self, work: Workload | None, *, early: bool) -> str:
        if work is None or work.job is None:
            return ""
        return (
            job_validation.let_run(work) if early else job_validation.started_early(work, self._manager.job(work.job))
        )

    def waits_for_answers(self, key: Key) -> bool:
        """Whether the last plan of a gang was put off until clusters have said what a copy would be there."""
        work, _ = self._under(key)
        return bool(work and self._trials.wanted(work))

    def _unusable(self, place: Placement) -> dict[ShareKey, str]:
        """The shares that were refused a pod which is still wanted, and why."""
        return self._memory.unusable(place, map(uid_of, self._slots.living_pods(place)))

    def _silent(self, placements: tuple[Placement, ...], odd: Iterable[str]) -> dict[str, str]:
        quiet = {**dict.fromkeys(odd, "shows a share of this job that cannot be read"), **self._fleet.silent()}
        members = self._fleet.members()
        for share in (s for p in placements for s in p.shares):
            if share.cluster not in members and share.cluster not in quiet:
                quiet[share.cluster] = f"there is no WorkerCluster {share.cluster}"
        return quiet


def _asked(place: Placement | None, standing: Iterable[Reservation]) -> list[tuple[str, str]]:
    """The clusters and groups of shares that are yet to be asked for."""
    known = {(one.cluster, one.round) for one in standing}
    yet = (share for share in place.live if place.key_of(share) not in known) if place else ()
    return list(dict.fromkeys((share.cluster, group.name) for share in yet for group in share.groups))


def _all(shares: Iterable[Iterable[ShareKey]]) -> frozenset[ShareKey]:
    return frozenset(one for some in shares for one in some)
