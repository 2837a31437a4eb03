"""docs/compatibility.md is true, and the golden pods are still those that KubeRay makes. Every sample is tried."""

import pytest

from hack.corpus import golden, judge, report
from hack.corpus.ask import run
from hack.corpus.judge import Seen
from hack.testbed.clusters import Clusters

pytestmark = [pytest.mark.alone, pytest.mark.long]  # it takes all of the machine

ANEW = "run `make compatibility`, which writes it anew, and read the difference"


@pytest.fixture(scope="module")
def seen(fleet: Clusters) -> list[Seen]:
    """What KubeRay, Kueue and the API servers say of each sample."""
    return run(fleet.manager.kubeconfig, next(iter(fleet.workers.values())).kubeconfig)


def test_no_pod_is_sent_that_cannot_run(seen: list[Seen]) -> None:
    findings = map(judge.finding, seen)
    broken = [f"{found.sample.name}: {found.reason}" for found in findings if found.outcome == judge.BROKEN]
    assert not broken, "\n".join(broken)


def test_the_page_says_what_is_seen(seen: list[Seen]) -> None:
    assert report.page(seen) == report.PAGE.read_text(), f"docs/compatibility.md says something else: {ANEW}"


def test_the_golden_pods_are_those_that_kuberay_makes(seen: list[Seen]) -> None:
    differ = [file.name for file, text in golden.recorded(seen).items() if text != file.read_text()]
    assert not differ, f"{', '.join(differ)} in tests/unit/rewrite/golden: {ANEW}"
