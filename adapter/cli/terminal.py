"""Prints lines and texts. Every command prints here, so that text from a cluster is cleaned once, where it is shown.

Annotations, conditions and API errors are text of other people. A control character in them could move the cursor, hide
a line, or set the clipboard; a line break could forge a line. JSON and YAML escape such characters by themselves.
"""

import sys
import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from typing import TextIO

_LAYOUT = "\n\t"  # of a text that is already joined from clean lines


def clean_line(text: str) -> str:
    """The text as one line: white space becomes spaces, and other characters that are not printable are replaced."""
    return text if text.isprintable() else "".join(map(_clean_character, text))


def _clean_character(char: str) -> str:
    return char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"


def print_line(text: str) -> None:
    """Print one line to stdout."""
    _write(f"{clean_line(text)}\n", sys.stdout)


def print_note(text: str) -> None:
    """Print one line to stderr."""
    _write(f"{clean_line(text)}\n", sys.stderr)


def print_text(text: str) -> None:
    """Print a text of several lines to stdout; it has its final line break."""
    _write("".join(char if char in _LAYOUT else _clean_character(char) for char in text), sys.stdout)


def redraw_picture(lines: Sequence[str], previous_height: int, columns: int) -> None:
    """Draw the lines over the picture of `previous_height` lines that was drawn last, each cut to the width."""
    up = f"\033[{previous_height}F" if previous_height else ""
    # A wrapped line would make the height wrong.
    picture = "".join(f"\033[K{_cut_to_width(clean_line(line), columns - 1)}\n" for line in lines)
    _write(f"{up}{picture}\033[J", sys.stdout)


def _cut_to_width(line: str, columns: int) -> str:
    """The beginning of a line that takes at most so many columns of a terminal."""
    ends = accumulate(map(_column_count, line))
    return line[: sum(end <= columns for end in ends)]


def _column_count(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "FW" else 1


def _write(text: str, stream: TextIO) -> None:
    print(text, end="", file=stream, flush=True)
