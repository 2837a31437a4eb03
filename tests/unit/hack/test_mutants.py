"""The patches of `make mutants` apply to the checkout and name existing tests; an accident does not count as caught."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from hack.lab.base import commands
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.mutants import __main__ as mutants
from hack.mutants import patch as patches
from hack.mutants import trial
from hack.mutants.patch import Patch
from hack.mutants.trial import CAUGHT, SURVIVED, UNSURE, Outcome, Verdict

EVERY = patches.every()
HEADER = (
    "Promise: all or nothing: for all, or for none\n"
    "Broken: turns it round.\n"
    "Test: tests/test_it.py::test_it\n"
    "Tier: unit\n"
)
DIFF = "\ndiff --git a/it.py b/it.py\n--- a/it.py\n+++ b/it.py\n@@ -1 +1 @@\n-GOOD = True\n+GOOD = {}\n"


def _functions(test: str) -> set[str]:
    """The tests, in the file of a pytest node id, that `make test` runs."""
    tree = ast.parse((REPO / test.partition("::")[0]).read_text())
    marks = [ast.unparse(one) for one in tree.body if isinstance(one, ast.Assign) and "pytestmark" in ast.unparse(one)]
    every = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {one.name for one in every if not any(map(_long, [*marks, *map(ast.unparse, one.decorator_list)]))}


def _long(mark: str) -> bool:
    return "mark.long" in mark or "mark.byhand" in mark


@pytest.mark.parametrize("patch", EVERY, ids=lambda patch: patch.name)
def test_a_patch_applies_to_the_checkout_and_names_existing_tests(patch: Patch) -> None:
    patches.check(patch, REPO)
    for test in patch.tests:
        assert test.partition("::")[2].partition("[")[0] in _functions(test), test
    on_the_lab = [test for test in patch.tests if test.startswith("tests/integration/")]
    assert bool(on_the_lab) == (patch.tier == "lab"), patch.tier
    assert patch.broken.endswith(".") and patch.broken[0].islower(), "it goes on with: It …"


def test_each_promise_is_broken_twice_and_wake_ups_on_the_lab() -> None:
    assert len(EVERY) >= 12
    assert len(told := Counter(patch.label for patch in EVERY)) >= 5 and min(told.values()) >= 2, told
    assert sum(patch.tier == "lab" for patch in EVERY) >= 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEADER.replace("Tier: unit\n", "") + DIFF.format(False), id="no tier"),
        pytest.param(HEADER.replace("unit", "moon") + DIFF.format(False), id="an unknown tier"),
        pytest.param(HEADER.replace("Test: tests/test_it.py::test_it\n", "") + DIFF.format(False), id="no test"),
        pytest.param(HEADER.replace("all or nothing: ", "") + DIFF.format(False), id="a promise without its keyword"),
        pytest.param(HEADER + "Tier: lab\n" + DIFF.format(False), id="two tiers"),
        pytest.param(HEADER + "And more.\n" + DIFF.format(False), id="a line without a field"),
        pytest.param(HEADER, id="no diff"),
    ],
)
def test_an_incomplete_header_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "it.patch").write_text(text)
    with pytest.raises(LabError, match=r"it\.patch needs one line each of Promise"):
        patches.every(tmp_path)


def _patch(folder: Path, value: str) -> Patch:
    file = folder / "it.patch"
    file.write_text(HEADER + DIFF.format(value))
    return patches.read(file)


def _tree(folder: Path, good: str = "True") -> Path:
    """A checkout of one line, with a test for it."""
    (tree := folder / "checkout").mkdir()
    (tree / "it.py").write_text(f"GOOD = {good}\n")
    (tree / "tests").mkdir()
    (tree / "tests/test_it.py").write_text("import it\n\ndef test_it() -> None:\n    assert it.GOOD\n")
    return tree


@pytest.mark.parametrize(
    ("value", "word", "why"),
    [
        pytest.param("False", CAUGHT, "assert False", id="the test fails"),
        pytest.param("1", SURVIVED, "all of its tests are green", id="the test passes"),
        pytest.param("(", UNSURE, "pytest ended with ", id="the module cannot be imported"),
    ],
)
def test_the_verdict_of_a_patch(value: str, word: str, why: str, tmp_path: Path) -> None:
    """Runs pytest on the copy, and leaves the tree as it is."""
    tree = _tree(tmp_path)
    found = trial.attempt(_patch(tmp_path, value), tree, ["-p", "no:cacheprovider"])
    assert (found.word, found.why[: len(why)]) == (word, why)
    assert (tree / "it.py").read_text() == "GOOD = True\n"
    assert {one.name for one in tmp_path.iterdir()} == {"checkout", "it.patch"}


def test_a_patch_that_no_longer_applies_is_named(tmp_path: Path) -> None:
    """Also in a folder of a repository, where git would skip it and report success."""
    commands.run(["git", "init", "--quiet", tmp_path])
    with pytest.raises(LabError, match=r"The patch it no longer fits, make it anew: (?s:.)*patch does not apply"):
        patches.check(_patch(tmp_path, "False"), _tree(tmp_path, "other"))


@pytest.mark.parametrize(
    ("code", "failures", "errors", "word"),
    [
        pytest.param(1, ["assert 1 == 2"], [], CAUGHT, id="a failed assertion"),
        pytest.param(1, ["AssertionError: ended with 0"], [], CAUGHT, id="a failed assertion with a message"),
        pytest.param(
            1,
            ["hack.lab.base.progress.LabError: After 60 s still not: x."],
            [],
            CAUGHT,
            id="a wait that timed out",
        ),
        pytest.param(
            1,
            ["Failed: DID NOT RAISE <class 'X'>"],
            [],
            CAUGHT,
            id="an expected exception that was not raised",
        ),
        pytest.param(1, ["NameError: x", "assert False"], [], CAUGHT, id="an error beside a failed assertion"),
        pytest.param(1, ["ImportError: x"], [], UNSURE, id="an import that fails in the test"),
        pytest.param(1, ["TypeError: f() takes 1"], [], UNSURE, id="a call with wrong arguments"),
        pytest.param(1, ["Failed: Timeout (>900.0s) from pytest-timeout."], [], UNSURE, id="a test that hangs"),
        pytest.param(1, [], ["failed on setup with LabError: x"], UNSURE, id="a fixture that fails"),
        pytest.param(
            1,
            ["assert False"],
            ["failed on teardown with X"],
            UNSURE,
            id="a fixture that fails beside a failed assertion",
        ),
        pytest.param(4, [], [], UNSURE, id="a test that does not exist"),
        pytest.param(5, [], [], UNSURE, id="no collected test"),
        pytest.param(0, [], [], SURVIVED, id="a passing run"),
    ],
)
def test_an_accident_does_not_count_as_caught(code: int, failures: list[str], errors: list[str], word: str) -> None:
    assert trial.judge(Outcome(code, tuple(failures), tuple(errors), 1.0, "the end"))[0] == word


def test_survivors_are_listed_below_the_table(tmp_path: Path) -> None:
    patch = _patch(tmp_path, "False")
    shown = mutants.report([Verdict(patch, CAUGHT, "assert False", 1.25), Verdict(patch, SURVIVED, "all are green", 2)])
    table, below = shown.splitlines()[:3], shown.splitlines()[3:]
    assert [row.split()[-1] for row in table] == ["TEST", *2 * ["tests/test_it.py::test_it"]]
    assert below == ["it: all are green. It turns it round."]


def test_the_same_seed_draws_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    draw = [mutants._drawn(mutants._parser().parse_args(["--n", "3", "--seed", seed])) for seed in ("7", "7", "8")]
    assert draw[0] == draw[1] != draw[2] and all(len(set(drawn)) == 3 for drawn in map(tuple, draw))
    assert "seed 7; again: .venv/bin/python -m hack.mutants" in capsys.readouterr().out
    unseeded = mutants._parser().parse_args(["--n", "1", "--tier", "lab"])
    assert {patch.tier for patch in mutants._drawn(unseeded)} == {"lab"}


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(LabError, match="There is no patch nonsense; there are "):
        patches.chosen(EVERY, ["nonsense"], "all")
