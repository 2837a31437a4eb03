"""What is news for whom: a change of one tree for those who read it, one of the rules for all."""

from adapter.shell.clusters.capacity_versions import Room

EAST, WEST = ("east", ("Cohort", "all")), ("west", ("Cohort", "all"))


def test_what_is_in_use_is_news_for_those_who_read_that_tree() -> None:
    room = Room()
    room.used(EAST)
    assert (room.since([EAST, WEST]), room.since([WEST]), room.since([])) == (1, 0, 0)
    room.used(WEST)
    assert (room.since([EAST, WEST]), room.since([EAST])) == (2, 1)


def test_the_rules_are_news_for_all() -> None:
    room = Room()
    room.used(EAST)
    room.changed()
    assert room.since([EAST]) == room.since([]) == room.version == 2
    room.used(EAST)
    assert (room.since([EAST]), room.since([WEST])) == (3, 2)


def test_what_is_promised_is_no_figure_of_a_cluster() -> None:
    room = Room()
    room.used(EAST)
    room.promised()
    assert (room.version, room.since([EAST])) == (2, 1)
