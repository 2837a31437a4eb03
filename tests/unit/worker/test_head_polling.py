"""Which Ray heads are polled next: each on its own schedule, none delayed by unresponsive heads."""

from collections.abc import Mapping

import pytest

from adapter.worker.head_polling import (
    MAX_BACKOFF_SECONDS,
    POLL_SECONDS,
    POLLS_AT_ONCE,
    POLLS_PER_NAMESPACE,
    HeadId,
    HeadPollState,
    heads_to_poll,
    state_after_poll,
)

TIMEOUT = 5.0  # seconds until the poll of an unresponsive head times out
NEW = HeadPollState()


def head(namespace: str, number: int = 0) -> HeadId:
    return namespace, f"ray-{number}", f"uid-{number}"


def crowd(count: int, namespace: str = "crowd", state: HeadPollState = NEW) -> dict[HeadId, HeadPollState]:
    return {head(namespace, number): state for number in range(count)}


@pytest.mark.parametrize(
    ("state", "answered", "want"),
    [
        pytest.param(HeadPollState(), True, HeadPollState(100 + POLL_SECONDS, 0), id="an answer"),
        pytest.param(
            HeadPollState(90, 7), True, HeadPollState(100 + POLL_SECONDS, 0), id="an answer resets the failures"
        ),
        pytest.param(HeadPollState(), False, HeadPollState(110, 1), id="the first poll of a new head fails"),
        pytest.param(HeadPollState(90, 0), False, HeadPollState(110, 1), id="the first failure after an answer"),
        pytest.param(HeadPollState(90, 1), False, HeadPollState(120, 2), id="the second failure"),
        pytest.param(HeadPollState(90, 2), False, HeadPollState(140, 3), id="the third failure"),
        pytest.param(
            HeadPollState(90, 3),
            False,
            HeadPollState(100 + MAX_BACKOFF_SECONDS, 4),
            id="the fourth failure reaches the longest delay",
        ),
        pytest.param(
            HeadPollState(90, 10**6),
            False,
            HeadPollState(100 + MAX_BACKOFF_SECONDS, 10**6 + 1),
            id="a million failures keep the longest delay",
        ),
    ],
)
def test_state_after_poll(state: HeadPollState, answered: bool, want: HeadPollState) -> None:
    assert state_after_poll(state, answered, 100.0) == want


UNRESPONSIVE = HeadPollState(0, 3)
RESPONSIVE = HeadPollState(0, 0)


@pytest.mark.parametrize(
    ("states", "in_flight", "want"),
    [
        pytest.param({}, {}, [], id="no heads"),
        pytest.param({head("a"): HeadPollState(11, 0)}, {}, [], id="not due"),
        pytest.param({head("a"): HeadPollState(10, 0)}, {}, [head("a")], id="due"),
        pytest.param({head("a"): RESPONSIVE}, {head("a"): RESPONSIVE}, [], id="a poll is in flight"),
        pytest.param({head("a"): HeadPollState(9, 0), head("b"): HeadPollState(8, 0)}, {}, [head("b"), head("a")],
                     id="the head that waits longest is first"),
        pytest.param({head("a"): RESPONSIVE}, crowd(POLLS_AT_ONCE, state=UNRESPONSIVE), [head("a")],
                     id="not delayed by unresponsive heads"),
        pytest.param({head("a"): RESPONSIVE}, crowd(POLLS_AT_ONCE), [head("a")], id="not delayed by new heads"),
        pytest.param({head("a"): HeadPollState()}, crowd(POLLS_AT_ONCE, state=UNRESPONSIVE), [head("a")],
                     id="a new head is not delayed by unresponsive ones"),
        pytest.param({head("a"): UNRESPONSIVE}, crowd(POLLS_AT_ONCE, state=UNRESPONSIVE), [],
                     id="all polls for unresponsive heads are in use"),
        pytest.param({head("a"): UNRESPONSIVE}, crowd(POLLS_AT_ONCE - 1, state=UNRESPONSIVE), [head("a")],
                     id="one poll is left"),
        pytest.param({head("a"): RESPONSIVE}, crowd(POLLS_AT_ONCE, state=RESPONSIVE), [],
                     id="polls of responsive heads are bounded"),
        pytest.param(crowd(99), {}, [*crowd(POLLS_PER_NAMESPACE)], id="one namespace gets a part of the polls"),
        pytest.param(crowd(99), crowd(POLLS_PER_NAMESPACE), [], id="polls in flight count for their namespace"),
        pytest.param({**crowd(99), head("a"): HeadPollState(9)}, crowd(POLLS_PER_NAMESPACE - 1),
                     [head("a"), head("crowd", POLLS_PER_NAMESPACE - 1)],
                     id="a namespace with fewer polls is first, though others wait longer"),
    ],
)  # fmt: skip
def test_heads_to_poll(
    states: Mapping[HeadId, HeadPollState], in_flight: Mapping[HeadId, HeadPollState], want: list[HeadId]
) -> None:
    polling = {key: state for key, state in in_flight.items() if key not in want}
    assert heads_to_poll(states, polling, 10.0) == want


def poll_times(states: dict[HeadId, HeadPollState], watched: HeadId, until: float) -> list[float]:
    """The times at which a responsive head is polled among unresponsive ones, by a clock of half seconds."""
    in_flight: dict[HeadId, tuple[HeadPollState, float]] = {}
    now, polled_at = 0.0, []
    while now < until:
        for key in [key for key, (_, ends) in in_flight.items() if ends <= now]:
            del in_flight[key]
            states[key] = state_after_poll(states[key], False, now)
        for key in heads_to_poll(states, {key: state for key, (state, _) in in_flight.items()}, now):
            if key == watched:
                polled_at.append(now)
                states[key] = state_after_poll(states[key], True, now)
            else:
                in_flight[key] = states[key], now + TIMEOUT
        now += 0.5
    assert len(in_flight) <= 2 * POLLS_AT_ONCE
    return polled_at


@pytest.mark.parametrize(
    "namespace",
    [
        pytest.param("mine", id="unresponsive heads of another namespace"),
        pytest.param("crowd", id="unresponsive heads of its own namespace"),
    ],
)
def test_a_responsive_head_is_polled_on_time_among_four_hundred_unresponsive_ones(namespace: str) -> None:
    watched = head(namespace, 1000)
    polled_at = poll_times({**crowd(400), watched: RESPONSIVE}, watched, 300)
    assert polled_at == [POLL_SECONDS * n for n in range(30)]


def test_a_new_head_waits_for_no_unresponsive_heads_of_other_namespaces() -> None:
    watched = head("mine")
    assert poll_times({**crowd(400), watched: HeadPollState()}, watched, 20) == [0.0, POLL_SECONDS]


def test_each_of_four_hundred_unresponsive_heads_is_polled() -> None:
    """A recovery is noticed: all heads of ten namespaces are polled once in about two minutes."""
    states = {key: state for n in range(10) for key, state in crowd(40, f"tenant-{n}").items()}
    poll_times(states, head("nobody"), 400 * TIMEOUT / POLLS_AT_ONCE + TIMEOUT)
    assert [key for key, state in states.items() if not state.failures] == []
