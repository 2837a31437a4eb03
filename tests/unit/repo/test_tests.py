"""Tests wait for events, not for time, and each skip has a reason.

A sleep is right on a fast machine alone, and a skip without a reason is forgotten.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from hack.lab.base.paths import REPO

_FILES = [REPO / "conftest.py", *(REPO / "tests").rglob("*.py"), *(REPO / "e2e").rglob("*.py")]
# Files that may sleep, with the reason. A sleep of 0 only lets other tasks run.
_SLEEPS = {
    "tests/unit/hack/test_simulation_time.py": "its time is virtual: no sleep takes any",
    "tests/unit/hack/test_chaos_mistakes.py": (
        "between two reads of a file, to show that a frozen writer writes nothing"
    ),
    "tests/unit/hack/test_lab_interrupt.py": "between two polls of processes, until they start or end",
    "tests/unit/hack/test_watch.py": "a hanging and a slow witness are tested",
    "tests/unit/shell/access/test_access_server.py": "a manager that answers within 5 ms",
    "tests/unit/shell/kube/test_oversized_events.py": "between two events of a watch that does not end",
    "tests/unit/stalls.py": "the pauses of a busy machine are what it makes",
    "tests/unit/cli/test_plan.py": "between two polls of the output, until a line appears",
}
_LEFT_OUT = ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail")
# Files whose tests may be skipped at run time, and when: on named clusters, never on the lab.
_SKIPS = {"conftest.py": "--manager", "tests/integration/test_readme.py": "--manager"}


def test_no_test_sleeps_instead_of_waiting() -> None:
    found = {_name(path) for path, call in _calls() if _dotted(call.func).endswith("sleep") and not _is_zero(call)}
    assert found == {*_SLEEPS}


def test_each_skip_mark_has_a_reason() -> None:
    reasons = {id(call.func) for _, call in _calls() if any(word.arg == "reason" for word in call.keywords)}
    marks = [(path, node) for path, node in _nodes() if _dotted(node) in _LEFT_OUT]
    assert [_name(path) for path, node in marks if id(node) not in reasons] == []


def test_nothing_is_skipped_on_the_lab() -> None:
    """A check that the lab cannot make is a fault of the lab and must fail."""
    found = [(path, call) for path, call in _calls() if _dotted(call.func) in ("pytest.skip", "pytest.importorskip")]
    assert {_name(path) for path, _ in found} == {*_SKIPS}
    for path, call in found:
        before = path.read_text().splitlines()[call.lineno - 2]
        assert f'getoption("{_SKIPS[_name(path)]}")' in before, f"{_name(path)}:{call.lineno}"


def _is_zero(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def _calls() -> Iterator[tuple[Path, ast.Call]]:
    return ((path, node) for path, node in _nodes() if isinstance(node, ast.Call))


@functools.cache
def _nodes() -> list[tuple[Path, ast.AST]]:
    return [(path, node) for path in _FILES for node in ast.walk(ast.parse(path.read_text()))]


def _dotted(node: ast.AST) -> str:
    """The dotted name, as `pytest.mark.skip`; empty if the node is no name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _name(path: Path) -> str:
    return str(path.relative_to(REPO))
