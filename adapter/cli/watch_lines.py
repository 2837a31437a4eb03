"""What is shown of a job that is watched where there is no room for its tree, line by line, and has it ended?

A line stands for what may change by itself: the link, the Placement, the pods of a cluster. Whoever shows them tells those that are new.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from adapter.cli import where_table
from adapter.cli.common import DONE, TROUBLE
from adapter.cli.job_reader import Asked
from adapter.diagnosis.job_document import Document

_ENDS: dict[str, int] = {"Done": DONE, "Failed": TROUBLE}  # outcomes of a RayJob that change no more


def lines(asked: Asked, found: Sequence[Document]) -> list[str]:
    """All of a job, or of each RayCluster of a RayService."""
    if asked.service is None:
        return list(_lines(found[0], ""))
    return [
        line for release, one in zip(asked.releases, found, strict=True) for line in _lines(one, f"{release} ")
    ] or ["It has no RayCluster yet."]


def ended(asked: Asked, found: Sequence[Document]) -> int | None:
    """The exit code of a RayJob that is over, None for what goes on. What is being deleted is over when it is gone."""
    if asked.service is not None or found[0]["kind"] != "RayJob" or found[0]["link"]["reason"] == "Deleted":
        return None
    return _ENDS.get(found[0]["outcome"])


def ends_by_itself(which: str) -> bool:
    """Whether a job, as `rayjob/NAME`, is of a kind that has an end."""
    return which.startswith("rayjob/")


def _lines(found: Document, release: str) -> Iterator[str]:
    yield f"{release}{found['kind']} {found['namespace']}/{found['name']}: {where_table.verdict(found)}"
    yield from (f"{release}{line}" for line in where_table.placed(found))
    counted = Counter((one["cluster"] or "", one["role"], one["reason"] or one["phase"]) for one in found["nodes"])
    for cluster in dict.fromkeys(one["cluster"] or "" for one in found["nodes"]):
        here = [(role, state, count) for (place, role, state), count in sorted(counted.items()) if place == cluster]
        yield f"{release}{cluster or 'no place yet'}: {', '.join(f'{count} {_role(role, count)} {state}' for role, state, count in here)}"
    yield from (f"{release}{note}" for note in found["notes"])


def _role(role: str, count: int) -> str:
    return role if count == 1 else f"{role}s"
