"""Memoises answers by the identity of their inputs.

Objects in stores are never changed in place, and each is parsed once (`Store.read_cached`). So the same object means
the same facts, and nothing is compared in depth. A memo is stored beside the object that it is about, and is freed with
it.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from adapter.objects.unstructured import Raw

ValueT = TypeVar("ValueT")


class IdentityMemo:
    """Answers about one version of one object, by question."""

    def __init__(self, _: Raw | None = None) -> None:
        self._answers: dict[Hashable, tuple[Sequence[object], Any]] = {}

    def get_or_find(self, question: Hashable, facts: Sequence[object], find: Callable[[], ValueT]) -> ValueT:
        """The memoised answer if its facts were these very objects in this order, else that of `find`."""
        known = self._answers.get(question)
        if known is None or not _are_identical(known[0], facts):
            known = self._answers[question] = facts, find()
        answer: ValueT = known[1]
        return answer


def _are_identical(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(old is new for old, new in zip(before, now, strict=True))
