"""Priority before age, and a gang that waited long is not passed by for ever."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.gang.timeouts import DEACTIVATE_AFTER, MAX_DOUBLINGS
from adapter.objects.placement import MAX_SHARES, Placement, parse_placement
from adapter.objects.rayjob import read_ray_cluster
from adapter.objects.workload import PodSet, Workload, parse_workload
from adapter.planning import ordering
from tests.unit.builders import CHECK, at, make_placement, make_workload, stamp


def gang(name: str, *, created: float = 0, priority: int | None = None, workers: int = 4) -> Workload:
    made = make_workload(name=name, groups={"workers": workers})
    for podset in made["spec"]["podSets"]:
        podset["template"] = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    return replace(parse_workload(made), created_at=at(created), priority=priority)


def waiting(work: Workload, *, looked: bool = True) -> ordering.WaitingGang:
    return ordering.WaitingGang(work, looked)


@pytest.mark.parametrize(
    ("me", "others", "want"),
    [
        pytest.param(gang("me", created=5), [gang("old", created=1), gang("new", created=9)], ["old"], id="the older one"),
        pytest.param(gang("me", created=1), [gang("top", created=9, priority=10)], ["top"], id="priority beats age"),
        pytest.param(gang("me", priority=5), [gang("a", priority=1), gang("b", priority=9)], ["b"], id="lower ones wait"),
        pytest.param(gang("me"), [gang("a"), gang("z")], ["a"], id="of the same second, by name"),
        pytest.param(gang("me"), [gang("me")], [], id="not oneself"),
        pytest.param(gang("me", created=1), [gang("big", created=50, workers=5)], ["big"], id="of the same minute, the larger one"),
        pytest.param(gang("me", created=50), [gang("big", created=56, workers=5)], [], id="not of the next one"),
        pytest.param(gang("me", created=1, priority=1), [gang("big", workers=5)], [], id="priority beats size, too"),
        pytest.param(
            gang("me", created=9), [gang("b", created=5), gang("a", created=6), gang("c", priority=1, created=8)],
            ["c", "b", "a"], id="in their order",
        ),
    ],
)  # fmt: skip
def test_before(me: Workload, others: list[Workload], want: list[str]) -> None:
    assert [one.workload.name for one in ordering.gangs_before(me, map(waiting, others))] == want


PLACED = make_placement(make_workload(), shares={"east": {"workers": 2}})


@pytest.mark.parametrize(
    ("work", "check", "place", "want"),
    [
        pytest.param({}, CHECK, None, True, id="it holds the manager's quota, and was not planned yet"),
        pytest.param({}, "", None, False, id="no check of ours is on it"),
        pytest.param({"check": names.CHECK_READY}, CHECK, None, False, id="it is admitted already"),
        pytest.param({"reserved": None}, CHECK, None, False, id="it queues for the manager's quota"),
        pytest.param({"conditions": [names.EVICTED]}, CHECK, None, False, id="evicted"),
        pytest.param({}, CHECK, PLACED, False, id="it has its shares"),
        pytest.param({}, CHECK, make_placement(make_workload(), shares={}), True, id="it found no room"),
        pytest.param({}, CHECK, make_placement(make_workload(), withdrawn=1), True, id="it is giving them back"),
    ],
)  # fmt: skip
def test_waits(work: dict[str, Any], check: str, place: dict[str, Any] | None, want: bool) -> None:
    assert (
        ordering.needs_plan(parse_workload(make_workload(**work)), check, parse_placement(place) if place else None)
        is want
    )


def growing(*, state: str = names.CHECK_READY, elastic: bool = True, **more: Any) -> Workload:
    raw = make_workload(owner="RayCluster", check=state, **more)
    raw["metadata"]["annotations"] |= {names.ELASTIC_ANNOTATION: "true"} if elastic else {}
    return parse_workload(raw)


@pytest.mark.parametrize(
    ("work", "job", "want"),
    [
        pytest.param(growing(), {"uid": "uid-of-job", "creationTimestamp": stamp(-60)}, at(-60), id="it stood in the queue before it grew"),
        pytest.param(growing(), {"uid": "uid-of-job", "creationTimestamp": stamp(60)}, at(0), id="by clocks that differ"),
        pytest.param(growing(), {"uid": "uid-of-another", "creationTimestamp": stamp(-60)}, at(0), id="another job of its name"),
        pytest.param(growing(), {}, at(0), id="nothing is known of its job"),
        pytest.param(growing(elastic=False), {"uid": "uid-of-job", "creationTimestamp": stamp(-60)}, at(0), id="it does not grow"),
    ],
)  # fmt: skip
def test_how_old_it_is(work: Workload, job: dict[str, Any], want: datetime) -> None:
    job_object = read_ray_cluster({"metadata": job} if job else {})
    assert ordering.with_job_age(replace(work, created_at=at(0)), job_object).created_at == want


HALF = parse_placement(make_placement(make_workload(), shares={"east": {"workers": 2}}))


@pytest.mark.parametrize(
    ("work", "check", "place", "want"),
    [
        pytest.param(growing(), CHECK, HALF, True, id="it wants two more"),
        pytest.param(growing(), CHECK, parse_placement(make_placement(make_workload())), False, id="it has all"),
        pytest.param(
            growing(),
            CHECK,
            replace(HALF, shares=HALF.shares * (MAX_SHARES - 1), wanted_workers=999),
            True,
            id="it may have one more share",
        ),
        pytest.param(
            growing(),
            CHECK,
            replace(HALF, shares=HALF.shares * MAX_SHARES, wanted_workers=999),
            False,
            id="it may have none",
        ),
        pytest.param(growing(), CHECK, None, False, id="it has no Placement"),
        pytest.param(growing(), "", HALF, False, id="no check of ours is on it"),
        pytest.param(growing(state=names.CHECK_PENDING), CHECK, HALF, False, id="it has yet to be let run"),
        pytest.param(growing(conditions=[names.EVICTED]), CHECK, HALF, False, id="it was stopped"),
        pytest.param(growing(elastic=False), CHECK, HALF, False, id="it lost two, and they wait for what they had"),
    ],
)
def test_grows(work: Workload, check: str, place: Placement | None, want: bool) -> None:
    assert ordering.needs_scale_up(work, check, place) is want


OLD = gang("old")
AWAY = replace(OLD, holds_quota=False)


@pytest.mark.parametrize(
    ("current", "check", "now", "want"),
    [
        pytest.param(AWAY, CHECK, 1, True, id="it is away"),
        pytest.param(AWAY, CHECK, 10, False, id="for too long"),
        pytest.param(OLD, CHECK, 1, False, id="it is back: a gang like any other"),
        pytest.param(OLD, "", 1, True, id="it has its quota, and Kueue has yet to list our check"),
        pytest.param(replace(AWAY, uid="another"), CHECK, 1, False, id="it is another job's by now"),
        pytest.param(replace(AWAY, deleting=True), CHECK, 1, False, id="it is deleted"),
        pytest.param(None, CHECK, 1, False, id="it is gone"),
    ],
)
def test_aside(current: Workload | None, check: str, now: float, want: bool) -> None:
    until = at(10)
    found = ordering.deactivated_gang(OLD, until, current, check, at(now))
    assert found == (ordering.WaitingGang(OLD, known_not_to_fit=True, deactivated_until=until) if want else None)


@pytest.mark.parametrize(
    ("shares", "draining", "want"),
    [
        pytest.param({"east": {"workers": 2}, "west": {"workers": 2}}, set(), False, id="it has all"),
        pytest.param({"east": {"workers": 2}, "west": {"workers": 2}}, {"east"}, True, id="it must leave one"),
        pytest.param({"east": {"workers": 3}}, {"west"}, True, id="it lost one"),
        pytest.param({}, set(), True, id="it has none"),
    ],
)
def test_short(shares: dict[str, dict[str, int]], draining: set[str], want: bool) -> None:
    raw = make_placement(make_workload(), shares=shares)
    raw["spec"]["wanted"] = 4
    assert ordering.wants_capacity(raw, draining) is want


def test_a_placement_that_says_nothing_wants_nothing() -> None:
    assert not ordering.wants_capacity({}, ()) and not ordering.wants_capacity({"spec": {"shares": None}}, ())


MINUTE = timedelta(minutes=1)
HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)  # a pause, to whom pauses in every period


def waits(since: datetime | None, *, looked: bool = True) -> ordering.WaitingGang:
    return waiting(replace(gang("a"), created_at=since), looked=looked)


@pytest.mark.parametrize(
    ("one", "minutes", "until"),
    [
        pytest.param(waits(HOUR), 10, None, id="not long enough"),
        pytest.param(waits(HOUR), 10.1, 15, id="waited long: until the next pause"),
        pytest.param(waits(HOUR, looked=False), 10.1, 15, id="about to be planned: what it gathered stays its own"),
        pytest.param(waits(HOUR), 15, None, id="the pause begins"),
        pytest.param(waits(HOUR), 17.9, None, id="and lasts"),
        pytest.param(waits(HOUR), 18, 30, id="and ends"),
        pytest.param(waits(HOUR), 45, None, id="every period has one at first"),
        pytest.param(waits(HOUR), 63, 90, id="every second, when four are waited"),
        pytest.param(waits(HOUR), 90, None, id="it pauses then"),
        pytest.param(waits(HOUR), 130, 180, id="every fourth, when eight are waited"),
        pytest.param(waits(HOUR - 11 * MINUTE), 0, None, id="a pause may be on when it has waited long enough"),
        pytest.param(waits(None), 999, None, id="of no known age"),
        pytest.param(replace(waits(HOUR), is_scale_up=True), 10.1, None, id="one that runs, and takes what comes"),
        pytest.param(
            replace(waits(HOUR), deactivated_until=HOUR + 12 * MINUTE),
            11,
            12,
            id="one that stepped aside: while it may be back",
        ),
        pytest.param(
            replace(waits(HOUR), deactivated_until=HOUR + 16 * MINUTE), 14, 15, id="and it pauses as the others do"
        ),
    ],
)
def test_holds_until(one: ordering.WaitingGang, minutes: float, until: float | None) -> None:
    want = None if until is None else HOUR + until * MINUTE
    assert ordering.holds_capacity_until(one, HOUR + minutes * MINUTE) == want


def test_a_pause_gives_time_to_those_who_queue_behind() -> None:
    longest = DEACTIVATE_AFTER * 2**MAX_DOUBLINGS
    assert longest < ordering.HOLD_PAUSE < ordering.HOLD_PERIOD / 2


# --- properties ------------------------------------------------------------------------------------------------------

SINCE = st.integers(0, 24 * 60 * 60).map(lambda seconds: HOUR + seconds * timedelta(seconds=1))


def holds(created: datetime, *, days: int) -> list[tuple[datetime, datetime]]:
    """When a gang holds room back, hold by hold."""
    one, now, found = waits(created), created + ordering.STARVED_AFTER + timedelta(seconds=1), []
    while now < created + timedelta(days=days):
        if until := ordering.holds_capacity_until(one, now):
            found.append((now, until))
            now = until
        assert ordering.holds_capacity_until(one, now) is None, "a hold ends with a pause"
        now = next(later for later in _steps(now) if ordering.holds_capacity_until(one, later))
    return found


def _steps(now: datetime) -> Iterator[datetime]:
    """Every second of a pause, up to the longest that there may be."""
    seconds = timedelta(seconds=1)
    yield from (now + number * seconds for number in range(1, ordering.HOLD_PAUSE // seconds + 1))


@given(SINCE)
def test_holds_and_pauses_go_on_for_ever(created: datetime) -> None:
    """A hold outgrows every job that ends; and none lasts longer than the wait before it, so pauses never stop."""
    found = holds(created, days=3)
    lengths = [until - since for since, until in found]
    assert lengths[0] <= ordering.HOLD_PERIOD - ordering.HOLD_PAUSE and all(
        a <= b for a, b in itertools.pairwise(lengths)
    )
    assert lengths[-1] >= timedelta(hours=12)
    assert all(until - since <= max(ordering.HOLD_PERIOD, since - created) for since, until in found)
    pauses = [after - until for (_, until), (after, _) in itertools.pairwise(found)]
    assert set(pauses) == {ordering.HOLD_PAUSE}, "none is cut short"


@given(SINCE, st.integers(0, 600))
def test_nobody_holds_anything_at_first(created: datetime, seconds: int) -> None:
    assert ordering.holds_capacity_until(waits(created), created + timedelta(seconds=seconds)) is None


@given(SINCE, SINCE, SINCE)
def test_all_pause_when_the_one_that_waits_longest_does(first: datetime, second: datetime, now: datetime) -> None:
    """Else those behind several would wait until the pauses of all happen to meet."""
    old, young = waits(min(first, second)), waits(max(first, second))
    assert ordering.holds_capacity_until(old, now) or not ordering.holds_capacity_until(young, now)


def test_what_is_too_long_to_be_added_up_has_no_size() -> None:
    """Whether it is a worker group, which is refused, or a head, which nobody looks at else."""
    container = {"resources": {"requests": {"cpu": "1"}}}
    long = PodSet("head", 9, {"spec": {"containers": [container] * 1000}}, frozenset())
    me, big = gang("me"), gang("big", created=1)
    assert ordering.order_key(replace(big, podsets=(*big.podsets, long)))[2] == ordering.order_key(me)[2] < 0


@pytest.mark.parametrize(
    ("one", "minutes", "want"),
    [
        pytest.param(lambda: waits(HOUR, looked=False), 1, True, id="about to be planned"),
        pytest.param(lambda: waits(HOUR), 1, False, id="nothing fitted"),
        pytest.param(lambda: waits(HOUR), 11, True, id="nothing fitted, and it keeps what it could use"),
        pytest.param(lambda: waits(HOUR), 16, False, id="in a pause it does not"),
    ],
)
def test_takes_part(one: Callable[[], ordering.WaitingGang], minutes: float, want: bool) -> None:
    assert ordering.may_take_or_hold(one(), HOUR + minutes * MINUTE) is want


def test_the_order_is_one_order() -> None:
    """Whoever is before another is not behind it: else two gangs could each wait for the other."""
    gangs = [gang(n, created=c, priority=p) for n, c, p in (("a", 1, 0), ("b", 1, 5), ("c", 0, 0), ("d", 3, None))]
    for one in gangs:
        first = {w.workload.name for w in ordering.gangs_before(one, map(waiting, gangs))}
        for other in first:
            back = ordering.gangs_before(next(g for g in gangs if g.name == other), map(waiting, gangs))
            assert one.name not in {w.workload.name for w in back}
