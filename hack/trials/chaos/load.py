"""Which jobs run while faults strike? Some small gangs on fake nodes, replaced when they go; it strikes nobody.

A campaign asks a load what it wants to run and has it changed, no more: jobs of real Ray whose results are checked when they end
would be another load with the same words.
"""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from hack.lab.base.progress import LabError
from hack.testbed.stage import Stage

T = TypeVar("T")

GANGS = 5  # alive at any time: over two clusters, and few enough that a change of all settles in seconds
LARGEST = 3  # workers
# Of each worker cluster: what is wanted at most fits into both with room to spare, and three quarters of it into one.
CPU = 12
_PATIENCE = 60.0  # seconds for an order to be taken; operators whose webhooks must answer may still be starting
_PAUSE = 0.3


class Load:
    """The gangs that shall run: `wanted` is name -> workers, oldest first."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self._seed = stage, seed
        self.wanted: dict[str, int] = {}
        self._made = 0

    def fill(self) -> None:
        """Submit gangs until there are enough."""
        while len(self.wanted) < GANGS:
            self.add()

    def add(self) -> str:
        """Submit one more; returns its name."""
        self._made += 1
        name = f"gang-{self._made:04}"
        workers = random.Random(f"{self._seed}/gang/{self._made}").randint(1, LARGEST)
        self.wanted[name] = workers
        taken(lambda: self.stage.ray_cluster(name, workers=workers))
        return name

    def renew(self) -> str:
        """Let the oldest gang end and submit a new one; returns the new one's name."""
        self.fill()
        self.remove(next(iter(self.wanted)))
        return self.add()

    def remove(self, name: str, policy: str = "background") -> None:
        """Delete a gang, and do not wait until it is gone."""
        del self.wanted[name]
        words = ("-n", self.stage.name, "delete", "raycluster", name, f"--cascade={policy}")
        taken(lambda: self.stage.manager.kubectl(*words, "--ignore-not-found", "--wait=false"))

    def end(self) -> None:
        """Delete all gangs."""
        for name in tuple(self.wanted):
            self.remove(name)


def taken(order: Callable[[], T]) -> T:
    """Give an order until it is taken: just after a fault a webhook may be missing that must agree to it. Only for orders that
    may be given twice."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return order()
        except LabError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
