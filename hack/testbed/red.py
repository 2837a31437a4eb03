"""Keeps the red tests of several runs of pytest in a file, so that their starter can repeat them at the end.

Otherwise they are thousands of lines ago. Without the environment variable nothing is kept, and a pytest that a test
starts is not recorded. Failures after all tests of a run, and of other programs, show in their own last lines.
"""

import os
from pathlib import Path

import pytest

VARIABLE = "RAYSPAN_RED"
_LINES = 60  # of an error of pytest's own: the traces of the process that met it and of the one that reported it


def register(config: pytest.Config) -> None:
    """Keep the red tests of this run, if asked for; of several processes the one that started the others receives
    all."""
    file = os.environ.pop(VARIABLE, "")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Red(Path(file)))


class Red:
    """Appends to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._keep(f"{report.when} of {report.nodeid}: {_last(report.longreprtext)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._keep(f"collecting {report.nodeid}: {_last(report.longreprtext)}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self._keep("\n".join(["pytest itself failed:", *str(excrepr).splitlines()[-_LINES:]]))

    def _keep(self, said: str) -> None:
        with self._file.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"red: {said}\n")


def _last(text: str) -> str:
    """An error's text: the first line that pytest marks as one; of chained errors, the last one's."""
    last = text.rpartition("exception occurred:")[2] or text
    lines = last.strip().splitlines()
    said = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    return (said or lines[-1:] or [""])[0]
