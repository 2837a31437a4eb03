"""What is left of the clusters after one gang after the other, found once for all plans that go the same way?

Whoever is planned finds the clusters less what others are promised, and less what those before it take or keep: in a crowd, the same
for each but for the last step. So each plan leaves behind what it found after every step, and the next one takes it up for as far as
its own steps are the same, on the very same figures. It reads no store and decides nothing: what a step does is for planning/rounds.py
to say, and a step that is not the same one is done anew, with all that follow.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapter.planning.request import Candidate
from adapter.planning.rounds import Left

# Steps that are remembered: each keeps what it found, kilobytes where a cluster has hundreds of queues. Behind so many gangs that take or
# keep room a plan costs what its own steps cost, and no crowd takes the memory that others need.
MOST = 1_000


class Step(NamedTuple):
    """One deduction: `facts` are all that its outcome hangs on, but for what was left before it."""

    facts: object
    do: Callable[[Left], Left]


class Steps:
    """Goes through deductions; it remembers those of one plan, the last, and of these the first ones."""

    def __init__(self) -> None:
        self._fleet: Sequence[Candidate] = ()
        self._done: Sequence[tuple[object, Left]] = ()
        self.count = 0  # of steps that were done, and not taken up: for whoever measures

    async def after(self, fleet: Sequence[Candidate], steps: Sequence[Step]) -> Left:
        """What is left of the clusters after these steps. It pauses after each that is done: others plan beside it, for jobs that are
        not submitted yet."""
        known = self._done if fleet == self._fleet else ()
        left, done = Left(fleet), list[tuple[object, Left]]()
        for at, step in enumerate(steps):
            if at < len(known) and known[at][0] == step.facts:
                left = known[at][1]
            else:
                known, left = (), step.do(left)
                self.count += 1
                await asyncio.sleep(0)
            if at < MOST:
                done.append((step.facts, left))
        self._fleet, self._done = fleet, done
        return left
