"""Renders a watched job as short lines where its tree does not fit, and determines its exit code.

Each line is a part that changes by itself: the outcome, the Placement, the pods of a cluster. `watch` prints the new
lines.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from adapter.cli import where_table
from adapter.cli.common import EXIT_ERROR, EXIT_OK
from adapter.cli.job_reader import SelectedJobs
from adapter.diagnosis.job_document import Document

_EXIT_CODES: dict[str, int] = {"Done": EXIT_OK, "Failed": EXIT_ERROR}  # final outcomes of a RayJob


def job_lines(selection: SelectedJobs, documents: Sequence[Document]) -> list[str]:
    """The lines of a job, or of each RayCluster of a RayService."""
    if selection.service is None:
        return list(_document_lines(documents[0], ""))
    return [
        line
        for release, document in zip(selection.releases, documents, strict=True)
        for line in _document_lines(document, f"{release} ")
    ] or ["It has no RayCluster yet."]


def exit_code(selection: SelectedJobs, documents: Sequence[Document]) -> int | None:
    """The exit code of a finished RayJob, else None; a job being deleted has not ended until it no longer exists."""
    if selection.service is not None or documents[0]["kind"] != "RayJob" or documents[0]["link"]["reason"] == "Deleted":
        return None
    return _EXIT_CODES.get(documents[0]["outcome"])


def ends_by_itself(job_name: str) -> bool:
    """Whether `job_name`, as `rayjob/NAME`, is of a kind that finishes."""
    return job_name.startswith("rayjob/")


def _document_lines(document: Document, release: str) -> Iterator[str]:
    yield (
        f"{release}{document['kind']} {document['namespace']}/{document['name']}: {where_table.outcome_line(document)}"
    )
    yield from (f"{release}{line}" for line in where_table.placement_lines(document))
    counts = Counter(
        (node["cluster"] or "", node["role"], node["reason"] or node["phase"]) for node in document["nodes"]
    )
    for cluster in dict.fromkeys(node["cluster"] or "" for node in document["nodes"]):
        cluster_counts = [
            (role, state, count)
            for (node_cluster, role, state), count in sorted(counts.items())
            if node_cluster == cluster
        ]
        yield (
            f"{release}{cluster or 'not placed yet'}: "
            f"{', '.join(f'{count} {_role_noun(role, count)} {state}' for role, state, count in cluster_counts)}"
        )
    yield from (f"{release}{note}" for note in document["notes"])


def _role_noun(role: str, count: int) -> str:
    return role if count == 1 else f"{role}s"
