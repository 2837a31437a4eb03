"""One gang is planned at a time: the first in order soon, the last one eventually, despite cancellations."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.planning.ordering import OrderKey
from adapter.shell.controller.plan_queue import PlanQueue

AT = datetime(2026, 1, 1, tzinfo=UTC)


def turn(number: int) -> OrderKey:
    return number, 0, 0, AT, ("demo", f"gang-{number}")


class Played:
    """Gangs that are planned when they are let go on."""

    def __init__(self) -> None:
        self.queue, self.planned, self.inside = PlanQueue(), list[int](), 0
        self.goes_on = asyncio.Semaphore(0)
        self.tasks: list[asyncio.Task[None]] = []

    async def comes(self, number: int) -> None:
        self.tasks.append(asyncio.create_task(self._plan(number)))
        await settled()

    async def _plan(self, number: int) -> None:
        async with self.queue.admit(turn(number)):
            self.inside += 1
            assert self.inside == 1
            try:
                await self.goes_on.acquire()
                self.planned.append(number)
            finally:
                self.inside -= 1

    async def plan(self) -> None:
        self.goes_on.release()
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_first_in_order_and_the_longest_waiting_alternate() -> None:
    played = Played()
    for number in (9, 5, 7, 8, 6):
        await played.comes(number)
    for _ in range(2):
        await played.plan()
    assert played.planned == [9, 5]
    await played.comes(1)
    for _ in range(4):
        await played.plan()
    assert played.planned == [9, 5, 7, 1, 8, 6]


async def test_the_last_gang_is_planned_although_the_first_returns_all_the_time() -> None:
    played = Played()
    for number in (1, 9, 8):
        await played.comes(number)
    for _ in range(5):
        await played.comes(1)
        await played.plan()
    assert set(played.planned) == {1, 8, 9}


@pytest.mark.parametrize("crowd", [5, 60])
async def test_a_crowd_of_one_namespace_delays_no_other(crowd: int) -> None:
    """Its gangs are first in order, came first, and return at once."""
    queue, admitted, is_over = PlanQueue(), list[str](), False

    async def plan(namespace: str, number: int, *, returns: bool) -> None:
        while not is_over:
            async with queue.admit((number, 0, 0, AT, (namespace, f"gang-{number}"))):
                admitted.append(namespace)
                await asyncio.sleep(0)
            if not returns:
                return

    tasks = [asyncio.create_task(plan("crowd", number, returns=True)) for number in range(crowd)]
    await settled()
    before = len(admitted)
    for namespace in ("quiet", "other"):
        async with asyncio.timeout(30):
            await plan(namespace, 99, returns=False)
    is_over = True
    await asyncio.gather(*tasks)
    assert admitted.index("other") - before <= 10


@given(st.lists(st.one_of(st.integers(1, 5), st.just("plan"), st.tuples(st.integers(0, 20))), max_size=40))
def test_a_cancelled_plan_delays_no_other(steps: list[int | str | tuple[int]]) -> None:
    """At any time: while it waits, has been called and has not come yet, or is planned."""

    async def play() -> None:
        played = Played()
        for step in steps:
            if isinstance(step, int):
                played.tasks.append(asyncio.create_task(played._plan(step)))
            elif isinstance(step, str):
                played.goes_on.release()
                await settled()
            elif step[0] < len(played.tasks):
                played.tasks[step[0]].cancel()  # and goes on before that one runs again
        for _ in played.tasks:
            await played.plan()
        for task in played.tasks:
            assert task.done()
            with suppress(asyncio.CancelledError):
                task.result()
        assert len(played.planned) == sum(not task.cancelled() for task in played.tasks)

    asyncio.run(play())
