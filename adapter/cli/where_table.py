"""Renders a job as a tree of its Ray nodes, grouped by cluster, for a terminal."""

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
    """The tree, the placement, the outcome, and the notes."""
    parts = [
        format_table([_HEADER, *_tree_rows(document, now)]),
        join_lines([*placement_lines(document), outcome_line(document)]),
    ]
    if document["notes"]:
        parts.append(join_lines(document["notes"]))
    return "\n".join(parts)


def placement_lines(document: Document) -> Iterator[str]:
    """A summary of the Placement."""
    placement = document["placement"]
    if placement and placement["state"]:
        # Of an ended Placement only the clusters are shown.
        worker_count = (
            "" if placement["state"] == PlacementState.ENDED and placement["where"] else placement["workers"] or "0"
        )
        parts = f"{worker_count} workers" if worker_count else "", placement["where"]
        yield f"{placement['state']}: {', '.join(filter(None, parts))}."


def outcome_line(document: Document) -> str:
    """The outcome, and the step that holds the job up, in one line."""
    link = document["link"]
    return " ".join(filter(None, (f"{document['outcome']}: {link['sentence']}", link["todo"])))


def format_age(timestamp: str | None, now: datetime) -> str:
    """The time since `timestamp`, in kubectl's format."""
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
    heads = [node for node in nodes if node["role"] == "head"]
    clusters = sorted(
        {node["cluster"] or "" for node in nodes if node["role"] != "head"}, key=lambda name: (not name, name)
    )
    last = len(heads) + len(clusters) - 1
    for index, node in enumerate(heads):
        yield _node_row(node, f"{indent}{_branch_prefix(index == last)}", now)
    for index, cluster in enumerate(clusters, len(heads)):
        yield _title_row(f"{indent}{_branch_prefix(index == last)}{cluster or _UNPLACED_TITLE}")
        inner = f"{indent}{'   ' if index == last else '│  '}"
        workers = [node for node in nodes if node["role"] != "head" and (node["cluster"] or "") == cluster]
        for position, node in enumerate(workers):
            yield _node_row(node, f"{inner}{_branch_prefix(position == len(workers) - 1)}", now)


def _branch_prefix(is_last: bool) -> str:
    return "└─ " if is_last else "├─ "


def _title_row(name: str) -> TableRow:
    return [name, *[""] * (len(_HEADER) - 1)]


def _node_row(node: Document, prefix: str, now: datetime) -> TableRow:
    phase = node["reason"] or node["phase"]
    location = [node[field] or _EMPTY_CELL for field in ("cluster", "zone", "node")]
    return [f"{prefix}{node['name']}", *location, phase, str(node["restarts"]), format_age(node["since"], now)]
