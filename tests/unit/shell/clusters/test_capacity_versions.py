"""What is news for whom: a change of one tree for those who read it, one of the rules for all."""

from adapter.shell.clusters.capacity_versions import CapacityVersions

EAST, WEST = ("east", ("Cohort", "all")), ("west", ("Cohort", "all"))


def test_what_is_in_use_is_news_for_those_who_read_that_tree() -> None:
    room = CapacityVersions()
    room.mark_tree_changed(EAST)
    assert (room.latest_change([EAST, WEST]), room.latest_change([WEST]), room.latest_change([])) == (1, 0, 0)
    room.mark_tree_changed(WEST)
    assert (room.latest_change([EAST, WEST]), room.latest_change([EAST])) == (2, 1)


def test_the_rules_are_news_for_all() -> None:
    room = CapacityVersions()
    room.mark_tree_changed(EAST)
    room.mark_all_changed()
    assert room.latest_change([EAST]) == room.latest_change([]) == room.version == 2
    room.mark_tree_changed(EAST)
    assert (room.latest_change([EAST]), room.latest_change([WEST])) == (3, 2)


def test_what_is_promised_is_no_figure_of_a_cluster() -> None:
    room = CapacityVersions()
    room.mark_tree_changed(EAST)
    room.mark_promises_changed()
    assert (room.version, room.latest_change([EAST])) == (2, 1)
