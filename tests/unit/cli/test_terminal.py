"""Text of other people reaches a terminal without control characters, whichever command prints it."""

import ast
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import check, common, plan_table, rayservice_report, terminal, top, watch_lines, where_table, why
from adapter.cli.job_reader import SelectedJobs
from adapter.cli.preflight import table
from adapter.diagnosis import fleet_summary
from adapter.diagnosis.job_document import describe_job
from adapter.gang.drain_order import change_lines, remaining_jobs
from adapter.preflight import evaluation, reachability
from adapter.preflight.preflight_facts import MANAGER, ClusterFacts, PreflightOptions
from adapter.preflight.probe import PathResult
from hack.lab.base.paths import REPO
from tests.unit.builders import make_worker_cluster
from tests.unit.diagnosis.jobs import make_facts

HOSTILE = "\x1b]0;owned\x07\x1b[1A\x1b[2K\x9b8m\u202eok\r\nFailure: forged\u2028x\x7f"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Spoil = Callable[[Any], Any]


def _hostile(value: Any) -> Any:
    """The value with a hostile end of each text in it."""
    if isinstance(value, str):
        return f"{value}{HOSTILE}"
    if isinstance(value, dict):
        return {key: _hostile(item) for key, item in value.items()}
    return [_hostile(item) for item in value] if isinstance(value, list | tuple) else value


def _job(spoil: Spoil) -> Any:
    return spoil(describe_job(make_facts()) | {"planProblem": "none", "notes": ["a note"]})


def _plan(spoil: Spoil) -> Any:
    row = {"asked": 1, "cluster": "east", "chosen": 1, "nominal": 1, "borrow": 0, "ever": 1, "pricePerHour": "1"}
    scarce = {"resource": "cpu", "used": "0", "free": "1"}
    group = {"name": "g", "workers": 1, "request": {"cpu": "1"}, "zone": "z"}
    job = {"kind": "RayJob", "namespace": "demo", "name": "train"}
    clusters = [{**row, "scarcest": scarce, "reason": "full", "groups": {"g": 1}}]
    texts = {"policy": "p", "queue": "q", "strategy": "s", "sentence": "It fits.", "notes": ["a note"]}
    return spoil({"job": job, "groups": [group], "fits": True, "clusters": clusters, **texts})


def _fleet(spoil: Spoil) -> Any:
    pod = {
        "metadata": {"labels": {"rayspan.dev/placement": "p"}, "annotations": {"rayspan.dev/slot": "east/1/r/0"}},
        "status": {"phase": "Pending"},
    }
    document = fleet_summary.describe_fleet([make_worker_cluster()], [pod], [], [], ["a note"], "stopped")
    quota = dict.fromkeys(("clusterQueue", "flavor", "resource", "nominal", "used", "free"), "x")
    clusters = [{**row, "quota": [quota]} for row in document["clusters"]]
    return {**spoil({**document, "clusters": clusters}), "unread": []}


def _preflight(spoil: Spoil) -> str:
    path = PathResult(spoil("odd"), 0.3, 9400.0, 0.0)
    sides = [
        ClusterFacts(MANAGER, paths={"east": path}, dns_error=spoil("none")),
        ClusterFacts("east", queues={"q": spoil("stopped")}, missing_rights=[spoil("get pods")]),
        ClusterFacts("west", api_error=spoil("It does not answer.")),
        ClusterFacts("north", probe_error=spoil("it waits"), image_missing=True),
    ]
    options = PreflightOptions("demo", ["q"], spoil("image"))
    return table.render(sides, options, evaluation.evaluate_clusters(sides, options), {})


def _drain(spoil: Spoil) -> str:
    share = {"cluster": "east", "round": 1, "workers": 2, "groups": [{"name": "w", "count": 2}]}
    spec = {"job": {"kind": "RayJob", "name": spoil("train")}, "round": 1, "shares": [share]}
    status = {"state": "Reserving", "reason": spoil("Reserving quota")}
    placement = {"metadata": {"namespace": "demo", "name": "train"}, "spec": spec, "status": status}
    return common.join_lines(change_lines({}, remaining_jobs({"east"}, [], [placement])))


RENDERERS: dict[str, Callable[[Spoil], str]] = {
    "where": lambda spoil: where_table.render(_job(spoil), NOW),
    "watch": lambda spoil: common.join_lines(watch_lines.job_lines(SelectedJobs(()), [_job(spoil)])),
    "why": lambda spoil: why.render({**_job(spoil), "plan": _plan(spoil)}),
    "a RayService": lambda spoil: rayservice_report.combine_texts(
        SelectedJobs((), {"metadata": {"namespace": "demo", "name": "chat"}}, ("active",)), [why.render(_job(spoil))]
    ),
    "plan": lambda spoil: plan_table.render(_plan(spoil)),
    "top": lambda spoil: top.render(_fleet(spoil)),
    "check": lambda spoil: check.render({"dispatches": None, **spoil({"obstacles": ["one"], "notes": ["two"]})}),
    "preflight": _preflight,
    "drain and leave": _drain,
}


@pytest.mark.parametrize("command", RENDERERS)
def test_a_hostile_text_forges_no_line_and_moves_no_cursor(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_text(RENDERERS[command](lambda value: value))
    harmless = capsys.readouterr().out
    terminal.print_text(RENDERERS[command](_hostile))
    output = capsys.readouterr().out
    assert "owned" in output and all(line.isprintable() for line in output.split("\n"))
    assert abs(output.count("\n") - harmless.count("\n")) <= 1, "an outcome that is no word of ours may lack its line"
    assert not [line for line in output.split("\n") if line.startswith("Failure: forged")]


@pytest.mark.parametrize("write", [terminal.print_line, terminal.print_note, lambda text: common.print_error(text, 1)])
def test_a_line_and_an_error_stay_one_line(write: Callable[[str], object], capsys: pytest.CaptureFixture[str]) -> None:
    write(f"403 Forbidden: {HOSTILE}")
    output = "".join(capsys.readouterr())
    assert output.count("\n") == 1 and output.endswith("\n") and output[:-1].isprintable()


def test_a_picture_has_no_control_characters_but_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.redraw_picture([HOSTILE, "second"], 3, 200)
    output = capsys.readouterr().out
    assert output.count("\x1b") == 4 and output.startswith("\x1b[3F\x1b[K") and output.endswith("\x1b[Ksecond\n\x1b[J")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("abcdef", "abcde"),
        ("世界世界", "世界"),
        ("a世界b", "a世界"),
        ("e\u0301e\u0301abcd", "e\u0301e\u0301abc"),
        ("", ""),
    ],
)
def test_a_line_is_cut_to_the_columns_that_it_takes(line: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.redraw_picture([line], 0, 6)
    assert capsys.readouterr().out == f"\x1b[K{shown}\n\x1b[J"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_document_is_printable_and_loses_nothing(output: str) -> None:
    text = common.format_document({"message": HOSTILE}, output)
    assert all(line.isprintable() for line in text.split("\n"))
    assert output == "yaml" or json.loads(text) == {"message": HOSTILE}


@pytest.mark.parametrize(
    "path", sorted((REPO / "adapter/cli").rglob("*.py")), ids=lambda path: str(path.relative_to(REPO))
)
def test_only_the_terminal_module_prints(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    calls = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("sys.stdout.write", "sys.stderr.write"))
    }
    assert path.name == "terminal.py" or ("print" not in names and not calls)


def test_the_condition_reachable_is_printable() -> None:
    paths = {MANAGER: PathResult(HOSTILE)}
    sides = {MANAGER: ClusterFacts(MANAGER), "east": ClusterFacts("east", paths=paths, dns_error=HOSTILE)}
    findings = evaluation.evaluate_clusters(list(sides.values()), PreflightOptions("demo", ["q"], "image"))
    result = reachability.cluster_reachability("east", sides, findings)
    assert result and not result.reached and result.message.isprintable()
