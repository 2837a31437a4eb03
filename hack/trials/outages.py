"""The spans in which a cluster was unreachable by a trial's own doing: samplers are excused for these and no others."""

import time
from collections.abc import Sequence

Span = tuple[float, float]  # monotonic seconds


class Outages:
    """The spans of each cluster; one that was begun lasts until all are over."""

    def __init__(self) -> None:
        self._done: dict[str, list[Span]] = {}
        self._open: dict[str, float] = {}

    def begin(self, cluster: str) -> None:
        """From now on its API server is silent."""
        self._open.setdefault(cluster, time.monotonic())

    def over(self) -> None:
        """All clusters answer again."""
        now = time.monotonic()
        for cluster in tuple(self._open):
            self._done.setdefault(cluster, []).append((self._open.pop(cluster), now))

    def of(self, cluster: str, until: float) -> list[Span]:
        """Those of a cluster; one that is not over lasts until the end."""
        begun = self._open.get(cluster)
        return [*self._done.get(cluster, []), *([] if begun is None else [(begun, until)])]


def uncovered(span: Span, spans: Sequence[Span]) -> float:
    """How many seconds of a span lie in none of the others, which may overlap."""
    at, end = span
    left = 0.0
    for begun, over in sorted(spans):
        left += max(0.0, min(begun, end) - at)
        at = max(at, min(over, end))
    return left + max(0.0, end - at)
