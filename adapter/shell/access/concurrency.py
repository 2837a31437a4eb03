"""How much is passed on at once? So many streams in all, and of one namespace no more than a part of them.

Each costs the buffers of two TLS connections. Whoever comes when all places are taken is told so, and takes none. So is who comes while
too many ask for one.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from adapter.access.route import Refusal

# Two connections with TLS take about 600 KiB: 200 of them are 120 MiB, of the 256 MiB that the pod has.
MOST: Final = 200
# Who follows a job of some size takes as many; four tenants who do so leave room for others.
MOST_OF_NAMESPACE: Final = 40


# Who asks for one has proved nothing yet, and is asked about in the manager, by 32 requests at a time (`client.PARALLEL`): as many again
# wait for a moment, and more would keep those of who is let in waiting.
MOST_ASKING: Final = 64
_AS_MANY = "has as many logs, commands and ports of workers open as it may; close some, or try again later."


class Full(Exception):
    """There is no place; the text is a sentence."""

    def __init__(self, said: str) -> None:
        self.refusal = Refusal(429, "TooManyRequests", said)
        super().__init__(said)


class Places:
    """Counts the streams that are open, and those who ask for one."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._asking = 0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Be one of those who ask for as long as the block runs; raises Full."""
        if self._asking >= MOST_ASKING:
            raise Full(
                "Too many ask for logs, commands and ports of workers at this moment; try again in a few seconds."
            )
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    @contextmanager
    def one(self, namespace: str) -> Iterator[None]:
        """Have a place for as long as the block runs; raises Full."""
        if self._taken[namespace] >= MOST_OF_NAMESPACE:
            raise Full(f"Namespace {namespace} {_AS_MANY}")
        if self._taken.total() >= MOST:
            raise Full(f"Everybody together {_AS_MANY}")
        self._taken[namespace] += 1
        try:
            yield
        finally:
            self._taken[namespace] -= 1
            if not self._taken[namespace]:
                del self._taken[namespace]
