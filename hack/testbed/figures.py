"""Prints a figure: to people as a table, to programs as one line `BENCH name key=value …`. Pure."""

import math
from collections.abc import Mapping, Sequence

Value = str | int | float


def line(bench: str, values: Mapping[str, Value]) -> str:
    """The line that programs read; keys and values hold no space."""
    return " ".join(["BENCH", bench, *(f"{key}={told(value)}" for key, value in values.items())])


def table(head: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    """Rows under a head: the first column to the left, figures to the right."""
    cells = [list(head), *([told(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_row(row, widths) for row in cells)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed (nearest rank); nan of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else math.nan


def ratio(value: float, base: float) -> float:
    """How many times the base; nan where the base is nothing."""
    return value / base if base else math.nan


def spread(values: Mapping[str, Value], key: str) -> Value:
    """A figure with the least and the most of its runs, `key_min` and `key_max`, where they exist."""
    low, high = (values.get(f"{key}_{end}", math.nan) for end in ("min", "max"))
    known = not any(isinstance(end, float) and math.isnan(end) for end in (low, high))
    return f"{told(values[key])} ({told(low)} to {told(high)})" if known else values[key]


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join([first.strip().ljust(widths[0]), *rest]).rstrip()


def told(value: Value) -> str:
    """One figure as people read it: three digits, or all of a whole number."""
    if not isinstance(value, float):
        return str(value)
    return "-" if math.isnan(value) else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
