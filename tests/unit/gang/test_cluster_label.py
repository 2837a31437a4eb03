"""The label that names the worker clusters of a job's workers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.gang.cluster_label import label_value, placed_clusters
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import make_placement, make_workload

# k8s:staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go, labelValueFmt
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_CLUSTER = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("clusters", "value"),
    [
        ([], ""),
        (["east"], "east"),
        (["west", "east"], "east_west"),
        (["a" * 63], "a" * 63),
        (["a" * 40, "b" * 40, "c"], f"{'a' * 40}_2-more"),
        (["a" * 62, "b"], "2-clusters"),
    ],
)
def test_it_names_the_clusters_in_order(clusters: list[str], value: str) -> None:
    assert label_value(clusters) == value


@given(st.sets(_CLUSTER, max_size=100))
def test_it_is_a_label_whatever_the_clusters(clusters: set[str]) -> None:
    value = label_value(clusters)
    assert len(value) <= 63 and _LABEL_VALUE.fullmatch(value)
    assert bool(value) == bool(clusters)


@pytest.mark.parametrize(
    ("spec", "status", "clusters"),
    [
        pytest.param({}, {}, set(), id="a round that is not placed yet"),
        pytest.param({}, {"placedRound": 1}, {"east", "west"}, id="a placed round"),
        pytest.param({"round": 2}, {"placedRound": 1}, {"west"}, id="a second round that is not placed yet"),
        pytest.param({}, {"placedRound": 1, "withdrawnRound": 1}, set(), id="a withdrawn round"),
        pytest.param({"single": True}, {}, {"west"}, id="the share of an elastic job's worker"),
    ],
)
def test_shares_that_the_job_runs_with_count(spec: Raw, status: Raw, clusters: set[str]) -> None:
    raw = make_placement(make_workload())
    raw["status"] = status
    raw["spec"]["shares"][1] |= {"round": 1, "single": spec.get("single", False)}
    raw["spec"]["round"] = spec.get("round", 1)
    assert placed_clusters(parse_placement(raw)) == clusters
