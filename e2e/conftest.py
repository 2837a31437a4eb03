"""The clusters with Rayspan as a user installs it, and jobs that each test may change before it submits them.

A test takes the sample as it is (`job`) where four workers or stock requests are what it asks about, and half of it (`pair`) elsewhere:
to start Ray's processes is most of what a test here takes. Those of a pair are asked each second whether they are ready, those of the
sample as KubeRay does it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed import tls
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import Job, removed
from hack.testbed.workerclusters import found_by


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


@pytest.fixture
def mirroring(fleet: Clusters) -> Iterator[None]:
    """Both worker clusters mirror heads. Name it before the job: it goes after it."""
    with found_by(fleet, {name: {"address": "ServiceMirror"} for name in fleet.workers}):
        yield


@pytest.fixture
def authority(fleet: Clusters, tmp_path: Path) -> Iterator[None]:
    """What `tls.encrypt` needs beside the job. Name it before the job: it goes after it."""
    with tls.authority(fleet.manager, tmp_path):
        yield


def _named(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).removeprefix("test_").replace("_", "-")[:40]
