"""docs/reference.md lists every word of ours that leaves the process, with the comment beside it in the code."""

import ast
import re
from enum import StrEnum
from typing import Any, cast

import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from adapter import names
from adapter.shell import metrics
from adapter.shell.controller.measurements import StateCollector
from hack.lab.base.paths import REPO

_PAGE = REPO / "docs/reference.md"
_PART = re.compile(r"<!-- tables -->.*<!-- end -->", re.DOTALL)
_SOURCE = (REPO / "adapter/names.py").read_text()
_LINES = _SOURCE.splitlines()

Row = tuple[str, str]


def test_the_reference_agrees_with_the_code(request: pytest.FixtureRequest) -> None:
    before = _PAGE.read_text()
    wanted = _PART.sub(lambda _: f"<!-- tables -->\n\n{_tables()}\n\n<!-- end -->", before)
    if request.config.getoption("--update-golden"):
        _PAGE.write_text(wanted)
    assert before == wanted, "read the difference, then run this test with --update-golden"


def test_each_word_has_a_statement() -> None:
    rows = [row for _, _, rows in _sections() for row in rows]
    assert len(rows) > 100
    assert [word for word, meaning in rows if not re.fullmatch(r"[A-Z1].*\.", meaning)] == []


def test_event_and_condition_reasons_follow_kubernetes() -> None:
    """Machine-readable reasons in CamelCase (k8s:api-conventions, "Typical status properties" and "Events")."""
    words = [*names.EventReason, *names.ConditionReason, *names.ReasonCode, *names.LOSS_REASONS]
    assert [word for word in words if not re.fullmatch(r"([A-Z]+[a-z]+)+", word)] == []


def _tables() -> str:
    return "\n\n".join(_section(*section) for section in _sections())


def _section(title: str, heading: str, rows: list[Row]) -> str:
    lines = [f"| `{word}` | {meaning} |" for word, meaning in rows]
    return "\n".join([f"## {title}", "", f"| {heading} | Meaning |", "|---|---|", *lines])


def _sections() -> list[tuple[str, str, list[Row]]]:
    return [
        ("Labels", "Label", _constants(lambda name: name.endswith("_LABEL"))),
        ("Annotations", "Annotation", _constants(lambda name: name.endswith("_ANNOTATION") or name == "JOINED_PREFIX")),
        ("Gate and node selector", "Word", _constants(lambda name: name in ("GATE", "LOCK_NODE_SELECTOR"))),
        ("Conditions", "Condition", [(str(getattr(names, name)), _above(name)) for name in _conditions()]),
        ("Reasons of conditions", "Reason", _members(names.ConditionReason)),
        ("Reasons of a Placement", "Reason", [*_members(names.ReasonCode)]),
        ("Reasons of failed worker pods", "Reason", _losses()),
        ("Reasons of events", "Reason", _members(names.EventReason)),
        ("Metrics", "Metric", sorted(_metrics())),
        ("Values of the metrics' label `reason`", "Value", _members(names.OrphanReason)),
    ]


def _constants(wanted: Any) -> list[Row]:
    """Our constants by value; labels and annotations of others are explained where others define them."""
    found = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    ours = {name: value for name, value in found.items() if value.startswith(f"{names.DOMAIN}/") and wanted(name)}
    return sorted((value, _above(name)) for name, value in ours.items())


def _conditions() -> list[str]:
    """The constants of the part of names.py that is about our conditions."""
    (part,) = re.findall(r"^# --- our conditions -+\n(.*?)^# ---", _SOURCE, re.DOTALL | re.MULTILINE)
    return re.findall(r"^([A-Z_]+): Final", part, re.MULTILINE)


def _losses() -> list[Row]:
    found = {value: name for name, value in vars(names).items() if isinstance(value, str) and name.isupper()}
    return [(word, _above(found[word])) for word in names.LOSS_REASONS]


def _members(kind: type[StrEnum]) -> list[Row]:
    (body,) = (
        node.body for node in ast.parse(_SOURCE).body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    lines = {cast(ast.Name, one.targets[0]).id: one.lineno for one in body if isinstance(one, ast.Assign)}
    return sorted((member.value, _comment(lines[member.name])) for member in kind)


def _above(name: str) -> str:
    (line,) = (number for number, text in enumerate(_LINES, 1) if text.startswith(f"{name}: Final"))
    return _comment(line)


def _comment(line: int) -> str:
    """The comment that ends above a line."""
    first = line - 1
    while _LINES[first - 1].lstrip().startswith("# ") and not _LINES[first - 1].startswith("# ---"):
        first -= 1
    return " ".join(text.strip().removeprefix("# ") for text in _LINES[first : line - 1])


def _metrics() -> list[Row]:
    """Metrics of the process, and those that the controller reads at each scrape."""
    made = [one for one in vars(metrics).values() if isinstance(one, MetricWrapperBase)]
    known = [family for one in made for family in one.describe()] + StateCollector(cast(Any, None)).describe()
    return [(_called(family), family.documentation) for family in known]


def _called(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name
