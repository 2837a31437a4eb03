"""Caches the capacity that remains after each deduction of a plan, for the plans that follow.

A plan deducts what other gangs are promised, and what the gangs before it take or hold. In a crowd, all but a few of
these steps are the same for each gang. A later plan reuses a step that starts from the same figures with the same
facts. Most gangs find no capacity and change nothing, so the steps after such a gang stay valid when it disappears. A
step that differs, and all steps that build on it, are applied again. planning/rounds.py says what a step does.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from adapter.planning.plan_request import Candidate
from adapter.planning.rounds import RemainingCapacity

# The most cached deductions, of some kilobytes each where a cluster has hundreds of queues. Beyond these, each plan
# applies the remaining steps itself.
MOST_DEDUCTIONS = 1_000


class Deduction(NamedTuple):
    """`key` identifies the owner; `facts` and the capacity before determine the outcome."""

    key: Hashable
    facts: object
    apply: Callable[[RemainingCapacity], RemainingCapacity]


class _CachedDeduction(NamedTuple):
    # Compared by identity: comparing the contents would take long.
    before: RemainingCapacity
    facts: object
    after: RemainingCapacity


class DeductionCache:
    """Applies deductions and caches them, those of the last plan first."""

    def __init__(self) -> None:
        self._full_capacity = RemainingCapacity(())
        self._cached: Mapping[Hashable, _CachedDeduction] = {}
        self.applied_count = 0  # steps not reused; for benchmarks and tests

    async def capacity_after(self, fleet: Sequence[Candidate], deductions: Sequence[Deduction]) -> RemainingCapacity:
        """The remaining capacity. Yields after each applied step: plans for unsubmitted jobs run beside it."""
        is_same_fleet = self._full_capacity.candidates == fleet
        full_capacity, cached = (self._full_capacity, self._cached) if is_same_fleet else (RemainingCapacity(fleet), {})
        remaining, steps = full_capacity, dict[Hashable, _CachedDeduction]()
        for deduction in deductions:
            step = cached.get(deduction.key)
            if step is None or step.before is not remaining or step.facts != deduction.facts:
                step = _CachedDeduction(remaining, deduction.facts, deduction.apply(remaining))
                self.applied_count += 1
                await asyncio.sleep(0)
            remaining, steps[deduction.key] = step.after, step
        others = ((key, step) for key, step in cached.items() if key not in steps)
        self._full_capacity, self._cached = full_capacity, dict(islice(chain(steps.items(), others), MOST_DEDUCTIONS))
        return remaining
