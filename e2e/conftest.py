"""The clusters with Rayspan as a user installs it, and jobs that each test may change before it submits them.

A test takes the sample as it is (`job`) where four workers or stock requests are what it asks about, and half of it (`pair`) elsewhere:
to start Ray's processes is most of what a test here takes. Those of a pair are asked each second whether they are ready, those of the
sample as KubeRay does it.
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
    """What is known of the deployed controller's processes."""
    made = Book()
    made.begin(fleet.manager.items("pods", names.SYSTEM_NAMESPACE, install.PODS))
    return made


@pytest.fixture(autouse=True)
def _nobody_ended(fleet: Clusters, book: Book) -> Iterator[None]:
    """None of its processes ends while a test runs: another one would go on, and the test would see nothing of it."""
    before = book.ends()
    yield
    pods = fleet.manager.items("pods", names.SYSTEM_NAMESPACE, install.PODS)
    book.saw(pods)
    assert book.ends() == before, [look.how for look in map(ends.read, pods) if look.ends]


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
