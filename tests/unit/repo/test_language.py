"""Guards the words of the code: names that say what a thing is, and commit subjects that can be searched."""

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lab.base.paths import REPO

_MODULES = sorted((REPO / "adapter").rglob("*.py"))
_TREES = {path: ast.parse(path.read_text()) for path in _MODULES}
# Names that say how a thing was come by, and not what it is.
_FORBIDDEN = frozenset(
    [
        "bad",
        "coming",
        "found",
        "gone",
        "here",
        "kept",
        "late",
        "left",
        "missed",
        "one",
        "said",
        "seen",
        "spared",
        "theirs",
        "there",
        "told",
    ]
)
_MOST_ONE_WORD_FUNCTIONS = 0.45
_MOST_TWIN_FILES = 5
# The commit before the rules; earlier subjects do not follow them.
_RULES_SINCE = "c4ee41cb"
_LONGEST_SUBJECT = 72
# A subject begins with a verb in the imperative. These beginnings are not one.
_NOT_IMPERATIVE = re.compile(r"^(?:A|An|All|Each|It|Of|That|The|They|This|What|Where|Which|Who|\w+(?:ed|ing))\b")


def test_each_class_is_unique() -> None:
    """Type aliases count as well."""
    homes = defaultdict[str, set[str]](set)
    for path, tree in _TREES.items():
        for name in _class_names(tree):
            homes[name].add(_relative(path))
    assert {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1} == {}


def test_few_files_share_a_name() -> None:
    names = Counter(path.name for path in _MODULES if path.name != "__init__.py")
    twins = [name for name, count in names.items() if count > 1]
    assert len(twins) <= _MOST_TWIN_FILES, twins


def test_most_functions_say_what_they_do() -> None:
    names = [name for tree in _TREES.values() for name in _function_names(tree)]
    one_word = [name for name in names if "_" not in name.strip("_")]
    assert len(one_word) <= _MOST_ONE_WORD_FUNCTIONS * len(names)


def test_stored_names_say_what_the_thing_is() -> None:
    stored = [f"{_relative(path)}:{line} {name}" for path, tree in _TREES.items() for name, line in _stored_names(tree)]
    assert [name for name in stored if name.rpartition(" ")[2] in _FORBIDDEN] == []


def test_no_module_docstring_asks_a_question() -> None:
    docstrings = {_relative(path): ast.get_docstring(tree) or "" for path, tree in _TREES.items()}
    assert [path for path, docstring in docstrings.items() if "?" in docstring.partition("\n\n")[0]] == []


def test_commit_subjects_can_be_searched() -> None:
    """A clone of the last commits alone lacks the commit that the rules begin at; all that it has are checked."""
    shown = _git("log", "--no-merges", "--format=%s", f"{_RULES_SINCE}..HEAD")
    if shown.returncode:
        shown = _git("log", "--no-merges", "--format=%s", "HEAD")
    assert shown.returncode == 0, shown.stderr
    assert [subject for subject in shown.stdout.splitlines() if _subject_fault(subject)] == []


def _git(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["git", "-c", f"safe.directory={REPO}", *words], cwd=REPO, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("subject", "is_fault"),
    [
        pytest.param("Retry a share whose cluster was unreachable", False, id="an imperative subject passes"),
        pytest.param("The changelog tells of it", True, id="a subject that begins with an article fails"),
        pytest.param("Renamed modules", True, id="a subject in the past tense fails"),
        pytest.param("Fix " + "x" * _LONGEST_SUBJECT, True, id="a subject longer than 72 characters fails"),
        pytest.param("fix the planner", True, id="a subject that begins in lower case fails"),
    ],
)
def test_the_check_of_subjects_can_fail(subject: str, is_fault: bool) -> None:
    assert _subject_fault(subject) is is_fault


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("found = 1", id="an assignment"),
        pytest.param("for one in (): pass", id="a loop"),
        pytest.param("def f(said: str) -> None: ...", id="a parameter"),
        pytest.param("class C:\n    kept: int", id="a field"),
        pytest.param("(left := 1)", id="a walrus"),
        pytest.param("[one for one in ()]", id="a comprehension"),
        pytest.param("match 1:\n    case found: pass", id="a pattern"),
        pytest.param("class C:\n    def f(self) -> None:\n        self.told = 1", id="an attribute of self"),
    ],
)
def test_the_check_of_stored_names_can_fail(source: str) -> None:
    assert {name for name, _ in _stored_names(ast.parse(source))} & _FORBIDDEN


def _class_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            # An alias: `Key = tuple[str, str]`. Constants are in capitals and TypeVars have one letter.
            name = node.targets[0].id
            if re.fullmatch(r"_?[A-Z]+[a-z]\w*", name):
                yield name


def _function_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            yield node.name


def _stored_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name.strip("_"), node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def _subject_fault(subject: str) -> bool:
    too_long = len(subject) > _LONGEST_SUBJECT
    return too_long or not subject[:1].isupper() or bool(_NOT_IMPERATIVE.match(subject))


def _relative(path: Path) -> str:
    return str(path.relative_to(REPO))
