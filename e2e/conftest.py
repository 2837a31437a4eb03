"""Fixtures of the end-to-end tests: the clusters with Rayspan as a user installs it, and jobs to change and submit.

`job` is the sample with four workers and stock requests. `pair` has two workers and starts faster: starting Ray's
processes takes most of a test's time. Workers of a pair have a readiness probe every second, those of the sample
KubeRay's own.
"""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed import install
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import Job, removed
from hack.trials.chaos import ends
from hack.trials.chaos.ends import Book


@pytest.fixture(scope="session")
def book(fleet: Clusters) -> Book:
    """The record of the ends of the deployed controller's processes."""
    record = Book()
    record.begin(fleet.manager.items("pods", names.SYSTEM_NAMESPACE, install.PODS))
    return record


@pytest.fixture(autouse=True)
def _no_controller_ended(fleet: Clusters, book: Book) -> Iterator[None]:
    """Fail a test during which a controller process ended: another replica would take over unnoticed."""
    before = book.ends()
    yield
    pods = fleet.manager.items("pods", names.SYSTEM_NAMESPACE, install.PODS)
    book.saw(pods)
    assert book.ends() == before, [look.how for look in map(ends.read, pods) if look.ends]


@pytest.fixture
def job(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Job]:
    """The sample RayJob, named like the test and removed from every cluster afterwards."""
    with removed(Job(fleet, _named(request))) as rayjob:
        yield rayjob


@pytest.fixture
def pair(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Job]:
    """The sample RayJob with two workers, one in each worker cluster."""
    with removed(Job(fleet, _named(request), 2, apart=True)) as rayjob:
        yield rayjob


def _named(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).removeprefix("test_").replace("_", "-")[:40]
