"""Which gangs a change concerns: one of a cohort tree those that use the tree, one of the policy all."""

from adapter.shell.clusters.capacity_versions import CapacityVersions

EAST, WEST = ("east", ("Cohort", "all")), ("west", ("Cohort", "all"))


def test_usage_changes_the_version_of_its_cohort_tree() -> None:
    room = CapacityVersions()
    room.mark_tree_changed(EAST)
    assert (room.latest_change([EAST, WEST]), room.latest_change([WEST]), room.latest_change([])) == (1, 0, 0)
    room.mark_tree_changed(WEST)
    assert (room.latest_change([EAST, WEST]), room.latest_change([EAST])) == (2, 1)


def test_other_changes_change_the_version_for_all() -> None:
    room = CapacityVersions()
    room.mark_tree_changed(EAST)
    room.mark_all_changed()
    assert room.latest_change([EAST]) == room.latest_change([]) == room.version == 2
    room.mark_tree_changed(EAST)
    assert (room.latest_change([EAST]), room.latest_change([WEST])) == (3, 2)


def test_pending_shares_do_not_change_a_clusters_capacity() -> None:
    room = CapacityVersions()
    room.mark_tree_changed(EAST)
    room.mark_promises_changed()
    assert (room.version, room.latest_change([EAST])) == (2, 1)
