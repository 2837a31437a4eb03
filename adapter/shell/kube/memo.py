"""Memoises answers by the identity of their inputs.

Stored objects are never changed in place and are parsed once (`Store.read_cached`). A memo is freed with its object.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from adapter.objects.unstructured import Raw

ValueT = TypeVar("ValueT")


class IdentityMemo:
    """Answers about one version of one object."""

    def __init__(self, _: Raw | None = None) -> None:
        self._answers: dict[Hashable, tuple[Sequence[object], Any]] = {}

    def get_or_find(self, question: Hashable, facts: Sequence[object], find: Callable[[], ValueT]) -> ValueT:
        """The memoised answer to `question` if its facts were these very objects, else the answer of `find`."""
        known = self._answers.get(question)
        if known is None or not _are_identical(known[0], facts):
            known = self._answers[question] = facts, find()
        answer: ValueT = known[1]
        return answer


def _are_identical(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(old is new for old, new in zip(before, now, strict=True))
