"""Deductions are cached step by step, and a plan reuses those that precede its first different step."""

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter.planning.capacity import absent_candidate
from adapter.planning.plan_request import Candidate
from adapter.planning.rounds import RemainingCapacity
from adapter.shell.planning import deductions
from adapter.shell.planning.deductions import Deduction, DeductionCache

EAST, WEST = absent_candidate("east", ""), absent_candidate("west", "")


class Plans:
    """Plans that go through steps, each known by a word."""

    def __init__(self) -> None:
        self.steps, self.done = DeductionCache(), list[str]()

    async def after(self, words: str, candidates: Sequence[Candidate] = (EAST,)) -> str:
        """The capacity after some steps, written as the steps themselves."""
        steps = [Deduction(word, word, functools.partial(self._do, word)) for word in words.split()]
        left = await self.steps.capacity_after(candidates, steps)
        return " ".join(one.name for one in left.candidates)

    def _do(self, word: str, left: RemainingCapacity) -> RemainingCapacity:
        self.done.append(word)
        if word.startswith("-"):
            return left
        return replace(left, candidates=[*left.candidates, absent_candidate(word, "")])


async def test_an_equal_step_is_not_repeated() -> None:
    plans = Plans()
    assert await plans.after("a b") == "east a b"
    assert await plans.after("a b c") == "east a b c"
    assert plans.done == ["a", "b", "c"] and plans.steps.applied_count == 3


async def test_all_steps_after_a_different_one_are_repeated() -> None:
    plans = Plans()
    await plans.after("a b c")
    assert await plans.after("a x c") == "east a x c"
    assert plans.done == ["a", "b", "c", "x", "c"]
    assert await plans.after("a") == "east a"
    assert plans.done[5:] == []


async def test_the_first_of_many_steps_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deductions, "MOST_DEDUCTIONS", 2)
    plans = Plans()
    assert await plans.after("a b c d") == await plans.after("a b c d") == "east a b c d"
    assert plans.done == ["a", "b", "c", "d", "c", "d"]
    assert await plans.after("a b d c") == "east a b d c"


async def test_other_capacity_has_its_own_steps() -> None:
    plans = Plans()
    await plans.after("a")
    assert await plans.after("a", (EAST, WEST)) == "east west a"
    assert plans.done == ["a", "a"]


async def test_concurrent_plans_do_not_mix() -> None:
    plans = Plans()
    assert list(await asyncio.gather(plans.after("a b c"), plans.after("x y c"))) == ["east a b c", "east x y c"]
    assert await plans.after("x y c d") == "east x y c d"


async def test_gangs_without_a_deduction_do_not_change_the_steps() -> None:
    plans = Plans()
    await plans.after("-a -b c -d e")
    assert await plans.after("-b c e") == await plans.after("-d -b -x c e") == "east c e"
    assert plans.done == ["-a", "-b", "c", "-d", "e", "-d", "-x"]


async def test_a_plan_without_earlier_gangs_keeps_the_cached_steps() -> None:
    plans = Plans()
    await plans.after("-a b")
    assert await plans.after("") == "east" and await plans.after("-a b") == "east b"
    assert plans.done == ["-a", "b"]


async def test_a_gang_with_changed_facts_is_evaluated_again() -> None:
    done, fleet = DeductionCache(), [EAST]
    for facts in (1, 1, 2):
        left = await done.capacity_after(
            fleet, [Deduction("a", facts, lambda left: left), Deduction("b", 0, lambda left: left)]
        )
        assert left.candidates == fleet
    assert done.applied_count == 3
