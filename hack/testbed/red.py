"""Which tests were red in one of several runs of pytest? Kept in a file, for whoever started them says it again when the last one has ended.

By then it is thousands of lines ago. Where nobody asks for it by the variable, nothing is kept; and a pytest that a test starts is not asked.
What fails when all tests of a run are over, and what is no pytest, says so by its own last lines.
"""

import os
from pathlib import Path

import pytest

VARIABLE = "RAYSPAN_RED"
_LINES = 60  # of an error of pytest's own: the trace of the process that met it, and of the one that heard of it


def register(config: pytest.Config) -> None:
    """Keep what is red in this run, if it is asked for; of several processes the one that started the others hears of all."""
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
    """What an error says: of what pytest marks as such the first line, of the error that came last where one led to another."""
    last = text.rpartition("exception occurred:")[2] or text
    lines = last.strip().splitlines()
    said = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    return (said or lines[-1:] or [""])[0]
