"""Whether the running jobs of a worker cluster have the relay's present key and address."""

from dataclasses import dataclass

from adapter import names


@dataclass(frozen=True, slots=True)
class RelayCurrency:
    """The content of a WorkerCluster's condition RelayCurrent."""

    reason: names.ConditionReason
    message: str
    jobs: int = 0  # that have another key or address

    @property
    def event_message(self) -> str:
        """Without the jobs' names: more people may read events than WorkerClusters."""
        return (
            f"{self.jobs} running job{'s have' if self.jobs > 1 else ' has'} another key or address of the relay; see "
            f"the WorkerCluster's condition {names.RELAY_CURRENT}."
        )

    @property
    def is_current(self) -> bool:
        return self.reason == names.ConditionReason.RELAY_CURRENT
