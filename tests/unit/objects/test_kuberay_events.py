"""KubeRay's events about a RayCluster, as the API server stores them and as they are cached."""

from typing import Any

import pytest

from adapter.objects import trim
from adapter.objects.kuberay_events import (
    MAX_MESSAGE,
    RayClusterRevision,
    newest_rejection,
    read_revision,
    trim_event,
)
from adapter.objects.unstructured import Raw, RawDict


def rejection(
    version: int, message: str = "no.", reason: str = "InvalidRayClusterSpec", object_version: str = "7", **more: Any
) -> RawDict:
    """An event; each repetition of it has a higher version, and the object's version of the first."""
    return {
        "metadata": {"namespace": "team", "name": f"pi.{version}", "uid": "e", "resourceVersion": str(version)},
        "involvedObject": {"kind": "RayCluster", "name": "pi", "uid": "of-pi", "resourceVersion": object_version},
        "reason": reason,
        "message": message,
        "count": 3,
        "lastTimestamp": "2026-11-28T10:00:00Z",
        "source": {"component": "raycluster-controller"},
        **more,
    }


@pytest.mark.parametrize(
    ("events", "message"),
    [
        pytest.param([rejection(9)], "no.", id="one rejection"),
        pytest.param([rejection(9), rejection(10, "new."), rejection(8)], "new.", id="the last version counts"),
        pytest.param([rejection(9), rejection(10, reason="FailedToCreateHeadPod")], "no.", id="another warning"),
        pytest.param([rejection(9, message="x" * 9_000)], "x" * MAX_MESSAGE, id="a long message is cut"),
        pytest.param([{**rejection(9), "metadata": {}}], "no.", id="an event without a version"),
        pytest.param([rejection(9, involvedObject=7)], "no.", id="an event about nothing"),
        pytest.param([], None, id="no event"),
    ],
)
def test_the_rejection_that_was_recorded_last_counts(events: list[Raw], message: str | None) -> None:
    newest = newest_rejection(map(trim_event, events))
    assert (newest and newest.message) == message


def test_an_event_names_the_version_of_its_object_also_in_the_cache() -> None:
    for event in (rejection(9), trim_event(rejection(9)), trim_event(trim_event(rejection(9)))):
        newest = newest_rejection([event])
        assert newest is not None
        assert (newest.version, newest.object_version, newest.reason) == ("9", "7", "InvalidRayClusterSpec")


def test_a_cached_event_has_nothing_but_a_rejection() -> None:
    event = trim_event(rejection(5, message="y" * 9_000, related={"x": "z" * 9_000}))
    assert len(str(event)) < 2_000
    assert set(trim_event(rejection(5, reason="FailedToCreateHeadPod"))) == {"metadata"}


@pytest.mark.parametrize(
    ("raw", "revision"),
    [
        pytest.param(
            {
                "metadata": {"resourceVersion": "8", "generation": 3},
                "spec": {"suspend": True},
                "status": {"observedGeneration": 2},
            },
            RayClusterRevision("8", 3, 2, suspended=True),
            id="a RayCluster that KubeRay accepted before its last edit",
        ),
        pytest.param(
            {"metadata": {"resourceVersion": "8", "generation": 1}, "spec": {}},
            RayClusterRevision("8", 1, 0, suspended=False),
            id="a RayCluster without a status",
        ),
        pytest.param(
            {"metadata": {"generation": "x"}, "spec": 7, "status": {"observedGeneration": []}},
            RayClusterRevision("", 0, 0, suspended=False),
            id="malformed fields",
        ),
    ],
)
def test_a_revision_is_that_of_the_object_also_in_the_cache(raw: Raw, revision: RayClusterRevision) -> None:
    assert read_revision(raw) == revision
    if isinstance(raw["spec"], dict):
        assert read_revision(trim.ray_cluster(raw)) == revision
