"""The facts that a gang's next actions depend on: its Workload, its Placements, its shares and its pods.

shell/observe/gang_observer.py reads them from the stores; lifecycle.py and the modules that it calls decide on them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from adapter import names
from adapter.gang.drain_order import GangWorkers
from adapter.objects.placement import Placement, Share, ShareKey
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Workload
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.rewrite.target import Target


@dataclass(frozen=True, slots=True)
class GangJobFacts:
    """Whether the job may run, and with which worker groups. Read by lifecycle.py, elastic.py and reserve.py."""

    deleted: bool  # the RayJob or RayCluster is deleted, or about to be; its Workload follows
    unsuspended: bool  # an elastic job that Kueue has let run, whatever its present Workload lacks
    remote_podsets: tuple[str, ...]  # worker groups that are to be placed
    idle_podsets: tuple[str, ...]  # worker groups that have no workers now; their templates are locked all the same
    rejection: str  # why this job can never run remotely
    planning_problem: str  # why no plan can be made: parameters, missing admission policy
    missing_object: str  # which Secret or ConfigMap the workers need and the manager cluster lacks
    start_warning: str  # a sentence for the user when the job starts
    waiting_warning: str  # a sentence on what becomes of workers that wait for long


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """What the DispatchPolicy says. Read by timeouts.py, running.py and start_timeout.py."""

    reservation_timeout: timedelta
    start_timeout: timedelta  # a worker that has not started after this long is to start elsewhere
    on_share_lost: Literal["Replace", "Restart"]
    same_cluster: bool  # all workers must be in one cluster

    @property
    def restarts_on_share_loss(self) -> bool:
        return self.on_share_lost == "Restart"


@dataclass(frozen=True, slots=True)
class GangClusterFacts:
    """The state of the worker clusters. Read by running.py, reserve.py, start_timeout.py and dry_run.py."""

    unreachable: Mapping[str, str]  # cluster -> why it cannot be observed now
    lost: Mapping[str, str]  # clusters whose workers count as lost -> why
    draining: frozenset[str]  # clusters that workers are to leave
    targets: Mapping[str, Target]  # of this attempt's shares in reachable clusters; share and round are not filled in


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """The shares as the worker clusters have them. Read by reserve.py, cleanup.py and scale_up.py."""

    reservations: tuple[Reservation, ...]  # in reachable clusters
    creation_denials: Mapping[str, str]  # clusters that denied to create a share of this round -> why
    deletion_denials: Mapping[str, str]  # uids of shares whose deletion was denied -> why
    ending_pods: Mapping[str, tuple[Raw, ...]]  # uids of shares to be deleted -> remote pods that have not ended
    round_first_seen: datetime | None  # when this process first observed the present round
    first_seen_by_round: Mapping[int, datetime]  # the same for each round with a share not recorded as admitted


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The pods by share. Read by running.py, start_timeout.py and scale_up.py."""

    shares_with_pods: frozenset[ShareKey]  # a pod is on them, in the manager or in a worker cluster
    shares_with_manager_pods: frozenset[ShareKey]  # a manager pod is on them, also one that has failed
    shares_with_live_manager_pods: frozenset[ShareKey]  # a manager pod is on them that has not failed
    shares_with_remote_pods: frozenset[ShareKey]  # a remote pod is on them, or was when last observed
    has_unplaced_workers: bool  # a manager pod waits for a slot
    pod_denials: Mapping[ShareKey, str]  # shares whose pods were denied -> why
    pods_to_drain: tuple[tuple[str, Raw], ...]  # cluster and remote pod: those that leave a drained cluster next
    workers: GangWorkers | None  # all workers, as long as not all of them are ready


@dataclass(frozen=True, slots=True)
class CapacityFacts:
    """Whether waiting for capacity is of use. Read by timeouts.py, requeue.py and running.py."""

    changed_since_plan: bool
    deductions_expire_at: datetime | None  # when capacity is free that the last plan deducted twice or left to others
    quota_contended_from: datetime | None  # when Workloads that queue behind this one start to count


@dataclass(frozen=True, slots=True)
class DryRunFacts:
    """Dry runs of remote pods, by cluster and worker group. Read by dry_run.py and reserve.py."""

    results: Mapping[tuple[str, str], DryRunResult]
    missing_for_shares: tuple[tuple[str, str], ...]  # for shares that do not exist yet, in reachable clusters
    missing_for_plan: tuple[tuple[str, str], ...]  # for shares that the last plan would take, in reachable clusters


@dataclass(frozen=True, slots=True)
class Gang:
    """All facts about the gang of one manager's Workload."""

    workload: Workload | None
    check: str  # name of our AdmissionCheck on the Workload; empty when it has none
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
        """The Placement of the present attempt; a running elastic job keeps its Placement through all of its slices."""
        return current_placement(self.workload, self.placements, self.job.unsuspended)

    @property
    def elastic_placement(self) -> Placement | None:
        """The Placement of an elastic job, whatever attempt it was last made for."""
        return next((placement for placement in self.placements if placement.job), None)

    @property
    def is_running(self) -> bool:
        """Whether the job runs, or is about to."""
        ready = self.workload and self.check and self.workload.checks[self.check].state == names.CHECK_READY
        return bool(ready) or self.job.unsuspended

    @property
    def wanted_workers(self) -> Mapping[str, int]:
        """Number of workers that each group to be placed wants."""
        podsets = self.workload.podsets if self.workload else ()
        return {podset.name: podset.count for podset in podsets if podset.name in self.job.remote_podsets}

    def reservations_of(self, placement: Placement, shares: Iterable[Share]) -> dict[Share, Reservation | None]:
        """Map each share of a Placement to its reservation, None where it has none."""
        observed = {(r.cluster, r.round): r for r in self.shares.reservations if r.placement == placement.name}
        return {share: observed.get(placement.share_key(share)) for share in shares}

    def without_reservations(self, leftovers: Iterable[Reservation]) -> "Gang":
        """Leave out reservations that are to be deleted."""
        dropped = tuple(leftovers)
        if not dropped:
            return self
        remaining = tuple(reservation for reservation in self.shares.reservations if reservation not in dropped)
        return replace(self, shares=replace(self.shares, reservations=remaining))


def current_placement(
    workload: Workload | None, placements: Iterable[Placement], unsuspended: bool
) -> Placement | None:
    """The Placement of a Workload's attempt, None when there is none."""
    if workload is None or not workload.attempt:
        return None
    return next((p for p in placements if p.attempt == workload.attempt or (p.job and unsuspended)), None)
