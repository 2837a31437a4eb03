"""What do `where`, `why` and `watch` read of a job, with nothing but the rights that whoever sees its namespace has?

Each kind is read once, by name, label or namespace: never the pods of a whole cluster. A RayService is no job, and its RayClusters are: that
which serves and that of an upgrade, each of which is read so.
"""

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.cli import common
from adapter.cli.common import EXIT_ERROR, EXIT_USAGE, print_error
from adapter.cli.manager_reader import ManagerReader
from adapter.diagnosis.job_facts import JobFacts, placement_of, pods_of, ray_cluster_name, workload_of
from adapter.objects.admissioncheck import our_checks, read_check
from adapter.objects.rayjob import InvalidJob
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import (
    ADMISSION_CHECKS,
    LOCAL_QUEUES,
    PLACEMENTS,
    PODS,
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    WORKER_CLUSTERS,
    WORKLOADS,
)  # fmt: skip
from adapter.shell.kube.user_kubeconfig import default_namespace

_JOB_KINDS = {
    "rayjob": ("RayJob", RAY_JOBS),
    "raycluster": ("RayCluster", RAY_CLUSTERS),
    "rayservice": (names.RAY_SERVICE, RAY_SERVICES),
}
# What of a RayService's status names a RayCluster, in the order in which they are told.
_RELEASE_FIELDS = {"active": "activeServiceStatus", "pending": "pendingServiceStatus"}


class UnreadableJob(InvalidJob):
    """A job that was not found, where not all that it may be could be read: it may be there."""


@dataclass(frozen=True, slots=True)
class SelectedJobs:
    """What somebody asked about: a job, or a RayService with its RayClusters by what they are to it."""

    jobs: Sequence[JobFacts]
    service: Raw | None = None
    releases: Sequence[str] = ()  # of each job: active, or pending


def run_on_job(args: argparse.Namespace, report: Callable[[Client, SelectedJobs], Awaitable[int]]) -> int:
    """Read the job and tell of it; returns the exit code. Trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(_run_on_job(args, report))
    except InvalidJob as error:
        return print_error(str(error), EXIT_USAGE)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be asked: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(common.api_error_message(error), EXIT_ERROR)
    except ValueError as error:
        return print_error(f"{args.job}: {error}.", EXIT_USAGE)


def job_namespace(args: argparse.Namespace) -> str:
    """Where the job is."""
    return args.namespace or default_namespace(args.kubeconfig, args.context)


def job_identity(selection: SelectedJobs) -> tuple[str, str]:
    """Which one was found: as `rayjob/NAME`, by which it is found again, and its uid."""
    if selection.service is not None:
        return f"rayservice/{key_of(selection.service)[1]}", uid_of(selection.service)
    (facts,) = selection.jobs
    return f"{facts.kind.lower()}/{facts.name}", uid_of(facts.job)


async def _run_on_job(args: argparse.Namespace, report: Callable[[Client, SelectedJobs], Awaitable[int]]) -> int:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        found = await common.await_with_hint(
            read(ManagerReader(client), job_namespace(args), args.job), "Waiting for the manager cluster ..."
        )
        return await report(client, found)
    finally:
        await client.close()


async def read(reader: ManagerReader, namespace: str, word: str) -> SelectedJobs:
    """Everything of one job, or of the RayClusters of a RayService; raises Unusable where there is no such job, as
    Unread where it may be there."""
    kind, job = await _find_job(reader, namespace, word)
    if kind != names.RAY_SERVICE:
        return SelectedJobs((await _read_facts(reader, namespace, kind, job),))
    status = job.get("status") or {}
    named = {
        release: str((status.get(field) or {}).get("rayClusterName") or "")
        for release, field in _RELEASE_FIELDS.items()
    }
    found = {one: await reader.get_object(RAY_CLUSTERS, name, namespace) for one, name in named.items() if name}
    there = {release: ray_cluster for release, ray_cluster in found.items() if ray_cluster}
    return SelectedJobs(
        [await _read_facts(reader, namespace, "RayCluster", one) for one in there.values()], job, tuple(there)
    )


async def _read_facts(reader: ManagerReader, namespace: str, kind: str, job: Raw) -> JobFacts:
    selector = {"labelSelector": f"{names.JOB_UID_LABEL}={uid_of(job)}"}
    workload = workload_of(job, await reader.list_objects(WORKLOADS, namespace, **selector))
    bare = JobFacts(kind, job)
    queue = await reader.get_object(LOCAL_QUEUES, bare.queue, namespace) if bare.queue else {}
    placement = placement_of(workload, job, kind, await reader.list_objects(PLACEMENTS, namespace))
    ray_cluster, pods = await _read_pods(reader, namespace, kind, job)
    clusters = {key_of(one)[1]: one for one in await reader.list_objects(WORKER_CLUSTERS)}
    checks = our_checks(map(read_check, await reader.list_objects(ADMISSION_CHECKS)))
    return JobFacts(kind, job, workload, placement, ray_cluster, pods, queue, clusters, checks, reader.unread_reasons)


async def _find_job(reader: ManagerReader, namespace: str, word: str) -> tuple[str, Raw]:
    said, slash, name = word.partition("/")
    kinds = [said.lower().removesuffix("s").removesuffix(".ray.io")] if slash else list(_JOB_KINDS)
    if not set(kinds) <= set(_JOB_KINDS) or (slash and not name):
        raise InvalidJob(f"{word} names no job: it must be NAME, rayjob/NAME, raycluster/NAME or rayservice/NAME.")
    for kind, resource in (_JOB_KINDS[one] for one in kinds):
        if job := await reader.get_object(resource, name or word, namespace):
            return kind, job
    refused = [
        reader.unread_reasons[r.plural]
        for _, r in (_JOB_KINDS[one] for one in kinds)
        if r.plural in reader.unread_reasons
    ]
    what = " or ".join(filter(None, (", ".join(_JOB_KINDS[one][0] for one in kinds[:-1]), _JOB_KINDS[kinds[-1]][0])))
    trouble = UnreadableJob if refused else InvalidJob
    raise trouble(" ".join([f"Namespace {namespace} has no {what} {name or word} that you may see.", *refused]))


async def _read_pods(reader: ManagerReader, namespace: str, kind: str, job: Raw) -> tuple[Raw, tuple[Raw, ...]]:
    """The RayCluster of the job, and its pods."""
    name = ray_cluster_name(job, kind)
    if not name:
        return {}, ()
    ray_cluster: Any = job if kind == "RayCluster" else await reader.get_object(RAY_CLUSTERS, name, namespace)
    selector = {"labelSelector": f"{names.RAY_GCS_CLUSTER_LABEL}={name}"}
    return ray_cluster, pods_of(ray_cluster, await reader.list_objects(PODS, namespace, **selector))
