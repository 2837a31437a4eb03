"""Is that still so? Answers that cost time to find, each kept for as long as what it was found from is the very same.

Objects in stores are never changed in place, and what is read of one is read once (`Store.reading`): so whoever has the same object
has the same facts, and nothing is compared that has an inside. They stand beside the object that they are about, and go with it:
nothing that is over is held by them.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from adapter.objects.unstructured import Raw

ValueT = TypeVar("ValueT")


class IdentityMemo:
    """Answers about one version of one object, by the question."""

    def __init__(self, _: Raw | None = None) -> None:
        self._answers: dict[Hashable, tuple[Sequence[object], Any]] = {}

    def get_or_find(self, question: Hashable, facts: Sequence[object], find: Callable[[], ValueT]) -> ValueT:
        """The answer that was found last, if these very objects were its facts, in this order; else it is found now."""
        known = self._answers.get(question)
        if known is None or not _are_identical(known[0], facts):
            known = self._answers[question] = facts, find()
        answer: ValueT = known[1]
        return answer


def _are_identical(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))
