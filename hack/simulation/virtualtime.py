"""Virtual time: an event loop whose clock moves only while all tasks wait, and a process's clocks that follow it.

`install` comes before the first import of the product, which keeps references to the clocks. One process runs one
trial, so nothing is put back.
"""

import asyncio
import contextvars
import datetime
import heapq
import itertools
import sys
import threading
import time
from asyncio import events
from collections import deque
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
MODELS = Context()  # in which all runs that is on no machine
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
    """Have all clocks of this process follow virtual time; raises when the product may have the real ones already."""
    if early := [name for name in sys.modules if name.partition(".")[0] == "adapter"]:
        raise RuntimeError(f"{early[0]} is imported before virtual time is installed, and keeps the real clocks")
    vars(time).update(monotonic=monotonic, time=wall)
    vars(datetime)["datetime"] = _Datetime


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address. Only tasks stand in sets that are iterated over."""

    def __init__(self, coroutine: Any, *, loop: "Loop", context: Context | None = None, name: str = "") -> None:
        self._number = next(_numbers)
        super().__init__(coroutine, loop=loop, context=context, name=name or "task")

    def __hash__(self) -> int:
        return self._number


class _Handle:
    """A call that is due, now or at its time."""

    __slots__ = ("_args", "_call", "_context")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self._call: Callable[..., object] | None = call
        self._args, self._context = args, context or contextvars.copy_context()

    def cancel(self) -> None:
        self._call, self._args = None, ()

    def cancelled(self) -> bool:
        return self._call is None


class Loop(asyncio.BaseEventLoop):
    """An event loop on virtual time. Threads do not exist: what is sent to one is done at once.

    It replaces asyncio's own, whose timers are compared in Python and whose every turn asks for sockets.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread_id: int | None = None  # asyncio's own, which says that it runs
        self.steps = 0  # callbacks and parts of tasks that have run
        self._due: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._made = 0
        self._frozen: dict[str, list[_Handle]] = {}  # what is due on machines that stand still

    def time(self) -> float:
        return CLOCK.now

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # the stub has a type for the coroutine's result
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return _Task(coro, loop=self, context=context, name=name or "")

    def call_soon(  # type: ignore[override]  # the stub has a type for each argument
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context)
        self._due.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]  # the stub has a type for each argument
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context)
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, handle))
        return handle

    def call_later(  # type: ignore[override]  # the stub has a type for each argument
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_at(CLOCK.now + delay, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]  # the stub has a type for each argument
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def freeze(self, machine: str) -> Callable[[], None]:
        """Have a machine stand still, as one that is paused; returns what makes it go on with all that is due."""
        self._frozen.setdefault(machine, [])
        return lambda: self._due.extend(self._frozen.pop(machine, ()))

    def _is_frozen(self, handle: _Handle) -> bool:
        node = handle._context.get(NODE)
        if node is None or node.name not in self._frozen:
            return False
        self._frozen[node.name].append(handle)
        return True

    def run_forever(self) -> None:
        """Run until it is stopped; raises Stalled when nothing is due any more."""
        hooks = sys.get_asyncgen_hooks()
        self._thread_id = threading.get_ident()
        sys.set_asyncgen_hooks(self._asyncgen_firstiter_hook, self._asyncgen_finalizer_hook)  # type: ignore[attr-defined]
        events._set_running_loop(self)
        try:
            self._stopping = False
            while not self._stopping:
                self._run_due()
        finally:
            self._stopping, self._thread_id = False, None
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run_due(self) -> None:
        """Run all calls that are due, and then move the clock to the next timer."""
        due, timers = self._due, self._timers
        while due:
            self._run(due.popleft())
            if self._stopping:
                return
        while timers and timers[0][2]._call is None:
            heapq.heappop(timers)
        if not timers:
            raise Stalled
        when, _, handle = heapq.heappop(timers)
        CLOCK.now = max(CLOCK.now, when)
        self._run(handle)

    def _run(self, handle: _Handle) -> None:
        call = handle._call
        if call is None or (self._frozen and self._is_frozen(handle)):
            return
        self.steps += 1
        try:
            handle._context.run(call, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"Exception in callback {call!r}", "exception": error})
