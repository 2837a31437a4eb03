"""Rate limit for actions that users or other programs cause. The caller passes a monotonic time."""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """`burst` actions at once, then one per `every_seconds`."""

    burst: int
    every_seconds: float
    _full_at: float = float("-inf")  # when the whole burst is available again

    def wait_seconds(self, now: float) -> float:
        return max(0.0, self._full_at - now - (self.burst - 1) * self.every_seconds)

    def try_take(self, now: float) -> bool:
        """Whether the action is allowed; counts it if so."""
        if self.wait_seconds(now) > 0.0:
            return False
        self._full_at = max(self._full_at, now) + self.every_seconds
        return True

    def take_or_delay(self, now: float) -> float:
        """Take an action: 0 if it is allowed, and then counted; else the seconds to wait."""
        return 0.0 if self.try_take(now) else self.wait_seconds(now)
