"""Virtual time: it moves only while all tasks wait, and as far as the next timer."""

import asyncio

import pytest

from hack.simulation import virtualtime


def test_an_hour_passes_at_once_and_timers_keep_their_order() -> None:
    loop, seen = virtualtime.Loop(), list[tuple[str, float]]()
    began = loop.time()

    async def note(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, round(loop.time() - began, 3)))

    async def both() -> None:
        await asyncio.gather(note("late", 3_600.0), note("early", 0.5), note("middle", 60.0))

    loop.run_until_complete(both())
    loop.close()
    assert seen == [("early", 0.5), ("middle", 60.0), ("late", 3_600.0)]


def test_time_stands_still_while_tasks_run() -> None:
    loop = virtualtime.Loop()

    async def work() -> float:
        began = loop.time()
        for _ in range(100):
            await asyncio.sleep(0)
        return loop.time() - began

    assert loop.run_until_complete(work()) == 0.0
    loop.close()


def test_what_waits_for_ever_is_an_error() -> None:
    loop = virtualtime.Loop()
    with pytest.raises(virtualtime.Stalled):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_what_is_sent_to_a_thread_is_done_at_once() -> None:
    loop = virtualtime.Loop()
    assert loop.run_until_complete(asyncio.wait_for(loop.run_in_executor(None, sum, [1, 2]), 1.0)) == 3
    loop.close()


def test_a_timeout_is_over_when_its_time_is() -> None:
    loop = virtualtime.Loop()

    async def wait() -> float:
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10.0):
                await loop.create_future()
        return loop.time() - began

    assert loop.run_until_complete(wait()) == pytest.approx(10.0)
    loop.close()


def test_sets_of_tasks_have_one_order() -> None:
    """A task group cancels its tasks in the order of a set: their addresses must not decide it."""
    loop = virtualtime.Loop()

    async def hashes() -> list[int]:
        tasks = [asyncio.ensure_future(asyncio.sleep(0)) for _ in range(3)]
        found = [hash(task) for task in tasks]
        await asyncio.gather(*tasks)
        return found

    first, second, third = loop.run_until_complete(hashes())
    loop.close()
    assert (second - first, third - second) == (1, 1)
