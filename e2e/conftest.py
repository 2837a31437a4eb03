"""The clusters with Rayspan as a user installs it, and jobs that each test may change before it submits them.

A test takes the sample as it is (`job`) where four workers or stock requests are what it asks about, and half of it (`pair`) elsewhere:
to start Ray's processes is most of what a test here takes. Those of a pair are asked each second whether they are ready, those of the
sample as KubeRay does it.
"""

from collections.abc import Iterator

import pytest

from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import Job, removed


@pytest.fixture
def job(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Job]:
    """The sample RayJob under a name of this test; gone from every cluster when the test is over."""
    with removed(Job(fleet, _named(request))) as made:
        yield made


@pytest.fixture
def pair(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Job]:
    """The same with two workers, of which each worker cluster takes one."""
    with removed(Job(fleet, _named(request), 2, apart=True)) as made:
        yield made


def _named(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).removeprefix("test_").replace("_", "-")[:40]
