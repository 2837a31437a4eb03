"""When is a proxy asked, and when does its silence count? Only of one that has answered, and twice in a row."""

import math

import pytest

from adapter.worker.proxy_polling import (
    ASK_SECONDS,
    AT_ONCE,
    MISSES,
    OF_NAMESPACE,
    SELDOM_SECONDS,
    Proxy,
    Turn,
    after,
    chosen,
    seen,
)

NEW, WELL = Turn(), Turn(90.0, answered=True)


def proxy(number: int, namespace: str = "a") -> Proxy:
    return namespace, f"uid-{number}", f"10.0.0.{number}:8000"


@pytest.mark.parametrize(
    ("turn", "well", "want", "silent"),
    [
        pytest.param(NEW, True, Turn(100, True), False, id="it answers"),
        pytest.param(NEW, False, Turn(100, False, 1), False, id="it never did"),
        pytest.param(Turn(90, False, 9), False, Turn(100, False, 10), False, id="however often it does not"),
        pytest.param(WELL, False, Turn(100, True, 1), False, id="a lost packet"),
        pytest.param(Turn(90, True, MISSES - 1), False, Turn(100, True, MISSES), True, id="it is silent"),
        pytest.param(Turn(90, True, 9), True, Turn(100, True), False, id="it is back"),
    ],
)
def test_what_comes_of_a_question(turn: Turn, well: bool, want: Turn, silent: bool) -> None:
    assert after(turn, well, 100.0) == want
    assert want.silent is silent


@pytest.mark.parametrize(
    ("turn", "unseen", "want"),
    [
        pytest.param(NEW, False, -math.inf, id="once when it comes"),
        pytest.param(Turn(90, False, 1), False, 90 + 2 * ASK_SECONDS, id="later, if it gave no answer"),
        pytest.param(Turn(90, False, 10**6), True, 90 + SELDOM_SECONDS, id="and seldom, for ever"),
        pytest.param(WELL, False, math.inf, id="never again while its cluster can be seen"),
        pytest.param(WELL, True, 90 + ASK_SECONDS, id="all the time while it cannot"),
        pytest.param(Turn(90, True, 10**6), True, 90 + ASK_SECONDS, id="also when it is silent: it may be back"),
    ],
)
def test_when_it_is_asked(turn: Turn, unseen: bool, want: float) -> None:
    assert turn.due(unseen) == want


def test_a_cluster_that_is_seen_again_begins_anew() -> None:
    assert seen(Turn(90, True, 5)) == Turn(90, True)
    assert seen(Turn(90, False, 5)) == Turn(90, False, 5), "who never answered is asked as seldom as before"


def test_who_waits_longest_is_first_and_one_namespace_leaves_places_to_others() -> None:
    many = {proxy(number): Turn(float(number), True) for number in range(AT_ONCE)}
    other = proxy(0, "b")
    found = chosen({**many, other: Turn(80.0, True)}, {*many, other}, [proxy(0)], 200.0)
    assert found == [*(proxy(number) for number in range(1, OF_NAMESPACE)), other]
    flying = [proxy(number, f"of-{number}") for number in range(AT_ONCE)]
    assert chosen({other: NEW}, [], flying, 200.0) == [], "no place is left"


def test_nobody_is_asked_before_the_time() -> None:
    assert chosen({proxy(1): WELL}, [proxy(1)], [], 90 + ASK_SECONDS - 0.1) == []
    assert chosen({proxy(1): WELL}, [], [], 10**9) == []
