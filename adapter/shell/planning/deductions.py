"""What is left of the clusters after one gang after the other, found once for all plans that go the same way?

Whoever is planned finds the clusters less what others are promised, and less what those before it take or keep: in a crowd, the same
for each but for a few steps. So each plan leaves behind what it found at every step, and the next one takes it up wherever it comes to
the same step on the very same figures. Most of those before it find no room and change nothing, so it makes no difference to the steps
behind one of these when it is gone. It reads no store and decides nothing: what a step does is for planning/rounds.py to say, and a step
that is not the same one is done anew, with all that stand on what it leaves.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from adapter.planning.plan_request import Candidate
from adapter.planning.rounds import RemainingCapacity

# Steps that are remembered: each keeps what it found, kilobytes where a cluster has hundreds of queues. Behind so many gangs that take or
# keep room a plan costs what its own steps cost, and no crowd takes the memory that others need.
MOST_DEDUCTIONS = 1_000


class Deduction(NamedTuple):
    """One deduction: `of` tells whose it is, `facts` are all that its outcome hangs on, but for what was left before it."""

    key: Hashable
    facts: object
    apply: Callable[[RemainingCapacity], RemainingCapacity]


class _CachedDeduction(NamedTuple):
    before: RemainingCapacity  # the very object: two that are alike are not asked whether they are
    facts: object
    after: RemainingCapacity


class DeductionCache:
    """Goes through deductions, and remembers them: those of the last plan first."""

    def __init__(self) -> None:
        self._full_capacity = RemainingCapacity(())
        self._cached: Mapping[Hashable, _CachedDeduction] = {}
        self.applied_count = 0  # of steps that were done, and not taken up: for whoever measures

    async def capacity_after(self, fleet: Sequence[Candidate], deductions: Sequence[Deduction]) -> RemainingCapacity:
        """What is left of the clusters after these steps. It pauses after each that is done: others plan beside it, for jobs that are
        not submitted yet."""
        same = self._full_capacity.candidates == fleet
        ground, known = (self._full_capacity, self._cached) if same else (RemainingCapacity(fleet), {})
        left, done = ground, dict[Hashable, _CachedDeduction]()
        for step in deductions:
            one = known.get(step.key)
            if one is None or one.before is not left or one.facts != step.facts:
                one = _CachedDeduction(left, step.facts, step.apply(left))
                self.applied_count += 1
                await asyncio.sleep(0)
            left, done[step.key] = one.after, one
        others = ((of, one) for of, one in known.items() if of not in done)
        self._full_capacity, self._cached = ground, dict(islice(chain(done.items(), others), MOST_DEDUCTIONS))
        return left
