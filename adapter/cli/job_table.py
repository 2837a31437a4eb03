"""`rayspan list`: print the Ray jobs of a namespace, or of all namespaces, one line each."""

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from adapter import names
from adapter.cli import common
from adapter.cli.common import EXIT_OK, TableRow, format_table, join_lines
from adapter.cli.job_reader import JOB_KINDS, NAMESPACE_EVENTS, job_namespace
from adapter.cli.manager_reader import ManagerReader
from adapter.cli.terminal import print_note
from adapter.cli.where_table import format_age
from adapter.diagnosis.job_document import Document
from adapter.diagnosis.job_summary import ListedObjects, describe_jobs
from adapter.objects import kuberay_events
from adapter.objects.admissioncheck import our_checks, read_check
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import (
    ADMISSION_CHECKS,
    EVENTS,
    LOCAL_QUEUES,
    PLACEMENTS,
    PODS,
    RAY_CLUSTERS,
    WORKER_CLUSTERS,
    WORKLOADS,
)

_HEADER = ("NAME", "KIND", "QUEUE", "STATE", "WORKERS", "CLUSTERS", "AGE")
_EMPTY_CELL = "-"


def main(args: argparse.Namespace) -> int:
    """Print the jobs; return the exit code."""
    namespace = "" if args.all_namespaces else job_namespace(args)

    async def read(client: Client) -> Document:
        return describe_jobs(await _read_objects(ManagerReader(client), namespace, args.selector))

    return common.print_document(args, read, lambda document: render(document, args), lambda _: EXIT_OK)


def render(document: Document, args: argparse.Namespace) -> str:
    """The table and the notes, or the names with the notes on stderr. `args.output` is table, wide or name."""
    jobs = document["jobs"]
    if args.output == "name":
        for note in document["notes"]:
            print_note(note)
        return join_lines(_job_path(row) for row in jobs)
    header = [*_HEADER, *(["REASON"] if args.output == "wide" else [])]
    now = datetime.now(UTC)
    rows = [_job_row(row, now, is_wide=args.output == "wide") for row in jobs]
    if args.all_namespaces:
        header = ["NAMESPACE", *header]
        rows = [[job["namespace"], *row] for job, row in zip(jobs, rows, strict=True)]
    table = format_table([header, *rows]) if rows else "No job with a queue found.\n"
    notes = document["notes"]
    return "\n".join([table, *([join_lines(notes)] if notes else [])])


def _job_row(job: Document, now: datetime, *, is_wide: bool) -> TableRow:
    workers = (job["workers"] or _EMPTY_CELL).replace(" of ", "/")
    cells = [job["name"], job["kind"], job["queue"], job["outcome"], workers, job["where"] or _EMPTY_CELL]
    return [*cells, format_age(job["created"], now), *([job["sentence"]] if is_wide else [])]


def _job_path(job: Document) -> str:
    """The job's name as `kubectl get -o name` prints it."""
    return f"{job['kind'].lower()}.{names.RAY_DOMAIN}/{job['name']}"


async def _read_objects(reader: ManagerReader, namespace: str, selector: str) -> ListedObjects:
    selection = {"labelSelector": selector} if selector else {}
    jobs = {kind: await reader.list_objects(resource, namespace, **selection) for kind, resource in JOB_KINDS.values()}
    return ListedObjects(
        jobs=jobs,
        ray_clusters=await _read_ray_clusters(reader, namespace, jobs, is_selected=bool(selector)),
        workloads=await reader.list_objects(WORKLOADS, namespace),
        placements=await reader.list_objects(PLACEMENTS, namespace),
        pods=await reader.list_objects(PODS, namespace, labelSelector=names.RAY_GCS_CLUSTER_LABEL),
        local_queues=await reader.list_objects(LOCAL_QUEUES, namespace),
        worker_clusters=await reader.list_objects(WORKER_CLUSTERS),
        checks=our_checks(map(read_check, await reader.list_objects(ADMISSION_CHECKS))),
        rejections=await reader.list_objects(EVENTS, namespace, fieldSelector=kuberay_events.SELECTOR),
        namespace_events=await reader.list_objects(EVENTS, namespace, fieldSelector=NAMESPACE_EVENTS),
        unread_reasons=reader.unread_reasons,
    )


async def _read_ray_clusters(
    reader: ManagerReader, namespace: str, jobs: Mapping[str, Sequence[Raw]], *, is_selected: bool
) -> Sequence[Raw]:
    """All RayClusters: those that RayJobs and RayServices own may lack the selected labels."""
    return await reader.list_objects(RAY_CLUSTERS, namespace) if is_selected else jobs["RayCluster"]
