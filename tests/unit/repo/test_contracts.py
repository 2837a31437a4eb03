"""Rules that no type can state: the scope of the import contract, and where the API's words are written."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lab.base.paths import REPO

ADAPTER = REPO / "adapter"
MODULES = sorted(ADAPTER.rglob("*.py"))
NOT_PURE = ("__init__", "__main__", "__pycache__", "shell", "cli", "programs")
DOMAINS = ("rayspan.dev/", "kueue.x-k8s.io/", "ray.io/")


def _short(path: Path) -> str:
    return str(path.relative_to(REPO))


def test_every_pure_module_is_under_the_import_contract() -> None:
    """A new file among pure ones is pure by its folder; without a contract it could import I/O."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = (c for c in contracts if "importlib" in c.get("forbidden_modules", ()))
    rooms = (path for path in ADAPTER.iterdir() if path.suffix == ".py" or path.is_dir())
    found = sorted(f"adapter.{path.stem}" for path in rooms if path.stem not in NOT_PURE)
    assert contract["source_modules"] == found, "list exactly what stands directly under adapter/, sorted"


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Docstrings and other strings that are statements: no code compares them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def written(source: str) -> list[tuple[int, str]]:
    """Line and text of each string literal with a word of an API's domain; f-strings by their parts."""
    tree = ast.parse(source)
    docstrings = set(map(id, _docstrings(tree)))
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if any(domain in node.value for domain in DOMAINS)
    ]


READ = [pytest.param(path, id=_short(path)) for path in MODULES if path != ADAPTER / "names.py"]


@pytest.mark.parametrize("path", READ)
def test_words_of_the_api_are_in_names_alone(path: Path) -> None:
    assert written(path.read_text()) == [], "put it into names.py, once, and use it by its name"


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param('A = "ray.io/group"', 1, id="a literal"),
        pytest.param('A = f"ray.io/{name}"', 1, id="a part of an f-string"),
        pytest.param('"""About kueue.x-k8s.io/v1beta2."""', 0, id="a module's docstring"),
        pytest.param('def f() -> None:\n    """Read rayspan.dev/slot."""', 0, id="a function's docstring"),
        pytest.param('A = "ray.io"  # ray.io/group', 0, id="a comment, and a domain alone"),
        pytest.param('f(key="rayspan.dev/slot")', 1, id="an argument"),
    ],
)
def test_the_reader_of_literals(source: str, want: int) -> None:
    assert len(written(source)) == want
