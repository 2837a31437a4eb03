"""The clock of one cluster: set by the answers of its API servers, and advanced by this process's monotonic clock."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from adapter.objects.cluster_clock import ClusterClock, parse_http_date

# This machine's wall clock, read once: it may be put back while the process runs. All clocks begin with it.
_AT_START = ClusterClock(time.time() - time.monotonic())


class ServerClock:
    """The time in a cluster: this machine's until an answer of an API server contradicts it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._monotonic = _AT_START, monotonic

    def start_request(self) -> float:
        """The time to pass to `note_answer`."""
        return self._monotonic()

    def note_answer(self, status: int, date: str | None, sent: float) -> None:
        """Set the clock by the header Date of a 2xx.

        Anything else may come from a gateway or a proxy, which has another clock.
        """
        seconds = parse_http_date(date) if 200 <= status < 300 else None
        if seconds is not None:
            self._clock = self._clock.with_answer(seconds, sent, self._monotonic())

    def now(self) -> datetime:
        """The time in the cluster."""
        return self._clock.time_at(self._monotonic())

    def earliest_now(self) -> datetime:
        """The time in the cluster or by this machine's clock, whichever is earlier: nothing is deleted too early."""
        return min(self.now(), datetime.now(UTC))

    def latest_now(self) -> datetime:
        """The time in the cluster or by this machine's clock, whichever is later: nothing is accepted too late."""
        return max(self.now(), datetime.now(UTC))

    def ahead_of(self, other: "ServerClock") -> timedelta:
        """How far this clock is ahead of another one."""
        return timedelta(seconds=self._clock.offset - other._clock.offset)
