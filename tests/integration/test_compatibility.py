"""docs/compatibility.md is true, and the golden pods are still those that KubeRay makes. Every sample is tried."""

import pytest

from hack.corpus import answers, ask, golden, report
from hack.corpus.ask import Seen
from hack.testbed.clusters import Clusters

pytestmark = [pytest.mark.alone, pytest.mark.long]  # it takes all of the machine

ANEW = "run `make compatibility`, which writes it anew, and read the difference"


@pytest.fixture(scope="module")
def seen(fleet: Clusters) -> list[Seen]:
    """What KubeRay, Kueue and the API servers say of each sample."""
    return ask.run(fleet)


def test_the_answers_are_those_that_are_recorded(seen: list[Seen]) -> None:
    known = answers.read_text(answers.FILE.read_text())
    now = {entry.sample.key: entry.answers for entry in seen}
    differ = [key for key in {*known, *now} if known.get(key) != now.get(key)]
    assert not differ, f"docs/compatibility.json says something else of {', '.join(sorted(differ))}: {ANEW}"


def test_the_page_says_what_is_seen(seen: list[Seen]) -> None:
    rows = report.rows([entry.sample for entry in seen], {entry.sample.key: entry.answers for entry in seen})
    assert report.page(rows) == report.PAGE.read_text(), f"docs/compatibility.md says something else: {ANEW}"
    assert report.not_argued(rows) == []


def test_the_golden_pods_are_those_that_kuberay_makes(seen: list[Seen]) -> None:
    differ = [file.name for file, text in golden.recorded(seen).items() if text != file.read_text()]
    assert not differ, f"{', '.join(differ)} in tests/unit/rewrite/golden: {ANEW}"
