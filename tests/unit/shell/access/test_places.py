"""How many streams may be open, in all and of one namespace?"""

from contextlib import ExitStack

import pytest

from adapter.shell.access.places import MOST, MOST_OF_NAMESPACE, Full, Places


def test_one_namespace_takes_a_part_and_leaves_the_rest_to_others() -> None:
    places = Places()
    with ExitStack() as taken:
        for _ in range(MOST_OF_NAMESPACE):
            taken.enter_context(places.one("greedy"))
        with pytest.raises(Full, match="Namespace greedy has as many"), places.one("greedy"):
            pass
        with places.one("other"):
            pass
    with places.one("greedy"):
        pass


def test_all_together_take_no_more_than_there_is_memory_for() -> None:
    places = Places()
    with ExitStack() as taken:
        for number in range(MOST):
            taken.enter_context(places.one(f"n-{number}"))
        with pytest.raises(Full, match="Everybody together"), places.one("late"):
            pass
    assert not places._taken
