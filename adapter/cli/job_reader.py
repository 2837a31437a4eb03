"""Reads a job and its objects for `where`, `why` and `watch`, with the rights of a viewer of its namespace.

Each kind is read once, by name, label or namespace; the pods of a whole cluster are never read. The jobs of a
RayService are its RayClusters: the one that serves, and the one of an upgrade.
"""

import argparse
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.cli import common, event_loop
from adapter.cli.common import EXIT_ERROR, EXIT_USAGE, print_error
from adapter.cli.manager_reader import ManagerReader
from adapter.diagnosis.job_facts import (
    JobFacts,
    ignored_clusters,
    namespace_notice,
    newest_warning,
    placement_of,
    pods_of,
    ray_cluster_name,
    workload_of,
)
from adapter.objects import kuberay_events, rayservice
from adapter.objects.admissioncheck import our_checks, read_check
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.kuberay_events import RejectionEvent
from adapter.objects.move_from import read_move_from
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import (
    ADMISSION_CHECKS,
    EVENTS,
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

JOB_KINDS = {
    "rayjob": ("RayJob", RAY_JOBS),
    "raycluster": ("RayCluster", RAY_CLUSTERS),
    "rayservice": (names.RAY_SERVICE, RAY_SERVICES),
}
NAMESPACE_EVENTS = f"involvedObject.kind=Namespace,reason={names.EventReason.NAMESPACE_INCOMPLETE}"


class UnreadableJob(InvalidJob):
    """The job was not found, but may exist: a kind that it may have was not readable."""


@dataclass(frozen=True, slots=True)
class SelectedJobs:
    """A job, or a RayService with its RayClusters and their releases."""

    jobs: Sequence[JobFacts]
    service: Raw | None = None
    releases: Sequence[str] = ()  # of each job: active, or pending


def run_on_job(args: argparse.Namespace, report: Callable[[Client, SelectedJobs], Awaitable[int]]) -> int:
    """Read the job and report on it; return the exit code. An error is one sentence on stderr."""
    return run_reporting_errors(args.job, _run_on_job(args, report))


def run_reporting_errors(word: str, command: Coroutine[Any, Any, int]) -> int:
    """Run a command on the job that the user named `word`; return its exit code, or that of its error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # our own message reports what it warns of
    try:
        return event_loop.run_command(command)
    except InvalidJob as error:
        return print_error(str(error), EXIT_USAGE)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be reached: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(common.api_error_message(error), EXIT_ERROR)
    except ValueError as error:
        return print_error(f"{word}: {error}.", EXIT_USAGE)


def job_namespace(args: argparse.Namespace) -> str:
    """The namespace of the job: from the option, else from the kubeconfig's context."""
    return args.namespace or default_namespace(args.kubeconfig, args.context)


def job_identity(selection: SelectedJobs) -> tuple[str, str]:
    """`rayjob/NAME`, by which the job can be read again, and its uid."""
    if selection.service is not None:
        return f"rayservice/{key_of(selection.service)[1]}", uid_of(selection.service)
    (facts,) = selection.jobs
    return f"{facts.kind.lower()}/{facts.name}", uid_of(facts.job)


async def _run_on_job(args: argparse.Namespace, report: Callable[[Client, SelectedJobs], Awaitable[int]]) -> int:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        selection = await common.await_with_hint(
            read(ManagerReader(client), job_namespace(args), args.job), "Waiting for the manager cluster ..."
        )
        return await report(client, selection)
    finally:
        await client.close()


async def read(reader: ManagerReader, namespace: str, word: str) -> SelectedJobs:
    """Read a job, or the RayClusters of a RayService.

    Raises `InvalidJob` if the job does not exist, or `UnreadableJob` if it may exist.
    """
    kind, job = await find_job(reader, namespace, word)
    if kind != names.RAY_SERVICE:
        return SelectedJobs((await _read_facts(reader, namespace, kind, job),))
    objects = {
        release: await reader.get_object(RAY_CLUSTERS, name, namespace)
        for release, name in rayservice.ray_cluster_names(job).items()
    }
    ray_clusters = {release: ray_cluster for release, ray_cluster in objects.items() if ray_cluster}
    return SelectedJobs(
        [await _read_facts(reader, namespace, "RayCluster", ray_cluster) for ray_cluster in ray_clusters.values()],
        job,
        tuple(ray_clusters),
    )


async def _read_facts(reader: ManagerReader, namespace: str, kind: str, job: Raw) -> JobFacts:
    selector = {"labelSelector": f"{names.JOB_UID_LABEL}={uid_of(job)}"}
    workload = workload_of(job, await reader.list_objects(WORKLOADS, namespace, **selector))
    facts = JobFacts(kind, job)
    queue = await reader.get_object(LOCAL_QUEUES, facts.queue, namespace) if facts.queue else {}
    placement = placement_of(workload, job, kind, await reader.list_objects(PLACEMENTS, namespace))
    ray_cluster, pods = await _read_pods(reader, namespace, kind, job)
    clusters = {key_of(cluster)[1]: cluster for cluster in await reader.list_objects(WORKER_CLUSTERS)}
    checks = our_checks(map(read_check, await reader.list_objects(ADMISSION_CHECKS)))
    notice = namespace_notice(await reader.list_objects(EVENTS, namespace, fieldSelector=NAMESPACE_EVENTS))
    return JobFacts(
        kind=kind,
        job=job,
        workload=workload,
        placement=placement,
        ray_cluster=ray_cluster,
        pods=pods,
        local_queue=queue,
        worker_clusters=clusters,
        checks=checks,
        kuberay_rejection=await _read_rejection(reader, namespace, ray_cluster) if not pods else None,
        move_notice=await _read_move_notice(reader, job),
        namespace_notice=notice,
        unread_reasons=reader.unread_reasons,
    )


async def _read_move_notice(reader: ManagerReader, job: Raw) -> str:
    """What the controller ignores of the clusters that the job names; read only where the user may not read them."""
    if not read_move_from(job).clusters or WORKER_CLUSTERS.plural not in reader.unread_reasons:
        return ""
    events = await list_ignored_moves(reader, job)
    return newest_warning([event for event in events if ignored_clusters(event, read_move_from(job).clusters)])


async def list_ignored_moves(reader: ManagerReader, job: Raw) -> list[Raw]:
    """The controller's Events on what it ignores of the clusters that the job names, or that it named before."""
    selector = f"involvedObject.uid={uid_of(job)},reason={names.EventReason.MOVE_FROM_IGNORED}"
    return await reader.list_objects(EVENTS, key_of(job)[0], fieldSelector=selector)


async def _read_rejection(reader: ManagerReader, namespace: str, ray_cluster: Raw) -> RejectionEvent | None:
    """KubeRay's rejection of a RayCluster that may have no pods because of it."""
    if not ray_cluster:
        return None
    selector = f"{kuberay_events.SELECTOR},involvedObject.name={key_of(ray_cluster)[1]}"
    return kuberay_events.certain_rejection(
        ray_cluster, await reader.list_objects(EVENTS, namespace, fieldSelector=selector)
    )


async def find_job(reader: ManagerReader, namespace: str, word: str) -> tuple[str, Raw]:
    """The kind and the object of a job; raises as `read`."""
    prefix, slash, name = word.partition("/")
    kinds = [prefix.lower().removesuffix("s").removesuffix(".ray.io")] if slash else list(JOB_KINDS)
    if not set(kinds) <= set(JOB_KINDS) or (slash and not name):
        raise InvalidJob(f"{word} is not a job: name it as NAME, rayjob/NAME, raycluster/NAME or rayservice/NAME.")
    for kind, resource in (JOB_KINDS[key] for key in kinds):
        if job := await reader.get_object(resource, name or word, namespace):
            return kind, job
    unread_reasons = [
        reader.unread_reasons[resource.plural]
        for _, resource in (JOB_KINDS[key] for key in kinds)
        if resource.plural in reader.unread_reasons
    ]
    kind_names = " or ".join(
        filter(None, (", ".join(JOB_KINDS[key][0] for key in kinds[:-1]), JOB_KINDS[kinds[-1]][0]))
    )
    error_type = UnreadableJob if unread_reasons else InvalidJob
    raise error_type(
        " ".join([f"Namespace {namespace} has no {kind_names} {name or word} that you may see.", *unread_reasons])
    )


async def _read_pods(reader: ManagerReader, namespace: str, kind: str, job: Raw) -> tuple[Raw, tuple[Raw, ...]]:
    name = ray_cluster_name(job, kind)
    if not name:
        return {}, ()
    ray_cluster: Any = job if kind == "RayCluster" else await reader.get_object(RAY_CLUSTERS, name, namespace)
    selector = {"labelSelector": f"{names.RAY_GCS_CLUSTER_LABEL}={name}"}
    return ray_cluster, pods_of(ray_cluster, await reader.list_objects(PODS, namespace, **selector))
