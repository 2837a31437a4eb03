"""How does a job look on a terminal: as a tree of its Ray nodes, grouped by the clusters that they are in?"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from adapter import names
from adapter.cli.common import Row, as_lines, columns
from adapter.diagnosis.job_document import Document
from adapter.objects.unstructured import moment

_HEADER = ("NAME", "CLUSTER", "ZONE", "NODE", "PHASE", "RESTARTS", "SINCE")
_NONE = "-"
_UNPLACED = "not placed yet"
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def render(found: Document, now: datetime) -> str:
    """The tree, what was decided, what holds it up, and what else is to be said; each line ended."""
    parts = [columns([_HEADER, *_tree(found, now)]), as_lines([*placed(found), verdict(found)])]
    if found["notes"]:
        parts.append(as_lines(found["notes"]))
    return "\n".join(parts)


def placed(found: Document) -> Iterator[str]:
    """What the Placement says in short."""
    place = found["placement"]
    if place and place["state"]:
        # Of one that has ended is known where they were.
        counted = "" if place["state"] == names.ENDED and place["where"] else place["workers"] or "0"
        parts = f"{counted} workers" if counted else "", place["where"]
        yield f"{place['state']}: {', '.join(filter(None, parts))}."


def verdict(found: Document) -> str:
    """The link in a line."""
    link = found["link"]
    return " ".join(filter(None, (f"{found['outcome']}: {link['sentence']}", link["todo"])))


def age(text: str | None, now: datetime) -> str:
    """For how long, as kubectl says it."""
    since = moment(text) if text else None
    if since is None:
        return _NONE
    seconds = max(0, int((now - since).total_seconds()))
    return next((f"{seconds // size}{unit}" for unit, size in _UNITS if seconds >= 2 * size), f"{seconds}s")


def _tree(found: Document, now: datetime) -> Iterator[Row]:
    yield _titled(f"{found['kind']} {found['namespace']}/{found['name']}")
    if not found["rayCluster"]:
        return
    nested = found["kind"] == "RayJob"
    if nested:
        yield _titled(f"└─ RayCluster {found['rayCluster']}")
    yield from _branches(found["nodes"], "   " if nested else "", now)


def _branches(nodes: Sequence[Document], indent: str, now: datetime) -> Iterator[Row]:
    here = [one for one in nodes if one["role"] == "head"]
    clusters = sorted(
        {one["cluster"] or "" for one in nodes if one["role"] != "head"}, key=lambda name: (not name, name)
    )
    last = len(here) + len(clusters) - 1
    for index, one in enumerate(here):
        yield _row(one, f"{indent}{_branch(index == last)}", now)
    for index, cluster in enumerate(clusters, len(here)):
        yield _titled(f"{indent}{_branch(index == last)}{cluster or _UNPLACED}")
        inner = f"{indent}{'   ' if index == last else '│  '}"
        workers = [one for one in nodes if one["role"] != "head" and (one["cluster"] or "") == cluster]
        for place, one in enumerate(workers):
            yield _row(one, f"{inner}{_branch(place == len(workers) - 1)}", now)


def _branch(last: bool) -> str:
    return "└─ " if last else "├─ "


def _titled(name: str) -> Row:
    return [name, *[""] * (len(_HEADER) - 1)]


def _row(one: Document, prefix: str, now: datetime) -> Row:
    phase = one["reason"] or one["phase"]
    where = [one[field] or _NONE for field in ("cluster", "zone", "node")]
    return [f"{prefix}{one['name']}", *where, phase, str(one["restarts"]), age(one["since"], now)]
