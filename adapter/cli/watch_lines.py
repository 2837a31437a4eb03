"""What is shown of a job that is watched where there is no room for its tree, line by line, and has it ended?

A line stands for what may change by itself: the link, the Placement, the pods of a cluster. Whoever shows them tells those that are new.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from adapter.cli import where_table
from adapter.cli.common import EXIT_ERROR, EXIT_OK
from adapter.cli.job_reader import SelectedJobs
from adapter.diagnosis.job_document import Document

_EXIT_CODES: dict[str, int] = {"Done": EXIT_OK, "Failed": EXIT_ERROR}  # outcomes of a RayJob that change no more


def job_lines(selection: SelectedJobs, documents: Sequence[Document]) -> list[str]:
    """All of a job, or of each RayCluster of a RayService."""
    if selection.service is None:
        return list(_document_lines(documents[0], ""))
    return [
        line
        for release, one in zip(selection.releases, documents, strict=True)
        for line in _document_lines(one, f"{release} ")
    ] or ["It has no RayCluster yet."]


def exit_code(selection: SelectedJobs, documents: Sequence[Document]) -> int | None:
    """The exit code of a RayJob that is over, None for what goes on. What is being deleted is over when it is gone."""
    if selection.service is not None or documents[0]["kind"] != "RayJob" or documents[0]["link"]["reason"] == "Deleted":
        return None
    return _EXIT_CODES.get(documents[0]["outcome"])


def ends_by_itself(job_name: str) -> bool:
    """Whether a job, as `rayjob/NAME`, is of a kind that has an end."""
    return job_name.startswith("rayjob/")


def _document_lines(document: Document, release: str) -> Iterator[str]:
    yield f"{release}{document['kind']} {document['namespace']}/{document['name']}: {where_table.outcome_line(document)}"
    yield from (f"{release}{line}" for line in where_table.placement_lines(document))
    counted = Counter((one["cluster"] or "", one["role"], one["reason"] or one["phase"]) for one in document["nodes"])
    for cluster in dict.fromkeys(one["cluster"] or "" for one in document["nodes"]):
        here = [(role, state, count) for (place, role, state), count in sorted(counted.items()) if place == cluster]
        yield f"{release}{cluster or 'no place yet'}: {', '.join(f'{count} {_role_noun(role, count)} {state}' for role, state, count in here)}"
    yield from (f"{release}{note}" for note in document["notes"])


def _role_noun(role: str, count: int) -> str:
    return role if count == 1 else f"{role}s"
