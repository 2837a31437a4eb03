"""How many streams may be open, in all and of one namespace, and how many may ask for one at once?"""

from contextlib import ExitStack

import pytest

from adapter.shell.access.concurrency import MOST, MOST_ASKING, MOST_OF_NAMESPACE, Full, Places


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


def test_who_asks_while_many_do_is_told_to_ask_again() -> None:
    """Nothing is proved of them yet: each costs the manager's API server a question."""
    places = Places()
    with ExitStack() as asking:
        for _ in range(MOST_ASKING):
            asking.enter_context(places.asking())
        with pytest.raises(Full) as told, places.asking():
            pass
        assert told.value.refusal.status == 429
        assert (
            told.value.refusal.message
            == "Too many ask for logs, commands and ports of workers at this moment; try again in a few seconds."
        )
    with places.asking():
        pass
