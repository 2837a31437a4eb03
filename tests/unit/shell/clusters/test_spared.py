"""A cluster cached without its pods can be planned on; no decision about pods precedes their list."""

import gc
from collections.abc import Iterator
from typing import cast

import pytest

from adapter.shell import gc_tuning
from adapter.shell.clusters.cluster_cache import CONNECTION, PROBE, ClusterCache, WatchedKind
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import FIRST_LISTS, WorkerClusterCache, WorkerClusterListeners
from adapter.shell.kube.client import ApiError, Client
from tests.unit import builders, stores

REFUSED = ApiError(403, "Forbidden", "pods are forbidden")


def _late(cluster: ClusterCache) -> WatchedKind:
    (row,) = (row for row in cluster._watched_kinds if row.deferred)
    return row


def _spared() -> tuple[WorkerClusterCache, list[str]]:
    """A reachable worker cluster cached without its pods, and its notifications."""
    member, told = stores.make_member("east", 8), list[str]()
    member.pods.clear()
    member.skip_deferred()
    member.first_reached.set()
    member._listeners = WorkerClusterListeners(on_contact=told.append)
    return member, told


def test_a_standby_cache_leaves_out_pods() -> None:
    manager, (member, _) = ManagerCache(cast(Client, None)), _spared()
    assert (_late(manager).store, _late(member).store) == (manager.pods, member.pods)


def test_a_cluster_cached_without_pods_is_unreachable_from_takeover_until_they_are_listed() -> None:
    member, told = _spared()
    assert member.synced and not member.unreachable_reason
    member.follow_deferred()
    assert member.unreachable_reason == f"is unreachable: {FIRST_LISTS}" and not member.first_reached.is_set()
    other = next(row for row in member._watched_kinds if not row.deferred)
    member._on_follow_result(other, None)
    assert (told, member.first_reached.is_set()) == ([], False), "of another kind that is read nothing comes"
    member.pods.replace([builders.make_pod()])
    member._on_follow_result(_late(member), None)
    assert (told, member.first_reached.is_set(), member.unreachable_reason) == (["east"], True, "")


def test_a_replica_that_stands_by_again_keeps_pods() -> None:
    member, _ = _spared()
    member.follow_deferred()
    assert not member.synced
    member.skip_deferred()
    assert member.synced


def test_trouble_with_left_out_pods_does_not_matter_before_takeover() -> None:
    member, _ = _spared()
    member._on_follow_result(_late(member), REFUSED)
    assert not member.unreachable_reason
    member.follow_deferred()
    member._on_follow_result(_late(member), REFUSED)
    assert "lacks a right" in member.unreachable_reason


def test_a_cluster_whose_pods_are_cached_stays_reachable() -> None:
    """A process that did not lose the Lease, and is notified again."""
    member, told = _spared()
    member.pods.replace([])
    member.follow_deferred()
    assert (member.unreachable_reason, member.first_reached.is_set(), told) == ("", True, [])


def test_the_manager_cache_is_filled_again_with_its_pods() -> None:
    manager = ManagerCache(cast(Client, None))
    manager.skip_deferred()
    for row in manager._watched_kinds:
        if not row.deferred:
            row.store.replace([])
            manager._on_follow_result(row, None)
    for source in (CONNECTION, PROBE):
        manager._note_error(source, None)
    assert _known_of(manager) == (True, "")
    manager.follow_deferred()
    assert _known_of(manager) == (False, "the manager cluster is not read yet")
    manager._on_follow_result(next(row for row in manager._watched_kinds if not row.deferred), None)
    assert not manager.stores_filled.is_set(), "of another kind that is read nothing comes"
    manager.pods.replace([])
    manager._on_follow_result(_late(manager), None)
    assert _known_of(manager) == (True, "")


def _known_of(manager: ManagerCache) -> tuple[bool, str]:
    return manager.stores_filled.is_set(), manager.not_ready_reason


# --- one that is let go ----------------------------------------------------------------------------------------------


@pytest.fixture
def settled() -> Iterator[None]:
    """What there is is left out of all looks for garbage."""
    yield
    gc.unfreeze()


class Mark:
    """Something that tells when it goes."""

    def __init__(self, gone: list[str]) -> None:
        self._gone = gone

    def __del__(self) -> None:
        self._gone.append("gone")


@pytest.mark.usefixtures("settled")
def test_a_removed_cluster_leaves_nothing_after_a_garbage_freeze() -> None:
    """The cluster and its stores refer to each other, and frozen cycles are not collected."""
    gone = list[str]()
    member = stores.make_member("east", 8)
    member.pods._objects["demo", "a"] = {"metadata": {"name": "a"}, "mark": Mark(gone)}
    gc_tuning.freeze_objects()
    member.drop_objects()
    assert gone == ["gone"] and "is unreachable" in member.unreachable_reason, (
        "and whoever still has it concludes nothing"
    )


def test_unused_fields_of_remote_pods_are_not_kept() -> None:
    """A worker cluster, and its users, say how large they are."""
    member, _ = _spared()
    copy = builders.make_copy(builders.make_pod())
    copy["metadata"]["annotations"] = {**copy["metadata"].get("annotations", {}), "example.com/notes": "x" * 2000}
    copy["spec"] = {"volumes": [{"name": "of-a-user", "emptyDir": {}}]}
    stores.fill(member.pods, copy)
    (kept,) = member.pods
    assert "example.com/notes" not in str(kept) and "of-a-user" not in str(kept)
