"""How does a job look on a terminal: as a tree of its Ray nodes, grouped by the clusters that they are in?"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from adapter.cli.common import TableRow, format_table, join_lines
from adapter.diagnosis.job_document import Document
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import parse_time

_HEADER = ("NAME", "CLUSTER", "ZONE", "NODE", "PHASE", "RESTARTS", "SINCE")
_EMPTY_CELL = "-"
_UNPLACED_TITLE = "not placed yet"
_AGE_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def render(document: Document, now: datetime) -> str:
    """The tree, what was decided, what holds it up, and what else is to be said; each line ended."""
    parts = [
        format_table([_HEADER, *_tree_rows(document, now)]),
        join_lines([*placement_lines(document), outcome_line(document)]),
    ]
    if document["notes"]:
        parts.append(join_lines(document["notes"]))
    return "\n".join(parts)


def placement_lines(document: Document) -> Iterator[str]:
    """What the Placement says in short."""
    place = document["placement"]
    if place and place["state"]:
        # Of one that has ended is known where they were.
        counted = "" if place["state"] == PlacementState.ENDED and place["where"] else place["workers"] or "0"
        parts = f"{counted} workers" if counted else "", place["where"]
        yield f"{place['state']}: {', '.join(filter(None, parts))}."


def outcome_line(document: Document) -> str:
    """The link in a line."""
    link = document["link"]
    return " ".join(filter(None, (f"{document['outcome']}: {link['sentence']}", link["todo"])))


def format_age(timestamp: str | None, now: datetime) -> str:
    """For how long, as kubectl says it."""
    since = parse_time(timestamp) if timestamp else None
    if since is None:
        return _EMPTY_CELL
    seconds = max(0, int((now - since).total_seconds()))
    return next((f"{seconds // size}{unit}" for unit, size in _AGE_UNITS if seconds >= 2 * size), f"{seconds}s")


def _tree_rows(document: Document, now: datetime) -> Iterator[TableRow]:
    yield _title_row(f"{document['kind']} {document['namespace']}/{document['name']}")
    if not document["rayCluster"]:
        return
    nested = document["kind"] == "RayJob"
    if nested:
        yield _title_row(f"└─ RayCluster {document['rayCluster']}")
    yield from _node_rows(document["nodes"], "   " if nested else "", now)


def _node_rows(nodes: Sequence[Document], indent: str, now: datetime) -> Iterator[TableRow]:
    here = [one for one in nodes if one["role"] == "head"]
    clusters = sorted(
        {one["cluster"] or "" for one in nodes if one["role"] != "head"}, key=lambda name: (not name, name)
    )
    last = len(here) + len(clusters) - 1
    for index, one in enumerate(here):
        yield _node_row(one, f"{indent}{_branch_prefix(index == last)}", now)
    for index, cluster in enumerate(clusters, len(here)):
        yield _title_row(f"{indent}{_branch_prefix(index == last)}{cluster or _UNPLACED_TITLE}")
        inner = f"{indent}{'   ' if index == last else '│  '}"
        workers = [one for one in nodes if one["role"] != "head" and (one["cluster"] or "") == cluster]
        for place, one in enumerate(workers):
            yield _node_row(one, f"{inner}{_branch_prefix(place == len(workers) - 1)}", now)


def _branch_prefix(is_last: bool) -> str:
    return "└─ " if is_last else "├─ "


def _title_row(name: str) -> TableRow:
    return [name, *[""] * (len(_HEADER) - 1)]


def _node_row(node: Document, prefix: str, now: datetime) -> TableRow:
    phase = node["reason"] or node["phase"]
    where = [node[field] or _EMPTY_CELL for field in ("cluster", "zone", "node")]
    return [f"{prefix}{node['name']}", *where, phase, str(node["restarts"]), format_age(node["since"], now)]
