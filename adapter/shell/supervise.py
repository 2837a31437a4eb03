"""Supervises tasks: an unexpected exception is logged once, counted, and retried with backoff.

One unreadable object affects no other and ends no process. Cancellation and fatal exceptions pass through. An
exception's text is never logged, since it may quote a Secret.
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

# Seconds. The first pause is too short to notice; with the last pause, a broken watch is dead for no longer than a
# resync takes.
FIRST_PAUSE, LAST_PAUSE = 0.5, 60.0
# One place in the code logs its failure once in this time: users decide how many odd objects they write.
RELOG_SECONDS = 60.0
_CLOSED = "the handler is closed"  # uvloop: handles/handle.pyx, _ensure_alive
_LONGEST_TRACE = 8_000  # characters

ResultT = TypeVar("ResultT")
_Fault = tuple[str, str, str]  # task, exception type, place
# The last log line's time, and how often it occurred since.
_logged_faults: dict[_Fault, tuple[float, int]] = {}


async def run_with_restarts(
    task: str,
    run: Callable[[], Awaitable[None]],
    *,
    on_failure: Callable[[Exception], None] | None = None,
    fatal: tuple[type[Exception], ...] = (),
    longest_pause: float = LAST_PAUSE,
) -> None:
    """Run a task until it returns; restart it whenever it fails.

    `on_failure` gets each error before the pause, of at most `longest_pause`. `fatal` errors must end the process.
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
    """Contain and report errors in the block; `about` names the object concerned."""
    try:
        yield
    except Exception as error:
        report_failure(task, error, about)


def read_each(task: str, objects: Iterable[Raw], read: Callable[[Raw], ResultT]) -> Iterator[tuple[Raw, ResultT]]:
    """Each object with the result of `read`; objects for which `read` fails are reported and skipped."""
    for raw in objects:
        try:
            result = read(raw)
        except Exception as error:
            report_failure(task, error, key_of(raw) if isinstance(raw, dict) else type(raw).__name__)
        else:
            yield raw, result


def report_failure(task: str, error: Exception, about: object = "") -> None:
    """Count a fault; log it with its trace, unless it was logged within RELOG_SECONDS."""
    metrics.TASK_FAILURES.labels(task).inc()
    fault, now = (task, type(error).__name__, _fault_location(error)), time.monotonic()
    last_logged, repeats = _logged_faults.get(fault, (0.0, 0))
    if fault in _logged_faults and now - last_logged < RELOG_SECONDS:
        _logged_faults[fault] = last_logged, repeats + 1
        return
    _logged_faults[fault] = now, 0
    repeat_note = f" ({repeats} more like it since the last report)" if repeats else ""
    subject = f" at {str(about)[:200]}" if about else ""
    log.error("%s failed%s by %s%s:\n%s", task, subject, type(error).__name__, repeat_note, _format_trace(error))


def handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A loop's exception handler; clients that provoke errors cannot flood the log.

    A connection closed during a write is no fault. uvloop reports it as a RuntimeError of its protocol (uvloop:
    sslproto.pyx, _fatal_error), and the connection's user gets an error.
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
    """The first error of a group, which made it cancel the others."""
    return _innermost_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _format_trace(error: Exception) -> str:
    inner = _innermost_error(error)
    outer = traceback.format_tb(error.__traceback__) if inner is not error else []
    text = "".join([*outer, *traceback.format_tb(inner.__traceback__), type(inner).__name__])
    return text[-_LONGEST_TRACE:]
