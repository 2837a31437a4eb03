"""Who is asked next: each head on a schedule of its own, and nobody behind those who give no answer."""

from collections.abc import Mapping

import pytest

from adapter.worker.head_polling import ASK_SECONDS, AT_ONCE, OF_NAMESPACE, SELDOM_SECONDS, Head, Turn, after, chosen

GONE = 5.0  # seconds that a head takes which gives no answer
NEW = Turn()


def head(namespace: str, number: int = 0) -> Head:
    return namespace, f"ray-{number}", f"uid-{number}"


def crowd(count: int, namespace: str = "crowd", turn: Turn = NEW) -> dict[Head, Turn]:
    return {head(namespace, number): turn for number in range(count)}


@pytest.mark.parametrize(
    ("turn", "answered", "want"),
    [
        pytest.param(Turn(), True, Turn(100 + ASK_SECONDS, 0), id="an answer"),
        pytest.param(Turn(90, 7), True, Turn(100 + ASK_SECONDS, 0), id="an answer ends a silence"),
        pytest.param(Turn(), False, Turn(110, 1), id="never heard of"),
        pytest.param(Turn(90, 0), False, Turn(110, 1), id="one miss is no silence yet"),
        pytest.param(Turn(90, 1), False, Turn(120, 2), id="later"),
        pytest.param(Turn(90, 2), False, Turn(140, 3), id="and later"),
        pytest.param(Turn(90, 3), False, Turn(100 + SELDOM_SECONDS, 4), id="but not too late"),
        pytest.param(Turn(90, 10**6), False, Turn(100 + SELDOM_SECONDS, 10**6 + 1), id="however often"),
    ],
)
def test_when_a_head_is_asked_again(turn: Turn, answered: bool, want: Turn) -> None:
    assert after(turn, answered, 100.0) == want


SILENT = Turn(0, 3)
WELL = Turn(0, 0)


@pytest.mark.parametrize(
    ("turns", "flying", "want"),
    [
        pytest.param({}, {}, [], id="nobody"),
        pytest.param({head("a"): Turn(11, 0)}, {}, [], id="not yet"),
        pytest.param({head("a"): Turn(10, 0)}, {}, [head("a")], id="now"),
        pytest.param({head("a"): WELL}, {head("a"): WELL}, [], id="it is being asked"),
        pytest.param({head("a"): Turn(9, 0), head("b"): Turn(8, 0)}, {}, [head("b"), head("a")], id="who waits longest is first"),
        pytest.param({head("a"): WELL}, crowd(AT_ONCE, turn=SILENT), [head("a")], id="not behind those that are silent"),
        pytest.param({head("a"): WELL}, crowd(AT_ONCE), [head("a")], id="nor behind those of whom nothing is known"),
        pytest.param({head("a"): Turn()}, crowd(AT_ONCE, turn=SILENT), [head("a")], id="nor is who comes new"),
        pytest.param({head("a"): SILENT}, crowd(AT_ONCE, turn=SILENT), [], id="no places left for who is silent"),
        pytest.param({head("a"): SILENT}, crowd(AT_ONCE - 1, turn=SILENT), [head("a")], id="one place left"),
        pytest.param({head("a"): WELL}, crowd(AT_ONCE, turn=WELL), [], id="bounded for those who answer, too"),
        pytest.param(crowd(99), {}, [*crowd(OF_NAMESPACE)], id="one tenant leaves places to others"),
        pytest.param(crowd(99), crowd(OF_NAMESPACE), [], id="also with those that are being asked"),
        pytest.param({**crowd(99), head("a"): Turn(9)}, crowd(OF_NAMESPACE - 1), [head("a"), head("crowd", OF_NAMESPACE - 1)],
                     id="who has fewer places is first, though others wait longer"),
    ],
)  # fmt: skip
def test_who_is_asked_now(turns: Mapping[Head, Turn], flying: Mapping[Head, Turn], want: list[Head]) -> None:
    asked = {one: turn for one, turn in flying.items() if one not in want}
    assert chosen(turns, asked, 10.0) == want


def waits(turns: dict[Head, Turn], watched: Head, until: float) -> list[float]:
    """When a head that answers at once was asked, among others that never answer, by a clock of half seconds."""
    flying: dict[Head, tuple[Turn, float]] = {}
    now, asked = 0.0, []
    while now < until:
        for one in [one for one, (_, ends) in flying.items() if ends <= now]:
            del flying[one]
            turns[one] = after(turns[one], False, now)
        for one in chosen(turns, {one: turn for one, (turn, _) in flying.items()}, now):
            if one == watched:
                asked.append(now)
                turns[one] = after(turns[one], True, now)
            else:
                flying[one] = turns[one], now + GONE
        now += 0.5
    assert len(flying) <= 2 * AT_ONCE
    return asked


@pytest.mark.parametrize("namespace", [pytest.param("mine", id="of others"), pytest.param("crowd", id="of its own")])
def test_a_head_that_answers_is_on_time_among_four_hundred_that_are_silent(namespace: str) -> None:
    watched = head(namespace, 1000)
    asked = waits({**crowd(400), watched: WELL}, watched, 300)
    assert asked == [ASK_SECONDS * n for n in range(30)]


def test_who_comes_new_waits_for_no_other_tenants_silent_heads() -> None:
    watched = head("mine")
    assert waits({**crowd(400), watched: Turn()}, watched, 20) == [0.0, ASK_SECONDS]


def test_each_of_four_hundred_silent_heads_gets_its_turn() -> None:
    """A recovery is found, however many others are silent: of ten tenants all were asked once in about two minutes."""
    turns = {one: turn for n in range(10) for one, turn in crowd(40, f"tenant-{n}").items()}
    waits(turns, head("nobody"), 400 * GONE / AT_ONCE + GONE)
    assert [one for one, turn in turns.items() if not turn.misses] == []
