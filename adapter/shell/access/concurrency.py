"""How much is passed on at once? So many streams in all, and of one namespace no more than a part of them.

Each costs the buffers of two TLS connections. Whoever comes when all places are taken is told so, and takes none. So is who comes while
too many ask for one.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from adapter.access.route import ErrorStatus

# Two connections with TLS take about 600 KiB: 200 of them are 120 MiB, of the 256 MiB that the pod has.
MOST_STREAMS: Final = 200
# Who follows a job of some size takes as many; four tenants who do so leave room for others.
MOST_STREAMS_OF_NAMESPACE: Final = 40


# Who asks for one has proved nothing yet, and is asked about in the manager, by 32 requests at a time (`client.PARALLEL`): as many again
# wait for a moment, and more would keep those of who is let in waiting.
MOST_PENDING_REQUESTS: Final = 64
_LIMIT_REACHED = "has as many logs, commands and ports of workers open as it may; close some, or try again later."


class TooManyStreams(Exception):
    """There is no place; the text is a sentence."""

    def __init__(self, message: str) -> None:
        self.refusal = ErrorStatus(429, "TooManyRequests", message)
        super().__init__(message)


class ConcurrencyLimits:
    """Counts the streams that are open, and those who ask for one."""

    def __init__(self) -> None:
        self._open_streams: Counter[str] = Counter()
        self._pending_requests = 0

    @contextmanager
    def pending_request(self) -> Iterator[None]:
        """Be one of those who ask for as long as the block runs; raises Full."""
        if self._pending_requests >= MOST_PENDING_REQUESTS:
            raise TooManyStreams(
                "Too many ask for logs, commands and ports of workers at this moment; try again in a few seconds."
            )
        self._pending_requests += 1
        try:
            yield
        finally:
            self._pending_requests -= 1

    @contextmanager
    def open_stream(self, namespace: str) -> Iterator[None]:
        """Have a place for as long as the block runs; raises Full."""
        if self._open_streams[namespace] >= MOST_STREAMS_OF_NAMESPACE:
            raise TooManyStreams(f"Namespace {namespace} {_LIMIT_REACHED}")
        if self._open_streams.total() >= MOST_STREAMS:
            raise TooManyStreams(f"Everybody together {_LIMIT_REACHED}")
        self._open_streams[namespace] += 1
        try:
            yield
        finally:
            self._open_streams[namespace] -= 1
            if not self._open_streams[namespace]:
                del self._open_streams[namespace]
