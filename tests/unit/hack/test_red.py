"""Failures of a run are kept with their output, also with several pytest processes and when pytest itself fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.lab.base.paths import REPO
from hack.testbed import red

PLUGIN = """
from hack.testbed import red

def pytest_configure(config):
    red.register(config)
"""
RED = """
import pytest

@pytest.fixture
def broken():
    raise OSError("no such door")

def test_asserts():
    assert 1 + 1 == 3, "they are two"

def test_door(broken): ...

def test_green(): ...
"""
STARTS = """
import pathlib, subprocess, sys

def test_starts():
    subprocess.run([sys.executable, "-m", "pytest", str(pathlib.Path(__file__).with_name("inner.py"))])
    assert not "here"
"""
FAILS = """
def pytest_collection_modifyitems(config, items):
    if getattr(config, "workerinput", {}).get("workerid") == "gw1":
        raise RuntimeError("of one process")
"""


def test_a_run_without_records_fails_as_usual(tmp_path: Path) -> None:
    assert _run(tmp_path, RED, "", asked=False) == []


def test_a_pytest_started_by_a_test_records_nothing(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("def test_inner(): assert False")
    (said,) = _run(tmp_path, STARTS, "")
    assert "test_starts" in said and "inner" not in said


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one", "two"])
def test_each_failure_is_kept_once_with_its_output(tmp_path: Path, processes: tuple[str, ...]) -> None:
    said = _run(tmp_path, RED, "", *processes)
    assert sorted(line.partition(" of ")[0] for line in said) == ["red: call", "red: setup"]
    assert any("test_asserts: AssertionError: they are two" in line for line in said)
    assert any("test_door: OSError: no such door" in line for line in said)


def test_a_failed_import_is_kept(tmp_path: Path) -> None:
    (said,) = _run(tmp_path, "import nothing_like_it", "")
    assert "collecting" in said and "No module named 'nothing_like_it'" in said


def test_a_failure_of_pytest_itself_in_one_of_its_processes_is_kept(tmp_path: Path) -> None:
    """The terminal ends with an error of xdist alone: a KeyError."""
    assert any("RuntimeError: of one process" in line for line in _run(tmp_path, RED, FAILS, "-n", "2"))


def _run(folder: Path, tests: str, more: str, *words: str, asked: bool = True) -> list[str]:
    """Runs pytest over these tests, with more in its conftest.py, and returns the kept failures."""
    (folder / "conftest.py").write_text(PLUGIN + more)
    (folder / "test_some.py").write_text(tests)
    file = folder / "red.log"
    around = {**os.environ, "PYTHONPATH": str(REPO), **({red.VARIABLE: str(file)} if asked else {})}
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider"]
    ended = subprocess.run([*command, *words, str(folder)], env=around, capture_output=True, text=True)
    assert ended.returncode in (1, 2, 3) and "usage:" not in ended.stderr, ended.stderr
    return file.read_text().splitlines() if file.exists() else []
