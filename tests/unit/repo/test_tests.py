"""Do tests wait for what happens, and say why they are left out? A sleep is right on a fast machine only; a skip that gives no reason is forgotten."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from hack.lab.base.paths import REPO

_FILES = [REPO / "conftest.py", *(REPO / "tests").rglob("*.py"), *(REPO / "e2e").rglob("*.py")]
# Which file may sleep, and why that waits for nothing. A sleep of 0 lets other tasks have their turn, and is no wait.
_SLEEPS = {
    "tests/unit/hack/test_chaos_mistakes.py": "between two looks at what is written, or not while its writer stands still",
    "tests/unit/hack/test_lab_interrupt.py": "between two looks at processes, until they have begun or gone",
    "tests/unit/hack/test_watch.py": "what hangs, and what is slow, is what is tested",
    "tests/unit/cli/test_plan.py": "between two looks at what was printed, until it is there",
}
_LEFT_OUT = ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail")
# Where tests may be left out while they run, and when: with clusters that are named, never on the lab.
_SKIPS = {"conftest.py": "--manager", "tests/integration/test_readme.py": "--manager"}


def test_nobody_sleeps_until_something_has_happened() -> None:
    found = {_name(path) for path, call in _calls() if _dotted(call.func).endswith("sleep") and not _is_zero(call)}
    assert found == {*_SLEEPS}


def test_what_is_marked_to_be_left_out_has_a_reason() -> None:
    reasons = {id(call.func) for _, call in _calls() if any(word.arg == "reason" for word in call.keywords)}
    marks = [(path, node) for path, node in _nodes() if _dotted(node) in _LEFT_OUT]
    assert [_name(path) for path, node in marks if id(node) not in reasons] == []


def test_nothing_is_left_out_on_the_lab() -> None:
    """A check that cannot be made there is a fault of the lab, and red."""
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
    """`pytest.mark.skip`, empty for what is no name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _name(path: Path) -> str:
    return str(path.relative_to(REPO))
