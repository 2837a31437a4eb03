"""Keeps each row's figures of its last run, with its day and machine, in docs/performance.json beside the page.

A row that was not run again keeps its figure.
"""

import datetime
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from hack.bench import machine
from hack.bench.promises import BENCHES, Promise, Row
from hack.lab.base.paths import REPO

FILE: Final = REPO / "docs" / "performance.json"
_DIGITS: Final = 5  # two more than the page shows, so that a verdict is that of the run


@dataclass(frozen=True, slots=True)
class Kept:
    """One row as it was run last."""

    row: Row
    date: str
    """Like 2026-11-25."""
    where: str
    """The machine and the versions."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.row.bench, self.row.about, self.row.promise.what


def keep(rows: Iterable[Row], file: Path = FILE) -> list[Kept]:
    """Put these in the place of what was kept of them; returns all that is kept now."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    found = merged(read(file), [Kept(_rounded(row), today, machine.described()) for row in rows])
    file.write_text(json.dumps([_said(one) for one in found], indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return found


def read(file: Path = FILE) -> list[Kept]:
    """The kept rows, without those of removed promises."""
    if not file.exists():
        return []
    return [found for one in json.loads(file.read_text(encoding="utf-8")) if (found := _kept(one))]


def merged(before: Iterable[Kept], after: Iterable[Kept]) -> list[Kept]:
    """Each row as it was run last, in the order of the benches."""
    last = {one.key: one for one in (*before, *after)}
    order = {bench: number for number, bench in enumerate(BENCHES)}
    return sorted(last.values(), key=lambda one: order[one.row.bench])


def _said(one: Kept) -> Mapping[str, object]:
    row = {key: None if value != value else value for key, value in asdict(one.row).items()}  # nan is no JSON
    return {**row, "promise": one.row.promise.what, "date": one.date, "where": one.where}


def _kept(said: Mapping[str, Any]) -> Kept | None:
    promise = _promise(said["bench"], said["promise"])
    if not promise:
        return None
    value, low, high = (math.nan if said[key] is None else float(said[key]) for key in ("value", "low", "high"))
    return Kept(Row(said["bench"], said["about"], promise, value, low, high), said["date"], said["where"])


def _promise(bench: str, what: str) -> Promise | None:
    return next((promise for promise in BENCHES.get(bench, ()) if promise.what == what), None)


def _rounded(row: Row) -> Row:
    value, low, high = (float(f"{one:.{_DIGITS}g}") for one in (row.value, row.low, row.high))
    return replace(row, value=value, low=low, high=high)
