"""docs/troubleshooting.md has one row for each reason code that a user can meet, and a link target for it.

The codes are those of docs/reference.md for conditions, Placements, pods and events, and those of `rayspan why`.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from adapter import names
from adapter.diagnosis.pod_state import POD_STEPS, PodStep
from adapter.objects.placement import PlacementState
from hack.lab.base.paths import REPO

_PAGE = (REPO / "docs/troubleshooting.md").read_text()
_ANCHOR = re.compile(r'<a id="([^"]*)"></a>`([^`]*)`')
_LONGEST_CELL = 180  # characters, without the targets of links
# The steps that a head, which has neither a gate nor a remote pod, does not have.
_WORKER_STEPS = ("ClusterUnreachable", "NoRemotePod", "NoSlot")
# What `rayspan why` gives as a reason beside constants, and the codes that it stands for.
_DIAGNOSED = {
    "names.EventReason.REJECTED_BY_KUBERAY": [names.EventReason.REJECTED_BY_KUBERAY],
    "state": [*PlacementState, "Planned"],
    "worst.step": [step for step in POD_STEPS if step != "Joined"],
    "f'Head{head.step}'": [f"Head{step}" for step in POD_STEPS if step not in ("Joined", *_WORKER_STEPS)],
}


def test_each_reason_code_has_one_row() -> None:
    codes, rows = {*_reported_codes(), *_diagnosed_codes()}, Counter(_row_codes())
    assert len(codes) > 100
    assert sorted(codes - {*rows}) == [], "these codes need a row"
    assert sorted({*rows} - codes) == [], "no part of Rayspan reports these codes"
    assert [code for code, count in rows.items() if count > 1] == []


def test_the_reasons_of_a_diagnosis_are_known() -> None:
    assert {reason for reason in map(ast.unparse, _diagnosis_reasons()) if not _is_constant(reason)} == {*_DIAGNOSED}
    assert set(get_args(PodStep)) == {*POD_STEPS}


def test_each_code_is_linked_in_lower_case() -> None:
    anchors = _ANCHOR.findall(_PAGE)
    assert [(anchor, code) for anchor, code in anchors if anchor != code.lower()] == []
    assert len(anchors) == _PAGE.count("<a ") == len([*_row_codes()]), "an anchor stands in the first cell of a row"
    assert len({anchor for anchor, _ in anchors}) == len(anchors)


def test_each_row_is_short_and_complete() -> None:
    """Meaning and remedy are one to three sentences each: other pages explain."""
    cells = [(_cells(row), cell) for row in _PAGE.splitlines() if _ANCHOR.search(row) for cell in _cells(row)[1:]]
    assert {len(row) for row, _ in cells} == {3}
    assert [cell for _, cell in cells if not re.fullmatch(r"[A-Z`\[].*\.", cell)] == []
    assert [cell for _, cell in cells if len(re.sub(r"\]\([^)]*\)", "", cell)) > _LONGEST_CELL] == []


def _reported_codes() -> Iterator[str]:
    yield from (*names.ConditionReason, *names.ReasonCode, *names.EventReason)
    yield from (*names.LOSS_REASONS, names.JOB_FINISHED)


def _diagnosed_codes() -> Iterator[str]:
    """The constants among the reasons, and what the others stand for."""
    yield from (ast.literal_eval(reason) for reason in map(ast.unparse, _diagnosis_reasons()) if _is_constant(reason))
    yield from (str(code) for codes in _DIAGNOSED.values() for code in codes)


def _diagnosis_reasons() -> Iterator[ast.expr]:
    """The third argument of each Diagnosis."""
    for path in sorted((REPO / "adapter/diagnosis").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Diagnosis":
                yield node.args[2]


def _is_constant(source: str) -> bool:
    return source.startswith(("'", '"'))


def _row_codes() -> Iterator[str]:
    for line in _PAGE.splitlines():
        if line.startswith("|"):
            yield from (code for _, code in _ANCHOR.findall(_cells(line)[0]))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]
