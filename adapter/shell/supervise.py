"""What becomes of a task or a key that meets what nobody expected? It is told once, counted, and begun anew, later and later.

What others write may have any shape, and no reader foresees all of them: one object that cannot be read costs nobody else
anything, and ends no process. Cancellation passes through, and so does what its caller names as the process's own end. What an
exception says is never told, since it may quote a Secret: its type, and where it came from, say what to mend.
"""

import asyncio
import logging
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from adapter.objects.unstructured import Raw, key_of
from adapter.shell import metrics

log = logging.getLogger(__name__)

# Between two attempts. What broke once by a fault of ours will most likely break again: the first pause is one that nobody notices,
# the last one leaves a broken watch dead for no longer than a resync takes.
FIRST_PAUSE, LAST_PAUSE = 0.5, 60.0
# The same fault at the same place is told once in this time, and counted in between: whoever writes odd objects decides how many.
RELOG_SECONDS = 60.0
_CLOSED = "the handler is closed"  # uvloop: handles/handle.pyx, _ensure_alive
_LONGEST_TRACE = 8_000  # characters of a trace: the places nearest to the fault are enough

ResultT = TypeVar("ResultT")
_Fault = tuple[str, str, str]  # of which task, of which type, at which place
# When it was told, and how often it came since; one for each place in the code.
_logged_faults: dict[_Fault, tuple[float, int]] = {}


async def run_with_restarts(
    task: str,
    run: Callable[[], Awaitable[None]],
    *,
    on_failure: Callable[[Exception], None] | None = None,
    fatal: tuple[type[Exception], ...] = (),
    longest_pause: float = LAST_PAUSE,
) -> None:
    """Run a task until it returns or is cancelled, and again whenever it breaks.

    `broke` is told of each fault before the pause; `ends` are those that the process shall not survive; `longest` bounds the pause.
    """
    clock, pause = asyncio.get_running_loop().time, FIRST_PAUSE
    while True:
        began = clock()
        try:
            return await run()
        except fatal:
            raise
        except Exception as error:
            report_failure(task, error)
            if on_failure:
                on_failure(error)
        pause = FIRST_PAUSE if clock() - began > LAST_PAUSE else pause
        await asyncio.sleep(min(pause, longest_pause) * random.uniform(0.5, 1.0))
        pause = min(pause * 2, LAST_PAUSE)


@contextmanager
def contain_errors(task: str, about: object = "") -> Iterator[None]:
    """Go on behind the block, whatever happens in it; `about` is whom it concerns."""
    try:
        yield
    except Exception as error:
        report_failure(task, error, about)


def read_each(task: str, objects: Iterable[Raw], read: Callable[[Raw], ResultT]) -> Iterator[tuple[Raw, ResultT]]:
    """The objects with what is read of them, but for those that cannot be read."""
    for raw in objects:
        try:
            found = read(raw)
        except Exception as error:
            report_failure(task, error, key_of(raw) if isinstance(raw, dict) else type(raw).__name__)
        else:
            yield raw, found


def report_failure(task: str, error: Exception, about: object = "") -> None:
    """Count a fault of a task, and tell it with its trace, unless the same one was told a moment ago."""
    metrics.TASK_FAILURES.labels(task).inc()
    fault, now = (task, type(error).__name__, _fault_location(error)), time.monotonic()
    when, since = _logged_faults.get(fault, (0.0, 0))
    if fault in _logged_faults and now - when < RELOG_SECONDS:
        _logged_faults[fault] = when, since + 1
        return
    _logged_faults[fault] = now, 0
    more = f" ({since} more like it since it was told last)" if since else ""
    whom = f" at {str(about)[:200]}" if about else ""
    log.error("%s failed%s by %s%s:\n%s", task, whom, type(error).__name__, more, _format_trace(error))


def handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Take what breaks where nobody waits for it: a loop's exception handler. Who provokes that does not decide how long the log gets.

    A connection that is closed while something is sent on it is no fault: uvloop tells it as a RuntimeError of its protocol
    (uvloop: sslproto.pyx, _fatal_error), and whoever uses the connection hears that it is lost.
    """
    error = context.get("exception")
    closed = isinstance(error, OSError) or (type(error) is RuntimeError and _CLOSED in str(error))
    if "protocol" in context and closed:
        log.debug("a connection ended: %s", context.get("message", ""))
    elif isinstance(error, Exception):
        report_failure("event loop", error, context.get("message", ""))
    else:
        loop.default_exception_handler(context)


def _fault_location(error: Exception) -> str:
    inner = _innermost_error(error)
    frames = traceback.extract_tb(inner.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _innermost_error(error: BaseException) -> BaseException:
    """The first of a group's exceptions, for whose sake the others were cancelled."""
    return _innermost_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _format_trace(error: Exception) -> str:
    """Where it came from, without what it says."""
    inner = _innermost_error(error)
    outer = traceback.format_tb(error.__traceback__) if inner is not error else []
    text = "".join([*outer, *traceback.format_tb(inner.__traceback__), type(inner).__name__])
    return text[-_LONGEST_TRACE:]
