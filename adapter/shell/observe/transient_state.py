"""What is remembered between two looks although no API object says it: only what may be lost at any time.

After a restart each waiting gang is planned once more, a share that was refused is asked for once more, a gang that is out of the
queue for a moment loses the room that it gathered, and a round that a clock ahead of ours has planned is waited for anew.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from adapter.gang.timeouts import INACTIVE_FOR, RESYNC
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.workload import Workload

# How long a gang that steps aside may keep what it gathered. Once it is back in the queue, Kueue gives it free quota within
# a second; five are enough for a busy one and for our watch. Who does not hold it by then waits behind somebody else, for
# hours perhaps, and whoever could use the room shall not wait for that.
REACTIVATED_WITHIN = INACTIVE_FOR + timedelta(seconds=5)


# When a plan that found no room, and for which nothing has changed since, is made once more if anything has changed for others: a net
# under what is told of changes, as the resync of a gang that waits (gang/timeouts.py), with which it comes due.
PLAN_VALID_FOR = RESYNC


class TransientState:
    """Notes about Placements, shares and worker pods, by uid, and about gangs that stepped aside."""

    def __init__(self) -> None:
        self.planned_versions: dict[str, int] = {}  # the room version that the last plan saw
        self.independent_since: dict[
            str, datetime
        ] = {}  # when it was made, where it rests on nothing but figures of its own clusters
        self.replan_at: dict[str, datetime] = {}  # when what the last plan deducted twice, or left to others, is free
        self.deactivated: dict[
            str, tuple[Workload, datetime]
        ] = {}  # by uid: who stepped aside, as it was then, and when
        self.leading_since: datetime | None = None  # None: others may write still
        # Worker pods of the manager whose copies were asked for, whatever came of it, or may have been before this process led.
        self.sent_pods: set[str] = set()
        self.created_pods: set[str] = set()  # and those whose copies were made
        self.unanswered_pods: set[str] = set()  # and those of whose copies no answer says whether they were made
        self.creations_in_flight = 0  # how many are asked for now
        self.undeleted_shares: dict[str, str] = {}  # by uid: shares that their clusters would not have deleted, and why
        self._rounds: dict[str, dict[int, datetime]] = {}  # round of a Placement -> when it was seen first
        self._share_refusals: dict[
            str, dict[tuple[int, str], str]
        ] = {}  # round and cluster -> what its API server said
        self._pod_refusals: dict[str, dict[ShareKey, dict[str, str]]] = {}  # share -> pod -> why

    def start_leading(self, now: datetime, pods: Iterable[str]) -> None:
        """Note that this process leads from now on, and which worker pods it found: whoever led before may have sent their copies."""
        self.leading_since = now
        self.sent_pods |= set(pods)

    def note_plan(self, uid: str, version: int, replan_at: datetime | None, independent_since: datetime | None) -> None:
        """Note that a gang was planned as of a room version, and when anew unasked; `alone`: when, if it found no room on what its own
        clusters show, and nothing that others are promised, or take before it, counted."""
        self.planned_versions[uid] = version
        for notes, when in (self.replan_at, replan_at), (self.independent_since, independent_since):
            notes.pop(uid, None)
            if when:
                notes[uid] = when

    def is_outdated(self, uid: str, version: int, since: int) -> bool:
        """Whether something has changed that the last plan read; `since` is the version of the last change of what its own clusters
        show, `version` that of the last change of anything."""
        return self.planned_versions.get(uid, -1) < (since if uid in self.independent_since else version)

    def is_overdue(self, uid: str, version: int, now: datetime) -> bool:
        """Whether anything at all has changed, and the last plan is old."""
        made = self.independent_since.get(uid)
        return made is not None and self.planned_versions.get(uid, -1) < version and abs(now - made) >= PLAN_VALID_FOR

    def is_plan_current(self, uid: str, version: int, since: int, now: datetime) -> bool:
        """Whether the last plan saw all that there is, and would still see the same: else its gang is about to be planned.

        When a pause begins, all that it helps are planned in any order, and none shall take what an earlier one gets.
        """
        settles = self.replan_at.get(uid)
        return not self.is_outdated(uid, version, since) and (settles is None or now < settles)

    def round_first_seen(self, placement: Placement, now: datetime) -> datetime:
        """When the round that a Placement is in was seen first."""
        return self._note_rounds(placement, now)[placement.round]

    def rounds_first_seen(self, placement: Placement, now: datetime) -> Mapping[int, datetime]:
        """The same of each round that has a share which was not noted as admitted."""
        return {
            number: since
            for number, since in self._note_rounds(placement, now).items()
            if number > placement.placed_round
        }

    def _note_rounds(self, placement: Placement, now: datetime) -> Mapping[int, datetime]:
        rounds = {
            placement.round,
            *(number for number in map(placement.round_of, placement.shares) if number > placement.placed_round),
        }
        known = self._rounds.get(placement.uid, {})
        self._rounds[placement.uid] = {number: known.get(number, now) for number in rounds}
        return self._rounds[placement.uid]

    def note_deactivated(self, workload: Workload, now: datetime) -> None:
        """Note that a gang leaves the manager's queue for a moment, which takes from its Workload what it is planned by."""
        self.deactivated = {uid: note for uid, note in self.deactivated.items() if now - note[1] < REACTIVATED_WITHIN}
        self.deactivated[workload.uid] = workload, now

    def note_share_refused(self, placement: Placement, cluster: str, reason: str) -> None:
        """Note that a cluster refused to have its share made."""
        self._share_refusals.setdefault(placement.uid, {})[placement.round, cluster] = reason

    def note_share_accepted(self, placement: Placement, cluster: str) -> None:
        """Note that it did not, after all."""
        self._share_refusals.get(placement.uid, {}).pop((placement.round, cluster), None)

    def share_refusals(self, placement: Placement) -> dict[str, str]:
        """Which clusters refused this round's share, and why."""
        found = self._share_refusals.get(placement.uid, {})
        return {cluster: why for (round_, cluster), why in found.items() if round_ == placement.round}

    def note_pod_refused(self, placement: Placement, share: ShareKey, pod: str, reason: str) -> None:
        """Note that a cluster refused to have a pod made on a share."""
        self._pod_refusals.setdefault(placement.uid, {}).setdefault(share, {})[pod] = reason

    def note_pod_accepted(self, placement: Placement, share: ShareKey) -> None:
        """Note that it made one, after all."""
        self._pod_refusals.get(placement.uid, {}).pop(share, None)

    def unusable_shares(self, placement: Placement, pods: Iterable[str]) -> dict[ShareKey, str]:
        """The shares that were refused one of these pods, and why: what was said of others, their siblings need not hear."""
        wanted, found = set(pods), self._pod_refusals.get(placement.uid, {})
        told = {share: [why for pod, why in notes.items() if pod in wanted] for share, notes in found.items()}
        return {share: why[-1] for share, why in told.items() if why}

    def keep_only(self, placements: Iterable[str], pods: Iterable[str], shares: Iterable[str]) -> None:
        """Forget all but these."""
        alive, standing = set(placements), set(shares)
        there = set(pods)
        self.sent_pods &= there
        self.created_pods &= there
        self.unanswered_pods &= there
        self.undeleted_shares = {uid: why for uid, why in self.undeleted_shares.items() if uid in standing}
        self.planned_versions = {uid: version for uid, version in self.planned_versions.items() if uid in alive}
        self.replan_at = {uid: when for uid, when in self.replan_at.items() if uid in alive}
        self.independent_since = {uid: when for uid, when in self.independent_since.items() if uid in alive}
        self._rounds = {uid: seen for uid, seen in self._rounds.items() if uid in alive}
        self._share_refusals = {uid: notes for uid, notes in self._share_refusals.items() if uid in alive}
        self._pod_refusals = {uid: notes for uid, notes in self._pod_refusals.items() if uid in alive}
