"""An anchor belongs to a share that exists or that a Placement wants. A new anchor may come before its share."""

from typing import Any

import pytest

from adapter.gang import orphan_anchors
from adapter.objects.placement import PlacementState, parse_placement
from adapter.objects.unstructured import Raw
from tests.unit.builders import at, make_meta, make_placement, make_reservation, make_workload, stamp

PLACE = make_placement(make_workload())
SHARE = make_reservation(PLACE)
NAME = SHARE["metadata"]["name"]


def anchor(name: str = NAME, **more: Any) -> Raw:
    return {"metadata": make_meta(name, **more)}


@pytest.mark.parametrize(
    ("found", "cluster", "share", "places", "want"),
    [
        pytest.param(anchor(), "east", SHARE, [], True, id="its share exists"),
        pytest.param(anchor(), "east", None, [], False, id="no Placement knows it"),
        pytest.param(anchor(), "east", None, [PLACE], True, id="its share is still to be created"),
        pytest.param(anchor(), "north", None, [PLACE], False, id="no share is wanted in its cluster"),
        pytest.param(anchor(f"{NAME}0"), "east", None, [PLACE], False, id="an anchor of another round"),
        pytest.param(
            anchor(),
            "east",
            None,
            [make_placement(make_workload(), withdrawn=1)],
            False,
            id="an anchor of a withdrawn round",
        ),
        pytest.param(
            anchor(),
            "east",
            None,
            [make_placement(make_workload(), state=PlacementState.ENDED)],
            False,
            id="an anchor of an ended gang",
        ),
        pytest.param(
            anchor(),
            "east",
            None,
            [make_placement(make_workload(), round=2), PLACE],
            True,
            id="one of two Placements wants it",
        ),
    ],
)
def test_which_anchors_are_orphans(found: Raw, cluster: str, share: Raw | None, places: list[Raw], want: bool) -> None:
    assert orphan_anchors.is_in_use(found, cluster, share, map(parse_placement, places)) is want


@pytest.mark.parametrize(
    ("found", "seconds", "want"),
    [
        pytest.param(anchor(creationTimestamp=stamp()), 15, False, id="its share may still be created"),
        pytest.param(anchor(creationTimestamp=stamp()), 16, True, id="its share will not be created any more"),
        pytest.param(anchor(), 9999, False, id="its age is unknown"),
    ],
)
def test_when_an_anchor_is_old_enough_to_delete(found: Raw, seconds: float, want: bool) -> None:
    assert orphan_anchors.is_settled(found, at(seconds)) is want


def test_when_a_clusters_anchors_are_checked() -> None:
    assert [turn for turn in range(50) if orphan_anchors.is_sweep_due(turn)] == [0, 1, 20, 40]
