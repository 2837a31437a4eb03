"""How soon may a gang be planned again?

A plan reads all queues, and room changes all the time where others start and end: a gang that waits would be planned as fast as plans
are made, by whatever wakes it, by what it wrote itself first of all. What it is told between two plans, the next one sees. It
decides nothing else about a gang: what is not a plan waits for nothing here.
"""

import time
from collections.abc import Callable

from adapter.objects.raw import Key
from adapter.shell.controller.keys import ROOM_SECONDS


class Paces:
    """When gangs may be planned again, by a clock that never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._from: dict[Key, float] = {}

    def planned(self, key: Key) -> None:
        """Note that a plan of this gang has just ended, however it did."""
        now = self._now()
        self._from = {gang: when for gang, when in self._from.items() if when > now}  # those of half a second: few
        self._from[key] = now + ROOM_SECONDS

    def learned(self, key: Key) -> None:
        """Note that a cluster has said what its plan waited for: it is not made of the same as the last one."""
        self._from.pop(key, None)

    def left(self, key: Key) -> float:
        """The seconds until a gang may be planned; 0 when it may now."""
        return max(self._from.get(key, 0.0) - self._now(), 0.0)
