"""Whether the running jobs of a worker cluster have the relay's present key and address."""

from dataclasses import dataclass

from adapter import names


@dataclass(frozen=True, slots=True)
class RelayCurrency:
    """The content of a WorkerCluster's condition RelayCurrent."""

    reason: names.ConditionReason
    message: str

    @property
    def is_current(self) -> bool:
        return self.reason == names.ConditionReason.RELAY_CURRENT
