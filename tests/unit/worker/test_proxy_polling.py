"""When is a proxy asked, and when does its silence count? Only of one that has answered, and twice in a row."""

import math

import pytest

from adapter.worker.proxy_polling import (
    FAILURE_THRESHOLD,
    MAX_BACKOFF_SECONDS,
    POLL_SECONDS,
    POLLS_AT_ONCE,
    POLLS_PER_NAMESPACE,
    ProxyId,
    ProxyPollState,
    proxies_to_poll,
    state_after_poll,
    without_failures,
)

NEW, WELL = ProxyPollState(), ProxyPollState(90.0, ever_answered=True)


def proxy(number: int, namespace: str = "a") -> ProxyId:
    return namespace, f"uid-{number}", f"10.0.0.{number}:8000"


@pytest.mark.parametrize(
    ("turn", "well", "want", "silent"),
    [
        pytest.param(NEW, True, ProxyPollState(100, True), False, id="it answers"),
        pytest.param(NEW, False, ProxyPollState(100, False, 1), False, id="it never did"),
        pytest.param(
            ProxyPollState(90, False, 9), False, ProxyPollState(100, False, 10), False, id="however often it does not"
        ),
        pytest.param(WELL, False, ProxyPollState(100, True, 1), False, id="a lost packet"),
        pytest.param(
            ProxyPollState(90, True, FAILURE_THRESHOLD - 1),
            False,
            ProxyPollState(100, True, FAILURE_THRESHOLD),
            True,
            id="it is silent",
        ),
        pytest.param(ProxyPollState(90, True, 9), True, ProxyPollState(100, True), False, id="it is back"),
    ],
)
def test_what_comes_of_a_question(turn: ProxyPollState, well: bool, want: ProxyPollState, silent: bool) -> None:
    assert state_after_poll(turn, well, 100.0) == want
    assert want.is_unresponsive is silent


@pytest.mark.parametrize(
    ("turn", "unseen", "want"),
    [
        pytest.param(NEW, False, -math.inf, id="once when it comes"),
        pytest.param(ProxyPollState(90, False, 1), False, 90 + 2 * POLL_SECONDS, id="later, if it gave no answer"),
        pytest.param(ProxyPollState(90, False, 10**6), True, 90 + MAX_BACKOFF_SECONDS, id="and seldom, for ever"),
        pytest.param(WELL, False, math.inf, id="never again while its cluster can be seen"),
        pytest.param(WELL, True, 90 + POLL_SECONDS, id="all the time while it cannot"),
        pytest.param(
            ProxyPollState(90, True, 10**6), True, 90 + POLL_SECONDS, id="also when it is silent: it may be back"
        ),
    ],
)
def test_when_it_is_asked(turn: ProxyPollState, unseen: bool, want: float) -> None:
    assert turn.due_at(unseen) == want


def test_a_cluster_that_is_seen_again_begins_anew() -> None:
    assert without_failures(ProxyPollState(90, True, 5)) == ProxyPollState(90, True)
    assert without_failures(ProxyPollState(90, False, 5)) == ProxyPollState(90, False, 5), (
        "who never answered is asked as seldom as before"
    )


def test_who_waits_longest_is_first_and_one_namespace_leaves_places_to_others() -> None:
    many = {proxy(number): ProxyPollState(float(number), True) for number in range(POLLS_AT_ONCE)}
    other = proxy(0, "b")
    found = proxies_to_poll({**many, other: ProxyPollState(80.0, True)}, {*many, other}, [proxy(0)], 200.0)
    assert found == [*(proxy(number) for number in range(1, POLLS_PER_NAMESPACE)), other]
    flying = [proxy(number, f"of-{number}") for number in range(POLLS_AT_ONCE)]
    assert proxies_to_poll({other: NEW}, [], flying, 200.0) == [], "no place is left"


def test_nobody_is_asked_before_the_time() -> None:
    assert proxies_to_poll({proxy(1): WELL}, [proxy(1)], [], 90 + POLL_SECONDS - 0.1) == []
    assert proxies_to_poll({proxy(1): WELL}, [], [], 10**9) == []
