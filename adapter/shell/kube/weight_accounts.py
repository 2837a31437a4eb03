"""Interns a store's objects, and weighs them by namespace.

Objects of different namespaces share no parts, so a namespace's weight is free again once its objects are dropped.
"""

from adapter.objects.unstructured import Raw
from adapter.shell.kube.interning import PartHolder, PartTable


class _Account:
    def __init__(self) -> None:
        self.part_table, self.own_weight = PartTable(), 0  # the parts that objects share, and all other weight

    @property
    def weight(self) -> int:
        return self.own_weight + self.part_table.weight


class WeightAccounts:
    def __init__(self, *, by_namespace: bool) -> None:
        """Without `by_namespace`, the objects of all namespaces have one account."""
        self._by_namespace = by_namespace
        self._accounts: dict[str, _Account] = {}
        self.weight = 0  # of all accounts

    def intern(self, namespace: str, raw: Raw) -> tuple[Raw, PartHolder]:
        """The object with interned parts, and their holder for `release`."""
        account = self._accounts.setdefault(self._name_of(namespace), _Account())
        before = account.weight
        interned, holder = account.part_table.intern_object(raw)
        account.own_weight += holder.weight
        self.weight += account.weight - before
        return interned, holder

    def release(self, namespace: str, holder: PartHolder) -> None:
        name = self._name_of(namespace)
        account = self._accounts[name]
        before = account.weight
        account.own_weight -= holder.weight
        account.part_table.release_parts(holder)
        self.weight += account.weight - before
        if not account.weight:
            del self._accounts[name]

    def drop(self, namespace: str) -> None:
        """Forget the holders of a namespace's objects."""
        if self._by_namespace and (account := self._accounts.pop(namespace, None)):
            self.weight -= account.weight

    def namespace_weight(self, namespace: str) -> int:
        account = self._accounts.get(namespace) if self._by_namespace else None
        return account.weight if account else 0

    def namespaces(self) -> set[str]:
        return set(self._accounts) if self._by_namespace else set()

    def _name_of(self, namespace: str) -> str:
        return namespace if self._by_namespace else ""
