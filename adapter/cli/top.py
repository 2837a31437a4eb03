"""`rayspan top`: what does the fleet hold? Each worker cluster with its workers by phase and its quota, as the manager sees them.

Quota is asked of the controller, as `plan` does. Exit code 0: it is shown; 3: it is, and nothing can be dispatched now; 2: the command line
is wrong; 1: the manager cannot be asked.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from adapter import names
from adapter.cli import common, plan, policy_objects
from adapter.cli.common import DONE, Row, as_lines, columns
from adapter.cli.manager_reader import Look
from adapter.diagnosis import dispatch_check, fleet_summary
from adapter.diagnosis.job_document import Document
from adapter.objects.queues import read_local_queue
from adapter.objects.worker_pod import is_preassigned
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    PLACEMENTS,
    PODS,
    WORKER_CLUSTERS,
)

# Each LocalQueue costs the controller a plan, and most lead to the same few ClusterQueues in the worker clusters.
MOST_ASKED = 16
STOPPED = 3  # exit code: nothing can be dispatched now
_NONE = "-"
_HEADER = ("CLUSTER", "ZONE", "CONNECTED", "REACHABLE", "OPEN", "RESERVED", "WORKERS")
_QUOTA = ("CLUSTER", "CLUSTERQUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "FREE")


def main(given: argparse.Namespace) -> int:
    """Read, ask, print, and return the exit code; trouble is one sentence on the standard error."""
    return common.shown(given, _fleet, render, lambda found: STOPPED if found["stopped"] else DONE)


async def _fleet(client: Client) -> Document:
    look = Look(client)
    clusters = await look.all(WORKER_CLUSTERS)
    pods = await look.all(PODS, labelSelector=names.PLACEMENT_LABEL)
    queues, checks = await look.all(CLUSTER_QUEUES), await look.all(ADMISSION_CHECKS)
    written = await policy_objects.written(look, clusters)
    stopped = (
        "" if look.unread else dispatch_check.stopped(queues, checks, written)
    )  # else what may not be read would be taken for missing
    # Most have it written in them where they are, and then no plan is read.
    placements = await look.all(PLACEMENTS) if any(map(is_preassigned, pods)) else []
    plans, notes = await _plans(client, look, fleet_summary.dispatched(queues, checks))
    found = fleet_summary.document(clusters, pods, placements, plans, [*look.unread.values(), *notes], stopped)
    return {**found, "unread": sorted(look.unread.keys() - look.lacks)}


async def _plans(
    client: Client, look: Look, queues: Mapping[str, list[str]]
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The controller's answers for a small gang in each LocalQueue, and what is to be said of those that there are not."""
    local = [(*queue.key, queue.cluster_queue) for queue in map(read_local_queue, await look.all(LOCAL_QUEUES))]
    asked = sorted(one for one in local if queues.get(one[2]))
    plans: list[Mapping[str, Any]] = []
    notes: list[str] = []
    for namespace, name, queue in asked[:MOST_ASKED]:
        answer, why = await _plan(client, namespace, fleet_summary.sample(namespace, name, queues[queue]))
        if why:
            notes.append(f"Quota is not shown: {why}")
        if answer is None:  # it would be the same for all others
            return plans, notes
        plans.append(answer)
    left = len(asked) - MOST_ASKED
    return plans, [*notes, *([f"The quota of {left} more LocalQueues is not shown."] if left > 0 else [])]


async def _plan(client: Client, namespace: str, job: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """A plan, None where nobody makes one, and why it says nothing of quota."""
    try:
        answer = await plan.answered(client, {"namespace": namespace, "object": job})
    except Unreachable as error:
        return None, f"the controller cannot be asked: {error}."
    except ApiError as error:
        return {} if error.reason == names.UNUSABLE_REASON else None, plan.explained(error)
    where = f"LocalQueue {namespace}/{job['metadata']['labels'][names.QUEUE_LABEL]}"
    return answer, "" if answer.get("clusters") else f"{where}: {answer.get('sentence')}"


def render(found: Document) -> str:
    """The tables, and what else is to be said; each line ended."""
    clusters = found["clusters"]
    quota = [_quota(one["name"], row) for one in clusters for row in one["quota"] or ()]
    known = WORKER_CLUSTERS.plural not in found["unread"]
    none = "There are no WorkerClusters.\n" if known else "The WorkerClusters may not be read.\n"
    parts = [columns([_HEADER, *map(_row, clusters)]) if clusters else none]
    parts += [columns([_QUOTA, *quota])] if quota else []
    said = [*([found["stopped"]] if found["stopped"] else []), *found["notes"]]
    parts += [as_lines(said)] if said else []
    return "\n".join(parts)


def _row(one: Document) -> Row:
    open_ = _NONE if one["cordoned"] is None else "no" if one["cordoned"] else "yes"
    workers = ", ".join(f"{count} {phase}" for phase, count in one["workers"].items())
    reserved = _NONE if one["reserved"] is None else str(one["reserved"])
    told = [one[field] or _NONE for field in ("zone", "connected", "reachable")]
    return [one["name"], *told, open_, reserved, workers or _NONE]


def _quota(name: str, row: Document) -> Row:
    return [
        name,
        *(str(row[field] or _NONE) for field in ("clusterQueue", "flavor", "resource", "nominal", "used", "free")),
    ]
