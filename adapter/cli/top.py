"""`rayspan top`: what does the fleet hold? Each worker cluster with its workers by phase and its quota, as the manager sees them.

Quota is asked of the controller, as `plan` does. Exit code 0: it is shown; 3: it is, and nothing can be dispatched now; 2: the command line
is wrong; 1: the manager cannot be asked.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from adapter import names
from adapter.cli import common, plan, policy_objects
from adapter.cli.common import EXIT_OK, TableRow, format_table, join_lines
from adapter.cli.manager_reader import ManagerReader
from adapter.diagnosis import dispatch_check, fleet_summary
from adapter.diagnosis.job_document import Document
from adapter.objects.queues import read_local_queue
from adapter.objects.worker_pod import has_template_slot
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
MAX_PLANNED_QUEUES = 16
EXIT_NOT_DISPATCHING = 3  # exit code: nothing can be dispatched now
_EMPTY_CELL = "-"
_CLUSTER_HEADER = ("CLUSTER", "ZONE", "CONNECTED", "REACHABLE", "OPEN", "RESERVED", "WORKERS")
_QUOTA_HEADER = ("CLUSTER", "CLUSTERQUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "FREE")


def main(args: argparse.Namespace) -> int:
    """Read, ask, print, and return the exit code; trouble is one sentence on the standard error."""
    return common.print_document(
        args, _read_fleet, render, lambda found: EXIT_NOT_DISPATCHING if found["stopped"] else EXIT_OK
    )


async def _read_fleet(client: Client) -> Document:
    look = ManagerReader(client)
    clusters = await look.list_objects(WORKER_CLUSTERS)
    pods = await look.list_objects(PODS, labelSelector=names.PLACEMENT_LABEL)
    queues, checks = await look.list_objects(CLUSTER_QUEUES), await look.list_objects(ADMISSION_CHECKS)
    written = await policy_objects.read_policies(look, clusters)
    stopped = (
        "" if look.unread_reasons else dispatch_check.stopped_reason(queues, checks, written)
    )  # else what may not be read would be taken for missing
    # Most have it written in them where they are, and then no plan is read.
    placements = await look.list_objects(PLACEMENTS) if any(map(has_template_slot, pods)) else []
    plans, notes = await _request_plans(client, look, fleet_summary.dispatching_queues(queues, checks))
    found = fleet_summary.describe_fleet(
        clusters, pods, placements, plans, [*look.unread_reasons.values(), *notes], stopped
    )
    return {**found, "unread": sorted(look.unread_reasons.keys() - look.missing_kinds)}


async def _request_plans(
    client: Client, reader: ManagerReader, queues: Mapping[str, list[str]]
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The controller's answers for a small gang in each LocalQueue, and what is to be said of those that there are not."""
    local = [
        (*queue.key, queue.cluster_queue) for queue in map(read_local_queue, await reader.list_objects(LOCAL_QUEUES))
    ]
    asked = sorted(one for one in local if queues.get(one[2]))
    plans: list[Mapping[str, Any]] = []
    notes: list[str] = []
    for namespace, name, queue in asked[:MAX_PLANNED_QUEUES]:
        answer, why = await _request_plan(client, namespace, fleet_summary.sample_job(namespace, name, queues[queue]))
        if why:
            notes.append(f"Quota is not shown: {why}")
        if answer is None:  # it would be the same for all others
            return plans, notes
        plans.append(answer)
    left = len(asked) - MAX_PLANNED_QUEUES
    return plans, [*notes, *([f"The quota of {left} more LocalQueues is not shown."] if left > 0 else [])]


async def _request_plan(client: Client, namespace: str, job: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """A plan, None where nobody makes one, and why it says nothing of quota."""
    try:
        answer = await plan.request_plan(client, {"namespace": namespace, "object": job})
    except Unreachable as error:
        return None, f"the controller cannot be asked: {error}."
    except ApiError as error:
        return {} if error.reason == names.INVALID_JOB_REASON else None, plan.error_message(error)
    where = f"LocalQueue {namespace}/{job['metadata']['labels'][names.QUEUE_LABEL]}"
    return answer, "" if answer.get("clusters") else f"{where}: {answer.get('sentence')}"


def render(document: Document) -> str:
    """The tables, and what else is to be said; each line ended."""
    clusters = document["clusters"]
    quota = [_quota_row(one["name"], row) for one in clusters for row in one["quota"] or ()]
    known = WORKER_CLUSTERS.plural not in document["unread"]
    none = "There are no WorkerClusters.\n" if known else "The WorkerClusters may not be read.\n"
    parts = [format_table([_CLUSTER_HEADER, *map(_cluster_row, clusters)]) if clusters else none]
    parts += [format_table([_QUOTA_HEADER, *quota])] if quota else []
    said = [*([document["stopped"]] if document["stopped"] else []), *document["notes"]]
    parts += [join_lines(said)] if said else []
    return "\n".join(parts)


def _cluster_row(cluster: Document) -> TableRow:
    open_ = _EMPTY_CELL if cluster["cordoned"] is None else "no" if cluster["cordoned"] else "yes"
    workers = ", ".join(f"{count} {phase}" for phase, count in cluster["workers"].items())
    reserved = _EMPTY_CELL if cluster["reserved"] is None else str(cluster["reserved"])
    told = [cluster[field] or _EMPTY_CELL for field in ("zone", "connected", "reachable")]
    return [cluster["name"], *told, open_, reserved, workers or _EMPTY_CELL]


def _quota_row(cluster: str, row: Document) -> TableRow:
    return [
        cluster,
        *(
            str(row[field] or _EMPTY_CELL)
            for field in ("clusterQueue", "flavor", "resource", "nominal", "used", "free")
        ),
    ]
