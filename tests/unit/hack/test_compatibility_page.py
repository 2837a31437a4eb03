"""docs/compatibility.md is made of the recorded answers, the samples and the rules as they are now.

Whether the answers are still those of real clusters is tested in tests/integration/test_compatibility.py.
"""

import json
from collections.abc import Mapping

import pytest

from hack.corpus import answers, arguments, judge, report, samples
from hack.corpus.answers import Answers
from hack.corpus.report import Row
from hack.corpus.samples import IN_REPO, Sample
from hack.lab.base.progress import LabError

ANEW = "run `python -m hack.corpus --recorded`, or for new samples `make compatibility`, and read the difference"


@pytest.fixture(scope="module")
def by_sample() -> Mapping[str, Answers]:
    return answers.read_text(answers.FILE.read_text())


@pytest.fixture(scope="module")
def all_samples() -> list[Sample]:
    """All samples; those of this repository where there is no Go, with which KubeRay's are found."""
    try:
        return samples.read()
    except (OSError, LabError):
        return [sample for source in IN_REPO for sample in samples.of_repo(source)]


@pytest.fixture(scope="module")
def rows(all_samples: list[Sample], by_sample: Mapping[str, Answers]) -> list[Row]:
    never = [sample.key for sample in all_samples if sample.key not in by_sample]
    assert not never, f"{', '.join(never)} was never tried: {ANEW}"
    return report.rows(all_samples, by_sample)


def test_the_page_is_made_of_the_answers(rows: list[Row], by_sample: Mapping[str, Answers]) -> None:
    page = report.PAGE.read_text()
    if len(rows) == len(by_sample):
        assert report.page(rows) == page, f"docs/compatibility.md says something else: {ANEW}"
    for row in rows:
        assert _line_of(page, row).count(f"| {row.named.outcome}") >= 1, f"{row.sample.key}: {ANEW}"


def _line_of(page: str, row: Row) -> str:
    name = row.sample.name.removesuffix(".yaml")
    label = f"([{name}](" if row.sample.about else f"| `{name}` |"
    tables = page.partition("\n## What people bring\n")[2]
    return next(line for line in tables.splitlines() if label in line)


def test_the_answers_are_of_the_labs_versions_and_of_samples_that_exist(
    all_samples: list[Sample], by_sample: Mapping[str, Answers]
) -> None:
    assert json.loads(answers.FILE.read_text())["versions"] == answers.VERSIONS, ANEW
    ours = {sample.key for sample in all_samples if sample.source in IN_REPO}
    assert {key for key in by_sample if key.startswith("tests/")} == ours, ANEW


def test_each_refusal_that_is_left_is_argued_and_no_other(rows: list[Row]) -> None:
    assert report.not_argued(rows) == []
    runs = {row.sample.name.removesuffix(".yaml") for row in rows if row.named.runs}
    assert not runs & arguments.argued(), "they run now: remove them from hack/corpus/arguments.py"


def test_what_kueue_refuses_is_foreseen_at_apply(rows: list[Row], by_sample: Mapping[str, Answers]) -> None:
    """Kueue decides, but `plan` and the warnings name what the file lacks before it does."""
    valid = [row.sample for row in rows if row.plain.outcome != judge.INVALID]
    refused = [sample for sample in valid if by_sample[sample.key].queue]
    assert refused
    assert [sample.key for sample in refused if not judge.is_foreseen(sample)] == []


def test_no_pod_is_sent_that_cannot_run(rows: list[Row]) -> None:
    faults = (judge.BROKEN, judge.STUCK)
    assert [row.sample.key for row in rows if {row.plain.outcome, row.named.outcome}.intersection(faults)] == []
