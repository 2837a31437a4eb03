"""Whose turn it is among incomplete namespaces: first come, first served, with a pause after each turn.

So a tenant with many incomplete namespaces costs the manager's API server no more than one with a few, and delays
another tenant's namespace by one turn for each of his.
"""


class NamespaceTurns:
    def __init__(self, pause: float) -> None:
        """`pause`: the seconds from one turn to the next one, of any namespace."""
        self._pause = pause
        self._next_free = float("-inf")
        self._reserved: dict[str, float] = {}  # by namespace: the time of its next turn

    def take_or_delay(self, namespace: str, now: float) -> float:
        """Take a turn: 0 if it is due, and the namespace then queues again; else the seconds to wait for it."""
        due = self._reserved.get(namespace)
        if due is None:
            due = self._reserved[namespace] = max(now, self._next_free)
            self._next_free = due + self._pause
        if due > now:
            return due - now
        del self._reserved[namespace]
        return 0.0

    def forget(self, namespace: str) -> None:
        """Give up the namespace's turn."""
        self._reserved.pop(namespace, None)
