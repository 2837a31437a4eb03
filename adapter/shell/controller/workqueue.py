"""What is looked at next: a keyed queue in which each key is handled by one task at a time.

A key added while it is being handled is handled once more afterwards. Keys do not wait for each other, so one that
hangs on a silent cluster delays nobody; each cluster's client bounds the requests to it. A key that fails comes back
later and later, but soon where there were news of it meanwhile.
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
# No key that failed waits for longer, if there were news of it while it did: nobody tells of them again, and what was in the way
# may be over with them, as of a job whose last worker ends while a plan for it is refused. Not at once, for they may be what the
# look did before it failed, and a key that wakes itself must not spin.
NEWS_BACKOFF = 3.0
# Keys that are started at once. A resync or a cluster's return makes thousands due in one moment, each look takes up to some
# milliseconds before it first waits, and whatever else runs on the loop, the Lease's renewal first of all, comes in between.
KEYS_AT_ONCE = 16


class Postpone(Exception):
    """Expected trouble: no stack trace is owed, the key comes back after its back-off."""


class WorkQueue(Generic[KeyT]):
    """Keys that want a look, now or at a time."""

    def __init__(self, handler: Callable[[KeyT], Awaitable[float | None]]) -> None:
        """`handle` returns the seconds after which to look again, or None; an exception means back-off."""
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
        """Look at the key after that many seconds, or earlier if it is due earlier already."""
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
        """Look after that many seconds at each key that failed, however long it was to wait: what was in the way may be over."""
        for key in list(self._failures):
            self.add(key, delay)

    async def run(self) -> None:
        """Handle keys until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake_event.clear()
                for key in self._due_keys():
                    self._running.add(key)
                    tasks.create_task(self._handle_key(key))
                await self._wait_until_due()

    def _due_keys(self) -> list[KeyT]:
        """The next keys that are due, a slice of them: `_sleep` is short while there are more."""
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
                news = max(self._due_again[key] - asyncio.get_running_loop().time(), 0.0)
                after = news if after is None else min(news, after)
        except Postpone as trouble:
            log.info("%s: %s", key, trouble)
            after = self._next_backoff(key)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            log.info("%s: what it waited for was cancelled", key)  # by another one than whoever ends the queue
            after = self._next_backoff(key)
        except Exception as error:  # a key that fails must not end the others
            report_failure("look", error, key)
            after = self._next_backoff(key)
        finally:  # also of a look that is cancelled: its key is to be looked at again
            self._running.discard(key)
            self._due_again.pop(key, None)
        if after is not None:
            self.add(key, after)

    def _next_backoff(self, key: KeyT) -> float:
        """How long a key that failed waits, and its news with it: doubling, with jitter, so that many do not come back at once."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        longest = min(
            FIRST_BACKOFF * 2.0 ** min(failures, 10), NEWS_BACKOFF if key in self._due_again else LAST_BACKOFF
        )
        return longest * random.uniform(0.5, 1.0)
