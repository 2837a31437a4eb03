"""Each key is handled by one task at a time, once for all its changes; the clock belongs to the loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from adapter.shell.controller.workqueue import (
    FIRST_BACKOFF,
    KEYS_AT_ONCE,
    LAST_BACKOFF,
    NEWS_BACKOFF,
    Postpone,
    WorkQueue,
)

Test = Callable[[], Awaitable[None]]


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes only by what its timers wait for; where all wait and no timer runs is an error."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = vars(self)["_selector"]
        self._look = selector.select
        selector.select = self._pass

    def time(self) -> float:
        return self._now

    def _pass(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everybody waits and no timer runs")
        self._now += timeout + 1e-6 if timeout > 0 else 0.0
        return self._look(0)


class Bench:
    """A queue whose handler notes when it began with a key, and does then what the test says."""

    def __init__(self, body: Callable[[str], Awaitable[float | None]]) -> None:
        self.began: list[tuple[str, float]] = []
        self._running: set[str] = set()
        self._body = body
        self.queue: WorkQueue[str] = WorkQueue(self._handle)

    async def _handle(self, key: str) -> float | None:
        assert key not in self._running, f"{key} is handled twice at a time"
        self._running.add(key)
        self.began.append((key, asyncio.get_running_loop().time()))
        try:
            return await self._body(key)
        finally:
            self._running.discard(key)

    async def run(self, seconds: float) -> None:
        """Let that much time pass; what must happen in it has happened then."""
        task = asyncio.create_task(self.queue.run())
        ended, _ = await asyncio.wait([task], timeout=seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not ended, "the queue ended by itself"

    def times(self, key: str) -> list[float]:
        return [round(when, 2) for name, when in self.began if name == key]


def play(test: Test) -> None:
    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(asyncio.wait_for(test(), timeout=100_000))


async def nothing(_: str) -> float | None:
    return None


async def forever(_: str) -> float | None:
    await asyncio.Event().wait()
    return None


def test_a_key_is_handled_once_however_often_it_was_added() -> None:
    async def test() -> None:
        bench = Bench(nothing)
        for key in "aab":
            bench.queue.add(key)
        assert len(bench.queue) == 2
        await bench.run(100)
        assert bench.times("a") == bench.times("b") == [0]
        assert len(bench.queue) == 0

    play(test)


def test_a_key_added_while_the_queue_sleeps_wakes_it() -> None:
    async def test() -> None:
        bench = Bench(nothing)
        asyncio.get_running_loop().call_later(7, bench.queue.add, "a")
        await bench.run(100)
        assert bench.times("a") == [7]

    play(test)


def test_a_key_runs_after_its_delay() -> None:
    async def test() -> None:
        bench = Bench(nothing)
        bench.queue.add("late", 50)
        bench.queue.add("soon", 5)
        await bench.run(49)
        assert (bench.times("soon"), bench.times("late")) == ([5], [])
        await bench.run(2)
        assert bench.times("late") == [50]

    play(test)


def test_the_earlier_of_two_delays_counts_once() -> None:
    async def test() -> None:
        bench = Bench(nothing)
        for after in (30, 10, 20):
            bench.queue.add("a", after)
        await bench.run(100)
        assert bench.times("a") == [10]

    play(test)


def test_a_handler_returns_its_requeue_delay() -> None:
    async def test() -> None:
        answers = iter([3.0, 4.0, None])

        async def body(_: str) -> float | None:
            return next(answers)

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(100)
        assert bench.times("a") == [0, 3, 7]

    play(test)


def test_a_new_event_precedes_a_requeue_delay() -> None:
    async def test() -> None:
        answers = iter([30.0, None])

        async def body(_: str) -> float | None:
            return next(answers)

        bench = Bench(body)
        bench.queue.add("a")
        asyncio.get_running_loop().call_later(5, bench.queue.add, "a")
        await bench.run(100)
        assert bench.times("a") == [0, 5]

    play(test)


def test_a_key_added_while_it_runs_runs_once_more_afterwards() -> None:
    async def test() -> None:
        started, let_go = asyncio.Event(), asyncio.Event()

        async def body(_: str) -> float | None:
            started.set()
            await let_go.wait()
            return None

        bench = Bench(body)
        bench.queue.add("a")
        running = asyncio.create_task(bench.run(100))
        await asyncio.wait_for(started.wait(), 10)
        bench.queue.add("a")
        bench.queue.add("a")
        assert len(bench.began) == 1, "never twice at a time"
        let_go.set()
        await running
        assert len(bench.began) == 2

    play(test)


def test_a_time_that_comes_while_the_key_runs_is_not_lost() -> None:
    async def test() -> None:
        let_go = asyncio.Event()

        async def body(_: str) -> float | None:
            await let_go.wait()
            return None

        bench = Bench(body)
        bench.queue.add("a")
        loop = asyncio.get_running_loop()
        loop.call_later(1, bench.queue.add, "a", 5)
        loop.call_later(20, let_go.set)
        await bench.run(100)
        assert bench.times("a") == [0, 20]

    play(test)


def test_other_tasks_run_between_batches_of_due_keys() -> None:
    """Each handler here runs without a pause, so a batch runs without interruption."""
    handled = 0

    async def busy(_: str) -> float | None:
        nonlocal handled
        handled += 1
        return None

    async def test() -> None:
        queue: WorkQueue[str] = WorkQueue(busy)
        for number in range(10 * KEYS_AT_ONCE):
            queue.add(f"k{number}")
        running, longest = asyncio.create_task(queue.run()), 0
        while len(queue):
            before = handled
            await asyncio.sleep(0)
            longest = max(longest, handled - before)
        running.cancel()
        assert (handled, longest) == (10 * KEYS_AT_ONCE, KEYS_AT_ONCE)

    play(test)


def test_a_key_that_hangs_delays_no_other() -> None:
    async def test() -> None:
        async def body(key: str) -> float | None:
            return await forever(key) if key == "hangs" else 10.0

        bench = Bench(body)
        bench.queue.add("hangs")
        bench.queue.add("a")
        await bench.run(35)
        assert bench.times("a") == [0, 10, 20, 30]
        assert bench.times("hangs") == [0]

    play(test)


# --- back-off --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Postpone("silent"), ValueError("a fault of ours")], ids=["postponed", "failed"])
def test_a_failed_key_returns_with_backoff(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async def body(_: str) -> float | None:
            raise error

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(600)
        waits = [later - earlier for (_, earlier), (_, later) in pairwise(bench.began)]
        longest = [min(FIRST_BACKOFF * 2**failures, LAST_BACKOFF) for failures in range(1, len(waits) + 1)]
        assert len(waits) > 20
        for wait, most in zip(waits, longest, strict=True):
            assert most / 2 - 0.01 <= wait <= most + 0.01, waits
        assert len({round(wait, 3) for wait in waits[-10:]}) > 1, "many keys would come back at once"

    with caplog.at_level(logging.CRITICAL + 1, logger="adapter.shell.controller.workqueue"):
        play(test)


def test_a_key_whose_awaited_task_is_cancelled_returns_with_backoff() -> None:
    async def test() -> None:
        async def body(_: str) -> float | None:
            if len(bench.began) == 1:
                part = asyncio.ensure_future(forever("a"))
                asyncio.get_running_loop().call_later(1, part.cancel)
                await part
            return None

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(100)
        (_, again) = bench.times("a")
        assert 1 + FIRST_BACKOFF <= again <= 1 + 2 * FIRST_BACKOFF + 0.01

    play(test)


def test_a_success_ends_the_back_off() -> None:
    async def test() -> None:
        outcomes = iter([True] * 7 + [False] + [True, False])

        async def body(_: str) -> float | None:
            if next(outcomes):
                raise Postpone("silent")
            return 100.0 if len(bench.began) < 10 else None

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(1000)
        moments = [when for _, when in bench.began]
        assert len(moments) == 10
        assert moments[7] - moments[6] > 5, "it had grown"
        assert moments[9] - moments[8] <= 2 * FIRST_BACKOFF + 0.01, "it began anew"

    play(test)


def test_failed_keys_are_retried_when_their_obstacle_may_be_gone() -> None:
    async def test() -> None:
        async def body(key: str) -> float | None:
            if key == "bad":
                raise Postpone("silent")
            return None

        bench = Bench(body)
        bench.queue.add("bad")
        bench.queue.add("good")
        loop = asyncio.get_running_loop()
        for when in (1000, 1001):
            loop.call_later(when, bench.queue.retry_failed)
        loop.call_later(1002, bench.queue.retry_failed, 0.5)
        await bench.run(1003)
        assert bench.times("good") == [0]
        assert bench.times("bad")[-3:] == [1000, 1001, 1002.5]

    play(test)


def test_each_key_has_its_own_back_off() -> None:
    async def test() -> None:
        async def body(key: str) -> float | None:
            if key == "bad":
                raise Postpone("silent")
            return 1.0

        bench = Bench(body)
        bench.queue.add("bad")
        bench.queue.add("good")
        await bench.run(30.5)
        assert len(bench.times("good")) == 31
        assert len(bench.times("bad")) < 12

    play(test)


def test_a_new_event_of_a_failed_key_is_handled_at_once() -> None:
    async def test() -> None:
        async def body(_: str) -> float | None:
            if asyncio.get_running_loop().time() < 19:
                raise Postpone("silent")
            return None

        bench = Bench(body)
        bench.queue.add("a")
        asyncio.get_running_loop().call_later(20, bench.queue.add, "a")
        await bench.run(600)
        assert bench.times("a")[-1] <= 20

    play(test)


def test_an_event_during_a_failure_waits_for_the_backoff() -> None:
    async def test() -> None:
        async def body(_: str) -> float | None:
            if len(bench.began) > 1:
                return None
            bench.queue.add("a")
            await asyncio.wait([asyncio.create_task(forever("a"))], timeout=5)
            bench.queue.add("a")
            raise Postpone("silent")

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(100)
        assert len(bench.began) == 2, "they are not lost, and are looked at once"
        assert 5 + FIRST_BACKOFF <= bench.began[1][1] <= 5 + 2 * FIRST_BACKOFF + 0.01

    play(test)


def test_an_event_during_a_repeated_failure_waits_less_than_the_backoff() -> None:
    """Such an event is not repeated: it may be the end of the last worker of a share."""

    async def test() -> None:
        async def body(_: str) -> float | None:
            if len(bench.began) > 10:
                return None
            if len(bench.began) == 10:
                bench.queue.add("a", 0.3)
            raise Postpone("a plan is refused")

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(1000)
        moments = [when for _, when in bench.began]
        assert moments[9] - moments[8] > 10, "it had grown"
        assert len(moments) == 11 and moments[10] - moments[9] <= NEWS_BACKOFF + 0.01

    play(test)


def test_an_event_during_a_success_is_handled_at_once() -> None:
    async def test() -> None:
        async def body(key: str) -> float | None:
            if len(bench.began) == 1:
                bench.queue.add(key)
            return 50.0

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(40)
        assert bench.times("a") == [0, 0]

    play(test)


def test_a_failed_key_that_enqueues_itself_does_not_spin() -> None:
    """An action before the one that fails may change an object whose change wakes the key."""

    async def test() -> None:
        async def body(key: str) -> float | None:
            if len(bench.began) < 1000:
                bench.queue.add(key)
            raise Postpone("silent")

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(60)
        assert len(bench.began) < 50

    play(test)


def test_an_error_is_logged_with_its_traceback_and_a_postponement_without(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async def body(key: str) -> float | None:
            raise Postpone("silent") if key == "expected" else ValueError("a fault of ours")

        bench = Bench(body)
        bench.queue.add("expected")
        bench.queue.add("fault")
        await bench.run(0.1)

    with caplog.at_level(logging.INFO, logger="adapter.shell.controller.workqueue"):
        play(test)
    expected, fault = sorted((record.getMessage() for record in caplog.records), key=len)
    assert expected == "expected: silent"
    assert fault.startswith("reconcile failed at fault by ValueError:\n") and "in body" in fault


def test_a_restarted_queue_repeats_the_keys_in_progress() -> None:
    """Its fault cancels the looks that are under way: none of their keys may count as looked at for ever."""

    async def test() -> None:
        bench = Bench(forever)
        bench.queue.add("a")
        await bench.run(1)
        assert len(bench.queue) == 0, "who ends the queue cancels its looks, and nobody else did"
        bench.queue.add("a")
        await bench.run(1)
        assert [key for key, _ in bench.began] == ["a", "a"]

    play(test)


def test_a_delayed_event_waits_for_the_backoff_of_a_failed_key() -> None:
    async def test() -> None:
        async def body(key: str) -> float | None:
            bench.queue.add(key, 0.3)  # keys.BURST_SECONDS: the copy that it made itself
            raise Postpone("silent")

        bench = Bench(body)
        bench.queue.add("a")
        await bench.run(60)
        assert len(bench.began) < 50

    play(test)
