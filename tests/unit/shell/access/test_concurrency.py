"""How many streams may be open, in all and of one namespace, and how many may ask for one at once?"""

from contextlib import ExitStack

import pytest

from adapter.shell.access.concurrency import (
    MOST_PENDING_REQUESTS,
    MOST_STREAMS,
    MOST_STREAMS_OF_NAMESPACE,
    ConcurrencyLimits,
    TooManyStreams,
)


def test_one_namespace_takes_a_part_and_leaves_the_rest_to_others() -> None:
    places = ConcurrencyLimits()
    with ExitStack() as taken:
        for _ in range(MOST_STREAMS_OF_NAMESPACE):
            taken.enter_context(places.open_stream("greedy"))
        with pytest.raises(TooManyStreams, match="Namespace greedy has as many"), places.open_stream("greedy"):
            pass
        with places.open_stream("other"):
            pass
    with places.open_stream("greedy"):
        pass


def test_all_together_take_no_more_than_there_is_memory_for() -> None:
    places = ConcurrencyLimits()
    with ExitStack() as taken:
        for number in range(MOST_STREAMS):
            taken.enter_context(places.open_stream(f"n-{number}"))
        with pytest.raises(TooManyStreams, match="Everybody together"), places.open_stream("late"):
            pass
    assert not places._open_streams


def test_who_asks_while_many_do_is_told_to_ask_again() -> None:
    """Nothing is proved of them yet: each costs the manager's API server a question."""
    places = ConcurrencyLimits()
    with ExitStack() as asking:
        for _ in range(MOST_PENDING_REQUESTS):
            asking.enter_context(places.pending_request())
        with pytest.raises(TooManyStreams) as told, places.pending_request():
            pass
        assert told.value.refusal.status == 429
        assert (
            told.value.refusal.message
            == "Too many ask for logs, commands and ports of workers at this moment; try again in a few seconds."
        )
    with places.pending_request():
        pass
