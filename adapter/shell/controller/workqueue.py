"""A queue of keys, each handled by one task at a time, and again if added meanwhile.

A key that hangs on an unreachable cluster delays no other; each cluster's client bounds its requests. A failed key is
requeued with backoff, but soon when it was added meanwhile.
"""

import asyncio
import heapq
import logging
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from adapter.shell.supervise import report_failure

log = logging.getLogger(__name__)

KeyT = TypeVar("KeyT", bound=Hashable)
FIRST_BACKOFF, LAST_BACKOFF = 0.2, 30.0
# The longest backoff of a failed key that was added meanwhile. The change that added it comes only once. It may have
# removed the failure's cause, as when a job's last worker ends while a plan for it is denied. The backoff is not zero:
# the failed reconcile may have caused the change, and a key must not enqueue itself in a tight loop.
NEWS_BACKOFF = 3.0
# The most keys that are started at once. A cluster's return makes thousands due, each taking some milliseconds before
# it first waits. Other tasks must run in between, above all the Lease's renewal.
KEYS_AT_ONCE = 16


class Postpone(Exception):
    """Expected trouble: the key is logged without a trace, and requeued with backoff."""


class WorkQueue(Generic[KeyT]):
    def __init__(self, handler: Callable[[KeyT], Awaitable[float | None]]) -> None:
        """`handler` returns the delay of a requeue, or None; an exception means backoff."""
        self._handler = handler
        self._running: set[KeyT] = set()
        self._due_again: dict[KeyT, float] = {}  # added while they run: when due
        self._due_times: dict[KeyT, float] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._sequence = 0
        self._failures: dict[KeyT, int] = {}
        self._wake_event = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due_times) + len(self._running)

    def add(self, key: KeyT, delay: float = 0.0) -> None:
        """Make the key due after `delay` seconds, unless it is due earlier."""
        due = asyncio.get_running_loop().time() + delay
        if key in self._running:
            self._due_again[key] = min(due, self._due_again.get(key, due))
            return
        if due < self._due_times.get(key, float("inf")):
            self._due_times[key] = due
            self._sequence += 1
            heapq.heappush(self._heap, (due, self._sequence, key))
            self._wake_event.set()

    def retry_failed(self, delay: float = 0.0) -> None:
        """Make failed keys due, whatever their backoff: the cause may be over."""
        for key in list(self._failures):
            self.add(key, delay)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake_event.clear()
                for key in self._due_keys():
                    self._running.add(key)
                    tasks.create_task(self._handle_key(key))
                await self._wait_until_due()

    def _due_keys(self) -> list[KeyT]:
        """At most KEYS_AT_ONCE due keys; while there are more, `_wait_until_due` hardly waits."""
        now, ready = asyncio.get_running_loop().time(), list[KeyT]()
        while self._heap and self._heap[0][0] <= now and len(ready) < KEYS_AT_ONCE:
            due, _, key = heapq.heappop(self._heap)
            if self._due_times.get(key) != due:
                continue  # replaced by an earlier time
            del self._due_times[key]
            ready.append(key)
        return ready

    async def _wait_until_due(self) -> None:
        now = asyncio.get_running_loop().time()
        delay = self._heap[0][0] - now if self._heap else None
        try:
            async with asyncio.timeout(delay):
                await self._wake_event.wait()
        except TimeoutError:
            pass

    async def _handle_key(self, key: KeyT) -> None:
        after: float | None
        try:
            after = await self._handler(key)
            self._failures.pop(key, None)
            if key in self._due_again:
                repeat_delay = max(self._due_again[key] - asyncio.get_running_loop().time(), 0.0)
                after = repeat_delay if after is None else min(repeat_delay, after)
        except Postpone as trouble:
            log.info("%s: %s", key, trouble)
            after = self._next_backoff(key)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            # Another task than the queue's cancelled it.
            log.info("%s: what it waited for was cancelled", key)
            after = self._next_backoff(key)
        except Exception as error:  # must not end the other keys' tasks
            report_failure("reconcile", error, key)
            after = self._next_backoff(key)
        finally:  # also when cancelled
            self._running.discard(key)
            self._due_again.pop(key, None)
        if after is not None:
            self.add(key, after)

    def _next_backoff(self, key: KeyT) -> float:
        """Count a failure; the backoff doubles, with jitter so that keys spread out."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        longest = min(
            FIRST_BACKOFF * 2.0 ** min(failures, 10), NEWS_BACKOFF if key in self._due_again else LAST_BACKOFF
        )
        return longest * random.uniform(0.5, 1.0)
