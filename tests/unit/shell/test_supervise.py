"""A failed task restarts with backoff; fatal errors end the process, and no log line contains a Secret."""

import asyncio
import logging
import time
from itertools import pairwise
from typing import cast

import pytest
from prometheus_client import REGISTRY

from adapter.objects.unstructured import Raw
from adapter.shell import supervise
from adapter.shell.supervise import (
    FIRST_PAUSE,
    LAST_PAUSE,
    contain_errors,
    read_each,
    report_failure,
    run_with_restarts,
)
from tests.unit.shell.controller.test_workqueue import play

SECRET = "hunter2"


class Fatal(Exception):
    """What the process shall not survive."""


def counted(task: str) -> float:
    return REGISTRY.get_sample_value("rayspan_task_failures_total", {"task": task}) or 0.0


def fault() -> None:
    raise ValueError(SECRET)


def test_a_failed_task_restarts_with_backoff(caplog: pytest.LogCaptureFixture) -> None:
    began, broke, before = list[float](), list[Exception](), counted("t")

    async def body() -> None:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        fault()

    async def test() -> None:
        task = asyncio.create_task(run_with_restarts("t", body, on_failure=broke.append))
        await asyncio.wait([task], timeout=1200)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(test)
    waits = [later - earlier for earlier, later in pairwise(began)]
    longest = [min(FIRST_PAUSE * 2**n, LAST_PAUSE) for n in range(len(waits))]
    assert len(waits) > 15 and len(broke) == len(began) == counted("t") - before
    assert all(most / 2 - 0.01 <= wait <= most + 0.01 for wait, most in zip(waits, longest, strict=True)), waits
    assert len({round(wait, 3) for wait in waits[-8:]}) > 1, "many would come back at once"
    assert SECRET not in caplog.text


def test_a_task_that_ran_for_long_restarts_soon() -> None:
    began = list[float]()

    async def body() -> None:
        began.append(asyncio.get_running_loop().time())
        await asyncio.wait([asyncio.create_task(asyncio.Event().wait())], timeout=LAST_PAUSE + 1)
        fault()

    async def test() -> None:
        task = asyncio.create_task(run_with_restarts("t", body))
        await asyncio.wait([task], timeout=1000)
        task.cancel()

    play(test)
    assert all(later - earlier < LAST_PAUSE + 2 for earlier, later in pairwise(began)) and len(began) > 10


def test_a_fatal_error_ends_the_process() -> None:
    async def lost() -> None:
        raise Fatal

    async def test() -> None:
        with pytest.raises(Fatal):
            await run_with_restarts("t", lost, fatal=(Fatal,))
        with pytest.raises(KeyboardInterrupt):
            await run_with_restarts("t", interrupted)

    async def interrupted() -> None:
        raise KeyboardInterrupt

    play(test)


def test_a_task_that_returns_is_over() -> None:
    async def done() -> None:
        return

    async def test() -> None:
        await run_with_restarts("t", done)

    play(test)


def test_an_error_is_logged_once_with_its_traceback_and_without_its_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in range(50):
        with contain_errors("t", "demo/train"):
            fault()
    (told,) = caplog.records
    assert told.levelno == logging.ERROR and told.getMessage().startswith("t failed at demo/train by ValueError:\n")
    assert "in fault" in told.getMessage() and SECRET not in told.getMessage()
    now += supervise.RELOG_SECONDS
    with contain_errors("t"):
        fault()
    assert "t failed by ValueError (49 more like it since the last report):" in caplog.text


def test_another_error_of_the_same_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with contain_errors("t"):
        fault()
    with contain_errors("t"):
        int("no number")
    assert len(caplog.records) == 2


def test_the_first_error_of_an_exception_group_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.to_thread(fault))
        except ExceptionGroup as group:
            report_failure("t", group)

    asyncio.run(test())
    assert "in fault" in caplog.text and "ValueError" in caplog.text and SECRET not in caplog.text


def test_an_unreadable_error_hides_no_other() -> None:
    objects: list[Raw] = [{"metadata": {"name": "a"}, "n": 1}, {"metadata": 7}, {"n": "x"}, {"n": 4}]
    assert [found for _, found in read_each("t", objects, lambda raw: 1 + raw["n"])] == [2, 5]
    assert [found for _, found in read_each("t", [cast(Raw, 7), *objects], lambda raw: 1 + raw["n"])] == [2, 5]


async def test_an_unawaited_error_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A connection that a server breaks, again and again: the loop itself would tell each with its trace."""
    loop, before = asyncio.get_running_loop(), counted("event loop")
    loop.set_exception_handler(supervise.handle_loop_exception)
    try:
        for _ in range(5):
            loop.call_soon(fault)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    assert counted("event loop") == before + 5
    (told,) = caplog.messages
    assert told.startswith("event loop failed at Exception in callback") and "in fault" in told and SECRET not in told


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        pytest.param(
            RuntimeError("unable to perform operation on <TCPTransport>; the handler is closed"), False, id="closed"
        ),
        pytest.param(ConnectionResetError(), False, id="reset"),
        pytest.param(TypeError(), True, id="an error of the reader"),
        pytest.param(RuntimeError("dictionary changed size during iteration"), True, id="another error"),
    ],
)
async def test_a_connection_that_ends_while_sending_is_no_error(
    error: Exception, is_fault: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As uvloop tells it."""
    before = counted("event loop")
    context = {"message": "Fatal error on SSL protocol", "exception": error, "transport": None, "protocol": object()}
    supervise.handle_loop_exception(asyncio.get_running_loop(), context)
    assert (counted("event loop") - before, bool(caplog.messages)) == (int(is_fault), is_fault)


async def test_a_message_without_an_exception_is_logged_as_usual(caplog: pytest.LogCaptureFixture) -> None:
    supervise.handle_loop_exception(asyncio.get_running_loop(), {"message": "a session is not closed"})
    assert caplog.messages == ["a session is not closed"]
