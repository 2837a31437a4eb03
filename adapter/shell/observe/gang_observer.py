"""Reads the facts about one gang from the stores.

An unreachable cluster contributes only the reason why it is unreachable.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from adapter import names
from adapter.admission import job_validation
from adapter.admission.policy import (
    ResolvedPolicy,
    min_workers_timeout,
    needs_same_cluster,
    reservation_timeout,
    share_lost_action,
    worker_lost_timeout,
    worker_start_timeout,
)
from adapter.gang import elastic, requeue, withheld_workers
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
    WorkerCounts,
    current_placement,
)
from adapter.gang.min_workers import is_below_minimum
from adapter.gang.uncreated_workers import creation_waiters
from adapter.gang.unstartable_pods import unstartable_pods
from adapter.gang.unused_quota import has_unused_quota
from adapter.objects.placement import Placement, ShareKey, last_round, placement_name
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
from adapter.shell.observe.drains import DrainObserver
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
    namespace: str
    workload: Workload | None
    check: str  # our AdmissionCheck, or empty
    placements: tuple[Placement, ...]
    current: Placement | None  # of the present attempt
    reservations: tuple[Reservation, ...]
    malformed_in: tuple[str, ...]  # clusters with an unreadable share of this job
    podsets: tuple[PodSet, ...]  # worker groups that our check covers
    policy: ResolvedPolicy | None
    policy_problem: str
    runs: bool  # an elastic job that is not suspended
    unsuspended: bool  # an elastic job that Kueue let run
    dry_runs_of_shares: tuple[ClusterGroup, ...]  # that must precede the creation of shares
    dry_runs_of_plan: tuple[ClusterGroup, ...]  # that must precede the next plan


class GangObserver:
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
        self._waiting_workloads, self._drains = WaitingWorkloads(manager), DrainObserver(manager, fleet)
        self._policies, self._sources, self._job_problems = policies, sources, job_problems
        self._targets, self._reservations, self._slots, self._cluster_losses = (
            targets,
            reservations,
            slots,
            cluster_losses,
        )

    def facts(self, key: Key, now: datetime) -> Gang:
        objects = self._read(key)
        pods = self._pod_facts(objects, now)
        gang = Gang(
            workload=objects.workload,
            check=objects.check,
            placements=objects.placements,
            job=self._job_facts(objects, now),
            policy=_policy_facts(objects.policy),
            clusters=self._cluster_facts(objects, now),
            shares=self._share_facts(objects, now),
            pods=pods,
            capacity=self._capacity_facts(objects, pods.withheld_workers, now),
            dry_runs=self._dry_run_facts(objects),
        )
        ending_pods = {share.uid: self._slots.running_remote_pods(share, now) for share in unwanted_shares(gang)}
        return replace(
            gang,
            shares=replace(gang.shares, ending_pods=ending_pods),
            pods=replace(
                gang.pods,
                unstartable_since=self._waiting_since("start", gang, unstartable_pods(gang), now),
                uncreated_since=self._waiting_since("creation", gang, self._creation_waiters(gang), now),
                quota_unused_since=self._unused_since(gang, now),
                below_minimum_since=self._below_minimum_since(gang, now),
            ),
        )

    def _waiting_since(self, kind: str, gang: Gang, workers: Iterable[str], now: datetime) -> Mapping[str, datetime]:
        placement = gang.current_placement
        return self._transient.waiting_since(kind, placement, workers, now) if placement else {}

    def _creation_waiters(self, gang: Gang) -> Iterable[str]:
        """The uncreated workers; none while the gang has no pods because its RayCluster was scaled to zero."""
        waiters, placement, workload = creation_waiters(gang), gang.current_placement, gang.workload
        if not waiters or gang.pods.workers or placement is None or workload is None:
            return waiters
        return [] if self._slots.wants_no_workers(workload, placement) else waiters

    def _unused_since(self, gang: Gang, now: datetime) -> datetime | None:
        placement, workload = gang.current_placement, gang.workload
        if placement is None or workload is None:
            return None
        is_unused = has_unused_quota(gang) and not self._slots.wants_no_workers(workload, placement)
        return self._transient.quota_unused_since(placement, is_unused, now)

    def _below_minimum_since(self, gang: Gang, now: datetime) -> datetime | None:
        placement = gang.current_placement
        if placement is None or gang.pods.worker_counts is None:
            return None
        waiters = ["gang"] if is_below_minimum(gang, placement) else []
        return self._transient.waiting_since("minimum", placement, waiters, now).get("gang")

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
            namespace=key[0],
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
            kuberay_rejection=self._job_problems.kuberay_rejection(workload, check) if workload and check else "",
            unlabelled_hosts=self._unlabelled_hosts(objects),
            start_warning=job_validation.restart_warning(workload, policy) if workload else "",
            portability_warning=self._job_problems.portability_message(workload, check, policy)
            if workload and _is_pending(workload, check)
            else "",
            waiting_warning=self._waiting_warning(workload) if objects.unsuspended else "",
            move_warning=self._move_warning(workload) if workload and check else "",
            relay=self._policies.relay_identity(workload, check) if workload and check else "",
            record_denied=bool(workload and self._transient.is_record_denied(workload.uid)),
        )

    def _unlabelled_hosts(self, objects: _GangObjects) -> str:
        """Why no replica can be placed; a running elastic job is never rejected, and its workers report it."""
        workload, current = objects.workload, objects.current
        if workload is None or current is None or workload.elastic:
            return ""
        return job_validation.job_rejection(workload, self._slots.unlabelled_hosts(current))

    def _cluster_facts(self, objects: _GangObjects, now: datetime) -> GangClusterFacts:
        clusters = {share.cluster for placement in objects.placements for share in placement.shares}
        return GangClusterFacts(
            unreachable=self._unreachable(objects),
            lost=self._cluster_losses.given_up_clusters(clusters, worker_lost_timeout(objects.policy), now),
            draining=self._drains.clusters_of(objects.workload.job if objects.workload else None),
            growing=self._fleet.growing(),
            targets=self._targets_of(objects),
            clocks=self._fleet.clock_offsets(clusters, self._manager.clock),
        )

    def _share_facts(self, objects: _GangObjects, now: datetime) -> ShareFacts:
        """The facts without `ending_pods`, which depend on the other facts."""
        memory, current, placements = self._transient, objects.current, objects.placements
        return ShareFacts(
            reservations=objects.reservations,
            creation_denials={cluster: text for p in placements for cluster, text in memory.share_refusals(p).items()},
            deletion_denials=dict(memory.undeleted_shares),
            ending_pods={},
            round_started_at=memory.round_started_at(current, now) if current else None,
            started_at_by_round=memory.rounds_started_at(current, now) if current else {},
            last_round=0 if current else self._last_round(objects),
        )

    def _last_round(self, objects: _GangObjects) -> int:
        """The last round in use under the name of the gang's missing Placement, which somebody deleted.

        Pods in the manager cluster also name rounds in unreachable clusters. If a share there has no pods, its counts
        are compared when it is observed (gang/cleanup.py).
        """
        if objects.workload is None:
            return 0
        name = placement_name(objects.workload)
        rounds = (share.round for share in objects.reservations if share.placement == name)
        return last_round(*rounds, *self._slots.rounds_in_use((objects.workload.namespace, name)))

    def _pod_facts(self, objects: _GangObjects, now: datetime) -> PodFacts:
        """The facts without the times of waits, which depend on the other facts."""
        facts, current = self._all_pod_facts(objects), objects.current
        notes, until = self._transient.withheld_workers(current.uid, now) if current else ((), None)
        if not (notes and current and facts.workers):
            return facts
        wanted = {podset.name: podset.count for podset in objects.podsets}
        withheld = withheld_workers.withheld_pods(current, facts.workers, notes)
        counts = withheld_workers.count_withheld(current, facts.workers, notes, wanted)
        uids = set(map(uid_of, withheld))
        return replace(
            facts,
            has_unplaced_workers=any(self._slots.has_unplaced_pod(p, uids) for p in objects.placements),
            workers=withheld_workers.without_withheld(facts.workers, withheld, sum(counts.values())),
            withheld_workers=counts,
            withheld_until=until,
        )

    def _all_pod_facts(self, objects: _GangObjects) -> PodFacts:
        """The facts as if no worker were withheld."""
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
            unstartable_since={},
            uncreated_since={},
            quota_unused_since=None,
            withheld_workers={},
            withheld_until=None,
            worker_counts=self._worker_counts(objects),
            below_minimum_since=None,
        )

    def _worker_counts(self, objects: _GangObjects) -> WorkerCounts | None:
        workload, current = objects.workload, objects.current
        if workload is None or current is None or min_workers_timeout(objects.policy) is None:
            return None
        podsets = {podset.name for podset in objects.podsets}
        return self._slots.count_workers(workload, current, podsets, self._unreachable(objects))

    def _capacity_facts(self, objects: _GangObjects, withheld: Mapping[str, int], now: datetime) -> CapacityFacts:
        uids, settles = [placement.uid for placement in objects.placements], self._transient.replan_at
        is_outdated = self._replan.is_needed(uids, objects.workload, objects.policy, now)
        return CapacityFacts(
            changed_since_plan=is_outdated or self._are_released(objects.current, withheld),
            deductions_expire_at=min((settles[uid] for uid in uids if uid in settles), default=None),
            quota_contended_from=self._quota_contended_from(objects.workload, objects.check, now),
            earlier_jobs_wait=self._do_earlier_jobs_wait(objects.workload, objects.check, now),
        )

    def _are_released(self, current: Placement | None, withheld: Mapping[str, int]) -> bool:
        """Whether workers that the last plan left out are not withheld any more."""
        planned_without = self._transient.planned_without.get(current.uid, {}) if current else {}
        return any(count > withheld.get(group, 0) for group, count in planned_without.items())

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
        return bool(
            workload.elastic and workload.job and is_running(workload.job, self._manager.job_object(workload.job))
        )

    def _is_started(self, workload: Workload, podsets: Iterable[PodSet]) -> bool:
        job = self._manager.job_object(workload.job) if workload.job else UNKNOWN_JOB
        slices = self._manager.workloads.by_index("/".join(workload.gang_key))
        return elastic.was_started_by_kueue(workload, (podset.name for podset in podsets), job, slices)

    def _targets_of(self, objects: _GangObjects) -> dict[str, Target]:
        workload, current = objects.workload, objects.current
        if workload is None:
            return {}
        shares = current.active_shares if current else ()
        pairs = (*objects.dry_runs_of_shares, *objects.dry_runs_of_plan)
        clusters = {*(share.cluster for share in shares), *(cluster for cluster, _ in pairs)}
        reachable = self._fleet.reachable(workload.namespace)
        members = {cluster: reachable[cluster] for cluster in clusters if cluster in reachable}
        name = current.name if current else placement_name(workload)
        return self._targets.build_targets(members, workload, name) if members else {}

    def _workload(self, key: Key) -> tuple[Workload | None, str]:
        raw = self._manager.gang_workload(key)
        workload = self._manager.with_ray_service(self._manager.read_workload(raw)) if raw else None
        if workload is None:
            return None, ""
        check = self._policies.check_of(workload)
        return self._policies.with_relay(workload, check), check

    def _placements(self, key: Key) -> tuple[Placement, ...]:
        return tuple(map(self._manager.read_placement, self._manager.placements.by_index("/".join(key))))

    async def read_uncached(self, key: Key) -> bool:
        """Read Secrets and ConfigMaps, and perhaps the job; return whether the gang began or ceased to take capacity.

        Gangs behind one that waits for its check are planned as if it took its share, unless a Secret or ConfigMap is
        missing or KubeRay rejects the job. If the Workload of an elastic gang was replaced, the job decides whether the
        gang's shares stay. It is read because the stores of Workloads and jobs are not of one moment.
        """
        workload, check = self._workload(key)
        if workload and workload.holds_quota:
            await self._read_job_of_new_slice(key, workload, check)
            if _is_pending(workload, check):
                has_rejection_changed = self._job_problems.has_rejection_changed(workload)
                return await self._read_source_objects(workload, check) or has_rejection_changed
        return False

    async def _read_job_of_new_slice(self, key: Key, workload: Workload, check: str) -> None:
        if not workload.elastic:
            return
        placements = self._placements(key)
        is_new = not placements and _is_pending(workload, check)
        if is_new or any(p.job and p.attempt != workload.attempt for p in placements):
            await self._manager.refresh_job(workload.job)

    async def _read_source_objects(self, workload: Workload, check: str) -> bool:
        missing_before = self._job_problems.missing_objects(workload, check)
        podsets = self._policies.remote_podsets(workload, check)
        wanted = self._sources.references_of(workload, podsets)
        if len(wanted) <= copied_objects.MAX_OBJECTS:  # a job with more is rejected anyway
            await self._sources.refresh_objects(workload.namespace, wanted)
            # A rejection is final, so it must not rest on an object corrected meanwhile.
            if self._sources.uncopyable_reason(workload, podsets):
                await self._sources.refresh_objects(workload.namespace, wanted, fresh=True)
        return self._job_problems.missing_objects(workload, check) != missing_before

    def _quota_contended_from(self, workload: Workload | None, check: str, now: datetime) -> datetime | None:
        """The time from which Workloads wait for a gang's quota; read only if it may be deactivated: most run."""
        is_pending = workload is not None and _is_pending(workload, check)
        return self._waiting_workloads.others_wait_from(workload, now) if workload and is_pending else None

    def _do_earlier_jobs_wait(self, workload: Workload | None, check: str, now: datetime) -> bool:
        """Whether jobs wait that were queued before a gang, which has its quota back before Kueue tried them."""
        if workload is None or not _is_pending(workload, check) or not requeue.has_quota_back_at_once(workload):
            return False
        return self._waiting_workloads.earlier_one_waits(workload, now)

    def _planning_problem(self, objects: _GangObjects, now: datetime) -> str:
        workload = objects.workload
        return (
            objects.policy_problem
            or self._policies.dispatch_problem(workload, now)
            or ("" if objects.unsuspended else self._started_early(workload, runs_elastic=objects.runs))
        )

    def _started_early(self, workload: Workload | None, *, runs_elastic: bool) -> str:
        if workload is None or workload.job is None:
            return ""
        if reason := job_validation.started_early_message(workload, self._manager.job_object(workload.job)):
            return reason
        return job_validation.unsuspended_message(workload) if runs_elastic else ""

    def _waiting_warning(self, workload: Workload | None) -> str:
        if workload is None or workload.job is None:
            return ""
        return job_validation.autoscaler_timeout_warning(workload, self._manager.job_object(workload.job))

    def _move_warning(self, workload: Workload) -> str:
        return job_validation.move_warning(workload, self._drains.ignored_part(workload.job))

    def waits_for_answers(self, key: Key) -> bool:
        workload, _ = self._workload(key)
        return bool(workload and self._dry_run_answers.awaited_answers(workload))

    def _pod_denials(self, placement: Placement) -> dict[ShareKey, str]:
        return self._transient.unusable_shares(placement, map(uid_of, self._slots.living_pods(placement)))

    def _unreachable(self, objects: _GangObjects) -> dict[str, str]:
        malformed = dict.fromkeys(objects.malformed_in, "shows a share of this job that cannot be read")
        unreachable = {**malformed, **self._fleet.unreachable(objects.namespace)}
        members = self._fleet.caches()
        for share in (share for placement in objects.placements for share in placement.shares):
            if share.cluster not in members and share.cluster not in unreachable:
                unreachable[share.cluster] = "has no WorkerCluster object any more"
        return unreachable


def _is_pending(workload: Workload, check: str) -> bool:
    return bool(check) and workload.checks[check].state == names.CHECK_PENDING


def _policy_facts(policy: ResolvedPolicy | None) -> PolicyFacts:
    return PolicyFacts(
        reservation_timeout=reservation_timeout(policy),
        start_timeout=worker_start_timeout(policy),
        on_share_lost=share_lost_action(policy),
        same_cluster=needs_same_cluster(policy),
        all_or_nothing=policy is not None and policy.policy.gang != "BestEffort",
        clusters=policy.clusters if policy else (),
        min_workers=policy.policy.min_workers if policy else 0,
        min_workers_timeout=min_workers_timeout(policy),
    )


def _dry_runs_of_shares(placement: Placement | None, reservations: Iterable[Reservation]) -> tuple[ClusterGroup, ...]:
    created = {reservation.key for reservation in reservations}
    shares = (
        (share for share in placement.active_shares if placement.share_key(share) not in created) if placement else ()
    )
    return tuple(dict.fromkeys((share.cluster, group.name) for share in shares for group in share.groups))


def _union(shares: Iterable[Iterable[ShareKey]]) -> frozenset[ShareKey]:
    return frozenset(key for keys in shares for key in keys)
