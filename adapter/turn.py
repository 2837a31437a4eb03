"""Whose turn is it: which waiting gangs are planned before a given one, and who of them holds room back from it?

Priority first, then age. A gang that does not fit holds nobody up, for idle room helps no one; but one that has waited
long keeps what it could use, or a stream of small gangs would starve a large one for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from adapter.facts import Exclusion, Key, Workload

# Long enough that room which comes and goes is used by whoever fits, and several times the 30 s in which a reservation is
# given up and tried elsewhere; short enough that a person who waits sees the queue move within a coffee break.
STARVED_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gang that holds the manager's quota and no share, or gives back those that it had."""

    work: Workload
    looked: bool  # planned since room changed last: nothing fitted
    excluded: tuple[Exclusion, ...] = ()  # clusters that it does not ask now

    @property
    def key(self) -> Key:
        return self.work.key


def before(me: Workload, waiting: Iterable[Waiting]) -> list[Waiting]:
    """The other gangs whose turn comes before this one's, in their order."""
    return sorted(
        (one for one in waiting if one.key != me.key and _rank(one.work) < _rank(me)), key=lambda one: _rank(one.work)
    )


def holds_back(one: Waiting, now: datetime) -> bool:
    """Whether a gang that does not fit keeps what it could use from those behind it.

    Also between a change of room and its own next look: whoever is planned in that moment would else take all that it
    gathered.
    """
    return one.work.created is not None and now - one.work.created > STARVED_AFTER


def _rank(work: Workload) -> tuple[int, str, Key]:
    return -(work.priority or 0), work.created.isoformat() if work.created else "", work.key
