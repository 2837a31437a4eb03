"""How do people read what the benches found: the figures in docs/performance.md. Pure but for the page's place.

A promise has one line, that of the row which kept it worst. It claims what was run, and on which machine.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

from hack.bench import verdicts
from hack.bench.promises import BENCHES, MET, Promise
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
    lines = [_line(bench, promise, kept, runs) for bench, promises in BENCHES.items() for promise in promises]
    said = [f"{number}. {date}, on {where}." for number, (date, where) in enumerate(runs, 1)]
    return "\n".join([_HEAD.rstrip("\n"), *lines, "", *(["Runs:", "", *said, ""] if said else [])])


def _line(bench: str, promise: Promise, kept: Sequence[Kept], runs: Sequence[tuple[str, str]]) -> str:
    mine = [one for one in kept if one.row.bench == bench and one.row.promise == promise]
    cells = [f"`{bench}`", promise.what, promise.bound]
    if not mine:
        return _row([*cells, "", NOT_RUN, "", "", ""])
    worst = max(mine, key=_badness)
    verdict = worst.row.verdict if worst.row.verdict == MET else f"**{worst.row.verdict}**"
    number = runs.index((worst.date, worst.where)) + 1
    return _row([*cells, str(_text(worst)), verdict, worst.row.about, _range(mine), str(number)])


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
