"""What is remembered between two looks although no API object says it: only what may be lost at any time.

After a restart each waiting gang is planned once more, a share that was refused is asked for once more, a gang that is out of the
queue for a moment loses the room that it gathered, and a round that a clock ahead of ours has planned is waited for anew.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from adapter.gang.timeouts import AWAY, RESYNC
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.workload import Workload

# How long a gang that steps aside may keep what it gathered. Once it is back in the queue, Kueue gives it free quota within
# a second; five are enough for a busy one and for our watch. Who does not hold it by then waits behind somebody else, for
# hours perhaps, and whoever could use the room shall not wait for that.
BACK_WITHIN = AWAY + timedelta(seconds=5)


# When a plan that found no room, and for which nothing has changed since, is made once more if anything has changed for others: a net
# under what is told of changes, as the resync of a gang that waits (gang/timeouts.py), with which it comes due.
SURE_FOR = RESYNC


class Memory:
    """Notes about Placements, shares and worker pods, by uid, and about gangs that stepped aside."""

    def __init__(self) -> None:
        self.planned: dict[str, int] = {}  # the room version that the last plan saw
        self.alone: dict[
            str, datetime
        ] = {}  # when it was made, where it rests on nothing but figures of its own clusters
        self.settles: dict[str, datetime] = {}  # when what the last plan deducted twice, or left to others, is free
        self.aside: dict[str, tuple[Workload, datetime]] = {}  # by uid: who stepped aside, as it was then, and when
        self.leads_since: datetime | None = None  # None: others may write still
        # Worker pods of the manager whose copies were asked for, whatever came of it, or may have been before this process led.
        self.sent: set[str] = set()
        self.made: set[str] = set()  # and those whose copies were made
        self.unanswered: set[str] = set()  # and those of whose copies no answer says whether they were made
        self.making = 0  # how many are asked for now
        self.unreleased: dict[str, str] = {}  # by uid: shares that their clusters would not have deleted, and why
        self._rounds: dict[str, dict[int, datetime]] = {}  # round of a Placement -> when it was seen first
        self._refused: dict[str, dict[tuple[int, str], str]] = {}  # round and cluster -> what its API server said
        self._unusable: dict[str, dict[ShareKey, dict[str, str]]] = {}  # share -> pod -> why

    def lead(self, now: datetime, pods: Iterable[str]) -> None:
        """Note that this process leads from now on, and which worker pods it found: whoever led before may have sent their copies."""
        self.leads_since = now
        self.sent |= set(pods)

    def note_plan(self, uid: str, version: int, settles: datetime | None, alone: datetime | None) -> None:
        """Note that a gang was planned as of a room version, and when anew unasked; `alone`: when, if it found no room on what its own
        clusters show, and nothing that others are promised, or take before it, counted."""
        self.planned[uid] = version
        for notes, when in (self.settles, settles), (self.alone, alone):
            notes.pop(uid, None)
            if when:
                notes[uid] = when

    def outdated(self, uid: str, version: int, since: int) -> bool:
        """Whether something has changed that the last plan read; `since` is the version of the last change of what its own clusters
        show, `version` that of the last change of anything."""
        return self.planned.get(uid, -1) < (since if uid in self.alone else version)

    def overdue(self, uid: str, version: int, now: datetime) -> bool:
        """Whether anything at all has changed, and the last plan is old."""
        made = self.alone.get(uid)
        return made is not None and self.planned.get(uid, -1) < version and abs(now - made) >= SURE_FOR

    def looked(self, uid: str, version: int, since: int, now: datetime) -> bool:
        """Whether the last plan saw all that there is, and would still see the same: else its gang is about to be planned.

        When a pause begins, all that it helps are planned in any order, and none shall take what an earlier one gets.
        """
        settles = self.settles.get(uid)
        return not self.outdated(uid, version, since) and (settles is None or now < settles)

    def first_seen(self, place: Placement, now: datetime) -> datetime:
        """When the round that a Placement is in was seen first."""
        return self._seen(place, now)[place.round]

    def seen_since(self, place: Placement, now: datetime) -> Mapping[int, datetime]:
        """The same of each round that has a share which was not noted as admitted."""
        return {number: since for number, since in self._seen(place, now).items() if number > place.placed_round}

    def _seen(self, place: Placement, now: datetime) -> Mapping[int, datetime]:
        rounds = {place.round, *(number for number in map(place.round_of, place.shares) if number > place.placed_round)}
        known = self._rounds.get(place.uid, {})
        self._rounds[place.uid] = {number: known.get(number, now) for number in rounds}
        return self._rounds[place.uid]

    def step_aside(self, work: Workload, now: datetime) -> None:
        """Note that a gang leaves the manager's queue for a moment, which takes from its Workload what it is planned by."""
        self.aside = {uid: note for uid, note in self.aside.items() if now - note[1] < BACK_WITHIN}
        self.aside[work.uid] = work, now

    def refuse(self, place: Placement, cluster: str, why: str) -> None:
        """Note that a cluster refused to have its share made."""
        self._refused.setdefault(place.uid, {})[place.round, cluster] = why

    def accept(self, place: Placement, cluster: str) -> None:
        """Note that it did not, after all."""
        self._refused.get(place.uid, {}).pop((place.round, cluster), None)

    def refusals(self, place: Placement) -> dict[str, str]:
        """Which clusters refused this round's share, and why."""
        found = self._refused.get(place.uid, {})
        return {cluster: why for (round_, cluster), why in found.items() if round_ == place.round}

    def refuse_pod(self, place: Placement, share: ShareKey, pod: str, why: str) -> None:
        """Note that a cluster refused to have a pod made on a share."""
        self._unusable.setdefault(place.uid, {}).setdefault(share, {})[pod] = why

    def accept_pod(self, place: Placement, share: ShareKey) -> None:
        """Note that it made one, after all."""
        self._unusable.get(place.uid, {}).pop(share, None)

    def unusable(self, place: Placement, pods: Iterable[str]) -> dict[ShareKey, str]:
        """The shares that were refused one of these pods, and why: what was said of others, their siblings need not hear."""
        wanted, found = set(pods), self._unusable.get(place.uid, {})
        told = {share: [why for pod, why in notes.items() if pod in wanted] for share, notes in found.items()}
        return {share: why[-1] for share, why in told.items() if why}

    def keep(self, placements: Iterable[str], pods: Iterable[str], shares: Iterable[str]) -> None:
        """Forget all but these."""
        alive, standing = set(placements), set(shares)
        there = set(pods)
        self.sent &= there
        self.made &= there
        self.unanswered &= there
        self.unreleased = {uid: why for uid, why in self.unreleased.items() if uid in standing}
        self.planned = {uid: version for uid, version in self.planned.items() if uid in alive}
        self.settles = {uid: when for uid, when in self.settles.items() if uid in alive}
        self.alone = {uid: when for uid, when in self.alone.items() if uid in alive}
        self._rounds = {uid: seen for uid, seen in self._rounds.items() if uid in alive}
        self._refused = {uid: notes for uid, notes in self._refused.items() if uid in alive}
        self._unusable = {uid: notes for uid, notes in self._unusable.items() if uid in alive}
