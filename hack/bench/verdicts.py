"""Judges each figure of a run against its goal: a table, sentences, and whether the run failed. Pure."""

from collections.abc import Iterable

from hack.bench.promises import BROKEN, UNKNOWN, Row
from hack.testbed import figures
from hack.testbed.figures import Value

_HEAD = ("what is promised", "goal", "figure", "verdict")


def table(rows: Iterable[Row]) -> str:
    """Each figure beside its goal, with the least and the most of its runs where there were several; empty without
    any."""
    lines: list[list[Value]] = [[_name(row), row.promise.bound, told(row), row.verdict] for row in rows]
    return figures.table(_HEAD, lines) if lines else ""


def told(row: Row) -> Value:
    """A figure and its spread."""
    return figures.spread({"it": row.value, "it_min": row.low, "it_max": row.high}, "it")


def sentences(rows: Iterable[Row], *, lenient: bool) -> list[str]:
    """One for each goal that was missed; leniently, for each promise that is broken."""
    found = ((row, row.complaint(lenient=lenient)) for row in rows)
    return [f"{'BROKEN' if row.verdict in (BROKEN, UNKNOWN) else 'MISSED'}: {said}" for row, said in found if said]


def _name(row: Row) -> str:
    return f"{', '.join(filter(None, (row.bench, row.about)))}: {row.promise.what}"
