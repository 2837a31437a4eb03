"""A JSON log line has the content of the text line, for any content."""

import json
import logging
from typing import Any

import pytest

from adapter.cli.commands.parser import build_parser
from adapter.cli.commands.program_commands import LOG_FORMATS
from adapter.shell.log_formatters import FORMATTERS

ODD = 'two\nlines, "quotes", \u2028 and \ud800'


def record(message: str, *given: object, trace: bool = False) -> logging.LogRecord:
    found = logging.LogRecord("adapter.shell.supervise", logging.ERROR, "guard.py", 1, message, given, None)
    if trace:
        try:
            raise KeyError("x")
        except KeyError as error:
            found.exc_info = (KeyError, error, error.__traceback__)
    found.created = 1_767_323_045.25  # 2026-01-02T03:04:05.25Z
    return found


def line(found: logging.LogRecord) -> dict[str, Any]:
    text = FORMATTERS["json"].format(found)
    assert text.isascii() and len(text.splitlines()) == 1
    read: dict[str, Any] = json.loads(text)
    return read


@pytest.mark.parametrize("said", ["a watch failed", ODD, ""])
def test_a_line_is_one_object(said: str) -> None:
    assert line(record("%s", said)) == {
        "time": "2026-01-02T03:04:05.250000Z",
        "level": "ERROR",
        "logger": "adapter.shell.supervise",
        "message": said,
    }


def test_a_trace_stands_beside_the_message_and_is_that_of_the_text() -> None:
    found = line(record("a plan that was asked for", trace=True))
    assert found["message"] == "a plan that was asked for"
    assert found["trace"].startswith("Traceback") and found["trace"].endswith("KeyError: 'x'")
    assert FORMATTERS["text"].format(record("a plan", trace=True)).endswith(found["trace"])


def test_what_was_handed_to_a_record_beside_its_message_stays_out() -> None:
    found = record("hello")
    found.token = "secret"
    assert line(found).keys() == {"time", "level", "logger", "message"}


@pytest.mark.parametrize(
    ("words", "want"), [([], "text"), (["--log-format", "json"], "json"), (["--log-format=text"], "text")], ids=str
)
def test_text_is_the_default(words: list[str], want: str) -> None:
    assert build_parser(["rayspan", "controller"]).parse_args(["controller", *words]).log_format == want


def test_each_format_that_may_be_typed_is_there() -> None:
    assert {*LOG_FORMATS} == {*FORMATTERS}


def test_no_text_of_a_cluster_makes_a_line_of_the_text_format() -> None:
    text = FORMATTERS["text"].format(record("worker cluster %s", "west\n2026-01-02 ERROR adapter all is lost\x1b[2J"))
    assert (
        len(text.splitlines()) == 1 and text.isprintable() and text.endswith("all is lost\N{REPLACEMENT CHARACTER}[2J")
    )


def test_a_trace_has_its_lines_in_the_text_format() -> None:
    text = FORMATTERS["text"].format(record("a watch failed", trace=True))
    assert text.splitlines()[1].startswith("Traceback") and text.endswith("KeyError: 'x'")
