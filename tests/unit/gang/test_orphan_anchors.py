"""An anchor stands for a share that is there, or that a Placement still wants; one that is new may be waiting for its share."""

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
        pytest.param(anchor(), "east", SHARE, [], True, id="its share stands"),
        pytest.param(anchor(), "east", None, [], False, id="nobody knows it"),
        pytest.param(anchor(), "east", None, [PLACE], True, id="its share is yet to be made"),
        pytest.param(anchor(), "north", None, [PLACE], False, id="no share is wanted in its cluster"),
        pytest.param(anchor(f"{NAME}0"), "east", None, [PLACE], False, id="of another round"),
        pytest.param(
            anchor(), "east", None, [make_placement(make_workload(), withdrawn=1)], False, id="of a round given up"
        ),
        pytest.param(
            anchor(),
            "east",
            None,
            [make_placement(make_workload(), state=PlacementState.ENDED)],
            False,
            id="of a gang that ended",
        ),
        pytest.param(
            anchor(), "east", None, [make_placement(make_workload(), round=2), PLACE], True, id="one of two wants it"
        ),
    ],
)
def test_what_an_anchor_stands_for(found: Raw, cluster: str, share: Raw | None, places: list[Raw], want: bool) -> None:
    assert orphan_anchors.is_in_use(found, cluster, share, map(parse_placement, places)) is want


@pytest.mark.parametrize(
    ("found", "seconds", "want"),
    [
        pytest.param(anchor(creationTimestamp=stamp()), 15, False, id="its share may be on its way"),
        pytest.param(anchor(creationTimestamp=stamp()), 16, True, id="not any more"),
        pytest.param(anchor(), 9999, False, id="nobody knows how old it is"),
    ],
)
def test_when_it_has_settled(found: Raw, seconds: float, want: bool) -> None:
    assert orphan_anchors.is_settled(found, at(seconds)) is want


def test_when_a_cluster_is_swept() -> None:
    assert [turn for turn in range(50) if orphan_anchors.is_sweep_due(turn)] == [0, 1, 20, 40]
