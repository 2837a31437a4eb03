"""A reason: a code for programs and a text for people.

Programs branch on the code and write it to `conditions[].reason`. The text may be reworded at any time.
"""

from dataclasses import dataclass

from adapter.names import ConditionReason, ReasonCode


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is as it is."""

    code: ReasonCode | ConditionReason
    text: str  # a part of a sentence; empty where there is nothing to add to the code


def sentence(text: str) -> str:
    """The text with a full stop at its end."""
    return f"{clause(text)}."


def clause(text: str) -> str:
    """The text without a full stop at its end, to go on with the sentence."""
    return text.removesuffix(".")
