"""A share is admitted as long as its cluster says so. It is over when it can never be admitted again."""

import pytest

from adapter import names
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import Raw
from adapter.objects.workload import parse_workload
from tests.unit import builders as make


def test_a_reservation_is_read_whole() -> None:
    raw = make.make_reservation(make.make_placement(make.make_workload(), round=3), message="Quota reserved")
    found = parse_reservation("east", raw)
    place = f"train-{parse_workload(make.make_workload()).attempt}"
    assert (found.cluster, found.name, found.placement, found.round) == ("east", f"{place}-3", place, 3)
    assert (found.anchor_uid, found.uid) == (f"anchor-of-{place}-3", f"uid-of-{place}-3")
    assert (found.admitted, found.deleting, found.ended, found.reserved_at) == (True, False, False, make.START)
    assert found.message == "Quota reserved"


def test_an_evicted_reservation_is_not_admitted() -> None:
    """Kueue removes Admitted only in a second write."""
    raw = make.make_reservation(make.make_placement(make.make_workload()), conditions=[names.EVICTED])
    assert not parse_reservation("east", raw).admitted


@pytest.mark.parametrize(
    ("given", "over"),
    [
        pytest.param({}, False, id="the reservation is admitted"),
        pytest.param({"admitted": False}, False, id="the reservation waits"),
        pytest.param(
            {"conditions": [names.EVICTED]}, False, id="the reservation is evicted, and its Kueue queues it again"
        ),
        pytest.param(
            {"conditions": [names.FINISHED]},
            True,
            id=("the reservation is finished, and Kueue left Admitted unchanged"),
        ),
        pytest.param(
            {"admitted": False, "conditions": [names.FINISHED]}, True, id="the reservation finished while it waited"
        ),
        pytest.param({"active": False}, True, id="the reservation is deactivated"),
        pytest.param({"active": False, "admitted": False}, True, id="the reservation was deactivated while it waited"),
    ],
)
def test_a_reservation_that_is_over_is_never_admitted(given: Raw, over: bool) -> None:
    found = parse_reservation("east", make.make_reservation(make.make_placement(make.make_workload()), **given))
    assert found.ended is over
    assert found.admitted is (
        given.get("admitted", True) and not over and names.EVICTED not in given.get("conditions", ())
    )


@pytest.mark.parametrize("spec", [None, {}, {"active": None}, {"active": True}])
def test_a_reservation_is_active_by_default(spec: Raw | None) -> None:
    raw = make.make_reservation(make.make_placement(make.make_workload())) | {"spec": spec}
    found = parse_reservation("east", raw)
    assert (found.ended, found.admitted) == (False, True)


@pytest.mark.parametrize("text", ["", "two", "-1", "1.5"])
def test_a_malformed_round_is_not_ours(text: str) -> None:
    raw = {"metadata": {"annotations": {names.ROUND_ANNOTATION: text}}}
    assert parse_reservation("east", raw).round == 0


def test_an_empty_object_gives_an_empty_reservation() -> None:
    found = parse_reservation("east", {})
    assert (found.admitted, found.deleting, found.ended, found.round, found.anchor_uid) == (False, False, False, 0, "")
