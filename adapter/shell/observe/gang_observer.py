"""Reads the facts about one gang from the stores.

It decides and writes nothing. An unreachable cluster contributes only the reason why it is unreachable.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from adapter import names
from adapter.admission import job_validation
from adapter.admission.policy import (
    ResolvedPolicy,
    needs_same_cluster,
    reservation_timeout,
    share_lost_action,
    worker_lost_timeout,
    worker_start_timeout,
)
from adapter.gang import elastic
from adapter.gang.cleanup import unwanted_shares
from adapter.gang.gang_facts import (
    CapacityFacts,
    DryRunFacts,
    Gang,
    GangClusterFacts,
    GangJobFacts,
    PodFacts,
    PolicyFacts,
    ShareFacts,
    current_placement,
)
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
from adapter.shell.observe.dry_run_answers import ClusterGroup, DryRunAnswers
from adapter.shell.observe.job_problems import JobProblems
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.slots import SlotObserver
from adapter.shell.observe.source_objects import SourceObjects
from adapter.shell.observe.targets import TargetBuilder
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.observe.waiting_workloads import WaitingWorkloads


@dataclass(frozen=True, slots=True)
class _GangObjects:
    """The objects of one gang, from which all of its facts are read."""

    workload: Workload | None
    check: str  # our AdmissionCheck on it; empty when it has none
    placements: tuple[Placement, ...]
    current: Placement | None  # that of the present attempt
    reservations: tuple[Reservation, ...]
    malformed_in: tuple[str, ...]  # clusters with a share of this job that cannot be read
    podsets: tuple[PodSet, ...]  # worker groups that our check covers
    policy: ResolvedPolicy | None
    policy_problem: str
    runs: bool  # an elastic job that is not suspended, whoever did that
    unsuspended: bool  # an elastic job that Kueue has let run
    dry_runs_of_shares: tuple[ClusterGroup, ...]  # that must precede the creation of shares
    dry_runs_of_plan: tuple[ClusterGroup, ...]  # that must precede the next plan


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
        self._replan = replan_check
        self._waiting_workloads = WaitingWorkloads(manager)
        self._policies, self._sources, self._job_problems = policies, sources, job_problems
        self._targets, self._reservations, self._slots, self._cluster_losses = (
            targets,
            reservations,
            slots,
            cluster_losses,
        )

    def facts(self, key: Key, now: datetime) -> Gang:
        """Read the facts about a gang."""
        objects = self._read(key)
        gang = Gang(
            workload=objects.workload,
            check=objects.check,
            placements=objects.placements,
            job=self._job_facts(objects, now),
            policy=_policy_facts(objects.policy),
            clusters=self._cluster_facts(objects, now),
            shares=self._share_facts(objects, now),
            pods=self._pod_facts(objects),
            capacity=self._capacity_facts(objects, now),
            dry_runs=self._dry_run_facts(objects),
        )
        ending_pods = {share.uid: self._slots.running_remote_pods(share, now) for share in unwanted_shares(gang)}
        return replace(gang, shares=replace(gang.shares, ending_pods=ending_pods))

    def _read(self, key: Key) -> _GangObjects:
        workload, check = self._workload(key)
        placements = self._placements(key)
        reservations, malformed_in = self._reservations.reservations_of_gang(key)
        podsets = tuple(self._policies.covered_podsets(workload, check)) if workload else ()
        runs = bool(workload and self._is_running(workload))
        unsuspended = bool(runs and workload and self._is_started(workload, podsets))
        current = current_placement(workload, placements, unsuspended)
        policy, policy_problem = self._policies.policy_of(check)
        return _GangObjects(
            workload=workload,
            check=check,
            placements=placements,
            current=current,
            reservations=tuple(reservations),
            malformed_in=tuple(malformed_in),
            podsets=podsets,
            policy=policy,
            policy_problem=policy_problem,
            runs=runs,
            unsuspended=unsuspended,
            dry_runs_of_shares=_dry_runs_of_shares(current, reservations),
            dry_runs_of_plan=self._dry_run_answers.awaited_answers(workload) if workload else (),
        )

    def _job_facts(self, objects: _GangObjects, now: datetime) -> GangJobFacts:
        workload, check, policy = objects.workload, objects.check, objects.policy
        return GangJobFacts(
            deleted=bool(workload and self._reservations.job_presence(workload) != "There"),
            unsuspended=objects.unsuspended,
            remote_podsets=tuple(podset.name for podset in objects.podsets if podset.count),
            idle_podsets=tuple(podset.name for podset in objects.podsets if not podset.count),
            rejection=self._job_problems.rejection_reason(workload, check, policy) if workload and check else "",
            planning_problem=self._planning_problem(objects, now),
            missing_object=self._job_problems.missing_objects(workload, check) if workload and check else "",
            start_warning=job_validation.restart_warning(workload, policy) if workload else "",
            waiting_warning=self._waiting_warning(workload) if objects.unsuspended else "",
        )

    def _cluster_facts(self, objects: _GangObjects, now: datetime) -> GangClusterFacts:
        clusters = {share.cluster for placement in objects.placements for share in placement.shares}
        return GangClusterFacts(
            unreachable=self._unreachable(objects),
            lost=self._cluster_losses.given_up_clusters(clusters, worker_lost_timeout(objects.policy), now),
            draining=self._fleet.draining(),
            targets=self._targets_of(objects),
        )

    def _share_facts(self, objects: _GangObjects, now: datetime) -> ShareFacts:
        """All but the pods that still end: which shares are to go depends on the other facts."""
        memory, current, placements = self._transient, objects.current, objects.placements
        return ShareFacts(
            reservations=objects.reservations,
            creation_denials={cluster: text for p in placements for cluster, text in memory.share_refusals(p).items()},
            deletion_denials=dict(memory.undeleted_shares),
            ending_pods={},
            round_first_seen=memory.round_first_seen(current, now) if current else None,
            first_seen_by_round=memory.rounds_first_seen(current, now) if current else {},
        )

    def _pod_facts(self, objects: _GangObjects) -> PodFacts:
        slots, current, placements = self._slots, objects.current, objects.placements
        reservations = objects.reservations
        remote = _union(map(slots.shares_of_remote_pods, placements))
        return PodFacts(
            shares_with_pods=_union(map(slots.occupied_shares, placements)),
            shares_with_manager_pods=_union(map(slots.shares_of_pods, placements)),
            shares_with_live_manager_pods=_union(map(slots.shares_of_living_pods, placements)),
            shares_with_remote_pods=remote | _union(map(slots.shares_of_dispatched_pods, placements)),
            has_unplaced_workers=any(map(slots.has_unplaced_pod, placements)),
            pod_denials={share: text for p in placements for share, text in self._pod_denials(p).items()},
            pods_to_drain=tuple(pod for p in placements for pod in slots.pods_to_move(p, reservations)),
            workers=slots.unready_workers(current, reservations) if current else None,
        )

    def _capacity_facts(self, objects: _GangObjects, now: datetime) -> CapacityFacts:
        uids, settles = [placement.uid for placement in objects.placements], self._transient.replan_at
        return CapacityFacts(
            changed_since_plan=self._replan.is_needed(uids, objects.workload, objects.policy, now),
            deductions_expire_at=min((settles[uid] for uid in uids if uid in settles), default=None),
            quota_contended_from=self._quota_contended_from(objects.workload, objects.check, now),
        )

    def _dry_run_facts(self, objects: _GangObjects) -> DryRunFacts:
        of_shares, of_plan = objects.dry_runs_of_shares, objects.dry_runs_of_plan
        results = (
            self._dry_run_answers.known_answers(objects.workload, (*of_shares, *of_plan)) if objects.workload else {}
        )
        return DryRunFacts(
            results=results,
            missing_for_shares=tuple(pair for pair in of_shares if pair not in results),
            missing_for_plan=tuple(pair for pair in of_plan if pair not in results),
        )

    def _is_running(self, workload: Workload) -> bool:
        """Whether an elastic job is not suspended, whoever did that."""
        return bool(
            workload.elastic and workload.job and is_running(workload.job, self._manager.job_object(workload.job))
        )

    def _is_started(self, workload: Workload, podsets: Iterable[PodSet]) -> bool:
        """Whether it was Kueue that let an elastic job run."""
        job = self._manager.job_object(workload.job) if workload.job else UNKNOWN_JOB
        slices = self._manager.workloads.by_index("/".join(workload.gang_key))
        return elastic.was_started_by_kueue(workload, (podset.name for podset in podsets), job, slices)

    def _targets_of(self, objects: _GangObjects) -> dict[str, Target]:
        """The rewriter's input for each reachable cluster in which a share is created or a remote pod is dry-run."""
        workload, current = objects.workload, objects.current
        if workload is None:
            return {}
        shares = current.active_shares if current else ()
        pairs = (*objects.dry_runs_of_shares, *objects.dry_runs_of_plan)
        clusters = {*(share.cluster for share in shares), *(cluster for cluster, _ in pairs)}
        reachable = self._fleet.reachable()
        members = {cluster: reachable[cluster] for cluster in clusters if cluster in reachable}
        name = current.name if current else placement_name(workload)
        return self._targets.build_targets(members, workload, name) if members else {}

    def _workload(self, key: Key) -> tuple[Workload | None, str]:
        """A gang's Workload, and our check on it, empty when it has none."""
        raw = self._manager.gang_workload(key)
        workload = self._manager.with_ray_service(self._manager.read_workload(raw)) if raw else None
        return workload, self._policies.check_of(workload) if workload else ""

    def _placements(self, key: Key) -> tuple[Placement, ...]:
        return tuple(map(self._manager.read_placement, self._manager.placements.by_index("/".join(key))))

    async def read_uncached(self, key: Key) -> bool:
        """Read what `facts` needs and no store holds; return whether the object that is missing changed.

        These are the Secrets and ConfigMaps of a gang that waits for its check. Gangs behind it are planned as if it
        took its share, unless an object is missing.

        It also reads the job of an elastic gang whose Workload was replaced by another. The job as it is now decides
        whether its shares stay, and the stores of Workloads and jobs are not of one moment.
        """
        workload, check = self._workload(key)
        if workload and workload.holds_quota:
            await self._read_job_of_new_slice(key, workload, check)
            if check and workload.checks[check].state == names.CHECK_PENDING:
                return await self._read_source_objects(workload, check)
        return False

    async def _read_job_of_new_slice(self, key: Key, workload: Workload, check: str) -> None:
        if not workload.elastic:
            return
        placements = self._placements(key)
        is_new = bool(check) and not placements and workload.checks[check].state == names.CHECK_PENDING
        if is_new or any(p.job and p.attempt != workload.attempt for p in placements):
            await self._manager.refresh_job(workload.job)

    async def _read_source_objects(self, workload: Workload, check: str) -> bool:
        missing_before = self._job_problems.missing_objects(workload, check)
        podsets = self._policies.remote_podsets(workload, check)
        wanted = self._sources.references_of(workload, podsets)
        if len(wanted) <= copied_objects.MAX_OBJECTS:  # a job with more is rejected, whatever they hold
            await self._sources.refresh_objects(workload.namespace, wanted)
            # A rejection is final, so it must not rest on an object that was corrected meanwhile.
            if self._sources.uncopyable_reason(workload, podsets):
                await self._sources.refresh_objects(workload.namespace, wanted, fresh=True)
        return self._job_problems.missing_objects(workload, check) != missing_before

    def _quota_contended_from(self, workload: Workload | None, check: str, now: datetime) -> datetime | None:
        """Read only for gangs that may be deactivated: most gangs run."""
        pending = workload and check and workload.checks[check].state == names.CHECK_PENDING
        return self._waiting_workloads.others_wait_from(workload, now) if workload and pending else None

    def _planning_problem(self, objects: _GangObjects, now: datetime) -> str:
        workload = objects.workload
        return (
            objects.policy_problem
            or self._policies.rival_checks_problem(workload)
            or self._policies.gate_problem(now)
            or self._started_early(workload, runs_elastic=objects.runs and not objects.unsuspended)
        )

    def _started_early(self, workload: Workload | None, *, runs_elastic: bool) -> str:
        """Why a job that runs without its check cannot be planned; empty when it does not run so."""
        if workload is None or workload.job is None:
            return ""
        if runs_elastic:
            return job_validation.unsuspended_message(workload)
        return job_validation.started_early_message(workload, self._manager.job_object(workload.job))

    def _waiting_warning(self, workload: Workload | None) -> str:
        if workload is None or workload.job is None:
            return ""
        return job_validation.autoscaler_timeout_warning(workload, self._manager.job_object(workload.job))

    def waits_for_answers(self, key: Key) -> bool:
        """Whether the last plan of a gang was put off until clusters have answered dry runs."""
        workload, _ = self._workload(key)
        return bool(workload and self._dry_run_answers.awaited_answers(workload))

    def _pod_denials(self, placement: Placement) -> dict[ShareKey, str]:
        """The shares that denied a pod which is still wanted, and why."""
        return self._transient.unusable_shares(placement, map(uid_of, self._slots.living_pods(placement)))

    def _unreachable(self, objects: _GangObjects) -> dict[str, str]:
        malformed = dict.fromkeys(objects.malformed_in, "shows a share of this job that cannot be read")
        unreachable = {**malformed, **self._fleet.unreachable()}
        members = self._fleet.caches()
        for share in (share for placement in objects.placements for share in placement.shares):
            if share.cluster not in members and share.cluster not in unreachable:
                unreachable[share.cluster] = f"there is no WorkerCluster {share.cluster}"
        return unreachable


def _policy_facts(policy: ResolvedPolicy | None) -> PolicyFacts:
    return PolicyFacts(
        reservation_timeout=reservation_timeout(policy),
        start_timeout=worker_start_timeout(policy),
        on_share_lost=share_lost_action(policy),
        same_cluster=needs_same_cluster(policy),
    )


def _dry_runs_of_shares(placement: Placement | None, reservations: Iterable[Reservation]) -> tuple[ClusterGroup, ...]:
    """The clusters and worker groups of shares that are yet to be created."""
    created = {reservation.key for reservation in reservations}
    shares = (
        (share for share in placement.active_shares if placement.share_key(share) not in created) if placement else ()
    )
    return tuple(dict.fromkeys((share.cluster, group.name) for share in shares for group in share.groups))


def _union(shares: Iterable[Iterable[ShareKey]]) -> frozenset[ShareKey]:
    return frozenset(key for keys in shares for key in keys)
