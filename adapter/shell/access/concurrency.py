"""Bounds the open streams, in all and for each namespace, and the pending requests.

Each stream takes the buffers of two TLS connections. A request above a limit is refused with a sentence.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from adapter.access.route import ErrorStatus

# Two connections with TLS take about 600 KiB: 200 of them are 120 MiB, of the 256 MiB that the pod has.
MOST_STREAMS: Final = 200
# Following the logs of a medium job takes as many streams; four tenants who do so leave capacity for others.
MOST_STREAMS_OF_NAMESPACE: Final = 40

# A pending request has no proved grant, and is looked up in the manager by 32 requests at a time
# (`client.PARALLEL_REQUESTS`). As many again may wait for a moment. More would delay the requests of accepted users.
MOST_PENDING_REQUESTS: Final = 64
_LIMIT_REACHED = "has as many logs, commands and ports of workers open as it may; close some, or try again later."


class TooManyStreams(Exception):
    """A limit is reached; the text is a sentence."""

    def __init__(self, message: str) -> None:
        self.refusal = ErrorStatus(429, "TooManyRequests", message)
        super().__init__(message)


class ConcurrencyLimits:
    """Counts the open streams and the pending requests."""

    def __init__(self) -> None:
        self._open_streams: Counter[str] = Counter()
        self._pending_requests = 0

    @contextmanager
    def pending_request(self) -> Iterator[None]:
        """Count a pending request while the block runs; raises TooManyStreams."""
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
        """Count an open stream while the block runs; raises TooManyStreams."""
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
