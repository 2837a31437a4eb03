"""Selects the WorkerAccesses to delete while all of them are read, in bounded memory.

Users who may view a namespace can create as many as its ResourceQuota allows. So of a namespace only the newest valid
ones are remembered, and a namespace gets a part of the deletions of a sweep. If a sweep selects all that it may, the
next one begins at the namespace where it stopped: no namespace waits behind others for ever.
"""

from bisect import insort
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from adapter.access.grant import LIFETIME, parse
from adapter.objects.unstructured import Raw, key_of, meta, uid_of

# To follow the logs of a large job takes one grant for each worker, and grants are deleted after five minutes. More
# grants would only fill etcd.
MAX_PER_NAMESPACE: Final = 500
# Of one sweep. A reference weighs less than 1 KiB, and a deletion takes some milliseconds.
MAX_DELETIONS: Final = 10_000
MAX_DELETIONS_OF_NAMESPACE: Final = 1_000


@dataclass(frozen=True, slots=True)
class GrantRef:
    """What a deletion needs."""

    namespace: str
    name: str
    uid: str


class ExpiredGrants:
    """The objects that must be deleted: expired, malformed, or older than MAX_PER_NAMESPACE others of their namespace.

    Objects that are being deleted are not among them.
    """

    def __init__(self, first_namespace: str = "") -> None:
        """`first_namespace`: objects before it in the list belong to another sweep."""
        self.refs: list[GrantRef] = []
        self.next_namespace = ""  # where the next sweep begins; set where this one may select no more
        self._first_namespace = first_namespace
        self._namespace, self._count = "", 0  # of the last object, and how many of its refs are selected
        self._valid: list[tuple[float, str, str]] = []  # of that namespace, newest first: -time, name, uid

    def add_object(self, raw: Raw, now: datetime) -> None:
        """Add the next object of the list, which is sorted by namespace. `now` was read after the list was answered."""
        namespace, name = key_of(raw)
        is_skipped = _list_position(namespace) < _list_position(self._first_namespace)
        if is_skipped or self.next_namespace or meta(raw).get("deletionTimestamp"):
            return
        if namespace != self._namespace:
            self._namespace, self._count, self._valid = namespace, 0, []
        grant = parse(raw)
        if grant is None or now >= grant.created + LIFETIME:
            self._select(name, uid_of(raw))
            return
        insort(self._valid, (-grant.created.timestamp(), name, grant.uid))
        if len(self._valid) > MAX_PER_NAMESPACE:
            self._select(*self._valid.pop()[1:])

    def _select(self, name: str, uid: str) -> None:
        if self._count >= MAX_DELETIONS_OF_NAMESPACE:
            return
        if len(self.refs) >= MAX_DELETIONS:
            self.next_namespace = self._namespace
            return
        self._count += 1
        self.refs.append(GrantRef(self._namespace, name, uid))


def _list_position(namespace: str) -> str:
    """The text by which an API server sorts namespaces in a list: etcd's key goes on with a slash."""
    return f"{namespace}/" if namespace else ""
