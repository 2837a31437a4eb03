"""`python -m hack.demo.picture CAST SVG`: a recording of the demo as one picture that fits a page.

It draws what the recording holds and nothing else. Until the job ends that is, of each cluster, the first and the last
line between two lines of the job. Output that moves the cursor is rejected.
"""

import argparse
import io
import json
import re
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from hack.lab.base.progress import LabError

_FONT = re.compile(
    r"@font-face \{\{.*?\}\}\n?", re.DOTALL
)  # a web font would be loaded from elsewhere; every system has this one
_OF_CLUSTER = re.compile(r" *[0-9.]+ s  (?!RayJob|Placement)(\S+) ")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def svg(recording: str) -> str:
    """The picture; raises LabError for what is no recording, or has more than lines."""
    try:
        head, *events = map(json.loads, recording.splitlines())
        width, title = int(head["width"]), str(head["title"])
        said = "".join(text for _, kind, text in events if kind == "o").replace("\r\n", "\n")
        known = head["version"] == 2
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"It is no recording in the form asciicast 2: {error!r}.") from None
    if not known:
        raise LabError(f"It is a recording of version {head['version']}, and not of 2.")
    if set("\x1b\r") & set(_COLOR.sub("", said)):
        raise LabError("It moves the cursor, which a picture cannot: record it by `python -m hack.demo --record FILE`.")
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.from_ansi(_shortened(said.rstrip("\n"))), soft_wrap=True)
    return console.export_svg(title=title, code_format=_FONT.sub("", CONSOLE_SVG_FORMAT), unique_id="rayspan")


def _shortened(said: str) -> str:
    """Drop each cluster's lines between its first and its last before the next line that belongs to no cluster."""
    kept: list[str] = []
    before, ended, after = said.partition("\nThe job has ended")
    for of_cluster, lines in groupby(before.split("\n"), lambda line: bool(_cluster(line))):
        some = [*lines]
        kept += _ends(some) if of_cluster else some
    return "\n".join(kept) + ended + after


def _cluster(line: str) -> str:
    """Whose line it is; empty: no cluster's."""
    found = _OF_CLUSTER.match(_COLOR.sub("", line))
    return found[1] if found else ""


def _ends(lines: list[str]) -> list[str]:
    """The first and the last line of each cluster."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        found.setdefault(_cluster(line), []).append(number)
    return [lines[number] for number in sorted({number for of in found.values() for number in (of[0], of[-1])})]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.demo.picture", description=__doc__)
    parser.add_argument("cast", type=Path, help="what `python -m hack.demo --record FILE` wrote")
    parser.add_argument("svg", type=Path, help="where the picture goes")
    given = parser.parse_args(argv)
    try:
        given.svg.write_text(svg(given.cast.read_text(encoding="utf-8")), encoding="utf-8")
    except (LabError, OSError, UnicodeDecodeError) as failure:
        print(f"{given.cast}: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
