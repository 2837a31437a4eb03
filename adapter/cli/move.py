"""`rayspan move`: name the worker clusters that a job's workers are to leave, in its annotation; print the progress.

The controller moves the workers, so the verb may be stopped and started again at any time.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from adapter import names
from adapter.cli import common, job_reader
from adapter.cli.common import EXIT_ERROR, EXIT_OK, EXIT_USAGE, print_error
from adapter.cli.manager_reader import ManagerReader
from adapter.cli.membership.clients import manager_command
from adapter.cli.move_annotation import AnnotationWriter, MovedJob, MoveRefused, list_ray_clusters
from adapter.cli.remaining_watch import RemainingWatch
from adapter.cli.terminal import print_line
from adapter.diagnosis.job_document import Document
from adapter.diagnosis.job_facts import ignored_clusters, newest_warning, ray_cluster_name
from adapter.gang.drain_order import RemainingJob, move_document, remaining_jobs, remaining_workers_text
from adapter.objects import rayservice
from adapter.objects.move_from import read_move_from
from adapter.objects.raycluster import kuberay_owner
from adapter.objects.unstructured import Key, Raw, key_of, label, mapping_field, parse_time, text_field
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import PLACEMENTS, PODS, WORKER_CLUSTERS

# A plan of a moment ago may still assign workers to the clusters.
POLLS_AFTER_LEAVING = 2
# No object shows that the controller has observed the annotation. Workers that leave show it; without any, 10 s pass.
POLLS_WITHOUT_WORKERS = 11
_CLOCK_TOLERANCE = timedelta(seconds=2)  # between the controller's time of an Event and ours; both have whole seconds


class _MoveCommand:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.job: MovedJob | None = None  # once its annotation names the clusters
        self._written_since: datetime | None = None  # None: the annotation named the clusters before
        self._may_read_clusters = True

    async def start(self) -> int:
        """Write the annotation, and return the exit code."""
        client = await Client.for_user(self._args.kubeconfig, self._args.context)
        try:
            return await common.await_with_hint(self._write(client), "Waiting for the manager cluster ...")
        except MoveRefused as error:
            return print_error(str(error), error.exit_code)
        finally:
            await client.close()

    async def watch(self) -> int:
        """Watch the workers until they have left, and return the exit code."""
        assert self.job is not None
        client = await Client.for_user(self._args.kubeconfig, self._args.context)
        events = None if self._may_read_clusters else IgnoredMoves(client, self.job, self._written_since)
        watch = MoveWatch(client, self.job, events, as_json=self._args.output == "json")
        try:
            async with asyncio.timeout(self._args.timeout.total_seconds() or None):
                return await watch.run()
        except TimeoutError:
            message = f"The timeout has passed, and {watch.remaining_message}. {self.job.resume_hint}"
            return print_error(message, EXIT_ERROR)
        except MoveRefused as error:
            return print_error(f"{error} {self.job.resume_hint}", error.exit_code)
        finally:
            await client.close()

    async def _write(self, client: Client) -> int:
        reader, is_cancelled = ManagerReader(client), self._args.cancel
        job = await self._read_job(reader)
        if problem := _job_problem(job) or ("" if is_cancelled else await _unknown_cluster(reader, job.clusters)):
            return print_error(problem, EXIT_USAGE)
        self._may_read_clusters = WORKER_CLUSTERS.plural not in reader.unread_reasons
        since = client.clock.now() - _CLOCK_TOLERANCE
        ray_clusters = await list_ray_clusters(client, job) if job.is_service else []
        is_changed = await AnnotationWriter(client, job, is_cancelled=is_cancelled).write(ray_clusters)
        self.job, self._written_since = job, since if is_changed else None
        if self._args.output == "text":
            print_line(_result_line(job, is_cancelled=is_cancelled, is_changed=is_changed))
        return EXIT_OK

    async def _read_job(self, reader: ManagerReader) -> MovedJob:
        namespace = job_reader.job_namespace(self._args)
        kind, raw = await job_reader.find_job(reader, namespace, self._args.job)
        job = MovedJob(kind, raw, tuple(dict.fromkeys(self._args.clusters)))
        return replace(job, command=manager_command(self._args, "move", "-n", namespace, job.word))


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


class IgnoredMoves:
    """Reads from the controller's Events which clusters it ignores, for users who may not read WorkerClusters."""

    def __init__(self, client: Client, job: MovedJob, since: datetime | None) -> None:
        """`since`: when the annotation was written; older Events are about an older annotation."""
        self._reader, self._job, self._since = ManagerReader(client), job, since

    async def read_sentence(self) -> str:
        """The controller's sentence on a cluster of this move, and how to remove the cluster; mostly empty."""
        events = await job_reader.list_ignored_moves(self._reader, self._job.raw)
        new = [event for event in events if self._is_new(event) and ignored_clusters(event, self._job.clusters)]
        if not (sentence := newest_warning(new)):
            return ""
        ignored = sorted({name for event in new for name in ignored_clusters(event, self._job.clusters)})
        return f"{sentence} `{self._job.command_from(ignored)} --cancel` removes it."

    def _is_new(self, event: Raw) -> bool:
        when = parse_time(text_field(event, "lastTimestamp"))
        return self._since is None or (when is not None and when >= self._since)


class MoveWatch(RemainingWatch):
    """Watches the workers of one job that remain in the clusters that it leaves."""

    def __init__(
        self, client: Client, job: MovedJob, ignored_moves: IgnoredMoves | None = None, *, as_json: bool = False
    ) -> None:
        """`ignored_moves`: None if the clusters are known to exist. `as_json`: print one JSON document a line."""
        super().__init__(client, as_json=as_json)
        self._job, self._raw, self._ignored_moves = job, job.raw, ignored_moves
        self._writer = AnnotationWriter(client, job)
        self._ignored_sentence = ""
        self._polls_without_workers, self._needed_polls = 0, POLLS_WITHOUT_WORKERS

    @property
    def remaining_message(self) -> str:
        """The remaining workers, as a clause."""
        clusters = " and ".join(self._job.clusters)
        if self._remaining:
            return f"{remaining_workers_text(self._remaining)} remain in {clusters}"
        if not self._polls_without_workers:
            return f"whether workers remain in {clusters} is not known"
        return f"no worker is in {clusters}, but the controller may not have observed the move yet"

    def _document(self, now: dict[Key, RemainingJob]) -> Document:
        return move_document(self._job.title, self._job.clusters, now)

    async def _read_remaining(self) -> dict[Key, RemainingJob]:
        ray_clusters, namespace = sorted(await self._read_ray_clusters()), self._job.key[0]
        selector = f"{names.PLACEMENT_LABEL},{names.RAY_GCS_CLUSTER_LABEL} in ({','.join(ray_clusters)})"
        pods = (await list_all(self._client, PODS.path(namespace), labelSelector=selector))[0] if ray_clusters else []
        placements, _ = await list_all(self._client, PLACEMENTS.path(namespace))
        is_service = self._job.is_service
        jobs = {("RayCluster", name) for name in ray_clusters} if is_service else {(self._job.kind, self._job.key[1])}
        own = [placement for placement in placements if _job_of_placement(placement) in jobs]
        if self._ignored_moves:
            self._ignored_sentence = await self._ignored_moves.read_sentence()
        return remaining_jobs(set(self._job.clusters), pods, own)

    async def _read_ray_clusters(self) -> set[str]:
        """Read the job, and give the annotation to a RayCluster that KubeRay made of an older RayService.

        The RayClusters are read before the RayService: a move that is cancelled after that is a conflict of versions.
        """
        ray_clusters = await list_ray_clusters(self._client, self._job) if self._job.is_service else []
        self._raw = await self._client.get(self._job.path)
        for raw in ray_clusters if self._is_moving else ():
            if await self._write_once(raw):
                self._needed_polls, self._polls_without_workers = POLLS_WITHOUT_WORKERS, 0
        return _ray_cluster_names(self._job.kind, self._raw) | {key_of(raw)[1] for raw in ray_clusters}

    async def _write_once(self, raw: Raw) -> bool:
        try:
            return await self._writer.write_to_ray_cluster(raw, attempts=1)
        except ApiError as error:
            if error.is_conflict:  # the next poll reads it again
                return False
            raise

    @property
    def _is_moving(self) -> bool:
        return set(self._job.clusters) <= set(read_move_from(self._raw).clusters)

    def _exit_code(self) -> int | None:
        if not self._is_moving:
            sentence = f"Another client stopped the move of {self._job.word}"
            workers, clusters = remaining_workers_text(self._remaining), " and ".join(self._job.clusters)
            return print_error(f"{sentence}, and {workers} remain in {clusters}.", EXIT_ERROR)
        if self._ignored_sentence:
            return print_error(self._ignored_sentence, EXIT_ERROR)
        if self._remaining:
            self._needed_polls, self._polls_without_workers = POLLS_AFTER_LEAVING, 0
            return None
        self._polls_without_workers += 1
        if self._polls_without_workers < self._needed_polls:
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


def _ray_cluster_names(kind: str, raw: Raw) -> set[str]:
    if kind == names.RAY_SERVICE:
        return set(rayservice.ray_cluster_names(raw).values())
    name = ray_cluster_name(raw, kind)
    return {name} if name else set()


def _job_of_placement(placement: Raw) -> tuple[str, str]:
    job = mapping_field(mapping_field(placement, "spec"), "job")
    return text_field(job, "kind"), text_field(job, "name")


def _result_line(job: MovedJob, *, is_cancelled: bool, is_changed: bool) -> str:
    origin = f" from {' and '.join(job.clusters)}" if job.clusters else ""
    if is_cancelled:
        return f"{job.word} {'no longer moving' if is_changed else 'not moving'}{origin}"
    return f"{job.word} {'' if is_changed else 'already '}moving{origin}"
