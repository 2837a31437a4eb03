"""Selectors of the model API server: it leaves out what a real one leaves out, and refuses what it does not know."""

import pytest

from hack.simulation.selection import is_selected

_ANCHOR = {"metadata": {"name": "a", "namespace": "demo", "labels": {"manager": "m", "cluster": "east"}}}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", True),
        ("manager=m,cluster=east", True),
        ("manager=m,cluster=west", False),
        ("manager", True),
        ("copied", False),
        ("manager=m,!copied", True),
        ("manager=m,!cluster", False),
    ],
)
def test_labels_are_selected_as_by_an_api_server(selector: str, selected: bool) -> None:
    assert is_selected(_ANCHOR, "demo", {"labelSelector": selector}) is selected


def test_an_unknown_selector_is_an_error() -> None:
    with pytest.raises(ValueError, match="not modelled"):
        is_selected(_ANCHOR, "demo", {"labelSelector": "cluster in (east, west)"})
