"""Virtual time: an event loop whose clock moves only while all tasks wait, and a process's clocks that follow it.

`install` comes before the first import of the product, which keeps references to the clocks. One process runs one
trial, so nothing is put back.
"""

import asyncio
import datetime
import itertools
import selectors
import time
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any

EPOCH = 1_767_225_600.0  # the wall clock at 0: 2026-01-01T00:00:00Z
START = 1_000.0  # of the monotonic clock


@dataclass(slots=True)
class Node:
    """A machine, whose wall clock may be wrong by some seconds."""

    name: str
    skew: float = 0.0


class _Clock:
    now = START


CLOCK = _Clock()
# The machine of the running task; tasks inherit it.
NODE: ContextVar[Node] = ContextVar("node", default=Node("model"))  # noqa: B039  # the models' own is never skewed
_numbers = itertools.count()


class Stalled(Exception):
    """All tasks wait for what never comes."""


def monotonic() -> float:
    """Seconds of virtual time."""
    return CLOCK.now


def wall() -> float:
    """Seconds since 1970 by the clock of the running task's machine."""
    return EPOCH + CLOCK.now - START + NODE.get().skew


_Real = datetime.datetime


class _Kind(type):
    """Makes a datetime from elsewhere an instance, too."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Real)


class _Datetime(datetime.datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_Datetime":
        return cls.fromtimestamp(wall(), tz)


def install() -> None:
    """Have all clocks of this process follow virtual time."""
    vars(time).update(monotonic=monotonic, time=wall)
    vars(datetime)["datetime"] = _Datetime


class _Selector(selectors.DefaultSelector):
    """Waits by moving the clock."""

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stalled
        CLOCK.now += max(timeout, 0.0)
        return []


class _Future(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = next(_numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(
        self, coroutine: Any, *, loop: asyncio.AbstractEventLoop, context: Context | None = None, name: str = ""
    ) -> None:
        self._number = next(_numbers)
        super().__init__(coroutine, loop=loop, context=context, name=name or f"task-{self._number}")

    def __hash__(self) -> int:
        return self._number


class Loop(asyncio.SelectorEventLoop):
    """An event loop on virtual time. Threads do not exist: what is sent to one is done at once."""

    def __init__(self) -> None:
        super().__init__(_Selector())
        self.steps = 0  # callbacks and parts of tasks that have run
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return CLOCK.now

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def run_in_executor(  # type: ignore[override]  # the stub has a type for each argument
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        self.steps += 1


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None) -> asyncio.Task[Any]:
    return _Task(coroutine, loop=loop, context=context)
