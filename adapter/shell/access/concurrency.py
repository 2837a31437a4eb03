"""Bounds open streams, in all and by namespace, and the requests before them.

What is verified and what is not have no bound in common.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final

from adapter.access.route import ErrorStatus
from adapter.shell.http.fair_queue import FairQueue

# The two TLS connections of a stream take about 600 KiB, so 200 streams take 120 of the pod's 320 MiB.
MOST_STREAMS: Final = 200
# The logs of a medium job take as many streams; four such namespaces leave streams for others.
MOST_STREAMS_OF_NAMESPACE: Final = 40

# Requests whose grant and key are verified and whose pods are read, for each namespace; they wait for API servers.
MOST_VERIFIED_OF_NAMESPACE: Final = 40
# Grants that are looked up at a time: half of the client's requests (`client.PARALLEL_REQUESTS`), so that verified
# requests have the other half. More lookups wait, and connections bound them.
PARALLEL_LOOKUPS: Final = 16
_LIMIT_REACHED = "has as many logs, commands and ports of workers open as it may; close some, or try again later."


class TooManyStreams(Exception):
    """A limit is reached; the text is a sentence."""

    def __init__(self, message: str) -> None:
        self.refusal = ErrorStatus(429, "TooManyRequests", message)
        super().__init__(message)


class ConcurrencyLimits:
    def __init__(self) -> None:
        self._open_streams: Counter[str] = Counter()
        self._verified_requests: Counter[str] = Counter()
        self._lookups = FairQueue(PARALLEL_LOOKUPS, newest_first=True)

    def lookup(self, peer: str, namespace: str) -> AbstractAsyncContextManager[None]:
        """A turn to look a grant up: nothing of the request is verified.

        Of the peers and namespaces that wait, the one whose lookups took the least time is next, with its newest
        request. So requests without a key delay, and refuse, no request with one.
        """
        return self._lookups.turn((peer, namespace))

    @contextmanager
    def verified_request(self, namespace: str) -> Iterator[None]:
        """Count a request with a valid grant in the block; raises TooManyStreams."""
        if self._verified_requests[namespace] >= MOST_VERIFIED_OF_NAMESPACE:
            raise TooManyStreams(f"Namespace {namespace} {_LIMIT_REACHED}")
        with _counted(self._verified_requests, namespace):
            yield

    @contextmanager
    def open_stream(self, namespace: str) -> Iterator[None]:
        """Count an open stream in the block; raises TooManyStreams."""
        if self._open_streams[namespace] >= MOST_STREAMS_OF_NAMESPACE:
            raise TooManyStreams(f"Namespace {namespace} {_LIMIT_REACHED}")
        if self._open_streams.total() >= MOST_STREAMS:
            raise TooManyStreams(f"Everybody together {_LIMIT_REACHED}")
        with _counted(self._open_streams, namespace):
            yield


@contextmanager
def _counted(counts: Counter[str], namespace: str) -> Iterator[None]:
    counts[namespace] += 1
    try:
        yield
    finally:
        counts[namespace] -= 1
        if not counts[namespace]:
            del counts[namespace]
