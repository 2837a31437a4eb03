"""The time of a cluster follows its API server, and a forged Date or timestamp breaks nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from adapter.objects.cluster_clock import (
    MAX_READINGS,
    READING_SECONDS,
    ClockOffsets,
    ClusterClock,
    parse_http_date,
)
from tests.unit.builders import at

HOUR = 3600.0


@pytest.mark.parametrize(
    ("offset", "date", "want"),
    [
        pytest.param(1000.0, 1100, 1000.0, id="a Date that agrees changes nothing"),
        pytest.param(1000.9, 1100, 1000.9, id="the fraction of a second that a Date lacks changes nothing"),
        pytest.param(1000.0, 1098, 999.0, id="a cluster that is behind moves the clock as far as it must"),
        pytest.param(1000.0, 1102, 1001.9, id="a cluster that is ahead moves the clock as far as it must"),
        pytest.param(1000.0 + HOUR, 1100, 1001.0, id="a clock that began an hour ahead is put right"),
        pytest.param(1000.0 - HOUR, 1100, 999.9, id="a clock that began an hour behind is put right"),
    ],
)
def test_an_answer_corrects_the_clock_as_little_as_it_must(offset: float, date: float, want: float) -> None:
    """The request was sent at 100.0 and answered at 100.1 of the monotonic clock."""
    assert ClusterClock(offset).with_answer(date, 100.0, 100.1).offset == pytest.approx(want)


@pytest.mark.parametrize("offset", [0.0, 999.0, 1000.5, 5000.0])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_the_time_is_within_a_second_of_the_clusters(offset: float, fraction: float) -> None:
    true_offset = 1000.0 + fraction
    corrected = ClusterClock(offset).with_answer(float(int(true_offset + 100.05)), 100.0, 100.1)
    assert abs(corrected.offset - true_offset) <= 1.1


def answer(clock: ClusterClock, seconds: float, ahead: float = 0.0) -> ClusterClock:
    """An answer of an API server that is ahead of the true time, which is 1000 s ahead of the monotonic clock."""
    return clock.with_answer(float(int(1000 + seconds + ahead)), seconds - 0.01, seconds)


def answers(clock: ClusterClock, begin: float, end: float, *ahead: float) -> list[ClusterClock]:
    """The clock after each of several answers of API servers that are ahead, in turns, from a second to another."""
    clocks = [clock]
    for turn in range(int((end - begin) / 0.7)):
        clocks.append(answer(clocks[-1], begin + turn * 0.7, ahead[turn % len(ahead)]))
    return clocks[1:]


def is_steady(clocks: list[ClusterClock], ahead: float = 0.0) -> bool:
    """Whether all offsets are those of an API server that is ahead, within the second that a Date is inexact."""
    return all(abs(clock.offset - 1000 - ahead) <= 1.1 for clock in clocks)


@pytest.mark.parametrize("ahead", [-365 * 24 * HOUR, -HOUR, -5.0, 5.0, HOUR, 365 * 24 * HOUR])
def test_one_answer_with_another_date_does_not_move_the_clock(ahead: float) -> None:
    clock = answers(ClusterClock(1000.0), 0, 60, 0.0)[-1]
    after = answer(clock, 60, ahead)
    assert is_steady([after, *answers(after, 61, 2 * READING_SECONDS, 0.0)])


@pytest.mark.parametrize("ahead", [0.5, 1.5, 5.0, 600.0])
def test_the_clock_is_steady_while_api_servers_disagree(ahead: float) -> None:
    """The slowest of them counts."""
    clock = answer(ClusterClock(1000.0), 0)
    clocks = answers(clock, 1, 3 * READING_SECONDS, ahead, 0.0, ahead, ahead)
    assert is_steady(clocks) and max(c.offset for c in clocks) - min(c.offset for c in clocks) <= 1.0


@pytest.mark.parametrize("ahead", [-HOUR, -4.0])
def test_several_answers_of_a_slower_api_server_put_the_clock_back(ahead: float) -> None:
    clocks = answers(answer(ClusterClock(1000.0), 0), 1, 20, ahead, 0.0)
    assert not is_steady(clocks[:2], ahead) and is_steady(clocks[10:], ahead)


@pytest.mark.parametrize("ahead", [HOUR, 3.0])
def test_the_clock_goes_forward_once_the_slower_api_server_is_silent(ahead: float) -> None:
    clock = answers(ClusterClock(1000.0), 0, 60, 0.0, ahead)[-1]
    clocks = answers(clock, 60, 59 + READING_SECONDS, ahead)
    assert is_steady(clocks)
    assert is_steady(answers(clocks[-1], 61 + READING_SECONDS, 70 + READING_SECONDS, ahead)[1:], ahead)


def test_a_first_answer_far_ahead_is_put_right_within_seconds() -> None:
    clock = answer(ClusterClock(1000.0), 0, HOUR)
    assert clock.offset > 1000 + HOUR - 2 and is_steady(answers(clock, 1, 20, 0.0)[10:])


@pytest.mark.parametrize("rate", [-1e-4, 1e-4])
def test_the_clock_follows_a_cluster_whose_seconds_are_longer_or_shorter(rate: float) -> None:
    clock = ClusterClock(1000.0)
    for turn in range(10_000):
        seconds = turn * 6.1
        clock = answer(clock, seconds, rate * seconds)
    assert abs(clock.offset - 1000 - rate * 61_000) <= 1.2


def test_an_api_server_that_sends_any_dates_costs_no_memory() -> None:
    clock = answers(ClusterClock(1000.0), 0, 60, 0.0)[-1]
    for turn in range(1000):
        clock = answer(clock, 60 + turn / 100, 10.0 * turn * turn)
    assert len(clock.readings) == MAX_READINGS and is_steady([clock])


def test_the_time_advances_with_the_monotonic_clock() -> None:
    assert ClusterClock(1000.0).time_at(20.0) == datetime.fromtimestamp(1020.0, UTC)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("Thu, 01 Jan 1970 00:01:40 GMT", 100.0, id="a Date"),
        pytest.param("Thu, 01 Jan 1970 00:01:40 -0000", 100.0, id="a Date without a zone"),
        pytest.param(None, None, id="no Date"),
        pytest.param("", None, id="an empty Date"),
        pytest.param("tomorrow", None, id="a word"),
        pytest.param("Thu, 31 Feb 2026 00:00:00 GMT", None, id="a day that no calendar has"),
        pytest.param("Fri, 31 Dec 9999 23:59:59 GMT", None, id="the last second of the calendar"),
        pytest.param("Thu, 01 Jan 1900 00:00:00 GMT", None, id="a Date before the epoch"),
        pytest.param(f"Thu, 01 Jan {'9' * 5000} 00:00:00 GMT", None, id="a year of any length"),
        pytest.param(f"Jan {'9' * 30} 99 00:01:40 Thu", None, id="a day of any length"),
    ],
)
def test_which_dates_are_read(text: str | None, want: float | None) -> None:
    assert parse_http_date(text) == want


def test_a_time_is_compared_with_the_clock_that_wrote_it() -> None:
    clocks = ClockOffsets({"east": timedelta(hours=-1)})
    assert (clocks.time_in("east", at(HOUR)), clocks.time_in("west", at(0))) == (at(0), at(0))
    assert (clocks.manager_time("east", at(0)), clocks.manager_time("west", at(0))) == (at(HOUR), at(0))


@pytest.mark.parametrize("moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@pytest.mark.parametrize("ahead", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_forged_time_stays_within_the_calendar(moment: datetime, ahead: timedelta) -> None:
    clocks = ClockOffsets({"east": ahead})
    assert abs(clocks.manager_time("east", moment) - moment) <= timedelta(hours=1)
