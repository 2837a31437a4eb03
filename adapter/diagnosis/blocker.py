"""What is a link of a job's way: the one that holds it up, or the end of the way, in one sentence with what to do?"""

from dataclasses import dataclass
from typing import Final, Literal

from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import MAX_TEXT_LENGTH, printable

# The way of a job, in its order.
Stage = Literal["Job", "Workload", "AdmissionCheck", "Placement", "Pods", "Ray"]
STAGES: Final[tuple[Stage, ...]] = ("Job", "Workload", "AdmissionCheck", "Placement", "Pods", "Ray")
# Waits: it may go on by itself. Refused: it does not, unless somebody changes something. Done and Failed: it is over.
JobOutcome = Literal["Runs", "Done", "Waits", "Refused", "Failed"]
EXIT_CODES: Final[dict[JobOutcome, int]] = {"Runs": 0, "Done": 0, "Waits": 3, "Refused": 4, "Failed": 4}

_CAPACITY_REASONS: Final = (
    "ManagerQuota",
    "Requeuing",
    "Planned",
    PlacementState.WAITING,
    PlacementState.RESERVING,
    PlacementState.WITHDRAWING,
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where the walk along a job's objects ended."""

    stage: Stage
    outcome: JobOutcome
    reason: str  # in a word
    object: str  # what to look at, such as `Workload demo/rayjob-train`
    message: str
    advice: str = ""  # a sentence; empty when there is nothing to do

    @property
    def waits_for_capacity(self) -> bool:
        """Whether it waits for room: a plan says what is missing."""
        return self.outcome == "Waits" and self.reason in _CAPACITY_REASONS

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


def as_sentence(text: str) -> str:
    """A text of somebody else's as a sentence of one line, which a terminal only shows."""
    said = printable(" ".join(text.split()), MAX_TEXT_LENGTH)
    return said if not said or said.endswith((".", "!", "?")) else f"{said}."
