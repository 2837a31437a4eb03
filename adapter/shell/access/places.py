"""How much is passed on at once? So many streams in all, and of one namespace no more than a part of them.

Each costs the buffers of two TLS connections. Whoever comes when all places are taken is told so, and takes none.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from adapter.access.way import Refusal

# Two connections with TLS take about 600 KiB: 200 of them are 120 MiB, of the 256 MiB that the pod has.
MOST: Final = 200
# Who follows a job of some size takes as many; four tenants who do so leave room for others.
MOST_OF_NAMESPACE: Final = 40


class Full(Exception):
    """There is no place."""

    def __init__(self, whose: str) -> None:
        said = (
            f"{whose} has as many logs, commands and ports of workers open as it may; close some, or try again later."
        )
        self.refusal = Refusal(429, "TooManyRequests", said)
        super().__init__(said)


class Places:
    """Counts the streams that are open."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    @contextmanager
    def one(self, namespace: str) -> Iterator[None]:
        """Have a place for as long as the block runs; raises Full."""
        if self._taken[namespace] >= MOST_OF_NAMESPACE:
            raise Full(f"Namespace {namespace}")
        if self._taken.total() >= MOST:
            raise Full("Everybody together")
        self._taken[namespace] += 1
        try:
            yield
        finally:
            self._taken[namespace] -= 1
            if not self._taken[namespace]:
                del self._taken[namespace]
