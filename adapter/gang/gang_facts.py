"""The facts that a gang's next actions depend on: its Workload, its Placements, its shares and its pods.

shell/observe/gang_observer.py reads them from the stores.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from adapter import names
from adapter.gang.drain_order import GangWorkers
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.placement import Placement, Share, ShareKey
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Workload
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.rewrite.target import Target


@dataclass(frozen=True, slots=True)
class GangJobFacts:
    deleted: bool  # or about to be; its Workload is deleted next
    unsuspended: bool  # an elastic job that Kueue lets run, whatever its Workload lacks
    remote_podsets: tuple[str, ...]  # worker groups to place
    idle_podsets: tuple[str, ...]  # worker groups without workers now; their pods are locked, too
    rejection: str  # why the job can never run remotely
    planning_problem: str  # why it cannot be planned now, such as its parameters or a missing admission policy
    missing_object: str  # a Secret or ConfigMap that the manager cluster lacks
    kuberay_rejection: str  # KubeRay's own reason why it creates no pods for the job as it is
    unlabelled_hosts: str  # why no replica of several hosts can be placed, although the job has pods
    start_warning: str
    portability_warning: str  # what its workers refer to that only the manager has
    waiting_warning: str  # what becomes of workers that wait for long
    move_warning: str  # what is ignored of the clusters that it names to leave
    relay: str  # the identity of its relayed network; empty: it has none
    record_denied: bool  # the manager cluster denies what an attempt records on the Workload


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    reservation_timeout: timedelta
    start_timeout: timedelta  # after which a late worker moves
    on_share_lost: Literal["Replace", "Restart"]
    same_cluster: bool
    all_or_nothing: bool  # all workers must start; also of a gang in one cluster
    clusters: tuple[str, ...]  # empty: the policy cannot be read
    min_workers: int  # of a BestEffort gang; 0: another gang's
    min_workers_timeout: timedelta | None  # None: a gang with fewer workers than its minimum goes on

    @property
    def restarts_on_share_loss(self) -> bool:
        return self.on_share_lost == "Restart"


@dataclass(frozen=True, slots=True)
class GangClusterFacts:
    unreachable: Mapping[str, str]  # cluster -> reason
    lost: Mapping[str, str]  # cluster -> why its workers count as lost
    draining: frozenset[str]  # by their admins, or left by this job alone
    growing: frozenset[str]  # an autoscaler adds nodes there
    targets: Mapping[str, Target]  # reachable cluster -> target of the attempt, share and round not set
    clocks: ClockOffsets  # of the clusters with a share

    @property
    def closed(self) -> frozenset[str]:
        """The clusters in which no worker is created now."""
        return self.draining | self.unreachable.keys()


@dataclass(frozen=True, slots=True)
class ShareFacts:
    reservations: tuple[Reservation, ...]  # in reachable clusters
    creation_denials: Mapping[str, str]  # for shares of this round, cluster -> reason
    deletion_denials: Mapping[str, str]  # uid of a share -> reason
    ending_pods: Mapping[str, tuple[Raw, ...]]  # uid of a share to delete -> remote pods
    round_started_at: datetime | None  # when the wait for the current round began; never in the future
    started_at_by_round: Mapping[int, datetime]  # the same for each round with a share not recorded as admitted
    last_round: int  # of the shares and pods that a deleted Placement has left; 0 while there is a Placement


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """How many workers a RayCluster has, and should have; of the worker groups to place."""

    running: int
    desired: int
    fewest: int  # to which an autoscaler may reduce them
    unknown: int = 0  # they may run: their clusters are unreachable, and they do not count as lost
    created: datetime | None = None  # the RayCluster; KubeRay creates another one for a RayJob's next try


@dataclass(frozen=True, slots=True)
class PodFacts:
    shares_with_pods: frozenset[ShareKey]  # in any cluster
    shares_with_manager_pods: frozenset[ShareKey]  # failed pods count
    shares_with_live_manager_pods: frozenset[ShareKey]  # failed pods do not count
    shares_with_remote_pods: frozenset[ShareKey]  # now, or when last observed
    has_unplaced_workers: bool
    pod_denials: Mapping[ShareKey, str]  # share -> reason
    pods_to_drain: tuple[tuple[str, Raw], ...]  # cluster and remote pod
    workers: GangWorkers | None  # None while all are ready
    # Uid of a manager pod -> when this process first observed that its remote pod is unstartable.
    unstartable_since: Mapping[str, datetime]
    # The same for a worker whose slot holds quota, but whose remote pod is not created (uncreated_workers.py).
    uncreated_since: Mapping[str, datetime]
    quota_unused_since: datetime | None  # when this process first observed that the gang has unused quota
    withheld_workers: Mapping[str, int]  # by group; `workers` is without them (withheld_workers.py)
    withheld_until: datetime | None  # when the first of them are planned again
    # None: the policy has no minWorkersTimeout, or no minimum applies now, as to a suspended job.
    worker_counts: WorkerCounts | None
    below_minimum_since: datetime | None  # when this process first observed that the gang is below its minimum


@dataclass(frozen=True, slots=True)
class CapacityFacts:
    changed_since_plan: bool
    deductions_expire_at: datetime | None  # when what the last plan deducted twice or left to other gangs may be free
    quota_contended_from: datetime | None  # when Workloads queued behind the gang start to count
    earlier_jobs_wait: bool  # the gang took its quota back before Kueue tried Workloads that were queued before


@dataclass(frozen=True, slots=True)
class DryRunFacts:
    """Dry runs by cluster and worker group."""

    results: Mapping[tuple[str, str], DryRunResult]
    missing_for_shares: tuple[tuple[str, str], ...]  # for shares to create
    missing_for_plan: tuple[tuple[str, str], ...]  # for shares that the last plan would take


@dataclass(frozen=True, slots=True)
class Gang:
    workload: Workload | None
    check: str  # our check; empty: not on the Workload
    placements: tuple[Placement, ...]
    job: GangJobFacts
    policy: PolicyFacts
    clusters: GangClusterFacts
    shares: ShareFacts
    pods: PodFacts
    capacity: CapacityFacts
    dry_runs: DryRunFacts

    @property
    def current_placement(self) -> Placement | None:
        """The attempt's Placement; a running elastic job keeps its Placement through all slices."""
        return current_placement(self.workload, self.placements, self.job.unsuspended)

    @property
    def elastic_placement(self) -> Placement | None:
        """The Placement of an elastic job, whatever its attempt."""
        return next((placement for placement in self.placements if placement.job), None)

    @property
    def is_running(self) -> bool:
        ready = self.workload and self.check and self.workload.checks[self.check].state == names.CHECK_READY
        return bool(ready) or self.job.unsuspended

    @property
    def wanted_workers(self) -> Mapping[str, int]:
        """Wanted workers of each group to place."""
        podsets = self.workload.podsets if self.workload else ()
        return {podset.name: podset.count for podset in podsets if podset.name in self.job.remote_podsets}

    @property
    def workers_to_place(self) -> Mapping[str, int]:
        """Wanted workers of each group, without those that are withheld."""
        withheld = self.pods.withheld_workers
        return {group: max(count - withheld.get(group, 0), 0) for group, count in self.wanted_workers.items()}

    def reservations_of(self, placement: Placement, shares: Iterable[Share]) -> dict[Share, Reservation | None]:
        observed = {(r.cluster, r.round): r for r in self.shares.reservations if r.placement == placement.name}
        return {share: observed.get(placement.share_key(share)) for share in shares}

    def without_reservations(self, leftovers: Iterable[Reservation]) -> "Gang":
        dropped = tuple(leftovers)
        if not dropped:
            return self
        remaining = tuple(reservation for reservation in self.shares.reservations if reservation not in dropped)
        return replace(self, shares=replace(self.shares, reservations=remaining))


def current_placement(
    workload: Workload | None, placements: Iterable[Placement], unsuspended: bool
) -> Placement | None:
    if workload is None or not workload.attempt:
        return None
    return next((p for p in placements if p.attempt == workload.attempt or (p.job and unsuspended)), None)
