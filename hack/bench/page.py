"""Writes the figures of the benches into docs/performance.md. Pure but for the page's place.

A promise has one line, of the row that kept it worst; a comparison has a line for each row. The page claims what was
run, and on which machine.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

from hack.bench import verdicts
from hack.bench.promises import BENCHES, BESIDE, MET, Promise
from hack.bench.record import Kept
from hack.lab.base.paths import REPO
from hack.testbed import figures

PAGE: Final = REPO / "docs" / "performance.md"
NOT_RUN: Final = "not run"
_BETWEEN: Final = re.compile(r"(<!-- figures -->\n).*?(\n<!-- end -->)", re.DOTALL)
_HEAD: Final = """
| Bench | What | Goal | Figure | Verdict | Worst in | All of its rows | Run |
|---|---|---|---|---|---|---|---|
"""


def write(kept: Sequence[Kept]) -> None:
    """Write the figures into the page; what is around them stays."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), kept), encoding="utf-8")


def written(text: str, kept: Sequence[Kept]) -> str:
    """The page with these figures."""
    return _BETWEEN.sub(lambda found: f"{found[1]}{_figures(kept)}{found[2]}", text)


def _figures(kept: Sequence[Kept]) -> str:
    runs = list(dict.fromkeys((one.date, one.where) for one in sorted(kept, key=lambda one: one.date, reverse=True)))
    lines = [
        line for bench, every in BENCHES.items() for promise in every for line in _lines(bench, promise, kept, runs)
    ]
    said = [f"{number}. {date}, on {where}." for number, (date, where) in enumerate(runs, 1)]
    return "\n".join([_HEAD.rstrip("\n"), *lines, "", *(["Runs:", "", *said, ""] if said else [])])


def _lines(bench: str, promise: Promise, kept: Sequence[Kept], runs: Sequence[tuple[str, str]]) -> Iterator[str]:
    mine = [one for one in kept if one.row.bench == bench and one.row.promise == promise]
    head = [f"`{bench}`", promise.what, promise.bound]
    if not mine:
        yield _row([*head, "", NOT_RUN, "", "", ""])
    elif promise.beside:
        yield from (_row([*head, *_cells(one, runs, "")]) for one in mine)
    else:
        yield _row([*head, *_cells(max(mine, key=_badness), runs, _range(mine))])


def _cells(one: Kept, runs: Sequence[tuple[str, str]], around: str) -> list[str]:
    verdict = one.row.verdict if one.row.verdict in (MET, BESIDE) else f"**{one.row.verdict}**"
    return [_text(one), verdict, one.row.about, around, str(runs.index((one.date, one.where)) + 1)]


def _badness(one: Kept) -> float:
    """Larger is worse; what was not measured is the worst."""
    value = one.row.value
    return math.inf if math.isnan(value) else -value if one.row.promise.least else value


def _text(one: Kept) -> str:
    return figures.told(verdicts.told(one.row))


def _range(mine: Sequence[Kept]) -> str:
    values = [one.row.value for one in mine if not math.isnan(one.row.value)]
    if len(mine) == 1 or not values:
        return ""
    return f"{figures.told(min(values))} to {figures.told(max(values))}, of {len(mine)}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
