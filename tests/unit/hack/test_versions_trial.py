"""The page of versions has the results of the runs, and marks what did not run."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from hack.lab import startup, teardown
from hack.lab.base import choice, versions
from hack.lab.base.progress import LabError
from hack.lab.base.versions import TODAY
from hack.trials.versions import __main__ as trial
from hack.trials.versions import course, report, rows
from hack.trials.versions.pairs import CLUSTERS, PAIRS, Pair
from hack.trials.versions.rows import Check, Row

CHECKS = tuple(Check(what, 10.4) for what in course.ALL)
SEEN = {name: TODAY for name in CLUSTERS}
WELL = Row("today", "2026-11-25", SEEN, CHECKS, ray=versions.RAY)


def line(page: str, pair: str) -> list[str]:
    """The cells of a pair's row."""
    (found,) = (one for one in page.splitlines() if one.startswith(f"| `{pair}`:"))
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def page(*found: Row) -> str:
    return report.page({row.pair: row for row in found}, course.ALL)


def test_a_pair_that_did_not_run_is_marked() -> None:
    for pair in PAIRS:
        assert line(page(), pair.name)[4:] == ["", "**not run**"]


def test_a_success_has_its_day() -> None:
    assert line(page(WELL), "today")[4:] == ["2026-11-25", "works (1: 10 s, 2: 10 s, 3: 10 s)"]
    assert line(page(WELL), "older-kueue")[4:] == ["", "**not run**"]


def test_a_failure_has_its_reason() -> None:
    failed = Row("today", "2026-11-25", SEEN, CHECKS[:1], "after 120 s\nstill a | b")
    assert line(page(failed).replace("\\|", "/"), "today")[4:] == [
        "2026-11-25", "works (1: 10 s); **failed**: after 120 s still a / b",
    ]  # fmt: skip


def test_a_skipped_check_is_shown() -> None:
    cells = line(page(Row("today", "2026-11-25", SEEN, CHECKS[:2])), "today")
    assert cells[-1] == "works (1: 10 s, 2: 10 s); **not run**: 3"
    cells = line(page(Row("today", "2026-11-25", {}, (), "no API server")), "today")
    assert cells[-1] == "**failed**: no API server"


def test_other_versions_than_todays_are_marked_and_are_the_observed_ones() -> None:
    cells = line(page(), "oldest")
    assert cells[:3] == ["**1.34.4**, **0.18.3**, **1.5.1**", "**1.34.4**, **0.18.3**", "**1.34.4**, **0.18.3**"]
    other = Row("today", "2026-11-25", {**SEEN, "west": TODAY._replace(kubernetes="v1.30.0")}, CHECKS)
    assert line(page(other), "today")[2] == "**1.30.0**, 0.19.2"


def test_the_version_of_ray_comes_from_its_job() -> None:
    assert line(page(WELL), "today")[3] == versions.RAY
    assert line(page(Row("today", "2026-11-25", SEEN, CHECKS[:2])), "today")[3] == "", "none ran"
    older = Row("older-ray", "2026-11-25", SEEN, CHECKS, ray="2.9.0")
    assert line(page(older), "older-ray")[3] == "**2.9.0**"
    assert line(page(), "older-ray")[3] == f"**{versions.OLDER_RAY}**", "it is to run that one"


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ("After 120 s still not: it ended. {'a': 1}\nlog", "After 120 s still not: it ended."),
        (
            "`/home/me/bin/kubectl --kubeconfig=/var/lib/mgr/kubeconfig apply` failed with status 1:\nerror",
            "`kubectl --kubeconfig=kubeconfig apply` failed with status 1.",
        ),
        ("east runs kubernetes v1.35.4.", "east runs kubernetes v1.35.4."),
    ],
)
def test_a_failure_is_kept_as_one_sentence(said: str, want: str) -> None:
    assert report.sentence(said) == want


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        pytest.param(LabError("no API server. It said: x"), "no API server.", id="an error of the lab"),
        pytest.param(ValueError("no such field"), "ValueError: no such field.", id="an error of our code"),
        pytest.param(KeyError(), "KeyError.", id="an error without a message"),
    ],
)
def test_an_error_fails_its_pair_and_the_others_still_run(
    fault: Exception, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Row] = []

    def breaks(_: object) -> None:
        raise fault

    monkeypatch.setattr(trial, "_alone", nullcontext)
    monkeypatch.setattr(startup, "up", breaks)
    monkeypatch.setattr(teardown, "down", lambda: None)
    monkeypatch.setattr(trial, "_keep", kept.append)
    monkeypatch.setattr(report, "PAGE", Path(os.devnull))
    assert trial.main(["--only", "today", "oldest"]) == 1
    assert sorted((one.pair, one.failed) for one in kept) == [("oldest", want), ("today", want)]


def test_rows_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "versions.json"
    assert rows.read(file) == {}
    rows.write([WELL], file)
    assert rows.read(file) == {"today": WELL}
    file.write_text('[{"pair": "today"}]')
    with pytest.raises(ValueError, match="is no row"):
        rows.read(file)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_pair_can_be_brought_up(pair: Pair) -> None:
    """The lab knows the clusters and versions of a pair, as options by hand."""
    asked: dict[str, list[str]] = {component: [] for component in choice.HELP}
    for cluster, runs in pair.versions.items():
        for component, version in runs.items():
            asked[component].append(f"{cluster}={version}")
    assert choice.versions(asked, CLUSTERS) == pair.versions


def test_each_version_that_the_lab_can_run_is_in_a_pair() -> None:
    tried = {
        (component, version) for pair in PAIRS for runs in pair.versions.values() for component, version in runs.items()
    }
    assert tried == {(component, version) for component, known in versions.OTHERS.items() for version in known}


def test_the_page_agrees_with_the_stored_rows() -> None:
    assert report.PAGE.read_text() == report.page(rows.read(), course.ALL), (
        "run `python -m hack.trials.versions --write`"
    )


def test_a_row_that_claims_success_has_checks_and_the_versions_of_its_pair() -> None:
    for pair in PAIRS:
        row = rows.read().get(pair.name)
        if row and not row.failed:
            whole = [check.what for check in row.checks] == [*course.ALL]
            assert whole or (pair.ray == versions.RAY and [check.what for check in row.checks] == [*course.ALL[:2]])
            assert row.ray == (pair.ray if whole else "")
            wanted = {name: pair.runs(name) for name in CLUSTERS}
            assert row.seen == {
                name: runs if name == "mgr" else runs._replace(kuberay="") for name, runs in wanted.items()
            }
