"""What is known about one gang: reads the stores and builds the facts that a decision takes.

It decides nothing and writes nothing. Clusters that cannot be seen contribute no facts but their silence. Each of its parts
answers a question of its own, to whoever asks it.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from adapter import names
from adapter.admission import job_validation
from adapter.admission.policy import (
    needs_same_cluster,
    reservation_timeout,
    share_lost_action,
    worker_lost_timeout,
    worker_start_timeout,
)
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
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.dry_run_answers import DryRunAnswers
from adapter.shell.observe.job_problems import JobProblems
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.slots import SlotObserver
from adapter.shell.observe.source_objects import SourceObjects
from adapter.shell.observe.targets import TargetBuilder
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.observe.waiting_workloads import WaitingWorkloads


class GangObserver:
    """Reads facts about gangs."""

    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        policies: PolicyObserver,
        sources: SourceObjects,
        job_problems: JobProblems,
        targets: TargetBuilder,
        reservations: ReservationObserver,
        slots: SlotObserver,
        cluster_losses: ClusterLosses,
        transient: TransientState,
        dry_run_answers: DryRunAnswers,
        replan_check: ReplanCheck,
    ) -> None:
        self._manager, self._fleet, self._transient, self._dry_run_answers = manager, fleet, transient, dry_run_answers
        self._replan_check = replan_check
        self._waiting_workloads = WaitingWorkloads(manager)
        self._policies, self._sources, self._job_problems = policies, sources, job_problems
        self._targets, self._reservations, self._slots, self._cluster_losses = (
            targets,
            reservations,
            slots,
            cluster_losses,
        )

    def facts(self, key: Key, now: datetime) -> Gang:
        """The facts about a gang."""
        work, check = self._workload_and_check(key)
        found = tuple(map(self._manager.read_placement, self._manager.placements.by_index("/".join(key))))
        standing, odd = self._reservations.reservations_of_gang(key)
        covered = self._policies.covered_podsets(work, check) if work else []
        runs_on = bool(work and self._is_running(work))
        unsuspended = bool(runs_on and work and self._started_by_kueue(work, covered))
        stands = current(work, found, unsuspended)
        chosen, problem = self._policies.policy_of(check)
        asked = _pairs_to_reserve(stands, standing)
        by_plan = self._dry_run_answers.awaited_answers(work) if work else ()
        gang = Gang(
            workload=work,
            check=check,
            placements=found,
            reservations=tuple(standing),
            job_gone=bool(work and self._reservations.job_presence(work) != "There"),
            others_wait_from=self._others_wait_from(work, check, now),
            # its policy, and what keeps it from being planned
            timeout=reservation_timeout(chosen),
            on_share_lost=share_lost_action(chosen),
            start_timeout=worker_start_timeout(chosen),
            together=needs_same_cluster(chosen),
            unsuspended=unsuspended,
            caution=job_validation.restart_warning(work, chosen) if work else "",
            impatience=job_validation.autoscaler_timeout_warning(work, self._manager.job_object(work.job))
            if work and work.job and unsuspended
            else "",
            problem=problem
            or self._policies.rival_checks_problem(work)
            or self._policies.gate_problem(now)
            or self._start_problem(work, early=runs_on and not unsuspended),
            refusal=self._job_problems.rejection_reason(work, check, chosen) if work and check else "",
            absent=self._job_problems.missing_objects(work, check) if work and check else "",
            targets=self._targets_for(work, stands, by_plan) if work else {},
            tried=self._dry_run_answers.known_answers(work, (*asked, *by_plan)) if work else {},
            remote_podsets=tuple(p.name for p in covered if p.count),
            idle_podsets=tuple(p.name for p in covered if not p.count),
            # the worker clusters
            silent=self._unreachable_clusters(found, odd),
            given_up=self._cluster_losses.given_up_clusters(
                {s.cluster for p in found for s in p.shares}, worker_lost_timeout(chosen), now
            ),
            draining=self._fleet.draining(),
            # what was tried before
            room_changed=self._replan_check.is_needed([p.uid for p in found], work, chosen, now),
            settles=min(
                (self._transient.replan_at[p.uid] for p in found if p.uid in self._transient.replan_at), default=None
            ),
            refused={cluster: why for p in found for cluster, why in self._transient.share_refusals(p).items()},
            unusable={share: why for p in found for share, why in self._unusable_shares(p).items()},
            unreleased=dict(self._transient.undeleted_shares),
            # its pods, here and there
            occupied=_union(self._slots.occupied_shares(p) for p in found),
            here=_union(self._slots.shares_of_pods(p) for p in found),
            there=_union(self._slots.shares_of_remote_pods(p) for p in found)
            | _union(map(self._slots.shares_of_dispatched_pods, found)),
            alive=_union(self._slots.shares_of_living_pods(p) for p in found),
            unplaced=any(self._slots.has_unplaced_pod(p) for p in found),
            workers=self._slots.unready_workers(stands, standing) if stands else None,
            movers=tuple(one for p in found for one in self._slots.pods_to_move(p, standing)),
        )
        seen = self._transient.round_first_seen(gang.current, now) if gang.current else None
        since = self._transient.rounds_first_seen(gang.current, now) if gang.current else {}
        untried, by_plan = (tuple(pair for pair in some if pair not in gang.tried) for some in (asked, by_plan))
        ending = {one.uid: self._slots.running_remote_pods(one, now) for one in unwanted(gang)}
        return replace(gang, untried=untried, untried_by_plan=by_plan, ending=ending, first_seen=seen, seen_since=since)

    def _is_running(self, workload: Workload) -> bool:
        """Whether an elastic job is let run, by whomever."""
        return bool(
            workload.elastic and workload.job and is_running(workload.job, self._manager.job_object(workload.job))
        )

    def _started_by_kueue(self, workload: Workload, covered: Iterable[PodSet]) -> bool:
        """Whether that was Kueue."""
        job = self._manager.job_object(workload.job) if workload.job else UNKNOWN_JOB
        slices = self._manager.workloads.by_index("/".join(workload.gang_key))
        return elastic.started(workload, (one.name for one in covered), job, slices)

    def _targets_for(
        self, workload: Workload, placement: Placement | None, pairs: Iterable[tuple[str, str]]
    ) -> dict[str, Target]:
        """What the rewriter must know of each cluster that a share is asked for in, or a copy tried, as far as it can be seen."""
        seen = self._fleet.reachable()
        clusters = {
            *(share.cluster for share in (placement.active_shares if placement else ())),
            *(cluster for cluster, _ in pairs),
        }
        near = {cluster: seen[cluster] for cluster in clusters if cluster in seen}
        return (
            self._targets.build_targets(near, workload, placement.name if placement else placement_name(workload))
            if near
            else {}
        )

    def _workload_and_check(self, key: Key) -> tuple[Workload | None, str]:
        """A Workload, and our check on it, empty when it has none."""
        raw = self._manager.gang_workload(key)
        work = self._manager.with_ray_service(self._manager.read_workload(raw)) if raw else None
        return work, self._policies.check_of(work) if work else ""

    async def read_uncached(self, key: Key) -> bool:
        """Read what `gang` needs and no store holds: the Secrets and ConfigMaps of a gang that waits for its check. Returns whether
        it lacks another one than before, or none now: those behind it are planned as if it took its share, unless it lacks one.

        And the job of one whose Workload was changed for another: whether what stands for it goes on, or goes, is told by the job
        as it is now, and the stores of Workloads and jobs are not of one moment.
        """
        work, check = self._workload_and_check(key)
        if work and work.elastic and work.holds_quota:
            made = list(map(self._manager.read_placement, self._manager.placements.by_index("/".join(key))))
            unasked = bool(check) and not made and work.checks[check].state == names.CHECK_PENDING
            if unasked or any(place.job and place.attempt != work.attempt for place in made):
                await self._manager.refresh_job(work.job)
        if work and check and work.holds_quota and work.checks[check].state == names.CHECK_PENDING:
            before, podsets = (
                self._job_problems.missing_objects(work, check),
                self._policies.remote_podsets(work, check),
            )
            wanted = self._sources.references_of(work, podsets)
            if len(wanted) <= copied_objects.MAX_OBJECTS:  # else it is refused, whatever they hold
                await self._sources.refresh_objects(work.namespace, wanted)
                if self._sources.uncopyable_reason(
                    work, podsets
                ):  # which is final: not of what somebody has put right meanwhile
                    await self._sources.refresh_objects(work.namespace, wanted, fresh=True)
            return self._job_problems.missing_objects(work, check) != before
        return False

    def _others_wait_from(self, workload: Workload | None, check: str, now: datetime) -> datetime | None:
        """Asked for those alone that may give way: most gangs run."""
        pending = workload and check and workload.checks[check].state == names.CHECK_PENDING
        return self._waiting_workloads.others_wait_from(workload, now) if workload and pending else None

    def _start_problem(self, workload: Workload | None, *, early: bool) -> str:
        if workload is None or workload.job is None:
            return ""
        return (
            job_validation.unsuspended_message(workload)
            if early
            else job_validation.started_early_message(workload, self._manager.job_object(workload.job))
        )

    def waits_for_answers(self, key: Key) -> bool:
        """Whether the last plan of a gang was put off until clusters have said what a copy would be there."""
        work, _ = self._workload_and_check(key)
        return bool(work and self._dry_run_answers.awaited_answers(work))

    def _unusable_shares(self, placement: Placement) -> dict[ShareKey, str]:
        """The shares that were refused a pod which is still wanted, and why."""
        return self._transient.unusable_shares(placement, map(uid_of, self._slots.living_pods(placement)))

    def _unreachable_clusters(self, placements: tuple[Placement, ...], odd: Iterable[str]) -> dict[str, str]:
        quiet = {**dict.fromkeys(odd, "shows a share of this job that cannot be read"), **self._fleet.unreachable()}
        members = self._fleet.caches()
        for share in (s for p in placements for s in p.shares):
            if share.cluster not in members and share.cluster not in quiet:
                quiet[share.cluster] = f"there is no WorkerCluster {share.cluster}"
        return quiet


def _pairs_to_reserve(placement: Placement | None, standing: Iterable[Reservation]) -> list[tuple[str, str]]:
    """The clusters and groups of shares that are yet to be asked for."""
    known = {(one.cluster, one.round) for one in standing}
    yet = (share for share in placement.active_shares if placement.share_key(share) not in known) if placement else ()
    return list(dict.fromkeys((share.cluster, group.name) for share in yet for group in share.groups))


def _union(shares: Iterable[Iterable[ShareKey]]) -> frozenset[ShareKey]:
    return frozenset(one for some in shares for one in some)
