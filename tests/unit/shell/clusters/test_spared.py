"""A cluster that is read without its pods can be planned by; once they are to be known, nothing is concluded before they are."""

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
    """A worker cluster that is seen, without its pods, and who heard of it."""
    member, told = stores.make_member("east", 8), list[str]()
    member.pods.clear()
    member.skip_deferred()
    member.first_reached.set()
    member._listeners = WorkerClusterListeners(on_contact=told.append)
    return member, told


def test_pods_are_what_is_left_out() -> None:
    manager, (member, _) = ManagerCache(cast(Client, None)), _spared()
    assert (_late(manager).store, _late(member).store) == (manager.pods, member.pods)


def test_a_worker_cluster_whose_pods_are_left_out_is_seen_and_then_out_of_sight_until_they_are_read() -> None:
    member, told = _spared()
    assert member.synced and not member.unreachable_reason
    member.follow_deferred()
    assert member.unreachable_reason == f"cannot be seen: {FIRST_LISTS}" and not member.first_reached.is_set()
    other = next(row for row in member._watched_kinds if not row.deferred)
    member._on_follow_result(other, None)
    assert (told, member.first_reached.is_set()) == ([], False), "of another kind that is read nothing comes"
    member.pods.replace([builders.make_pod()])
    member._on_follow_result(_late(member), None)
    assert (told, member.first_reached.is_set(), member.unreachable_reason) == (["east"], True, "")


def test_one_that_stands_by_again_lacks_no_pods() -> None:
    member, _ = _spared()
    member.follow_deferred()
    assert not member.synced
    member.skip_deferred()
    assert member.synced


def test_what_is_in_the_way_of_pods_that_are_left_out_is_in_nobodys_way() -> None:
    member, _ = _spared()
    member._on_follow_result(_late(member), REFUSED)
    assert not member.unreachable_reason
    member.follow_deferred()
    member._on_follow_result(_late(member), REFUSED)
    assert "lacks a right" in member.unreachable_reason


def test_one_whose_pods_are_read_already_is_seen_all_along() -> None:
    """A process that lost no Lease, and is told once more."""
    member, told = _spared()
    member.pods.replace([])
    member.follow_deferred()
    assert (member.unreachable_reason, member.first_reached.is_set(), told) == ("", True, [])


def test_a_manager_is_filled_once_more_when_its_pods_are_read() -> None:
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
def test_one_that_is_let_go_leaves_nothing_behind_though_all_was_settled() -> None:
    """It and its stores hold each other, and nobody looks for that any more."""
    gone = list[str]()
    member = stores.make_member("east", 8)
    member.pods._objects["demo", "a"] = {"metadata": {"name": "a"}, "mark": Mark(gone)}
    gc_tuning.freeze_objects()
    member.drop_objects()
    assert gone == ["gone"] and "cannot be seen" in member.unreachable_reason, (
        "and whoever still has it concludes nothing"
    )


def test_of_copies_nothing_is_kept_that_nobody_reads() -> None:
    """A worker cluster, and its users, say how large they are."""
    member, _ = _spared()
    copy = builders.make_copy(builders.make_pod())
    copy["metadata"]["annotations"] = {**copy["metadata"].get("annotations", {}), "example.com/notes": "x" * 2000}
    copy["spec"] = {"volumes": [{"name": "of-a-user", "emptyDir": {}}]}
    stores.fill(member.pods, copy)
    (kept,) = member.pods
    assert "example.com/notes" not in str(kept) and "of-a-user" not in str(kept)
