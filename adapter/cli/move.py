"""`rayspan move`: name the worker clusters that a job's workers are to leave, in its annotation; print the progress.

The controller moves the workers, so the verb may be stopped and started again at any time. KubeRay copies the
annotation of a RayService to the RayClusters that it creates later, so the verb writes it to those that exist, too.
"""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adapter import names
from adapter.cli import common, job_reader
from adapter.cli.common import EXIT_ERROR, EXIT_OK, EXIT_USAGE, print_error
from adapter.cli.job_reader import JOB_KINDS
from adapter.cli.manager_reader import ManagerReader
from adapter.cli.remaining_watch import RemainingWatch
from adapter.cli.terminal import print_line
from adapter.diagnosis.job_document import Document
from adapter.diagnosis.job_facts import ray_cluster_name
from adapter.gang.drain_order import RemainingJob, move_document, remaining_jobs, remaining_workers_text
from adapter.objects import rayservice
from adapter.objects.move_from import read_move_from, split_names
from adapter.objects.raycluster import kuberay_owner
from adapter.objects.unstructured import Key, Raw, annotation, key_of, label, mapping_field, meta, text_field, uid_of
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import PLACEMENTS, PODS, RAY_CLUSTERS, WORKER_CLUSTERS

MAX_ATTEMPTS = 5  # to write an annotation that other clients write, too
# A plan of a moment ago may still assign workers to the clusters; the controller observes the annotation within a poll.
POLLS_WITHOUT_WORKERS = 2


@dataclass(frozen=True, slots=True)
class MovedJob:
    """A RayJob, RayCluster or RayService with a queue, as it was read first."""

    kind: str
    raw: Raw
    clusters: tuple[str, ...]  # that its workers are to leave

    @property
    def key(self) -> Key:
        return key_of(self.raw)

    @property
    def word(self) -> str:
        return f"{self.kind.lower()}/{self.key[1]}"

    @property
    def title(self) -> str:
        return f"{self.kind} {'/'.join(self.key)}"

    @property
    def path(self) -> str:
        return JOB_KINDS[self.kind.lower()][1].path(*self.key)

    @property
    def resume_hint(self) -> str:
        options = " ".join(f"--from {name}" for name in self.clusters)
        command = f"kubectl rayspan move -n {self.key[0]} {self.word} {options}"
        return f"{self.word} continues to move; `{command}` watches again, and `{command} --cancel` stops it."


class _MoveCommand:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.job: MovedJob | None = None  # once its annotation names the clusters

    async def start(self) -> int:
        """Write the annotation, and return the exit code."""
        client = await Client.for_user(self._args.kubeconfig, self._args.context)
        try:
            return await common.await_with_hint(self._write(client), "Waiting for the manager cluster ...")
        finally:
            await client.close()

    async def watch(self) -> int:
        """Watch the workers until they have left, and return the exit code."""
        assert self.job is not None
        client = await Client.for_user(self._args.kubeconfig, self._args.context)
        watch = MoveWatch(client, self.job, as_json=self._args.output == "json")
        try:
            async with asyncio.timeout(self._args.timeout.total_seconds() or None):
                return await watch.run()
        except TimeoutError:
            message = f"The timeout has passed, and {watch.remaining_message}. {self.job.resume_hint}"
            return print_error(message, EXIT_ERROR)
        finally:
            await client.close()

    async def _write(self, client: Client) -> int:
        reader, is_cancelled = ManagerReader(client), self._args.cancel
        kind, raw = await job_reader.find_job(reader, job_reader.job_namespace(self._args), self._args.job)
        job = MovedJob(kind, raw, tuple(dict.fromkeys(self._args.clusters)))
        if problem := _job_problem(job) or ("" if is_cancelled else await _unknown_cluster(reader, job.clusters)):
            return print_error(problem, EXIT_USAGE)
        change = _without(job.clusters) if is_cancelled else _with(job.clusters)
        try:
            changed = [await _patch(client, path, raw, change) for path, raw in await _objects(reader, job)]
        except ApiError as error:
            if error.status != 403:
                raise
            return print_error(_forbidden_message(job, error), EXIT_ERROR)
        self.job = job
        if self._args.output == "text":
            print_line(_result_line(job, is_cancelled=is_cancelled, changed=any(changed)))
        return EXIT_OK


def main(args: argparse.Namespace) -> int:
    """Start or stop the move, watch it, and return the exit code."""
    if not (args.clusters or args.cancel):
        return print_error("Name the worker clusters that the workers are to leave: --from WORKERCLUSTER.", EXIT_USAGE)
    command = _MoveCommand(args)
    code = job_reader.run_reporting_errors(args.job, command.start())
    if code != EXIT_OK or args.cancel or args.wait == "false":
        return code
    try:
        return job_reader.run_reporting_errors(args.job, command.watch())
    except KeyboardInterrupt:
        hint = f" {command.job.resume_hint}" if command.job else ""
        return print_error(f"Stopped watching.{hint}", EXIT_ERROR)


class MoveWatch(RemainingWatch):
    """Watches the workers of one job that remain in the clusters that it leaves."""

    def __init__(self, client: Client, job: MovedJob, *, as_json: bool = False) -> None:
        """`as_json`: print one JSON document a line."""
        super().__init__(client, as_json=as_json)
        self._job, self._raw = job, job.raw
        self._polls_without_workers = 0

    @property
    def remaining_message(self) -> str:
        """The remaining workers, as a clause."""
        return f"{remaining_workers_text(self._remaining)} remain in {' and '.join(self._job.clusters)}"

    def _document(self, now: dict[Key, RemainingJob]) -> Document:
        return move_document(self._job.title, self._job.clusters, now)

    async def _read_remaining(self) -> dict[Key, RemainingJob]:
        self._raw, namespace = await self._client.get(self._job.path), self._job.key[0]
        ray_clusters = sorted(_ray_cluster_names(self._job.kind, self._raw))
        selector = f"{names.PLACEMENT_LABEL},{names.RAY_GCS_CLUSTER_LABEL} in ({','.join(ray_clusters)})"
        pods = (await list_all(self._client, PODS.path(namespace), labelSelector=selector))[0] if ray_clusters else []
        placements, _ = await list_all(self._client, PLACEMENTS.path(namespace))
        is_service = self._job.kind == names.RAY_SERVICE
        jobs = {("RayCluster", name) for name in ray_clusters} if is_service else {(self._job.kind, self._job.key[1])}
        own = [placement for placement in placements if _job_of_placement(placement) in jobs]
        return remaining_jobs(set(self._job.clusters), pods, own)

    def _exit_code(self) -> int | None:
        if not set(self._job.clusters) <= set(read_move_from(self._raw).clusters):
            sentence = f"Another client stopped the move of {self._job.word}"
            return print_error(f"{sentence}, and {self.remaining_message}.", EXIT_ERROR)
        self._polls_without_workers = 0 if self._remaining else self._polls_without_workers + 1
        if self._polls_without_workers < POLLS_WITHOUT_WORKERS:
            return None
        if not self._as_json:
            print_line(f"{self._job.word} moved from {' and '.join(self._job.clusters)}")
        return EXIT_OK


def _job_problem(job: MovedJob) -> str:
    """Why the annotation of this object would have no effect, a sentence."""
    if owner := kuberay_owner(job.raw, ("RayJob", names.RAY_SERVICE)):
        return f"{job.title} belongs to {owner.kind} {owner.name}: name {owner.kind.lower()}/{owner.name}."
    if not label(job.raw, names.QUEUE_LABEL):
        return f"{job.title} has no label {names.QUEUE_LABEL}: none of its workers runs in a worker cluster."
    return ""


async def _unknown_cluster(reader: ManagerReader, clusters: Sequence[str]) -> str:
    """A sentence on a cluster that does not exist, if the user may read WorkerClusters."""
    for name in clusters:
        if not await reader.get_object(WORKER_CLUSTERS, name) and WORKER_CLUSTERS.plural not in reader.unread_reasons:
            return f"There is no WorkerCluster {name}; `kubectl get workerclusters` lists those that exist."
    return ""


async def _objects(reader: ManagerReader, job: MovedJob) -> list[tuple[str, Raw]]:
    """What has the annotation, by path: the job, and the present RayClusters of a RayService after it."""
    namespace, is_service = job.key[0], job.kind == names.RAY_SERVICE
    ray_clusters = {
        RAY_CLUSTERS.path(namespace, name): await reader.get_object(RAY_CLUSTERS, name, namespace)
        for name in (sorted(_ray_cluster_names(job.kind, job.raw)) if is_service else ())
    }
    return [(job.path, job.raw), *((path, ray_cluster) for path, ray_cluster in ray_clusters.items() if ray_cluster)]


def _ray_cluster_names(kind: str, raw: Raw) -> set[str]:
    if kind == names.RAY_SERVICE:
        return set(rayservice.ray_cluster_names(raw).values())
    name = ray_cluster_name(raw, kind)
    return {name} if name else set()


def _job_of_placement(placement: Raw) -> tuple[str, str]:
    job = mapping_field(mapping_field(placement, "spec"), "job")
    return text_field(job, "kind"), text_field(job, "name")


Change = Callable[[tuple[str, ...]], tuple[str, ...]]


def _with(clusters: Sequence[str]) -> Change:
    return lambda before: tuple(dict.fromkeys((*before, *clusters)))


def _without(clusters: Sequence[str]) -> Change:
    """Remove these clusters, or all if none is given."""
    return lambda before: tuple(name for name in before if clusters and name not in clusters)


async def _patch(client: Client, path: str, raw: Raw, change: Change) -> bool:
    """Change the annotation unless that changes nothing; another client's write is read first, and stays."""
    uid = uid_of(raw)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        before = annotation(raw, names.MOVE_FROM_ANNOTATION)
        after = change(split_names(before))
        if before == ",".join(after) or (after and after == split_names(before)):
            return False
        metadata = {"uid": uid, "resourceVersion": meta(raw).get("resourceVersion")}
        annotations = {names.MOVE_FROM_ANNOTATION: ",".join(after) or None}
        try:
            await client.merge_patch(path, {"metadata": {**metadata, "annotations": annotations}})
            return True
        except ApiError as error:
            if not error.is_conflict or attempt == MAX_ATTEMPTS:
                raise
        raw = await client.get(path)
    return False


def _result_line(job: MovedJob, *, is_cancelled: bool, changed: bool) -> str:
    origin = f" from {' and '.join(job.clusters)}" if job.clusters else ""
    if is_cancelled:
        return f"{job.word} {'no longer moving' if changed else 'not moving'}{origin}"
    return f"{job.word} {'' if changed else 'already '}moving{origin}"


def _forbidden_message(job: MovedJob, error: ApiError) -> str:
    namespace = job.key[0]
    command = (
        f"kubectl -n {namespace} create rolebinding {names.USER_ROLE} --clusterrole={names.USER_ROLE} "
        f"{common.rolebinding_subject(error)}"
    )
    return f"You may not change {job.title}; an administrator of the manager cluster can allow it with `{command}`."
