"""The clock of each cluster, as the answers of its API servers show it.

A timestamp is compared with the clock of the cluster that it is from. `now` in a decision is the time of the manager
cluster, whichever replica leads and however the clock of its node is set. `ClockOffsets` converts it to a worker
cluster's time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache

# HTTP's header Date has whole seconds.
_DATE_RESOLUTION = 1.0
# Answers that agree move the clock when there are so many of them, over so many seconds. One answer may be wrong.
_AGREEING_ANSWERS = 3
_AGREEING_SECONDS = 2.0
# How long a reading counts after the last answer that agrees with it. Until then a slower API server, behind the same
# address, may write a timestamp again.
READING_SECONDS = 600.0
# The most readings of one cluster: more than it has API servers.
MAX_READINGS = 8
# Later dates, from 2242 on, are ignored: an untrusted server may send any date.
_LATEST_DATE = float(2**33)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """One offset, and the answers that agree with it: normally those of one API server. Times are monotonic."""

    offset: float
    first_answer: float
    last_answer: float
    answers: int = 1

    @property
    def is_confirmed(self) -> bool:
        return self.answers >= _AGREEING_ANSWERS and self.last_answer - self.first_answer >= _AGREEING_SECONDS


@dataclass(frozen=True, slots=True)
class ClusterClock:
    """A cluster's clock in seconds since the epoch, less the seconds of this process's monotonic clock.

    A cluster may have several API servers whose clocks disagree. The slowest one is the clock, so whatever ends by time
    ends later than it should, and never earlier. It stays the clock while the others answer.

    The clock goes forward by a step only when the slowest API server has not answered for READING_SECONDS. It goes back
    by a step when a slower one answers several times, or when the cluster's clock is put back. It must do so, because
    timestamps by that clock follow. So a wait that this process began is measured by the monotonic clock.
    """

    offset: float
    readings: tuple[ClockReading, ...] = ()

    def with_answer(self, date: float, sent: float, received: float) -> "ClusterClock":
        """Add an answer's `date`, which the API server wrote between `sent` and `received`, by the monotonic clock.

        A Date has no fractions of a second, so a clock that was set to it would jump with each answer. An offset is
        changed by as little as the answer requires, and by at most the second that a Date is inexact.

        The first answer counts as confirmed: before it nothing is known but the clock of this machine.
        """
        earliest, latest = date - received, date + _DATE_RESOLUTION - sent
        offset = min(max(self.offset, earliest), latest)
        if not self.readings:
            first = ClockReading(offset, received - _AGREEING_SECONDS, received, _AGREEING_ANSWERS)
            return ClusterClock(offset, (first,))
        recent = [reading for reading in self.readings if received - reading.last_answer <= READING_SECONDS]
        agreeing = [reading for reading in recent if earliest <= reading.offset <= latest + _DATE_RESOLUTION]
        if agreeing:
            lowest = min(agreeing, key=lambda reading: reading.offset)
            recent.remove(lowest)
            recent.append(_with_agreement(lowest, latest, received))
        else:
            recent.append(ClockReading(offset, received, received))
        confirmed = [reading.offset for reading in recent if reading.is_confirmed]
        return ClusterClock(min(confirmed, default=self.offset), _most_confirmed(recent))

    def time_at(self, monotonic: float) -> datetime:
        return datetime.fromtimestamp(self.offset + monotonic, UTC)


def _with_agreement(reading: ClockReading, latest: float, received: float) -> ClockReading:
    offset = min(reading.offset, latest)
    return ClockReading(offset, reading.first_answer, received, reading.answers + 1)  # each answer does this


def _most_confirmed(readings: Iterable[ClockReading]) -> tuple[ClockReading, ...]:
    """At most MAX_READINGS; those with the fewest answers are dropped, because an API server may send any Date."""
    return tuple(sorted(readings, key=lambda reading: (-reading.answers, -reading.last_answer))[:MAX_READINGS])


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """How far the clocks of worker clusters are ahead of the manager cluster's."""

    by_cluster: Mapping[str, timedelta] = field(default_factory=dict)

    def time_in(self, cluster: str, now: datetime) -> datetime:
        """The time of a worker cluster at `now`, to be compared with timestamps of its objects."""
        return _shift(now, self.by_cluster.get(cluster, timedelta(0)))

    def manager_time(self, cluster: str, timestamp: datetime) -> datetime:
        """A timestamp of a worker cluster by the manager cluster's clock."""
        return _shift(timestamp, -self.by_cluster.get(cluster, timedelta(0)))


def _shift(moment: datetime, by: timedelta) -> datetime:
    """Add `by` to a moment. A forged timestamp at the end of the calendar is not changed."""
    try:
        return moment + by
    except OverflowError:
        return moment


@lru_cache(maxsize=64)  # the answers of a second have one Date
def parse_http_date(text: str | None) -> float | None:
    """Read the header Date in seconds since the epoch; None for an invalid or impossible one."""
    try:
        date = parsedate_to_datetime(text or "")
    except (IndexError, OverflowError, TypeError, ValueError):  # a text with too few parts, or with huge numbers
        return None
    seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    return seconds if 0 <= seconds < _LATEST_DATE else None
