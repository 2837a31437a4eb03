"""Tables of rules: the first rule that applies gives the next actions.

gang/lifecycle.py and worker/dispatch.py each have one; docs/architecture.md lists both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from adapter.actions import Action

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Rule(Generic[State]):
    name: str
    summary: str  # what is done, as docs/architecture.md lists it
    applies: Callable[[State], bool]
    actions: Callable[[State], list[Action]]


def always(_: object) -> bool:
    return True


def no_actions(_: object) -> list[Action]:
    return []
