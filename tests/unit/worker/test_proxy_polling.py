"""When a proxy is polled, and when it counts as unresponsive: after an answer and two failures in a row."""

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
    ("state", "answered", "want", "unresponsive"),
    [
        pytest.param(NEW, True, ProxyPollState(100, True), False, id="a new proxy answers"),
        pytest.param(NEW, False, ProxyPollState(100, False, 1), False, id="a new proxy does not answer"),
        pytest.param(
            ProxyPollState(90, False, 9),
            False,
            ProxyPollState(100, False, 10),
            False,
            id="a proxy that never answered fails ten times",
        ),
        pytest.param(WELL, False, ProxyPollState(100, True, 1), False, id="one failure after an answer"),
        pytest.param(
            ProxyPollState(90, True, FAILURE_THRESHOLD - 1),
            False,
            ProxyPollState(100, True, FAILURE_THRESHOLD),
            True,
            id="the failure that reaches the threshold",
        ),
        pytest.param(
            ProxyPollState(90, True, 9),
            True,
            ProxyPollState(100, True),
            False,
            id="an unresponsive proxy answers again",
        ),
    ],
)
def test_state_after_poll(state: ProxyPollState, answered: bool, want: ProxyPollState, unresponsive: bool) -> None:
    assert state_after_poll(state, answered, 100.0) == want
    assert want.is_unresponsive is unresponsive


@pytest.mark.parametrize(
    ("state", "unreachable", "want"),
    [
        pytest.param(NEW, False, -math.inf, id="a new proxy at once"),
        pytest.param(
            ProxyPollState(90, False, 1), False, 90 + 2 * POLL_SECONDS, id="a proxy that did not answer after a delay"
        ),
        pytest.param(
            ProxyPollState(90, False, 10**6),
            True,
            90 + MAX_BACKOFF_SECONDS,
            id="a proxy that never answered after the longest delay",
        ),
        pytest.param(WELL, False, math.inf, id="a responsive proxy in a reachable cluster never again"),
        pytest.param(WELL, True, 90 + POLL_SECONDS, id="a responsive proxy in an unreachable cluster at the interval"),
        pytest.param(
            ProxyPollState(90, True, 10**6),
            True,
            90 + POLL_SECONDS,
            id="an unresponsive proxy in an unreachable cluster at the interval",
        ),
    ],
)
def test_due_at(state: ProxyPollState, unreachable: bool, want: float) -> None:
    assert state.due_at(unreachable) == want


def test_a_cluster_that_is_reachable_again_resets_the_failures() -> None:
    assert without_failures(ProxyPollState(90, True, 5)) == ProxyPollState(90, True)
    assert without_failures(ProxyPollState(90, False, 5)) == ProxyPollState(90, False, 5), (
        "the delay of a proxy that never answered stays"
    )


def test_the_proxy_that_waits_longest_is_first_and_one_namespace_gets_a_part() -> None:
    many = {proxy(number): ProxyPollState(float(number), True) for number in range(POLLS_AT_ONCE)}
    other = proxy(0, "b")
    due = proxies_to_poll({**many, other: ProxyPollState(80.0, True)}, {*many, other}, [proxy(0)], 200.0)
    assert due == [*(proxy(number) for number in range(1, POLLS_PER_NAMESPACE)), other]
    in_flight = [proxy(number, f"of-{number}") for number in range(POLLS_AT_ONCE)]
    assert proxies_to_poll({other: NEW}, [], in_flight, 200.0) == [], "all polls are in use"


def test_no_proxy_is_polled_before_it_is_due() -> None:
    assert proxies_to_poll({proxy(1): WELL}, [proxy(1)], [], 90 + POLL_SECONDS - 0.1) == []
    assert proxies_to_poll({proxy(1): WELL}, [], [], 10**9) == []
