"""Who is asked next: each head on a schedule of its own, and nobody behind those who give no answer."""

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

GONE = 5.0  # seconds that a head takes which gives no answer
NEW = HeadPollState()


def head(namespace: str, number: int = 0) -> HeadId:
    return namespace, f"ray-{number}", f"uid-{number}"


def crowd(count: int, namespace: str = "crowd", turn: HeadPollState = NEW) -> dict[HeadId, HeadPollState]:
    return {head(namespace, number): turn for number in range(count)}


@pytest.mark.parametrize(
    ("turn", "answered", "want"),
    [
        pytest.param(HeadPollState(), True, HeadPollState(100 + POLL_SECONDS, 0), id="an answer"),
        pytest.param(HeadPollState(90, 7), True, HeadPollState(100 + POLL_SECONDS, 0), id="an answer ends a silence"),
        pytest.param(HeadPollState(), False, HeadPollState(110, 1), id="never heard of"),
        pytest.param(HeadPollState(90, 0), False, HeadPollState(110, 1), id="one miss is no silence yet"),
        pytest.param(HeadPollState(90, 1), False, HeadPollState(120, 2), id="later"),
        pytest.param(HeadPollState(90, 2), False, HeadPollState(140, 3), id="and later"),
        pytest.param(HeadPollState(90, 3), False, HeadPollState(100 + MAX_BACKOFF_SECONDS, 4), id="but not too late"),
        pytest.param(
            HeadPollState(90, 10**6), False, HeadPollState(100 + MAX_BACKOFF_SECONDS, 10**6 + 1), id="however often"
        ),
    ],
)
def test_when_a_head_is_asked_again(turn: HeadPollState, answered: bool, want: HeadPollState) -> None:
    assert state_after_poll(turn, answered, 100.0) == want


SILENT = HeadPollState(0, 3)
WELL = HeadPollState(0, 0)


@pytest.mark.parametrize(
    ("turns", "flying", "want"),
    [
        pytest.param({}, {}, [], id="nobody"),
        pytest.param({head("a"): HeadPollState(11, 0)}, {}, [], id="not yet"),
        pytest.param({head("a"): HeadPollState(10, 0)}, {}, [head("a")], id="now"),
        pytest.param({head("a"): WELL}, {head("a"): WELL}, [], id="it is being asked"),
        pytest.param({head("a"): HeadPollState(9, 0), head("b"): HeadPollState(8, 0)}, {}, [head("b"), head("a")], id="who waits longest is first"),
        pytest.param({head("a"): WELL}, crowd(POLLS_AT_ONCE, turn=SILENT), [head("a")], id="not behind those that are silent"),
        pytest.param({head("a"): WELL}, crowd(POLLS_AT_ONCE), [head("a")], id="nor behind those of whom nothing is known"),
        pytest.param({head("a"): HeadPollState()}, crowd(POLLS_AT_ONCE, turn=SILENT), [head("a")], id="nor is who comes new"),
        pytest.param({head("a"): SILENT}, crowd(POLLS_AT_ONCE, turn=SILENT), [], id="no places left for who is silent"),
        pytest.param({head("a"): SILENT}, crowd(POLLS_AT_ONCE - 1, turn=SILENT), [head("a")], id="one place left"),
        pytest.param({head("a"): WELL}, crowd(POLLS_AT_ONCE, turn=WELL), [], id="bounded for those who answer, too"),
        pytest.param(crowd(99), {}, [*crowd(POLLS_PER_NAMESPACE)], id="one tenant leaves places to others"),
        pytest.param(crowd(99), crowd(POLLS_PER_NAMESPACE), [], id="also with those that are being asked"),
        pytest.param({**crowd(99), head("a"): HeadPollState(9)}, crowd(POLLS_PER_NAMESPACE - 1), [head("a"), head("crowd", POLLS_PER_NAMESPACE - 1)],
                     id="who has fewer places is first, though others wait longer"),
    ],
)  # fmt: skip
def test_who_is_asked_now(
    turns: Mapping[HeadId, HeadPollState], flying: Mapping[HeadId, HeadPollState], want: list[HeadId]
) -> None:
    asked = {one: turn for one, turn in flying.items() if one not in want}
    assert heads_to_poll(turns, asked, 10.0) == want


def waits(turns: dict[HeadId, HeadPollState], watched: HeadId, until: float) -> list[float]:
    """When a head that answers at once was asked, among others that never answer, by a clock of half seconds."""
    flying: dict[HeadId, tuple[HeadPollState, float]] = {}
    now, asked = 0.0, []
    while now < until:
        for one in [one for one, (_, ends) in flying.items() if ends <= now]:
            del flying[one]
            turns[one] = state_after_poll(turns[one], False, now)
        for one in heads_to_poll(turns, {one: turn for one, (turn, _) in flying.items()}, now):
            if one == watched:
                asked.append(now)
                turns[one] = state_after_poll(turns[one], True, now)
            else:
                flying[one] = turns[one], now + GONE
        now += 0.5
    assert len(flying) <= 2 * POLLS_AT_ONCE
    return asked


@pytest.mark.parametrize("namespace", [pytest.param("mine", id="of others"), pytest.param("crowd", id="of its own")])
def test_a_head_that_answers_is_on_time_among_four_hundred_that_are_silent(namespace: str) -> None:
    watched = head(namespace, 1000)
    asked = waits({**crowd(400), watched: WELL}, watched, 300)
    assert asked == [POLL_SECONDS * n for n in range(30)]


def test_who_comes_new_waits_for_no_other_tenants_silent_heads() -> None:
    watched = head("mine")
    assert waits({**crowd(400), watched: HeadPollState()}, watched, 20) == [0.0, POLL_SECONDS]


def test_each_of_four_hundred_silent_heads_gets_its_turn() -> None:
    """A recovery is found, however many others are silent: of ten tenants all were asked once in about two minutes."""
    turns = {one: turn for n in range(10) for one, turn in crowd(40, f"tenant-{n}").items()}
    waits(turns, head("nobody"), 400 * GONE / POLLS_AT_ONCE + GONE)
    assert [one for one, turn in turns.items() if not turn.failures] == []
