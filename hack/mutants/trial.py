"""Runs tests in a broken copy of the checkout, and judges whether a failure names the break.

Each break has a copy of its own, which is deleted afterwards. A failing import, a test that is not found and a broken
fixture are no catch: those would happen whatever is broken.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from hack.lab.base import commands
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.mutants import patch as patches
from hack.mutants.patch import Patch

CAUGHT, SURVIVED, UNSURE = "caught", "SURVIVED", "NO VERDICT"
_RED, _GREEN = 1, 0  # of pytest's exit codes; all others mean that it could not run
# Longer than pytest's own timeout for one test with its fixtures, which is more specific.
_PATIENCE = 1_800.0
_CLEARED = 60.0  # seconds for pytest to clear a stage and to bring the deployed controller back
# How a failed assertion, an expired wait and a missing exception look in a report.
_SAYS_SO = re.compile(
    r"assert |AssertionError|(hack\.lab\.base\.progress\.)?LabError: After \d+ s still not: |Failed: DID NOT RAISE"
)
_WHERE = "import adapter, hack; print(adapter.__file__, hack.__file__)"


@dataclass(frozen=True, slots=True)
class Outcome:
    """pytest's result: its exit code, how each test failed, and why some could not run."""

    code: int
    failures: tuple[str, ...]
    errors: tuple[str, ...]
    seconds: float
    said: str  # the end of its output


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one break."""

    patch: Patch
    word: str  # CAUGHT, SURVIVED or UNSURE
    why: str
    seconds: float


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the checkout as it is now, in a temporary folder: what git tracks, and what it does not ignore."""
    with tempfile.TemporaryDirectory(prefix="rayspan-mutants-") as place:
        tree = Path(place).resolve() / "checkout"
        for name in _listed():
            if (REPO / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPO / name, tree / name)
        _imports_its_own(tree)
        yield tree


def _listed() -> list[str]:
    asked = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = commands.run(["git", "-c", f"safe.directory={REPO}", *asked], cwd=REPO)  # for files of any owner
    return [name for name in listed.split("\0") if name]


def _imports_its_own(tree: Path) -> None:
    """Raise LabError unless a Python started in the tree imports the tree's own code: else every break
    would survive."""
    found = commands.run([sys.executable, "-c", _WHERE], cwd=tree, env=_environment(tree)).split()
    if not all(Path(file).resolve().is_relative_to(tree) for file in found):
        raise LabError(f"A Python in {tree} imports {' and '.join(found)}; uninstall what shadows the checkout.")


def _environment(tree: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "PYTEST_ADDOPTS": ""}


def run(tree: Path, tests: Iterable[str], words: Sequence[str] = ()) -> Outcome:
    """Run tests in a tree until it is known how they end; `words` are more words for pytest."""
    report = tree / "mutant.xml"
    ids = list(dict.fromkeys(tests))
    argv = [sys.executable, "-m", "pytest", "--quiet", "--exitfirst", f"--junitxml={report}", *words, *ids]
    began = time.monotonic()
    with subprocess.Popen(
        argv, cwd=tree, env=_environment(tree), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return Outcome(-1, (), (f"no end within {_PATIENCE:.0f} s",), time.monotonic() - began, "")
        except KeyboardInterrupt:  # it reached pytest too, which restores the clusters
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CLEARED)
            process.kill()
            raise
    failures, errors = _read(report)
    return Outcome(process.returncode, failures, errors, time.monotonic() - began, said[-3_000:])


def _read(report: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How tests failed, and how they could not be tried, by pytest's report; nothing if it wrote none."""
    root = ElementTree.parse(report).getroot() if report.exists() else ElementTree.Element("none")
    said = {kind: tuple(one.get("message") or "" for one in root.iter(kind)) for kind in ("failure", "error")}
    return said["failure"], said["error"]


def attempt(patch: Patch, base: Path, words: Sequence[str] = ()) -> Verdict:
    """Break a copy of a tree, run the patch's tests there, and judge; raises LabError when the patch does not fit."""
    tree = base.with_name(patch.name)
    shutil.copytree(base, tree, ignore=shutil.ignore_patterns("mutant.xml"))
    try:
        patches.apply(patch, tree)
        outcome = run(tree, patch.tests, words)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return Verdict(patch, *judge(outcome), outcome.seconds)


def judge(outcome: Outcome) -> tuple[str, str]:
    """Say what an outcome in a broken tree is worth, and why."""
    if outcome.code == _GREEN:
        return SURVIVED, "all of its tests are green"
    proper = [text for text in outcome.failures if _SAYS_SO.match(text)]
    if outcome.code == _RED and proper and not outcome.errors:
        return CAUGHT, _line(proper[0])
    wrong = [*outcome.errors, *outcome.failures, outcome.said.strip().rpartition("\n")[2]]
    return UNSURE, f"pytest ended with {outcome.code}: {_line(wrong[0])}"


def _line(text: str) -> str:
    """The first line of a text, and no more than fits a screen."""
    return text.strip().partition("\n")[0][:160]
