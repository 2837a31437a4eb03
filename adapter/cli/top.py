"""`rayspan top`: print the worker clusters with their workers by phase and their quota.

Quota comes from the controller's plans, as for `plan`; the rest from the manager's API server.
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

# How many LocalQueues are planned at most. Each costs the controller a plan, and most lead to the same few
# ClusterQueues in the worker clusters.
MAX_PLANNED_QUEUES = 16
EXIT_NOT_DISPATCHING = 3
_EMPTY_CELL = "-"
_CLUSTER_HEADER = ("CLUSTER", "ZONE", "CONNECTED", "REACHABLE", "OPEN", "RESERVED", "WORKERS")
_QUOTA_HEADER = ("CLUSTER", "CLUSTERQUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "FREE")


def main(args: argparse.Namespace) -> int:
    """Print the fleet; return the exit code."""
    return common.print_document(
        args, _read_fleet, render, lambda document: EXIT_NOT_DISPATCHING if document["stopped"] else EXIT_OK
    )


async def _read_fleet(client: Client) -> Document:
    reader = ManagerReader(client)
    clusters = await reader.list_objects(WORKER_CLUSTERS)
    pods = await reader.list_objects(PODS, labelSelector=names.PLACEMENT_LABEL)
    queues, checks = await reader.list_objects(CLUSTER_QUEUES), await reader.list_objects(ADMISSION_CHECKS)
    policies = await policy_objects.read_policies(reader, clusters)
    # `stopped_reason` takes unread objects for missing ones, so it is not called while a kind is unread.
    stopped = "" if reader.unread_reasons else dispatch_check.stopped_reason(queues, checks, policies)
    # Only a pod without a written slot needs its Placement.
    placements = await reader.list_objects(PLACEMENTS) if any(map(has_template_slot, pods)) else []
    plans, notes = await _request_plans(client, reader, fleet_summary.dispatching_queues(queues, checks))
    summary = fleet_summary.describe_fleet(
        clusters, pods, placements, plans, [*reader.unread_reasons.values(), *notes], stopped
    )
    return {**summary, "unread": sorted(reader.unread_reasons.keys() - reader.missing_kinds)}


async def _request_plans(
    client: Client, reader: ManagerReader, queues: Mapping[str, list[str]]
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The controller's plans of a small gang in each LocalQueue, and notes on the queues without one."""
    local = [
        (*queue.key, queue.cluster_queue) for queue in map(read_local_queue, await reader.list_objects(LOCAL_QUEUES))
    ]
    dispatching = sorted(queue for queue in local if queues.get(queue[2]))
    plans: list[Mapping[str, Any]] = []
    notes: list[str] = []
    for namespace, name, queue in dispatching[:MAX_PLANNED_QUEUES]:
        answer, problem = await _request_plan(
            client, namespace, fleet_summary.sample_job(namespace, name, queues[queue])
        )
        if problem:
            notes.append(f"Quota is not shown: {problem}")
        if answer is None:  # the other requests would fail too
            return plans, notes
        plans.append(answer)
    omitted = len(dispatching) - MAX_PLANNED_QUEUES
    return plans, [*notes, *([f"The quota of {omitted} more LocalQueues is not shown."] if omitted > 0 else [])]


async def _request_plan(client: Client, namespace: str, job: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """The controller's plan and the reason why it shows no quota, or empty.

    The plan is None if other requests would fail too.
    """
    try:
        answer = await plan.request_plan(client, {"namespace": namespace, "object": job})
    except Unreachable as error:
        return None, f"the controller cannot be reached: {error}."
    except ApiError as error:
        return {} if error.reason == names.INVALID_JOB_REASON else None, plan.error_message(error)
    queue_name = f"LocalQueue {namespace}/{job['metadata']['labels'][names.QUEUE_LABEL]}"
    return answer, "" if answer.get("clusters") else f"{queue_name}: {answer.get('sentence')}"


def render(document: Document) -> str:
    """The tables, then the notes."""
    clusters = document["clusters"]
    quota = [_quota_row(cluster["name"], row) for cluster in clusters for row in cluster["quota"] or ()]
    is_readable = WORKER_CLUSTERS.plural not in document["unread"]
    empty_text = "There are no WorkerClusters.\n" if is_readable else "The WorkerClusters may not be read.\n"
    parts = [format_table([_CLUSTER_HEADER, *map(_cluster_row, clusters)]) if clusters else empty_text]
    parts += [format_table([_QUOTA_HEADER, *quota])] if quota else []
    remarks = [*([document["stopped"]] if document["stopped"] else []), *document["notes"]]
    parts += [join_lines(remarks)] if remarks else []
    return "\n".join(parts)


def _cluster_row(cluster: Document) -> TableRow:
    open_ = _EMPTY_CELL if cluster["cordoned"] is None else "no" if cluster["cordoned"] else "yes"
    workers = ", ".join(f"{count} {phase}" for phase, count in cluster["workers"].items())
    reserved = _EMPTY_CELL if cluster["reserved"] is None else str(cluster["reserved"])
    states = [cluster[field] or _EMPTY_CELL for field in ("zone", "connected", "reachable")]
    return [cluster["name"], *states, open_, reserved, workers or _EMPTY_CELL]


def _quota_row(cluster: str, row: Document) -> TableRow:
    return [
        cluster,
        *(
            str(row[field] or _EMPTY_CELL)
            for field in ("clusterQueue", "flavor", "resource", "nominal", "used", "free")
        ),
    ]
