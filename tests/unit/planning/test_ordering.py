"""Gangs are ordered by priority, then by age. A gang that waited long is not overtaken for ever."""

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
from adapter.names import ReasonCode
from adapter.objects.placement import MAX_SHARES, Placement, parse_placement
from adapter.objects.rayjob import read_ray_cluster
from adapter.objects.workload import PodSet, Workload, parse_workload
from adapter.planning import ordering
from adapter.planning.ordering import WaitingGang
from tests.unit.builders import CHECK, START, at, make_placement, make_workload, stamp


def gang(
    name: str, *, created: float = 0, requeued: float | None = None, priority: int | None = None, workers: int = 4
) -> Workload:
    made = make_workload(name=name, groups={"workers": workers})
    for podset in made["spec"]["podSets"]:
        podset["template"] = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    requeued_at = None if requeued is None else at(requeued)
    return replace(parse_workload(made), created_at=at(created), requeued_at=requeued_at, priority=priority)


def waiting(work: Workload, *, looked: bool = True) -> ordering.WaitingGang:
    return ordering.WaitingGang(work, looked)


@pytest.mark.parametrize(
    ("me", "others", "want"),
    [
        pytest.param(gang("me", created=5), [gang("old", created=1), gang("new", created=9)], ["old"],
            id="the older gang is first"),
        pytest.param(gang("me", requeued=500), [gang("new", created=400)], ["new"],
            id="a gang that queued again is behind a younger one"),
        pytest.param(gang("me", requeued=500), [gang("new", created=600)], [],
            id="a gang that queued again is before those that came later"),
        pytest.param(gang("me", created=400), [gang("back", requeued=500, priority=1)], ["back"],
            id="a gang that queued again keeps its priority"),
        pytest.param(gang("me", created=1), [gang("top", created=9, priority=10)], ["top"], id="priority beats age"),
        pytest.param(gang("me", priority=5), [gang("a", priority=1), gang("b", priority=9)], ["b"],
            id="a lower priority waits"),
        pytest.param(gang("me"), [gang("a"), gang("z")], ["a"], id="gangs of the same second are ordered by name"),
        pytest.param(gang("me"), [gang("me")], [], id="a gang is not before itself"),
        pytest.param(gang("me", created=1), [gang("big", created=50, workers=5)], ["big"],
            id="of the same minute, the larger gang is first"),
        pytest.param(gang("me", created=50), [gang("big", created=56, workers=5)], [],
            id="of the next minute, a larger gang is not first"),
        pytest.param(gang("me", created=1, priority=1), [gang("big", workers=5)], [], id="priority beats size"),
        pytest.param(
            gang("me", created=9), [gang("b", created=5), gang("a", created=6), gang("c", priority=1, created=8)],
            ["c", "b", "a"], id="gangs are in scheduling order",
        ),
    ],
)  # fmt: skip
def test_gangs_before(me: Workload, others: list[Workload], want: list[str]) -> None:
    assert [gang.workload.name for gang in ordering.gangs_before(me, map(waiting, others))] == want


PLACED = make_placement(make_workload(), shares={"east": {"workers": 2}})


@pytest.mark.parametrize(
    ("work", "check", "place", "want"),
    [
        pytest.param({}, CHECK, None, True, id="the gang holds quota and was not planned yet"),
        pytest.param({}, "", None, False, id="the gang has no check of ours"),
        pytest.param({"check": names.CHECK_READY}, CHECK, None, False, id="the gang is admitted"),
        pytest.param({"reserved": None}, CHECK, None, False, id="the gang queues for quota"),
        pytest.param({"conditions": [names.EVICTED]}, CHECK, None, False, id="the gang is evicted"),
        pytest.param({}, CHECK, PLACED, False, id="the gang has its shares"),
        pytest.param({}, CHECK, make_placement(make_workload(), shares={}), True, id="the gang found no capacity"),
        pytest.param({}, CHECK, make_placement(make_workload(), withdrawn=1), True,
            id="the gang's round is being withdrawn"),
    ],
)  # fmt: skip
def test_needs_plan(work: dict[str, Any], check: str, place: dict[str, Any] | None, want: bool) -> None:
    assert (
        ordering.needs_plan(parse_workload(make_workload(**work)), check, parse_placement(place) if place else None)
        is want
    )


def growing(*, state: str = names.CHECK_READY, elastic: bool = True, **more: Any) -> Workload:
    raw = make_workload(owner="RayCluster", check=state, **more)
    raw["metadata"]["annotations"] |= {names.ELASTIC_ANNOTATION: "true"} if elastic else {}
    return parse_workload(raw)


RUNS, SUSPENDED = {"suspend": False}, {"suspend": True}
HALF = parse_placement(make_placement(make_workload(), shares={"east": {"workers": 2}}))
WAITS = replace(HALF, waiting_since=at(-30))


@pytest.mark.parametrize(
    ("work", "job", "spec", "place", "want"),
    [
        pytest.param(growing(), {"creationTimestamp": stamp(-60)}, SUSPENDED, None, at(-60),
            id="the job is older than its Workload"),
        pytest.param(growing(), {"creationTimestamp": stamp(60)}, SUSPENDED, None, at(0),
            id="the job seems younger, by a different clock"),
        pytest.param(growing(), {"uid": "uid-of-another", "creationTimestamp": stamp(-60)}, SUSPENDED, None, at(0),
            id="another job of the same name"),
        pytest.param(growing(), None, SUSPENDED, WAITS, at(0), id="the job is unknown"),
        pytest.param(growing(elastic=False), {"creationTimestamp": stamp(-60)}, RUNS, WAITS, at(0),
            id="the job is not elastic"),
        pytest.param(growing(), {"creationTimestamp": stamp(-60)}, SUSPENDED, WAITS, at(-60),
            id="the job waits for a further start"),
        pytest.param(growing(), {"creationTimestamp": stamp(-60)}, RUNS, WAITS, at(-30),
            id="the job runs and waits for more workers"),
        pytest.param(growing(), {"creationTimestamp": stamp(-60)}, RUNS, HALF, at(0),
            id="the job runs and was not planned since it wants more workers"),
    ],
)  # fmt: skip
def test_the_age_of_an_elastic_job_in_the_scheduling_order(
    work: Workload, job: dict[str, Any] | None, spec: dict[str, Any], place: Placement | None, want: datetime
) -> None:
    job_object = read_ray_cluster({"metadata": {"uid": "uid-of-job", **job}, "spec": spec} if job else {})
    assert ordering.with_age_in_order(replace(work, created_at=at(0)), job_object, place).created_at == want


def test_an_elastic_job_that_queued_again_has_the_age_of_that_time() -> None:
    job = read_ray_cluster({"metadata": {"uid": "uid-of-job", "creationTimestamp": stamp(-60)}, "spec": SUSPENDED})
    back = replace(growing(), created_at=at(0), requeued_at=at(30))
    assert ordering.with_age_in_order(back, job, None).queued_at == at(30)


@pytest.mark.parametrize(
    ("work", "check", "want"),
    [
        pytest.param(growing(), CHECK, True, id="the job is admitted"),
        pytest.param(growing(elastic=False), CHECK, True, id="the job is admitted and not elastic"),
        pytest.param(growing(), "", False, id="the job has no check of ours"),
        pytest.param(growing(state=names.CHECK_PENDING), CHECK, False, id="the job is not admitted yet"),
        pytest.param(growing(conditions=[names.EVICTED]), CHECK, False, id="the job was stopped"),
    ],
)
def test_is_admitted(work: Workload, check: str, want: bool) -> None:
    assert ordering.is_admitted(work, check) is want


FULL = parse_placement(make_placement(make_workload()))
TWO_GROUPS = make_workload(groups={"a": 2, "b": 2})
LOPSIDED = make_placement(TWO_GROUPS, shares={"east": {"b": 2}, "north": {"a": 1, "b": 2}})
UNSHARED = make_placement(TWO_GROUPS, shares={"east": {"a": 4}})
MANY = replace(HALF, shares=HALF.shares * MAX_SHARES, wanted_workers=9999)


@pytest.mark.parametrize(
    ("place", "draining", "unusable", "want"),
    [
        pytest.param(HALF, set(), {}, True, id="two of four workers have a slot"),
        pytest.param(FULL, set(), {}, False, id="all workers have a slot"),
        pytest.param(FULL, {"east"}, {}, True, id="two workers must leave a drained cluster"),
        pytest.param(FULL, {"north"}, {}, False, id="a cluster without workers is drained"),
        pytest.param(FULL, set(), {"workers": 1}, True, id="a worker did not start in time"),
        pytest.param(replace(FULL, withdrawn_round=1), set(), {}, True, id="the round is withdrawn"),
        pytest.param(
            parse_placement(LOPSIDED), set(), {}, True, id="the spare slots of one group are of no use to another"
        ),
        pytest.param(
            parse_placement(make_placement(TWO_GROUPS, shares={"east": {"a": 2, "b": 3}})),
            set(),
            {"b": 1},
            False,
            id="a spare slot replaces an unusable one",
        ),
        pytest.param(parse_placement(UNSHARED), set(), {}, True, id="a worker group has no share"),
        pytest.param(
            parse_placement(make_placement(TWO_GROUPS, shares={"east": {"a": 2}})),
            {"east"},
            {},
            True,
            id="one worker group has no share, and the other must leave",
        ),
        pytest.param(
            parse_placement(make_placement(TWO_GROUPS, shares={"east": {"a": 2}, "north": {"b": 2}})),
            set(),
            {},
            False,
            id="each worker group has a share of its own",
        ),
        pytest.param(None, set(), {}, False, id="the job has no Placement"),
        pytest.param(MANY, set(), {}, True, id="a fixed gang has few shares"),
        pytest.param(replace(MANY, job=growing().job), set(), {}, False, id="an elastic job may have no more shares"),
        pytest.param(
            replace(MANY, job=growing().job, shares=HALF.shares * (MAX_SHARES - 1)),
            set(),
            {},
            True,
            id="an elastic job may have one more share",
        ),
    ],
)
def test_lacks_slots(place: Placement | None, draining: set[str], unusable: dict[str, int], want: bool) -> None:
    groups = {group.name for share in place.shares for group in share.groups} if place else set()
    workload = parse_workload(make_workload() if "workers" in groups else TWO_GROUPS)
    assert ordering.lacks_slots(workload, place, draining, unusable) is want


OLD = gang("old")
AWAY = replace(OLD, holds_quota=False)


@pytest.mark.parametrize(
    ("current", "check", "now", "want"),
    [
        pytest.param(AWAY, CHECK, 1, True, id="the gang is deactivated"),
        pytest.param(AWAY, CHECK, 10, False, id="the gang was deactivated for too long"),
        pytest.param(OLD, CHECK, 1, False, id="the gang is back, like any other"),
        pytest.param(OLD, "", 1, True, id="the gang has its quota, and Kueue has yet to list our check"),
        pytest.param(replace(AWAY, uid="another"), CHECK, 1, False, id="another job has the name now"),
        pytest.param(replace(AWAY, deleting=True), CHECK, 1, False, id="the gang is being deleted"),
        pytest.param(None, CHECK, 1, False, id="the gang is gone"),
    ],
)
def test_deactivated_gang(current: Workload | None, check: str, now: float, want: bool) -> None:
    until = at(10)
    found = ordering.deactivated_gang(OLD, until, current, check, at(now))
    assert found == (ordering.WaitingGang(OLD, known_not_to_fit=True, deactivated_until=until) if want else None)


@pytest.mark.parametrize(
    ("shares", "draining", "want"),
    [
        pytest.param({"east": {"workers": 2}, "west": {"workers": 2}}, set(), False, id="the gang has all its workers"),
        pytest.param(
            {"east": {"workers": 2}, "west": {"workers": 2}},
            {"east"},
            True,
            id="one worker must leave a drained cluster",
        ),
        pytest.param({"east": {"workers": 3}}, {"west"}, True, id="one worker is lost"),
        pytest.param({}, set(), True, id="the gang has no workers"),
    ],
)
def test_wants_capacity(shares: dict[str, dict[str, int]], draining: set[str], want: bool) -> None:
    raw = make_placement(make_workload(), shares=shares)
    raw["spec"]["wanted"] = 4
    assert ordering.wants_capacity(raw, make_workload(), draining) is want


@pytest.mark.parametrize(
    "placement", [pytest.param(LOPSIDED, id="it has a share"), pytest.param(UNSHARED, id="it has no share")]
)
def test_a_lack_of_one_group_wants_capacity(placement: dict[str, Any]) -> None:
    """The slots suffice in sum, and those of the other group are spare."""
    assert ordering.wants_capacity(placement, TWO_GROUPS, ())
    assert not ordering.wants_capacity(placement, None, ()), "no job is read"


COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), min_size=1)


@given(COUNTS, st.dictionaries(st.sampled_from(("east", "west")), COUNTS), st.sets(st.sampled_from(("east", "west"))))
def test_any_worker_without_a_slot_of_its_group_is_noticed(
    wanted: dict[str, int], shares: dict[str, dict[str, int]], draining: set[str]
) -> None:
    shares = {
        cluster: {group: groups[group] for group in groups if group in wanted} for cluster, groups in shares.items()
    }
    usable = [groups for cluster, groups in shares.items() if cluster not in draining]
    lacks = any(sum(groups.get(group, 0) for groups in usable) < count for group, count in wanted.items())
    workload = make_workload(groups=wanted)
    placement = make_placement(workload, shares=shares)
    assert ordering.lacks_slots(parse_workload(workload), parse_placement(placement), draining, {}) is lacks
    assert ordering.wants_capacity(placement, workload, draining) is lacks


def test_an_empty_placement_wants_no_capacity() -> None:
    assert not ordering.wants_capacity({}, None, ())
    assert not ordering.wants_capacity({"spec": {"shares": None}}, None, ())


MINUTE = timedelta(minutes=1)
HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)  # a pause, for gangs that pause in every period


def waits(since: datetime | None, *, looked: bool = True) -> ordering.WaitingGang:
    return waiting(replace(gang("a"), created_at=since), looked=looked)


def lacks(since: datetime | None) -> ordering.WaitingGang:
    """A gang that has run for a month and lacks workers."""
    return replace(waits(HOUR - 43200 * MINUTE), is_running=True, placement=replace(HALF, waiting_since=since))


@pytest.mark.parametrize(
    ("one", "minutes", "until"),
    [
        pytest.param(waits(HOUR), 10, None, id="a gang has not waited long enough"),
        pytest.param(waits(HOUR), 10.1, 15, id="a gang that waited long holds until the next pause"),
        pytest.param(waits(HOUR, looked=False), 10.1, 15, id="a gang about to be planned holds what it gathered"),
        pytest.param(waits(HOUR), 15, None, id="a gang holds nothing when the pause begins"),
        pytest.param(waits(HOUR), 17.9, None, id="a gang holds nothing during the pause"),
        pytest.param(waits(HOUR), 18, 30, id="a gang holds again after the pause"),
        pytest.param(waits(HOUR), 45, None, id="at first every period has a pause"),
        pytest.param(waits(HOUR), 63, 90, id="after four periods every second one has a pause"),
        pytest.param(waits(HOUR), 90, None, id="a gang pauses in every second period"),
        pytest.param(waits(HOUR), 130, 180, id="after eight periods every fourth one has a pause"),
        pytest.param(waits(HOUR - 11 * MINUTE), 0, None, id="a gang has waited long enough, but a pause is on"),
        pytest.param(waits(None), 999, None, id="a gang of unknown age"),
        pytest.param(
            waiting(replace(gang("a"), created_at=HOUR - 99 * MINUTE, requeued_at=HOUR)),
            10,
            None,
            id="a gang that queued again waits from then",
        ),
        pytest.param(
            waiting(replace(gang("a"), created_at=HOUR - 99 * MINUTE, requeued_at=HOUR)),
            10.1,
            15,
            id="a gang that queued again and has waited long since",
        ),
        pytest.param(lacks(HOUR), 10.1, 15, id="a running gang holds by the wait of its missing workers"),
        pytest.param(lacks(HOUR - 99 * MINUTE), 0, None, id="a running gang pauses by the wait of its missing workers"),
        pytest.param(lacks(None), 999, None, id="a running gang whose wait is not recorded"),
        pytest.param(
            replace(lacks(HOUR), takes_single_slots=True), 10.1, None, id="a running gang that takes any free slot"
        ),
        pytest.param(
            replace(waits(HOUR), deactivated_until=HOUR + 12 * MINUTE),
            11,
            12,
            id="a deactivated gang holds while it may be back",
        ),
        pytest.param(
            replace(waits(HOUR), deactivated_until=HOUR + 16 * MINUTE),
            14,
            15,
            id="a deactivated gang pauses like the others",
        ),
    ],
)
def test_holds_capacity_until(one: ordering.WaitingGang, minutes: float, until: float | None) -> None:
    want = None if until is None else HOUR + until * MINUTE
    assert ordering.holds_capacity_until(one, HOUR + minutes * MINUTE) == want


def test_a_pause_is_long_enough_for_the_gangs_behind() -> None:
    longest = DEACTIVATE_AFTER * 2**MAX_DOUBLINGS
    assert longest < ordering.HOLD_PAUSE < ordering.HOLD_PERIOD / 2


# --- properties ------------------------------------------------------------------------------------------------------

SINCE = st.integers(0, 24 * 60 * 60).map(lambda seconds: HOUR + seconds * timedelta(seconds=1))


def holds(created: datetime, *, days: int) -> list[tuple[datetime, datetime]]:
    """The times at which a gang starts to hold capacity, each with the end of that hold."""
    one, now, found = waits(created), created + ordering.STARVED_AFTER + timedelta(seconds=1), []
    while now < created + timedelta(days=days):
        if until := ordering.holds_capacity_until(one, now):
            found.append((now, until))
            now = until
        assert ordering.holds_capacity_until(one, now) is None, "a hold ends with a pause"
        now = next(later for later in _steps(now) if ordering.holds_capacity_until(one, later))
    return found


def _steps(now: datetime) -> Iterator[datetime]:
    """All seconds of pauses, up to the longest possible."""
    seconds = timedelta(seconds=1)
    yield from (now + number * seconds for number in range(1, ordering.HOLD_PAUSE // seconds + 1))


@given(SINCE)
def test_holds_and_pauses_never_stop(created: datetime) -> None:
    """Holds grow longer than every job that ends, but no hold is longer than the wait before it: pauses never stop."""
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
def test_a_new_gang_holds_nothing(created: datetime, seconds: int) -> None:
    assert ordering.holds_capacity_until(waits(created), created + timedelta(seconds=seconds)) is None


@given(SINCE, SINCE, SINCE)
def test_all_gangs_pause_when_the_one_that_waits_longest_does(first: datetime, second: datetime, now: datetime) -> None:
    """Otherwise the gangs behind several would wait until all their pauses happen to meet."""
    old, young = waits(min(first, second)), waits(max(first, second))
    assert ordering.holds_capacity_until(old, now) or not ordering.holds_capacity_until(young, now)


@given(st.dictionaries(st.integers(0, 3000), st.integers(0, 1), min_size=1, max_size=6), st.integers(0, 3000))
def test_a_gang_that_never_runs_delays_each_job_of_its_priority_once_at_most(
    priorities: dict[int, int], created: int
) -> None:
    """It keeps the only capacity for its start timeout and queues again; any other job runs for a minute."""
    jobs = {second: gang(f"job-{second}", created=second, priority=level) for second, level in priorities.items()}
    never_runs, now, delays = gang("never-runs", created=created, priority=0), created, dict.fromkeys(jobs, 0)
    while jobs:
        waiting_since = [second for second in jobs if second <= now]
        first = min(waiting_since, key=lambda second: ordering.order_key(jobs[second]), default=None)
        if first is not None and ordering.order_key(jobs[first]) < ordering.order_key(never_runs):
            del jobs[first]
            now += 60
        else:
            now += 900
            delays.update({second: delays[second] + 1 for second in jobs if second < now})
            never_runs = replace(never_runs, requeued_at=at(now))
    assert all(delays[second] <= 1 for second, level in priorities.items() if level == 0)


def test_an_oversized_request_counts_as_no_size() -> None:
    """It may be in a worker group, whose job is rejected, or in a head, which is not validated."""
    container = {"resources": {"requests": {"cpu": "1"}}}
    long = PodSet("head", 9, {"spec": {"containers": [container] * 1000}}, frozenset())
    me, big = gang("me"), gang("big", created=1)
    assert ordering.order_key(replace(big, podsets=(*big.podsets, long)))[2] == ordering.order_key(me)[2] < 0


@pytest.mark.parametrize(
    ("one", "minutes", "want"),
    [
        pytest.param(lambda: waits(HOUR, looked=False), 1, True, id="a gang about to be planned"),
        pytest.param(lambda: waits(HOUR), 1, False, id="a gang that fits nowhere"),
        pytest.param(lambda: waits(HOUR), 11, True, id="a gang that fits nowhere and holds capacity"),
        pytest.param(lambda: waits(HOUR), 16, False, id="a gang that fits nowhere, in a pause"),
    ],
)
def test_takes_part_in_planning(one: Callable[[], ordering.WaitingGang], minutes: float, want: bool) -> None:
    assert ordering.may_take_or_hold(one(), HOUR + minutes * MINUTE) is want


def test_the_order_is_a_total_order() -> None:
    """If one gang is before another, the other is not before it. Otherwise two gangs could wait for each other."""
    gangs = [gang(n, created=c, priority=p) for n, c, p in (("a", 1, 0), ("b", 1, 5), ("c", 0, 0), ("d", 3, None))]
    for one in gangs:
        first = {w.workload.name for w in ordering.gangs_before(one, map(waiting, gangs))}
        for other in first:
            back = ordering.gangs_before(next(g for g in gangs if g.name == other), map(waiting, gangs))
            assert one.name not in {w.workload.name for w in back}


def test_a_plan_deducts_a_bounded_number_of_gangs_of_each_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "MOST_OWN_BEFORE", 3)
    monkeypatch.setattr(ordering, "MOST_OTHERS_BEFORE", 2)
    workload = parse_workload(make_workload())
    gangs = [
        WaitingGang(replace(workload, namespace=namespace, name=f"{namespace}{number}"), False)
        for number in range(9)
        for namespace in ("a", "b", "c")
    ]
    for own, most in (("a", {"a": 3, "b": 2, "c": 2}), ("d", {"a": 2, "b": 2, "c": 2})):
        places, deducted = ordering.NamespacePlaces(own), list[str]()
        for gang in filter(places.has_free_place, gangs):
            places.take_place(gang)
            deducted.append(gang.workload.name)
        assert sorted(deducted) == [f"{name}{number}" for name, count in most.items() for number in range(count)]
        assert deducted == [gang.workload.name for gang in gangs if gang.workload.name in deducted]


def test_the_looks_at_gangs_that_take_no_place_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "MOST_OTHERS_BEFORE", 2)
    gang, places = WaitingGang(parse_workload(make_workload()), False), ordering.NamespacePlaces("another")
    assert [places.has_free_place(gang) for _ in range(30)] == [True] * 20 + [False] * 10


@pytest.mark.parametrize(
    ("code", "is_planned", "is_deducted"),
    [
        pytest.param(ReasonCode.NEVER_FITS, True, False, id="too large for empty clusters"),
        pytest.param(ReasonCode.NEVER_FITS, False, True, id="too large, but something has changed since"),
        pytest.param(ReasonCode.INSUFFICIENT_CAPACITY, True, True, id="it may fit some day"),
    ],
)
def test_a_starved_gang_that_can_never_fit_is_not_deducted(
    code: ReasonCode, is_planned: bool, is_deducted: bool
) -> None:
    raw = make_workload()
    placement = replace(parse_placement(make_placement(raw)), code=code)
    now = START + ordering.STARVED_AFTER + timedelta(minutes=5)  # after a pause
    gang = WaitingGang(replace(parse_workload(raw), created_at=START), is_planned, placement)
    assert ordering.may_take_or_hold(gang, now) is is_deducted
