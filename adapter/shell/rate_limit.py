"""How often may something be done that others can cause as often as they like?

It reads no clock: whoever asks says when, by a clock that never goes back.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """So many at once, and then one in so many seconds; who rests gets the burst back."""

    burst: int
    every_seconds: float  # seconds
    _full_at: float = float("-inf")  # when the whole burst is there again

    def wait_seconds(self, now: float) -> float:
        """The seconds until it may be done; 0 when it may now."""
        return max(0.0, self._full_at - now - (self.burst - 1) * self.every_seconds)

    def try_take(self, now: float) -> bool:
        """Whether it may be done now; it counts as done then."""
        if self.wait_seconds(now) > 0.0:
            return False
        self._full_at = max(self._full_at, now) + self.every_seconds
        return True

    def take_or_delay(self, now: float) -> float:
        """The seconds after which it may be done; it counts as done if that is now."""
        return 0.0 if self.try_take(now) else self.wait_seconds(now)
