"""Bounds the weight of each namespace's objects in one cluster, over all metered stores.

A tenant decides how many objects his namespace has, and how large they are. Beyond its share, the namespace is
incomplete: all of its objects are dropped and no more are taken, so it costs other tenants nothing. Nothing may be
concluded from its empty stores. It is read again after a pause (`shell/clusters/namespace_reload.py`).

If all namespaces together exceed the cluster's budget, the largest become incomplete until the others fit. So no
tenant makes a namespace incomplete that is smaller than his own.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from adapter.names import ReasonCode
from adapter.objects.reason import Reason
from adapter.shell.kube.store import Store

_MIB = 2**20
# A namespace is complete again below this part of its share, so that one at its limit does not come and go.
_RELOADED_PART = 0.75

NamespaceHandler = Callable[[str], None]


def ignore(_: str) -> None:
    """Ignore the change."""


@dataclass(slots=True)
class IncompleteNamespace:
    """Why a namespace is incomplete."""

    kind: str  # the plural of its heaviest kind
    kind_bytes: int  # 0: a single object is larger than can be read
    total_bytes: int  # at most `most_bytes`: the namespaces together are too large
    most_bytes: int  # of one namespace
    reloading: bool = False  # its objects are taken again, and not complete yet

    @property
    def reason(self) -> Reason:
        """Why it is incomplete, as a predicate of the namespace."""
        remedy = f"delete {self.kind} that are not needed, or make them smaller"
        taken = f"{self.kind} take {self.kind_bytes / _MIB:.1f} MiB of memory"
        if not self.kind_bytes:
            text = f"has an object among its {self.kind} that is too large to be read; make it smaller, or delete it"
        elif self.total_bytes > self.most_bytes:
            text = f"has more objects than the {self.most_bytes / _MIB:.1f} MiB that are kept of it ({taken}); {remedy}"
        else:
            text = f"is the largest of namespaces that have more objects than are kept of all ({taken}); {remedy}"
        return Reason(ReasonCode.NAMESPACE_INCOMPLETE, text)


class NamespaceShares:
    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: the most weight of one namespace."""
        self.most_bytes = most_bytes
        self.on_change: NamespaceHandler = ignore  # a namespace became incomplete, or complete
        self._stores: list[tuple[str, Store]] = []  # with the plural of what each stores
        self._incomplete: dict[str, IncompleteNamespace] = {}

    def add_store(self, plural: str, store: Store) -> None:
        store.accept_namespace = self._accepts
        self._stores.append((plural, store))

    def _accepts(self, namespace: str) -> bool:
        incomplete = self._incomplete.get(namespace)
        return incomplete is None or incomplete.reloading

    def clear(self) -> None:
        """Forget everything: the stores were emptied, and are listed again."""
        self._incomplete.clear()

    def is_complete(self, namespace: str) -> bool:
        """Whether conclusions may be drawn from the namespace's objects."""
        return namespace not in self._incomplete

    def incomplete(self) -> dict[str, IncompleteNamespace]:
        return dict(self._incomplete)

    def reason(self, namespace: str) -> Reason | None:
        incomplete = self._incomplete.get(namespace)
        return incomplete.reason if incomplete else None

    def describe(self, namespace: str) -> str:
        """The namespace's state, for a log."""
        reason = self.reason(namespace)
        return f"namespace {namespace} {reason.text if reason else 'is complete again'}"

    def weight(self, namespace: str) -> int:
        return sum(store.namespace_weight(namespace) for _, store in self._stores)

    def largest_weight(self) -> int:
        """The weight of the largest namespace."""
        return max(map(self.weight, self._weighed_namespaces()), default=0)

    def check(self, namespace: str) -> None:
        """Make a namespace beyond its share incomplete."""
        most_bytes = self.most_bytes * (_RELOADED_PART if namespace in self._incomplete else 1)
        if self.weight(namespace) > most_bytes:
            self._drop(namespace)

    def check_all(self) -> None:
        for namespace in self._weighed_namespaces():
            self.check(namespace)

    def drop_largest(self) -> bool:
        """Make the largest namespace incomplete; False if no namespace has objects.

        One that is read again comes first, so that two do not take turns.
        """
        namespaces = self._weighed_namespaces()
        largest = max(namespaces & self._incomplete.keys() or namespaces, key=self.weight, default="")
        if largest:
            self._drop(largest)
        return bool(largest)

    def drop_unreadable(self, namespace: str, plural: str) -> None:
        """Make a namespace incomplete because of an object that is too large to be read.

        Costs nothing for one that is incomplete already, so such an object may change often.
        """
        if not self._accepts(namespace):
            return
        self._set_incomplete(namespace, IncompleteNamespace(plural, 0, 0, self.most_bytes))

    def begin_reload(self, namespace: str) -> None:
        """Take the namespace's objects again; a watch shows what changes from now on."""
        self._incomplete[namespace].reloading = True

    def is_reloading(self, namespace: str) -> bool:
        incomplete = self._incomplete.get(namespace)
        return incomplete is not None and incomplete.reloading

    def end_reload(self, namespace: str) -> None:
        """Count a namespace as complete, unless it exceeded its share meanwhile."""
        if self.is_reloading(namespace):
            del self._incomplete[namespace]
            self.on_change(namespace)

    def abort_reload(self, namespace: str) -> None:
        """Drop what was read of a namespace."""
        if self.is_reloading(namespace):
            self._set_incomplete(namespace, self._incomplete[namespace])

    def _weighed_namespaces(self) -> set[str]:
        return {namespace for _, store in self._stores for namespace in store.weighed_namespaces()}

    def _drop(self, namespace: str) -> None:
        by_kind = Counter[str]()
        for plural, store in self._stores:
            by_kind[plural] += store.namespace_weight(namespace)
        ((kind, size),) = by_kind.most_common(1)
        # Of one that is read again, only a part was weighed.
        known = self._incomplete.get(namespace)
        self._set_incomplete(namespace, known or IncompleteNamespace(kind, size, by_kind.total(), self.most_bytes))

    def _set_incomplete(self, namespace: str, incomplete: IncompleteNamespace) -> None:
        incomplete.reloading = False
        is_new = namespace not in self._incomplete
        self._incomplete[namespace] = incomplete
        for _, store in self._stores:
            store.drop_namespace(namespace)
        if is_new:
            self.on_change(namespace)
