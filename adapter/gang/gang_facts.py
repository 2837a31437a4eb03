"""What does the fate of a gang depend on: the facts about one manager's Workload, its Placements and its shares.

Read from the stores by shell/observe/gang_observer.py; lifecycle.py and the modules behind it decide from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from adapter import names
from adapter.gang.drain_order import Gathered
from adapter.objects.placement import Placement, Share, ShareKey
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Workload
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.rewrite.target import Target


@dataclass(frozen=True, slots=True)
class Gang:
    """Everything that the fate of one Workload depends on."""

    workload: Workload | None
    check: str  # name of our AdmissionCheck on it; empty when it has none
    placements: tuple[Placement, ...]
    reservations: tuple[Reservation, ...]  # as far as clusters can be seen
    silent: Mapping[str, str]  # clusters that cannot be seen now, and why
    refused: Mapping[str, str]  # clusters that refused to have this round's share made, and why
    timeout: timedelta
    problem: str  # why no plan can be made at all: parameters, missing admission policy
    refusal: str  # why this job can never run remotely
    others_wait_from: datetime | None  # from when on somebody counts who queues behind us for the manager's quota
    room_changed: bool  # since the last plan of this gang
    remote_podsets: tuple[str, ...]  # the worker groups that are to be placed
    targets: Mapping[
        str, Target
    ]  # of this attempt's shares, for clusters that can be seen; their share and round are not filled in
    idle_podsets: tuple[str, ...] = ()  # worker groups that have no workers now, and are locked away all the same
    absent: str = ""  # which Secret or ConfigMap its workers need and the manager does not have now
    job_gone: bool = False  # the RayJob or RayCluster is deleted, or about to be: its Workload follows
    settles: datetime | None = None  # when what the last plan deducted twice, or left to others, is free
    on_share_lost: Literal["Replace", "Restart"] = "Replace"
    given_up: Mapping[str, str] = field(default_factory=dict)  # clusters whose workers count as lost, and why
    draining: frozenset[str] = frozenset()  # clusters that workers are to leave
    movers: tuple[tuple[str, Raw], ...] = ()  # cluster and copy: workers whose turn it is to leave one that is drained
    occupied: frozenset[ShareKey] = frozenset()  # shares that a pod is on, here or there
    unplaced: bool = False  # a pod of the manager waits for a slot
    here: frozenset[ShareKey] = frozenset()  # those that a pod of the manager is on, also one that has failed
    there: frozenset[ShareKey] = frozenset()  # those that a copy is on, or was when its cluster was seen last
    unusable: Mapping[ShareKey, str] = field(default_factory=dict)  # shares whose pods were refused, and why
    unreleased: Mapping[str, str] = field(default_factory=dict)  # by uid: shares that could not be deleted, and why
    # By uid: the copies on shares that are to go, but for those that have ended or count as gone.
    ending: Mapping[str, tuple[Raw, ...]] = field(default_factory=dict)
    alive: frozenset[ShareKey] = frozenset()  # those that a pod of the manager is on that has not failed
    first_seen: datetime | None = None  # when this process saw the round that stands for the first time
    # By round: the same of each that has a share which was not noted as admitted.
    seen_since: Mapping[int, datetime] = field(default_factory=dict)
    workers: Gathered | None = None  # while not all of them are ready
    start_timeout: timedelta = timedelta(minutes=15)  # after which a worker that did not start is to start elsewhere
    together: bool = False  # all of its workers must be in one cluster
    unsuspended: bool = False  # an elastic job, and it is let run: whatever its Workload of now lacks
    caution: str = ""  # what its user is to know when it starts, a sentence
    impatience: str = ""  # what becomes of its workers that wait for long, a sentence
    # By cluster and worker group: what copies would be there, as far as that is known; and who that can be seen is yet to be asked, of the
    # shares that stand nowhere, and of those that the last plan would take.
    tried: Mapping[tuple[str, str], DryRunResult] = field(default_factory=dict)
    untried: tuple[tuple[str, str], ...] = ()
    untried_by_plan: tuple[tuple[str, str], ...] = ()

    @property
    def current(self) -> Placement | None:
        """The Placement of the present attempt; that of an elastic job which runs is so through all of its slices."""
        return current(self.workload, self.placements, self.unsuspended)

    @property
    def chain(self) -> Placement | None:
        """The Placement of an elastic job, whatever attempt it was made for last."""
        return next((place for place in self.placements if place.job), None)

    @property
    def runs(self) -> bool:
        """Whether its job runs, or is about to."""
        ready = self.workload and self.check and self.workload.checks[self.check].state == names.CHECK_READY
        return bool(ready) or self.unsuspended

    def standing(self, place: Placement, shares: Iterable[Share]) -> dict[Share, Reservation | None]:
        """What stands for each of these shares of a Placement."""
        found = {(one.cluster, one.round): one for one in self.reservations if one.placement == place.name}
        return {share: found.get(place.share_key(share)) for share in shares}

    @property
    def wanted(self) -> Mapping[str, int]:
        """How many workers each group that is to be placed wants."""
        podsets = self.workload.podsets if self.workload else ()
        return {podset.name: podset.count for podset in podsets if podset.name in self.remote_podsets}


def current(work: Workload | None, placements: Iterable[Placement], unsuspended: bool) -> Placement | None:
    """The Placement that stands for a Workload's attempt, None when there is none."""
    if work is None or not work.attempt:
        return None
    return next((p for p in placements if p.attempt == work.attempt or (p.job and unsuspended)), None)
