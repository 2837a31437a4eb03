"""The worker clusters that a job's workers are to leave, as its user names them in an annotation of the job."""

from collections.abc import Collection
from dataclasses import dataclass

from adapter import names
from adapter.objects.unstructured import Raw, annotation, printable_list

MAX_LENGTH = 4_096  # characters of the annotation: sixty names of the greatest length
_MOST_REPORTED = 5  # names


@dataclass(frozen=True, slots=True)
class MoveFrom:
    """The named clusters, each once, in the user's order; whether they exist is not known here."""

    clusters: tuple[str, ...] = ()
    fault: str = ""  # why the annotation is not read, a fragment


NO_MOVE = MoveFrom()


def read_move_from(job: Raw) -> MoveFrom:
    """Read the annotation of a RayJob, RayCluster or RayService: names with commas between; never raises."""
    text = annotation(job, names.MOVE_FROM_ANNOTATION)
    if not text:
        return NO_MOVE
    if len(text) > MAX_LENGTH:
        return MoveFrom(
            fault=f"has {len(text)} characters, more than {MAX_LENGTH}, so it is ignored; name fewer clusters"
        )
    clusters = split_names(text)
    return MoveFrom(clusters, "" if clusters else "names no WorkerCluster; name one, or remove the annotation")


def split_names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def ignored_part(move_from: MoveFrom, worker_clusters: Collection[str]) -> str:
    """What is ignored of the annotation, and what to do, a fragment; empty if all of its clusters exist."""
    unknown = [name for name in move_from.clusters if name not in worker_clusters]
    fault = move_from.fault
    if unknown and not fault:
        which = "a WorkerCluster that does not exist" if len(unknown) == 1 else "WorkerClusters that do not exist"
        listed = printable_list(unknown, _MOST_REPORTED)
        fault = f"names {which} ({listed}), and is ignored in that; correct the name, or remove it"
    return f"annotation {names.MOVE_FROM_ANNOTATION} {fault}" if fault else ""
