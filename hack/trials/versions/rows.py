"""Keeps the last result of each pair beside the page that is made of it, in docs/versions.json.

It believes only what was seen: a row has the versions that the clusters themselves reported.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hack.lab.base.paths import REPO
from hack.lab.base.versions import Runs

FILE: Final = REPO / "docs" / "versions.json"


@dataclass(frozen=True)
class Check:
    """One thing that was tried, and how many seconds it took."""

    what: str
    seconds: float


@dataclass(frozen=True)
class Row:
    """One run of a pair."""

    pair: str
    date: str
    """Like 2026-11-25."""
    seen: Mapping[str, Runs]
    """Cluster → what it said that it runs."""
    checks: tuple[Check, ...]
    """What went well, in order."""
    failed: str = ""
    """What did not, in a sentence; empty when all went well."""
    ray: str = ""
    """What its job said that it ran; empty where none ran."""


def read(file: Path = FILE) -> dict[str, Row]:
    """The last row of each pair, by its name."""
    if not file.exists():
        return {}
    return {one["pair"]: _row(one) for one in json.loads(file.read_text(encoding="utf-8"))}


def write(rows: Iterable[Row], file: Path = FILE) -> None:
    """Keep these rows and no others."""
    said = [{**asdict(row), "seen": {name: runs._asdict() for name, runs in row.seen.items()}} for row in rows]
    file.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def _row(said: Mapping[str, object]) -> Row:
    match said:
        case {"pair": str(pair), "date": str(date), "seen": dict(seen), "checks": list(checks), "failed": str(failed)}:
            found = {name: Runs(**runs) for name, runs in seen.items()}
            return Row(pair, date, found, tuple(Check(**check) for check in checks), failed, str(said.get("ray", "")))
    raise ValueError(f"{FILE.name}: {said} is no row.")
