"""Which slots are being given away right now: between a decision and the answer to its write, no store shows it."""

from adapter.actions import Action, AssignSlot
from adapter.objects.raw import uid_of
from adapter.shell.clusters.indexes import by_placement


class Claims:
    """Slots by the pod that is about to hold them."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, str]] = {}  # pod uid -> Placement's key, slot

    def take(self, actions: list[Action]) -> list[Action]:
        """Claim what these actions assign; call it with no await since the facts were read."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self._held[uid_of(action.pod)] = (by_placement(action.pod), action.slot)
        return actions

    def release(self, actions: list[Action]) -> None:
        """The writes are done, or failed: the stores tell the truth again."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self._held.pop(uid_of(action.pod), None)

    def slots(self, place: str, *, but: str | None) -> frozenset[str]:
        """The slots of a Placement (by its key) that other pods than `but` (a uid, or None) are about to hold."""
        return frozenset(slot for uid, (where, slot) in self._held.items() if where == place and uid != but)
