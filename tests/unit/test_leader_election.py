"""Two candidates never both believe that they may write, whatever clocks, pauses, crashes and lost answers they
have."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter import leader_election, names
from adapter.leader_election import (
    LEASE_DURATION_SECONDS,
    NEAR_EXPIRY_SECONDS,
    RENEW_DEADLINE_SECONDS,
    RETRY_PERIOD_SECONDS,
    LeaseCandidate,
    LeaseWrite,
    StepDown,
    Wait,
)
from adapter.objects.unstructured import Raw

WALL = datetime(2026, 5, 1, 12, 0, 0, 250, tzinfo=UTC)
STAMP, EARLIER = "2026-05-01T12:00:00.000250Z", "2026-04-01T00:00:00.000000Z"
ME, OTHER = "rayspan-a_1", "rayspan-b_2"
NOW = 1000.0
FRESH = LeaseCandidate(ME)


def lease(holder: str | None, version: int = 7, **spec: Any) -> Raw:
    metadata = {"name": names.LEASE, "namespace": names.SYSTEM_NAMESPACE, "uid": "u1", "resourceVersion": str(version)}
    usual = {"leaseDurationSeconds": 15, "leaseTransitions": 3, "acquireTime": EARLIER, "renewTime": EARLIER}
    return {"metadata": metadata, "spec": {**usual, "holderIdentity": holder, **spec}}


def seen(seconds: float) -> LeaseCandidate:
    """A candidate that has not seen the Lease change for so long."""
    return LeaseCandidate(ME, "7", NOW - seconds)


def leading(seconds: float) -> LeaseCandidate:
    """A leader whose last renewal was sent so long ago."""
    return leader_election.with_renewal(seen(0), NOW - seconds)


@pytest.mark.parametrize(
    ("me", "found", "near"),
    [
        pytest.param(seen(0), lease(OTHER), False, id="another candidate holds the Lease"),
        pytest.param(
            seen(NEAR_EXPIRY_SECONDS - 0.1),
            lease(OTHER),
            False,
            id=("another candidate holds the Lease and renewed it a moment ago"),
        ),
        pytest.param(seen(NEAR_EXPIRY_SECONDS), lease(OTHER), True, id="another candidate holds the Lease and is late"),
        pytest.param(seen(0), lease(""), True, id="the Lease was given back"),
        pytest.param(FRESH, None, True, id="no Lease exists"),
        pytest.param(seen(0), lease(ME), True, id="the Lease is ours, and the answer was lost"),
        pytest.param(leading(1), lease(ME), True, id="this candidate leads"),
    ],
)
def test_a_candidate_that_may_lead_soon_knows_it_before(me: LeaseCandidate, found: Raw | None, near: bool) -> None:
    assert leader_election.may_lead_soon(me, found, NOW) is near
    assert RETRY_PERIOD_SECONDS * 2 < NEAR_EXPIRY_SECONDS < LEASE_DURATION_SECONDS / 2, (
        "two looks may miss a renewal; and there is time left to read"
    )


# --- what a candidate does -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("me", "found"),
    [
        pytest.param(FRESH, None, id="no Lease ever existed"),
        pytest.param(seen(LEASE_DURATION_SECONDS), lease(OTHER), id="the Lease did not change for its duration"),
        pytest.param(seen(3600), lease(OTHER), id="the Lease did not change for an hour"),
        pytest.param(seen(0), lease(""), id="the Lease was given back"),
        pytest.param(seen(0), lease(None), id="the Lease never had a holder"),
        pytest.param(seen(0), {"metadata": {"uid": "u1", "resourceVersion": "7"}}, id="the Lease is empty"),
        pytest.param(seen(0), lease(ME), id="the Lease is ours, and the answer was lost"),
        pytest.param(
            LeaseCandidate(ME, "", NOW - LEASE_DURATION_SECONDS),
            None,
            id=("the Lease was deleted, and its holder did not create it again"),
        ),
        pytest.param(leading(9), lease(ME), id="this candidate leads"),
        pytest.param(leading(9), None, id="this candidate leads, and somebody deleted the Lease"),
    ],
)
def test_the_lease_is_taken_or_renewed(me: LeaseCandidate, found: Raw | None) -> None:
    move = leader_election.decide(me, found, NOW, WALL)
    assert isinstance(move, LeaseWrite)
    assert move.create is (found is None)
    assert move.body["spec"]["holderIdentity"] == ME
    if found is not None:
        assert move.body["metadata"] == {"uid": "u1", "resourceVersion": "7"}, "of this very version"


@pytest.mark.parametrize(
    ("me", "found", "seconds"),
    [
        pytest.param(seen(0), lease(OTHER), RETRY_PERIOD_SECONDS, id="the holder has just renewed"),
        pytest.param(seen(14.5), lease(OTHER), 0.5, id="the wait ends with the holder's duration"),
        pytest.param(
            seen(16), lease(OTHER, leaseDurationSeconds=60), RETRY_PERIOD_SECONDS, id="the holder asks for longer"
        ),
        pytest.param(seen(14), lease(OTHER, leaseDurationSeconds=1), 1.0, id="the holder asks for less than is safe"),
        pytest.param(seen(14), lease(OTHER, leaseDurationSeconds=None), 1.0, id="the holder gives no duration"),
        pytest.param(
            LeaseCandidate(ME, "", NOW - 14), None, 1.0, id="the Lease was deleted, and its holder may not know yet"
        ),
    ],
)
def test_another_holder_is_respected(me: LeaseCandidate, found: Raw | None, seconds: float) -> None:
    holder = OTHER if found else ""
    assert leader_election.decide(me, found, NOW, WALL) == Wait(seconds, holder)


@pytest.mark.parametrize(
    ("me", "found", "why"),
    [
        pytest.param(leading(1), lease(OTHER), f"it is held by {OTHER}", id="another candidate holds the Lease"),
        pytest.param(leading(1), lease(""), "it is held by nobody", id="somebody removed the holder"),
        pytest.param(
            leading(10),
            lease(ME),
            ("it was not renewed for 10 s: this process did not run in time"),
            id="the renewal is too late",
        ),
        pytest.param(
            leading(999),
            None,
            ("it was not renewed for 10 s: this process did not run in time"),
            id="the renewal is much too late",
        ),
    ],
)
def test_a_leader_steps_down(me: LeaseCandidate, found: Raw | None, why: str) -> None:
    assert leader_election.decide(me, found, NOW, WALL) == StepDown(why)


@pytest.mark.parametrize("renewed", ["1970-01-01T00:00:00.000000Z", "2199-01-01T00:00:00.000000Z", "soon", None])
@pytest.mark.parametrize("seconds", [0.0, 14.0, 15.0])
def test_no_wall_clock_is_compared(renewed: str | None, seconds: float) -> None:
    """Both machines' clocks may be wrong by a century."""
    usual = leader_election.decide(seen(seconds), lease(OTHER), NOW, WALL)
    odd = leader_election.decide(seen(seconds), lease(OTHER, renewTime=renewed, acquireTime=renewed), NOW, WALL)
    assert odd == usual
    late = leader_election.decide(seen(seconds), lease(OTHER), NOW, WALL.replace(year=2199))
    assert type(late) is type(usual)


@pytest.mark.parametrize(
    ("me", "move"),
    [
        pytest.param(FRESH, Wait(RETRY_PERIOD_SECONDS), id="a candidate tries again"),
        pytest.param(leading(3), Wait(RETRY_PERIOD_SECONDS), id="a leader tries again"),
        pytest.param(leading(9), Wait(1.0), id="a leader does not try beyond its deadline"),
        pytest.param(
            leading(10), StepDown("it was not renewed for 10 s: refused"), id="a leader steps down at its deadline"
        ),
    ],
)
def test_after_a_failed_attempt(me: LeaseCandidate, move: Wait | StepDown) -> None:
    assert leader_election.decide_after_error(me, NOW, "refused") == move


@pytest.mark.parametrize(
    ("me", "allowed"),
    [(FRESH, False), (seen(99), False), (leading(0), True), (leading(9.9), True), (leading(10), False)],
)
def test_who_may_write(me: LeaseCandidate, allowed: bool) -> None:
    assert leader_election.may_write(me, NOW) is allowed
    assert not leader_election.may_write(leader_election.without_lead(me), NOW)


def test_an_attempt_of_a_leader_ends_with_its_deadline() -> None:
    assert (
        leader_election.request_timeout(FRESH, NOW)
        == leader_election.request_timeout(leading(0), NOW)
        == leader_election.REQUEST_TIMEOUT_SECONDS
    )
    assert leader_election.request_timeout(leading(8), NOW) == 2.0


def test_an_observation_counts_from_the_last_change() -> None:
    me = leader_election.with_observation(FRESH, lease(OTHER, 7), 100.0)
    assert (me.observed_version, me.observed_at) == ("7", 100.0)
    assert leader_election.with_observation(me, lease(OTHER, 7), 105.0) == me
    assert leader_election.with_observation(me, lease(OTHER, 8), 106.0).observed_at == 106.0
    assert leader_election.with_observation(me, None, 107.0).observed_at == 107.0
    assert leader_election.with_observation(FRESH, None, 100.0).observed_at == -math.inf


# --- the fields of the Lease -----------------------------------------------------------------------------------------


def put(me: LeaseCandidate, found: Raw | None) -> LeaseWrite:
    move = leader_election.decide(me, found, NOW, WALL)
    assert isinstance(move, LeaseWrite)
    return move


def test_the_lease_has_the_fields_of_client_go() -> None:
    assert put(FRESH, None).body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "rayspan-controller", "namespace": "rayspan-system"},
        "spec": {
            "holderIdentity": ME,
            "leaseDurationSeconds": 15,
            "acquireTime": STAMP,
            "renewTime": STAMP,
            "leaseTransitions": 0,
        },
    }


@pytest.mark.parametrize(
    ("me", "found", "acquired", "transitions"),
    [
        pytest.param(leading(2), lease(ME), EARLIER, 3, id="a renewal"),
        pytest.param(seen(0), lease(ME), EARLIER, 3, id="a renewal after a lost answer"),
        pytest.param(leading(2), lease(ME, acquireTime=None), STAMP, 3, id="a renewal without an acquire time"),
        pytest.param(seen(15), lease(OTHER), STAMP, 4, id="a change of holder"),
        pytest.param(seen(0), lease(""), STAMP, 4, id="a change of holder after the Lease was given back"),
        pytest.param(seen(0), lease("", leaseTransitions=None), STAMP, 1, id="the first change of holder"),
        pytest.param(seen(0), lease("", leaseTransitions=2**31 - 1), STAMP, 0, id="the counter of changes is full"),
    ],
)
def test_the_lease_says_who_leads_since_when(me: LeaseCandidate, found: Raw, acquired: str, transitions: int) -> None:
    spec = put(me, found).body["spec"]
    assert (spec["acquireTime"], spec["leaseTransitions"], spec["renewTime"]) == (acquired, transitions, STAMP)


def test_only_its_holder_gives_the_lease_back() -> None:
    assert leader_election.release_patch(leading(1), lease(ME), WALL) == {
        "metadata": {"uid": "u1", "resourceVersion": "7", "annotations": {names.GAVE_BACK_ANNOTATION: ME}},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": STAMP, "renewTime": STAMP},
    }
    for found in (lease(OTHER), lease(""), None):
        assert leader_election.release_patch(leading(1), found, WALL) is None


def test_the_last_holder_is_known_after_the_lease_was_given_back() -> None:
    noted = lease("")
    noted["metadata"]["annotations"] = {names.GAVE_BACK_ANNOTATION: OTHER}
    assert [leader_election.lease_holder(found) for found in (None, lease(""), lease(ME), noted)] == ["", "", ME, OTHER]


# --- two candidates --------------------------------------------------------------------------------------------------


@dataclass
class Shelf:
    """The one Lease, as an API server keeps it."""

    kept: Raw | None = None
    version: int = 0
    late: list[LeaseWrite] = field(default_factory=list)  # pending writes whose sender has given up

    def arrive(self) -> None:
        while self.late:
            move = self.late.pop(0)
            self.take(move.body, create=move.create)

    def take(self, body: Raw, *, create: bool) -> bool:
        """Write the Lease; return whether the write was granted."""
        stale = not create and self.kept and body["metadata"]["resourceVersion"] != str(self.version)
        if stale or create is (self.kept is not None):
            return False
        self.version += 1
        spec = {**(self.kept or {"spec": {}})["spec"], **body["spec"]}
        self.kept = {"metadata": {"uid": "u1", "resourceVersion": str(self.version)}, "spec": spec}
        return True


@dataclass
class Process:
    """A candidate with its own clock, which may be stopped at every await."""

    shelf: Shelf
    rate: float
    ahead: float
    number: int
    time: float = 0.0  # the true time
    lives: int = 0
    sending: LeaseWrite | None = None
    me: LeaseCandidate = field(init=False)
    work: Iterator[None] = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    @property
    def clock(self) -> float:
        return self.ahead + self.rate * self.time

    @property
    def writes(self) -> bool:
        return leader_election.may_write(self.me, self.clock)

    def restart(self) -> None:
        """Die at once, and begin as another process."""
        self._drop()
        self.lives += 1
        self.me = LeaseCandidate(f"{self.number}_{self.lives}")
        self.work = self._attempt()

    def go_on(self) -> None:
        """Run to the next await; after an attempt the next one begins, or a fresh process."""
        if next(self.work, self) is self:
            self.work = self._attempt()

    def fail(self) -> None:
        """Fail the attempt; a request that was sent may be granted before or later."""
        self._drop()
        self.work = self._attempt()

    def give_back(self) -> None:
        self._drop()
        self.me = leader_election.without_lead(self.me)
        self.work = self._giving_back()

    def _drop(self) -> None:
        if self.sending:
            self.shelf.late.append(self.sending)
        self.sending = None

    def _attempt(self) -> Iterator[None]:
        yield
        found = self.shelf.kept
        yield
        self.me = leader_election.with_observation(self.me, found, self.clock)
        yield
        move = leader_election.decide(self.me, found, self.clock, WALL)
        if isinstance(move, StepDown):
            self.restart()
        if not isinstance(move, LeaseWrite):
            return
        yield
        sent = self.clock
        yield
        self.sending = move
        yield
        self.sending = None
        done = self.shelf.take(move.body, create=move.create)
        yield
        if done:
            self.me = leader_election.with_renewal(self.me, sent)

    def _giving_back(self) -> Iterator[None]:
        found = self.shelf.kept
        yield
        if body := leader_election.release_patch(self.me, found, WALL):
            self.shelf.take(body, create=False)
        self.restart()


STEPS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["go on"] * 8 + ["fail", "restart", "give back", "arrive"]),
    st.sampled_from([1, 2, 3, 20, 20, 20]),  # steps without a pause; an attempt has nine awaits
    st.sampled_from([0, 0, 1, 9.5, 13, 15, 40]),  # seconds before the steps
)
RATES = st.sampled_from([0.85, 1.0, 1.2])  # far beyond any real clock, and within what the durations allow


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(STEPS, min_size=30, max_size=60), RATES, RATES, st.integers(0, 10**6))
def test_two_candidates_never_write_at_once(
    steps: list[tuple[int, str, int, float]], one: float, two: float, ahead: int
) -> None:
    shelf = Shelf()
    pair = [Process(shelf, one, 0.0, 0), Process(shelf, two, float(ahead), 1)]
    for number, what, times, pause in steps:
        for process in pair:
            process.time += pause
        acting = pair[number]
        do = {
            "go on": acting.go_on,
            "fail": acting.fail,
            "restart": acting.restart,
            "give back": acting.give_back,
            "arrive": shelf.arrive,
        }[what]
        for _ in range(times):
            do()
            assert not all(process.writes for process in pair)


def test_the_two_candidates_lead_in_turn() -> None:
    """Otherwise the property above would also hold for candidates that never lead."""
    shelf = Shelf()
    one, two = Process(shelf, 1.0, 0.0, 0), Process(shelf, 1.0, 500.0, 1)

    def run(*alive: Process, seconds: float) -> None:
        for _ in range(int(seconds)):
            for process in alive:
                for _ in range(9):
                    process.go_on()
            for process in (one, two):
                process.time += 1

    run(one, two, seconds=30)
    assert (one.writes, two.writes) == (True, False)
    run(two, seconds=LEASE_DURATION_SECONDS - 1)
    assert (one.writes, two.writes) == (False, False), "the one is stopped, and the other one still waits"
    run(two, seconds=4)
    assert (one.writes, two.writes) == (False, True)
    run(one, two, seconds=3)
    assert (one.lives, one.writes, two.writes) == (2, False, True), "the one has ended, and stands by afresh"
    two.give_back()
    run(two, one, seconds=2)
    assert one.writes or two.writes, "what was given back is taken at once"


def test_the_deadline_is_well_before_the_end_of_the_lease() -> None:
    """For clocks of different rates."""
    assert RENEW_DEADLINE_SECONDS * 1.5 <= LEASE_DURATION_SECONDS
    assert LEASE_DURATION_SECONDS + RETRY_PERIOD_SECONDS < 20, "the hand-over that users are promised"
