"""The clusters with Rayspan as a user installs it, and a job that each test may change before it submits it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed import tls
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import Job
from hack.testbed.workerclusters import found_by


@pytest.fixture
def job(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Job]:
    """The sample RayJob under a name of this test; gone from every cluster when the test is over."""
    made = Job(fleet, request.node.name.removeprefix("test_").replace("_", "-")[:40])
    yield made
    made.delete()
    made.wait_until_gone()


@pytest.fixture
def mirroring(fleet: Clusters) -> Iterator[None]:
    """Both worker clusters mirror heads. Name it before `job`: it goes after it."""
    with found_by(fleet, {name: {"address": "ServiceMirror"} for name in fleet.workers}):
        yield


@pytest.fixture
def authority(fleet: Clusters, tmp_path: Path) -> Iterator[None]:
    """What `tls.encrypt` needs beside the job. Name it before `job`: it goes after it."""
    with tls.authority(fleet.manager, tmp_path):
        yield
