"""A cluster that is read without its pods can be planned by; once they are to be known, nothing is concluded before they are."""

import gc
from collections.abc import Iterator
from typing import cast

import pytest

from adapter.shell import gc_tuning
from adapter.shell.clusters.cluster_cache import CONNECTION, PROBE, Cluster, Row
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import FIRST_LISTS, Listeners, Member
from adapter.shell.kube.client import ApiError, Client
from tests.unit import builders, stores

REFUSED = ApiError(403, "Forbidden", "pods are forbidden")


def _late(cluster: Cluster) -> Row:
    (row,) = (row for row in cluster._rows if row.late)
    return row


def _spared() -> tuple[Member, list[str]]:
    """A worker cluster that is seen, without its pods, and who heard of it."""
    member, told = stores.make_member("east", 8), list[str]()
    member.pods.forget()
    member.spare()
    member.seen.set()
    member._tell = Listeners(contact=told.append)
    return member, told


def test_pods_are_what_is_left_out() -> None:
    manager, (member, _) = Manager(cast(Client, None)), _spared()
    assert (_late(manager).store, _late(member).store) == (manager.pods, member.pods)


def test_a_worker_cluster_whose_pods_are_left_out_is_seen_and_then_out_of_sight_until_they_are_read() -> None:
    member, told = _spared()
    assert member.synced and not member.why_silent
    member.complete()
    assert member.why_silent == f"cannot be seen: {FIRST_LISTS}" and not member.seen.is_set()
    other = next(row for row in member._rows if not row.late)
    member._followed(other, None)
    assert (told, member.seen.is_set()) == ([], False), "of another kind that is read nothing comes"
    member.pods.replace([builders.make_pod()])
    member._followed(_late(member), None)
    assert (told, member.seen.is_set(), member.why_silent) == (["east"], True, "")


def test_one_that_stands_by_again_lacks_no_pods() -> None:
    member, _ = _spared()
    member.complete()
    assert not member.synced
    member.spare()
    assert member.synced


def test_what_is_in_the_way_of_pods_that_are_left_out_is_in_nobodys_way() -> None:
    member, _ = _spared()
    member._followed(_late(member), REFUSED)
    assert not member.why_silent
    member.complete()
    member._followed(_late(member), REFUSED)
    assert "lacks a right" in member.why_silent


def test_one_whose_pods_are_read_already_is_seen_all_along() -> None:
    """A process that lost no Lease, and is told once more."""
    member, told = _spared()
    member.pods.replace([])
    member.complete()
    assert (member.why_silent, member.seen.is_set(), told) == ("", True, [])


def test_a_manager_is_filled_once_more_when_its_pods_are_read() -> None:
    manager = Manager(cast(Client, None))
    manager.spare()
    for row in manager._rows:
        if not row.late:
            row.store.replace([])
            manager._followed(row, None)
    for source in (CONNECTION, PROBE):
        manager._note(source, None)
    assert _known_of(manager) == (True, "")
    manager.complete()
    assert _known_of(manager) == (False, "the manager cluster is not read yet")
    manager._followed(next(row for row in manager._rows if not row.late), None)
    assert not manager.filled.is_set(), "of another kind that is read nothing comes"
    manager.pods.replace([])
    manager._followed(_late(manager), None)
    assert _known_of(manager) == (True, "")


def _known_of(manager: Manager) -> tuple[bool, str]:
    return manager.filled.is_set(), manager.unready


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
    gc_tuning.settled()
    member.release()
    assert gone == ["gone"] and "cannot be seen" in member.why_silent, "and whoever still has it concludes nothing"


def test_of_copies_nothing_is_kept_that_nobody_reads() -> None:
    """A worker cluster, and its users, say how large they are."""
    member, _ = _spared()
    copy = builders.make_copy(builders.make_pod())
    copy["metadata"]["annotations"] = {**copy["metadata"].get("annotations", {}), "example.com/notes": "x" * 2000}
    copy["spec"] = {"volumes": [{"name": "of-a-user", "emptyDir": {}}]}
    stores.fill(member.pods, copy)
    (kept,) = member.pods
    assert "example.com/notes" not in str(kept) and "of-a-user" not in str(kept)
