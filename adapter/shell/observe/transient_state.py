"""Keeps what no API object records between two reconciles; all of it may be lost.

After a restart each waiting gang is planned again, and a denied share is requested again. A gang just deactivated loses
the capacity that it gathered. The wait for a round that was planned by a clock ahead starts again, and so do the
timeouts of remote pods that are unstartable or not created. Withheld workers are planned again. An event by which
KubeRay rejects a job may be in doubt again.
"""

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from adapter.actions import WithheldWorkers
from adapter.admission import kuberay_validation
from adapter.admission.kuberay_validation import ValidationNote
from adapter.gang import timeouts
from adapter.gang.timeouts import INACTIVE_FOR, RESYNC
from adapter.objects.kuberay_events import RayClusterRevision, RejectionEvent
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.unstructured import MAX_ITEM_LENGTH, truncate
from adapter.objects.workload import Workload

# How long a deactivated gang may keep the capacity that it gathered. Kueue gives it free quota within a second; five
# are enough for a busy Kueue and our watch. A gang without quota by then waits behind another Workload, perhaps for
# hours, and must not make other gangs wait.
REACTIVATED_WITHIN = INACTIVE_FOR + timedelta(seconds=5)


# A plan that found no capacity is repeated after this time if anything changed for other gangs. It is a safety net, due
# with the resync of a waiting gang (gang/timeouts.py).
PLAN_VALID_FOR = RESYNC


# How long a wait goes on after it was first observed to be over. KubeRay deletes a replica that lacks a host and
# creates it again within seconds (kuberay:ray-operator/controllers/ray/raycluster_controller.go); a kubelet pulls an
# image again for as long. The remote pods that end meanwhile have a grace period of 30 s by default.
WAIT_REMEMBERED_FOR = timedelta(seconds=60)


# How long the manager cluster's denial of a record counts, before it is tried again.
DENIAL_REMEMBERED_FOR = timedelta(minutes=10)

_PodRefusals = dict[ShareKey, dict[str, str]]  # share -> manager pod (uid) -> reason


class TransientState:
    """Notes by uid: on Placements, shares, worker pods and deactivated gangs."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.planned_versions: dict[str, int] = {}  # the capacity version that the last plan read
        # The time of the last plan, if that depends only on the gang's own clusters.
        self.independent_since: dict[str, datetime] = {}
        # When capacity becomes free that the last plan deducted twice or left to other gangs.
        self.replan_at: dict[str, datetime] = {}
        # Of each group, how many slots no worker may take, because workers did not start there; as the last plan read
        # them.
        self.unusable_slots: dict[str, Mapping[str, int]] = {}
        # Of each group, how many workers the last plan left out.
        self.planned_without: dict[str, Mapping[str, int]] = {}
        # The Workload as it was when deactivated, and the time.
        self.deactivated: dict[str, tuple[Workload, datetime]] = {}
        self.leading_since: datetime | None = None  # None: another process may still write
        # Manager pods whose remote pods were requested, or may have been before this process led.
        self.sent_pods: set[str] = set()
        self.created_pods: set[str] = set()  # manager pods whose remote pods were created
        self.unanswered_pods: set[str] = set()  # manager pods whose create requests got no answer
        self.creations_in_flight = 0
        self._denied_records: dict[str, float] = {}  # Workloads that may not be annotated, and until when that counts
        self.undeleted_shares: dict[str, str] = {}  # shares whose deletion was denied, and why
        # When a wait began, by the monotonic clock.
        self._rounds: dict[str, dict[int, float]] = {}  # for a round, by Placement and round
        # Of workers or the gang, by Placement and what for; and the first look since at which they did not wait.
        self._waiting_since: dict[tuple[str, str], dict[str, tuple[float, float | None]]] = {}
        # The withheld workers of a Placement's shares, each with the end by the monotonic clock.
        self._withheld: dict[str, list[tuple[float, WithheldWorkers]]] = {}
        self._validations: dict[str, ValidationNote] = {}  # by RayCluster with events
        self._rejected: set[str] = set()  # RayClusters that wait and are rejected by KubeRay
        # By Placement, then by round and cluster.
        self._share_refusals: dict[str, dict[tuple[int, str], str]] = {}
        self._pod_refusals: dict[str, _PodRefusals] = {}  # share -> pod -> reason

    def start_leading(self, now: datetime, pods: Iterable[str]) -> None:
        """Record that this process leads; an earlier leader may have sent the remote pods of `pods`."""
        self.leading_since = now
        self.sent_pods |= set(pods)

    def note_plan(
        self,
        uid: str,
        version: int,
        replan_at: datetime | None,
        independent_since: datetime | None,
        unusable_slots: Mapping[str, int] | None = None,
        withheld_workers: Mapping[str, int] | None = None,
    ) -> None:
        """Record the plan of a gang, its capacity version, and when to repeat it though nothing changed.

        `independent_since` is the time of a plan that found no capacity on its own clusters, whatever other gangs are
        promised or take. `unusable_slots` are those that the plan did not count, by group, and `withheld_workers` those
        for which it took none.
        """
        self.planned_versions[uid] = version
        for notes, when in (self.replan_at, replan_at), (self.independent_since, independent_since):
            notes.pop(uid, None)
            if when:
                notes[uid] = when
        for counts, planned in (self.unusable_slots, unusable_slots), (self.planned_without, withheld_workers):
            counts.pop(uid, None)
            if planned:
                counts[uid] = planned

    def withhold_workers(self, uid: str, workers: WithheldWorkers, duration: timedelta) -> None:
        """Let plans of this Placement leave out these workers for a while."""
        self._withheld.setdefault(uid, []).append((self._monotonic() + duration.total_seconds(), workers))

    def withheld_workers(self, uid: str, now: datetime) -> tuple[Sequence[WithheldWorkers], datetime | None]:
        """The withheld workers of a Placement, and when the first of them are planned again by the clock of `now`."""
        monotonic = self._monotonic()
        notes = [note for note in self._withheld.pop(uid, ()) if note[0] > monotonic]
        if not notes:
            return (), None
        self._withheld[uid] = notes
        return [workers for _, workers in notes], now + timedelta(seconds=min(end for end, _ in notes) - monotonic)

    def withheld_for(self, uid: str, pod: str) -> timedelta | None:
        """For how long a manager pod (uid) of a Placement gets no slot; None if it may have one."""
        ends = (end for end, workers in self._withheld.get(uid, ()) if pod in workers.pods)
        remaining = max(ends, default=0.0) - self._monotonic()
        return timedelta(seconds=remaining) if remaining > 0 else None

    def is_outdated(self, uid: str, version: int, since: int) -> bool:
        """Whether something changed that the last plan read.

        `since`: the version of the last change in the gang's own clusters; `version`: of the last change of anything.
        """
        return self.planned_versions.get(uid, -1) < (since if uid in self.independent_since else version)

    def forget_plan(self, uid: str) -> None:
        """Let a gang be planned again: its own request has changed."""
        self.planned_versions.pop(uid, None)

    def is_overdue(self, uid: str, version: int, now: datetime) -> bool:
        """Whether anything changed, and the last plan is older than `PLAN_VALID_FOR`."""
        since = self.independent_since.get(uid)
        return since is not None and self.planned_versions.get(uid, -1) < version and abs(now - since) >= PLAN_VALID_FOR

    def is_plan_current(self, uid: str, version: int, since: int, now: datetime) -> bool:
        """Whether the last plan is neither outdated nor due; otherwise the gang is about to be planned.

        When capacity is freed, all gangs that it helps are planned, in any order; none may take what an earlier gang
        gets.
        """
        replan_at = self.replan_at.get(uid)
        return not self.is_outdated(uid, version, since) and (replan_at is None or now < replan_at)

    def round_started_at(self, placement: Placement, now: datetime) -> datetime:
        """When the wait for the current round began, by the clock that `now` is from."""
        return self._note_rounds(placement, now)[placement.round]

    def rounds_started_at(self, placement: Placement, now: datetime) -> Mapping[int, datetime]:
        """The same for each round with a share not yet recorded as admitted."""
        return {
            number: since
            for number, since in self._note_rounds(placement, now).items()
            if number > placement.placed_round
        }

    def quota_unused_since(self, placement: Placement, is_unused: bool, now: datetime) -> datetime | None:
        """When the quota of a gang was first observed to be unused, if it is so still; by the clock of `now`."""
        gangs = [placement.uid] if is_unused else []
        return self.waiting_since("first remote pod", placement, gangs, now).get(placement.uid)

    def waiting_since(
        self, kind: str, placement: Placement, waiters: Iterable[str], now: datetime
    ) -> Mapping[str, datetime]:
        """When each of these waiters was first observed to wait; by the clock of `now`.

        `kind` says what they wait for. Other waiters of the Placement are forgotten after WAIT_REMEMBERED_FOR: what
        keeps a worker waiting may disappear for a moment, again and again, while KubeRay or a kubelet tries once more.
        """
        monotonic, noted = self._monotonic(), self._waiting_since.pop((placement.uid, kind), {})
        limit = monotonic - WAIT_REMEMBERED_FOR.total_seconds()
        notes = {waiter: note for waiter, note in noted.items() if note[1] is None or note[1] > limit}
        since = {waiter: notes.get(waiter, (monotonic, None))[0] for waiter in waiters}
        absent = {waiter: (start, monotonic if unseen is None else unseen) for waiter, (start, unseen) in notes.items()}
        if notes := {**absent, **{waiter: (start, None) for waiter, start in since.items()}}:
            self._waiting_since[placement.uid, kind] = notes
        return {waiter: now - timedelta(seconds=monotonic - start) for waiter, start in since.items()}

    def note_validation(
        self, ray_cluster: str, revision: RayClusterRevision, event: RejectionEvent
    ) -> tuple[ValidationNote, float]:
        """Record the RayCluster and its newest event, as observed now; returns the note and the monotonic time."""
        monotonic = self._monotonic()
        note = kuberay_validation.update_note(self._validations.get(ray_cluster), revision, event, monotonic)
        self._validations[ray_cluster] = note
        return note, monotonic

    def note_rejected(self, ray_cluster: str, *, is_rejected: bool) -> bool:
        """Record whether KubeRay rejects a RayCluster that waits; returns whether that has changed."""
        has_changed = (ray_cluster in self._rejected) != is_rejected
        (self._rejected.add if is_rejected else self._rejected.discard)(ray_cluster)
        return has_changed

    def _note_rounds(self, placement: Placement, now: datetime) -> Mapping[int, datetime]:
        """When the wait for each of these rounds began.

        Its first observation settles that. From then on the wait is measured by the monotonic clock: `now` may be put
        back or forward meanwhile.
        """
        rounds = {
            placement.round,
            *(number for number in map(placement.round_of, placement.shares) if number > placement.placed_round),
        }
        monotonic, started = self._monotonic(), self._rounds.get(placement.uid, {})
        at_first = monotonic - (now - timeouts.round_started_at(placement, now)).total_seconds()
        self._rounds[placement.uid] = {number: started.get(number, at_first) for number in rounds}
        return {
            number: now - timedelta(seconds=monotonic - since) for number, since in self._rounds[placement.uid].items()
        }

    def note_deactivated(self, workload: Workload, now: datetime) -> None:
        """Record a deactivated gang, because its Workload loses the fields by which it is planned."""
        self.deactivated = {uid: note for uid, note in self.deactivated.items() if now - note[1] < REACTIVATED_WITHIN}
        self.deactivated[workload.uid] = workload, now

    def note_record_denied(self, workload: str) -> None:
        """Record that the manager cluster denies what an attempt records on its Workload (uid)."""
        monotonic = self._monotonic()
        self._denied_records = {uid: until for uid, until in self._denied_records.items() if until > monotonic}
        self._denied_records[workload] = monotonic + DENIAL_REMEMBERED_FOR.total_seconds()

    def is_record_denied(self, workload: str) -> bool:
        return self._denied_records.get(workload, 0.0) > self._monotonic()

    def note_share_refused(self, placement: Placement, cluster: str, reason: str) -> None:
        refusals = self._share_refusals.get(placement.uid, {})
        current = {key: text for key, text in refusals.items() if key[0] == placement.round}
        self._share_refusals[placement.uid] = {**current, (placement.round, cluster): reason}

    def note_share_accepted(self, placement: Placement, cluster: str) -> None:
        self._share_refusals.get(placement.uid, {}).pop((placement.round, cluster), None)

    def share_refusals(self, placement: Placement) -> dict[str, str]:
        """The clusters that denied a share of the current round, with the reason."""
        refusals = self._share_refusals.get(placement.uid, {})
        return {cluster: reason for (round_, cluster), reason in refusals.items() if round_ == placement.round}

    def note_pod_refused(self, placement: Placement, share: ShareKey, pod: str, reason: str) -> None:
        self._pod_refusals.setdefault(placement.uid, {}).setdefault(share, {})[pod] = truncate(reason, MAX_ITEM_LENGTH)

    def note_pod_accepted(self, placement: Placement, share: ShareKey) -> None:
        self._pod_refusals.get(placement.uid, {}).pop(share, None)

    def unusable_shares(self, placement: Placement, pods: Iterable[str]) -> dict[ShareKey, str]:
        """The shares whose clusters denied one of `pods` (uids), with the last reason."""
        uids, refusals = set(pods), self._pod_refusals.get(placement.uid, {})
        reasons = {
            share: [reason for pod, reason in by_pod.items() if pod in uids] for share, by_pod in refusals.items()
        }
        return {share: texts[-1] for share, texts in reasons.items() if texts}

    def keep_only(
        self,
        placements: Iterable[str],
        pods: Iterable[str],
        ray_clusters: Iterable[str],
        shares: Iterable[str],
    ) -> None:
        placement_uids, share_uids = set(placements), set(shares)
        pod_uids, ray_cluster_uids = set(pods), set(ray_clusters)
        self._rejected &= ray_cluster_uids
        self._validations = {uid: note for uid, note in self._validations.items() if uid in ray_cluster_uids}
        self.sent_pods &= pod_uids
        self.created_pods &= pod_uids
        self.unanswered_pods &= pod_uids
        self.undeleted_shares = {uid: reason for uid, reason in self.undeleted_shares.items() if uid in share_uids}
        self.planned_versions = {
            uid: version for uid, version in self.planned_versions.items() if uid in placement_uids
        }
        self.replan_at = {uid: when for uid, when in self.replan_at.items() if uid in placement_uids}
        self.unusable_slots = {uid: slots for uid, slots in self.unusable_slots.items() if uid in placement_uids}
        self.planned_without = {uid: counts for uid, counts in self.planned_without.items() if uid in placement_uids}
        self._withheld = {uid: notes for uid, notes in self._withheld.items() if uid in placement_uids}
        self.independent_since = {uid: when for uid, when in self.independent_since.items() if uid in placement_uids}
        self._rounds = {uid: times for uid, times in self._rounds.items() if uid in placement_uids}
        self._waiting_since = {key: since for key, since in self._waiting_since.items() if key[0] in placement_uids}
        self._share_refusals = {uid: notes for uid, notes in self._share_refusals.items() if uid in placement_uids}
        self._pod_refusals = {
            uid: _refusals_of_pods(notes, pod_uids)
            for uid, notes in self._pod_refusals.items()
            if uid in placement_uids
        }


def _refusals_of_pods(refusals: Mapping[ShareKey, Mapping[str, str]], pods: Container[str]) -> _PodRefusals:
    """The refusals of these pods (uids) alone; a job that runs for a week has had thousands."""
    remaining = {
        share: {pod: reason for pod, reason in reasons.items() if pod in pods} for share, reasons in refusals.items()
    }
    return {share: reasons for share, reasons in remaining.items() if reasons}
