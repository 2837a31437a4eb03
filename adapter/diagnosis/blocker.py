"""The diagnosis of a job: the stage that it has reached, its outcome, and a message with advice."""

from dataclasses import dataclass
from typing import Final, Literal

from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import MAX_TEXT_LENGTH, printable

# The stages, in the order in which a job passes them.
Stage = Literal["Job", "Workload", "AdmissionCheck", "Placement", "Pods", "Ray"]
STAGES: Final[tuple[Stage, ...]] = ("Job", "Workload", "AdmissionCheck", "Placement", "Pods", "Ray")
# Waits: the job may proceed by itself. Refused: it needs a change by a person. Done and Failed: it has ended.
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
    """The stage that holds a job up, or its last stage."""

    stage: Stage
    outcome: JobOutcome
    reason: str  # one word
    object: str  # kind and name, such as `Workload demo/rayjob-train`
    message: str
    advice: str = ""  # a sentence, or empty

    @property
    def waits_for_capacity(self) -> bool:
        """Whether the job waits for capacity, so that a plan explains what is missing."""
        return self.outcome == "Waits" and self.reason in _CAPACITY_REASONS

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


def as_sentence(text: str) -> str:
    """Make untrusted text one printable line that ends like a sentence."""
    sentence = printable(" ".join(text.split()), MAX_TEXT_LENGTH)
    return sentence if not sentence or sentence.endswith((".", "!", "?")) else f"{sentence}."
