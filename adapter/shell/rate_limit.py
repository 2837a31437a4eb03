"""Rate limit for actions that others can cause as often as they like.

It reads no clock: the caller passes the time of a monotonic clock.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """Token bucket: `burst` actions at once, then one per `every_seconds`; the burst refills at rest."""

    burst: int
    every_seconds: float  # seconds
    _full_at: float = float("-inf")  # when the whole burst is available again

    def wait_seconds(self, now: float) -> float:
        """The seconds until the action is allowed; 0 when it is allowed now."""
        return max(0.0, self._full_at - now - (self.burst - 1) * self.every_seconds)

    def try_take(self, now: float) -> bool:
        """Whether the action is allowed now; if so, it is counted."""
        if self.wait_seconds(now) > 0.0:
            return False
        self._full_at = max(self._full_at, now) + self.every_seconds
        return True

    def take_or_delay(self, now: float) -> float:
        """0 when the action is allowed now, and it is counted; else the seconds until it is allowed."""
        return 0.0 if self.try_take(now) else self.wait_seconds(now)
