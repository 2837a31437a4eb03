"""Each namespace pays for its own objects, and one beyond its share is incomplete."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.names import ReasonCode
from adapter.objects.unstructured import Raw
from adapter.shell.kube.memory_budget import BudgetExceeded, MemoryBudget, MemoryQuota
from adapter.shell.kube.store import Store

SMALL, LARGE = 400, 30_000  # characters
SHARE = 100_000


def pod(namespace: str, name: str, version: int = 1, size: int = SMALL) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"text": "x" * size, "own": f"{namespace}/{name}/{version}"}}


class Cluster:
    """Two metered kinds and one that is not, with one budget."""

    def __init__(self, most_bytes: int = 10 * SHARE) -> None:
        self.budget = MemoryBudget(most_bytes, most_namespace_bytes=SHARE)
        self.heard: list[str] = []
        self.deleted: list[Raw] = []
        self.stores = [Store(self._note, metered=True), Store(self._note, metered=True), Store()]
        self.quotas: list[MemoryQuota] = []
        for store, plural in zip(self.stores, ("pods", "workloads", "nodes"), strict=True):
            quota = self.budget.new_quota(plural)
            quota.store = store
            self.quotas.append(quota)
            if store.metered:
                self.shares.add_store(plural, store)
        self.shares.on_change = self.heard.append

    @property
    def shares(self) -> Any:
        return self.budget.namespaces

    def _note(self, before: Raw | None, after: Raw | None) -> None:
        if before is not None and after is None:
            self.deleted.append(before)

    def put(self, number: int, raw: Raw) -> None:
        """As the reflector applies an event."""
        self.stores[number].put(raw)
        self.shares.check(raw["metadata"]["namespace"])
        self.quotas[number].check()

    def fill(self, namespace: str, number: int = 0, amount: int = 5) -> None:
        for name in range(amount):
            self.put(number, pod(namespace, f"large-{name}", size=LARGE))

    def names(self, namespace: str) -> set[str]:
        keys = (raw["metadata"] for store in self.stores for raw in store)
        return {meta["name"] for meta in keys if meta["namespace"] == namespace}


def test_a_full_namespace_is_incomplete_and_others_are_not() -> None:
    cluster = Cluster()
    cluster.put(1, pod("other", "a"))
    cluster.put(1, pod("full", "workload"))
    cluster.fill("full")
    assert cluster.heard == ["full"] and not cluster.shares.is_complete("full")
    assert cluster.names("full") == set() and cluster.names("other") == {"a"}
    assert not cluster.deleted, "nothing is said to be deleted"
    assert cluster.shares.weight("full") == 0 and cluster.shares.is_complete("other")
    reason = cluster.shares.reason("full")
    assert reason.code is ReasonCode.NAMESPACE_INCOMPLETE
    assert reason.text == (
        "has more objects than the 0.1 MiB that are kept of it (pods take 0.1 MiB of memory); "
        "delete pods that are not needed, or make them smaller"
    )
    cluster.put(0, pod("full", "later"))
    assert cluster.names("full") == set() and cluster.heard == ["full"]


def test_kinds_that_only_we_or_administrators_write_are_kept() -> None:
    cluster = Cluster()
    cluster.put(2, pod("full", "placement"))
    cluster.fill("full")
    assert cluster.names("full") == {"placement"}


@pytest.mark.parametrize("synced", [False, True])
def test_a_list_drops_a_full_namespace_before_it_is_stored(synced: bool) -> None:
    """Also one that was complete before."""
    cluster = Cluster()
    store = cluster.stores[0]
    if synced:
        store.replace([pod("full", "a"), pod("other", "a")], "1")
    listing = store.begin_listing("9")
    for number in range(8):
        listing.take_page([pod("full", f"b{number}", 5, LARGE), pod("other", f"b{number}", 5)])
        cluster.shares.check_all()
        assert cluster.shares.weight("full") <= SHARE
    listing.finish()
    assert not cluster.shares.is_complete("full") and cluster.names("full") == set()
    assert cluster.names("other") == {f"b{number}" for number in range(8)}
    assert store.synced and [raw["metadata"]["namespace"] for raw in cluster.deleted] == ["other"] * synced


def test_a_new_list_of_the_same_objects_is_not_weighed_twice() -> None:
    cluster = Cluster()
    store = cluster.stores[0]
    store.replace([pod("demo", f"p{number}", 1, LARGE) for number in range(3)], "1")
    listing = store.begin_listing("9")
    listing.take_page([pod("demo", f"p{number}", 5, LARGE) for number in range(3)])
    cluster.shares.check_all()
    listing.finish()
    cluster.shares.check_all()
    assert cluster.heard == [] and len(cluster.names("demo")) == 3


def test_a_namespace_is_read_again_once_it_fits() -> None:
    cluster = Cluster()
    cluster.fill("full")
    cluster.shares.begin_reload("full")
    cluster.put(0, pod("full", "new", 7))  # by the watch
    cluster.stores[0].reload_object(pod("full", "new", 6))
    cluster.stores[0].reload_object(pod("full", "old", 2))
    cluster.stores[0].remove(pod("full", "gone", 8))
    cluster.stores[0].reload_object(pod("full", "gone", 3))
    assert not cluster.shares.is_complete("full"), "not before all kinds are read"
    cluster.shares.end_reload("full")
    assert cluster.heard == ["full", "full"] and cluster.shares.is_complete("full")
    assert {raw["spec"]["own"] for raw in cluster.stores[0]} == {"full/new/7", "full/old/2"}


def test_a_namespace_that_is_still_full_stays_incomplete() -> None:
    """And keeps its first reason, since only a part was weighed."""
    cluster = Cluster()
    cluster.fill("full", 1)
    reason = cluster.shares.reason("full")
    cluster.shares.begin_reload("full")
    cluster.fill("full", 0, 3)
    assert not cluster.shares.is_reloading("full"), "three quarters of a share are enough to stay out"
    cluster.shares.end_reload("full")
    assert not cluster.shares.is_complete("full") and cluster.names("full") == set()
    assert cluster.heard == ["full"] and cluster.shares.reason("full") == reason


def test_a_list_that_left_a_namespace_out_does_not_delete_what_was_read_since() -> None:
    cluster = Cluster()
    cluster.fill("full")
    listing = cluster.stores[0].begin_listing("9")
    listing.take_page([pod("full", "a", 5), pod("other", "a", 5)])
    cluster.shares.begin_reload("full")
    cluster.stores[0].reload_object(pod("full", "a", 5))
    listing.finish()
    cluster.shares.end_reload("full")
    assert cluster.names("full") == {"a"} and not cluster.deleted


def test_together_too_large_the_largest_is_incomplete() -> None:
    cluster = Cluster(most_bytes=2 * SHARE)
    cluster.put(0, pod("small", "a"))
    for namespace in ("b", "c", "d"):
        cluster.fill(namespace, amount=2)
    cluster.put(0, pod("c", "more"))
    cluster.fill("e", amount=1)
    assert cluster.heard == ["c"] and cluster.names("small") == {"a"}
    assert cluster.shares.reason("c").text.startswith("is the largest of namespaces that have more objects than")
    cluster.shares.begin_reload("c")
    cluster.fill("c", amount=2)
    assert cluster.heard == ["c"] and cluster.names("b"), "they do not take turns"


def test_too_many_objects_without_a_namespace_are_still_the_clusters_matter() -> None:
    cluster = Cluster(most_bytes=SHARE)
    with pytest.raises(BudgetExceeded, match="nodes"):
        for number in range(9):
            cluster.put(2, pod("", f"node-{number}", size=LARGE))


def test_an_object_that_is_too_large_makes_its_namespace_incomplete() -> None:
    cluster = Cluster()
    cluster.put(0, pod("full", "a"))
    cluster.shares.drop_unreadable("full", "rayjobs")
    assert cluster.names("full") == set()
    assert cluster.shares.reason("full").text == (
        "has an object among its rayjobs that is too large to be read; make it smaller, or delete it"
    )


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "list", "reload", "end"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from([SMALL, LARGE, 2 * LARGE]),
    ),
    max_size=30,
)


class Reality:
    """What a cluster has, and what is read of it in one store."""

    def __init__(self) -> None:
        self.cluster, self._versions = Cluster(), itertools.count(2)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.store = self.cluster.stores[0]
        self.store.replace([], "1")

    def change(self, deed: str, namespace: str, name: str, size: int) -> None:
        version, key = next(self._versions), (namespace, name)
        if deed == "put":
            self.objects[key] = pod(namespace, name, version, size)
            self.cluster.put(0, self.objects[key])
        elif deed == "remove" and key in self.objects:
            raw = self.objects.pop(key)
            self.store.remove({**raw, "metadata": raw["metadata"] | {"resourceVersion": str(version)}})
        elif deed == "list":
            self.store.replace(self.objects.values(), str(version))
            self.cluster.shares.check_all()
        elif deed == "reload" and not self.cluster.shares.is_complete(namespace):
            self._reload(namespace)
        elif deed == "end":
            self.cluster.shares.end_reload(namespace)

    def _reload(self, namespace: str) -> None:
        self.cluster.shares.begin_reload(namespace)
        for raw in self.named(namespace).values():
            self.store.reload_object(raw)
        self.cluster.shares.check(namespace)

    def named(self, namespace: str) -> dict[str, dict[str, Any]]:
        return {name: raw for (owner, name), raw in self.objects.items() if owner == namespace}


@given(CHANGES)
def test_weights_are_those_of_the_stored_objects(changes: list[tuple[str, str, str, int]]) -> None:
    """And a complete namespace has all that the cluster has."""
    reality = Reality()
    shares = reality.cluster.shares
    for change in changes:
        reality.change(*change)
        for namespace in ("a", "b"):
            assert shares.weight(namespace) <= SHARE
            if shares.is_complete(namespace):
                assert reality.cluster.names(namespace) == set(reality.named(namespace))
    for namespace in ("a", "b"):
        fresh = Store(metered=True)
        fresh.replace([raw for raw in reality.store if raw["metadata"]["namespace"] == namespace], "1")
        assert fresh.weight == shares.weight(namespace)
