"""The clusters with Rayspan as a user installs it, and a job that each test may change before it submits it."""

from collections.abc import Iterator

import pytest

from e2e.heads import found_by
from e2e.job import Job
from hack.clusters import Clusters


@pytest.fixture
def job(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Job]:
    """The sample RayJob under a name of this test; gone from every cluster when the test is over."""
    made = Job(fleet, request.node.name.removeprefix("test_").replace("_", "-")[:40])
    yield made
    made.delete()
    made.wait_until_gone()


@pytest.fixture
def mirroring(fleet: Clusters) -> Iterator[None]:
    """Both worker clusters mirror heads."""
    with found_by(fleet, {name: {"address": "ServiceMirror"} for name in ("east", "west")}):
        yield
