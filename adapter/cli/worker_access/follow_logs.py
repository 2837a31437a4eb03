"""`rayspan logs`: prints the logs of a job's workers, or of one pod, in whichever cluster they run.

Stock kubectl prints the lines. With -f, later workers are followed too, and broken logs retried. Exit code 0: all
available logs were printed; 2: no such job or pod; else kubectl's.
"""

import argparse
import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adapter.access.grant import LOG
from adapter.cli import job_reader
from adapter.cli.common import EXIT_OK, print_error
from adapter.cli.job_reader import UnreadableJob
from adapter.cli.manager_reader import ManagerReader
from adapter.cli.terminal import print_note
from adapter.cli.worker_access import grants
from adapter.cli.worker_access.grants import KubectlAccess
from adapter.diagnosis.job_facts import JobFacts, is_head
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.unstructured import Raw, meta, uid_of
from adapter.objects.worker_pod import has_ended
from adapter.shell.kube.client import ApiError, Client, Unreachable

PAUSE_SECONDS = 2.0  # between two reads of the pods; a new worker takes longer to start
# A kubectl that fails sooner than this never got the log; one that fails later had the log, and lost its connection or
# the access server.
MIN_FOLLOW_SECONDS = 10.0
# The lines of so many seconds are printed again after a break: the last ones before it may be missing, and kubectl
# takes a moment to reach the kubelet, from whose clock the age is subtracted.
REPEATED_SECONDS = 10.0
# MAX_FAILURES failures in a row take over a minute: a server's rollout is shorter, so then a person must look. Each try
# uses up a grant, so there is a limit.
MAX_BACKOFF_SECONDS, MAX_FAILURES = 30.0, 5
EXIT_INCOMPLETE = 1


def main(args: argparse.Namespace) -> int:
    """Print and return the exit code."""

    async def print_logs(client: Client, namespace: str) -> int:
        with grants.open_access(args, client) as access:
            pod = None if _names_job(args.what) else await grants.find_pod(client, namespace, args.what)
            if pod is not None:
                return await grants.run_kubectl(
                    [*await access.command_for(pod, LOG), *_kubectl_arguments(args, pod, single_pod=True)]
                )
            return await _LogFollower(args, client, namespace, access).run()

    return grants.run_in_namespace(args, print_logs)


def _names_job(word: str) -> bool:
    kind, slash, _ = word.partition("/")
    return bool(slash) and not kind.startswith("pod")


def _kubectl_arguments(args: argparse.Namespace, pod: Raw, *, single_pod: bool, since: str = "") -> list[str]:
    """The arguments of `kubectl logs`. `since`: after a broken log, print only lines that are not older."""
    options = {"-c": args.container, "--tail": args.tail, "--since": args.since}
    if since:
        options = {"-c": args.container, "--since": since}
    flags = {
        "--follow": args.follow,
        "--timestamps": args.timestamps,
        "--previous": args.previous,
        "--prefix": not single_pod,
    }
    option_words = [word for name, value in options.items() if value != "" for word in (name, str(value))]
    return ["logs", str(meta(pod).get("name")), *option_words, *(flag for flag, enabled in flags.items() if enabled)]


def has_started(pod: Raw) -> bool:
    """Whether a container of a pod has started, so that it may have a log."""
    states = [container.get("state") or {} for container in (pod.get("status") or {}).get("containerStatuses") or ()]
    return has_ended(pod) or any("running" in state or "terminated" in state for state in states)


def pods_to_follow(pods: Iterable[Raw], open_now: Iterable[str], done: Iterable[str]) -> list[Raw]:
    """The started workers whose log is neither open nor done; `open_now` and `done` are uids of pods."""
    excluded = {*open_now, *done}
    return [pod for pod in pods if not is_head(pod) and uid_of(pod) not in excluded and has_started(pod)]


@dataclass(slots=True)
class _BrokenLog:
    missing_since: float | None  # this machine's wall clock; None if no line was printed yet
    failures: int = 0  # consecutive, each within MIN_FOLLOW_SECONDS
    retry_at: float = 0.0  # the event loop's clock

    def record_failure(self, now: float) -> None:
        self.failures += 1
        self.retry_at = now + min(PAUSE_SECONDS * 2**self.failures, MAX_BACKOFF_SECONDS)

    def missing_duration(self) -> str:
        """The age of the first missing line, as an option of kubectl; empty for the whole log.

        The kubelet subtracts it from its own clock, which this machine's clock may differ from, when kubectl has
        reached it.
        """
        if self.missing_since is None:
            return ""
        return f"{math.ceil(max(time.time() - self.missing_since, 0) + REPEATED_SECONDS)}s"


@dataclass(frozen=True, slots=True)
class _OpenLog:
    name: str  # of the pod
    task: asyncio.Task[int]
    started_at: float  # the event loop's clock
    ended_at: asyncio.Future[float]  # this machine's wall clock


def _start_log(pod: Raw, kubectl: Sequence[str]) -> _OpenLog:
    loop = asyncio.get_running_loop()
    ended_at, task = loop.create_future(), loop.create_task(grants.run_kubectl(kubectl))
    task.add_done_callback(lambda _: ended_at.set_result(time.time()))
    return _OpenLog(str(meta(pod).get("name")), task, loop.time(), ended_at)


def _has_submitter_job(job: JobFacts) -> bool:
    """Whether KubeRay has created a submitter Job, whose log is the job's output."""
    return job.job_object.has_submitter and (job.status.deployment_status == "Running" or job.status.is_finished)


class _LogFollower:
    """Prints the logs of a job's workers, with a kubectl for each open log."""

    def __init__(self, args: argparse.Namespace, client: Client, namespace: str, access: KubectlAccess) -> None:
        self._args, self._client, self._namespace, self._access = args, client, namespace, access
        self._open_by_uid: dict[str, _OpenLog] = {}
        self._finished_uids: set[str] = set()
        self._broken_by_uid: dict[str, _BrokenLog] = {}
        self._exit_code, self._limit_reported = EXIT_OK, False

    async def run(self) -> int:
        """Print until no more lines can come; without -f, print the present logs once."""
        try:
            while True:
                jobs, ended = await self._read_jobs()
                pods = [pod for job in jobs for pod in job.pods]
                await self._open_logs(pods)
                if not self._args.follow or (ended and not self._open_by_uid):
                    self._report_no_logs(jobs, pods)
                    return self._exit_code
                await self._wait_and_collect(pods)
        finally:
            for log in self._open_by_uid.values():
                log.task.cancel()
            await asyncio.gather(*(log.task for log in self._open_by_uid.values()), return_exceptions=True)

    async def _read_jobs(self) -> tuple[Sequence[JobFacts], bool]:
        """The jobs, and whether they have ended; an unreachable manager cluster does not end the command."""
        try:
            selected = await job_reader.read(ManagerReader(self._client), self._namespace, self._args.what)
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_transient:
                raise
            print_error(f"The manager cluster cannot be reached: {error}; trying again ...", EXIT_INCOMPLETE)
            return (), False
        except UnreadableJob:
            raise  # the job may still exist
        except InvalidJob as error:
            if self._open_by_uid or self._finished_uids:
                return (), True  # the job was deleted since
            if _names_job(self._args.what):
                raise
            raise InvalidJob(
                f"{error} There is no pod of that name either; `kubectl get pods` lists those that exist."
            ) from None
        ended = all(job.status.is_finished for job in selected.jobs)
        return selected.jobs, ended

    async def _open_logs(self, pods: Sequence[Raw]) -> None:
        now = asyncio.get_running_loop().time()
        backing_off = {uid for uid, broken in self._broken_by_uid.items() if now < broken.retry_at}
        for pod in pods_to_follow(pods, {*self._open_by_uid, *backing_off}, self._finished_uids):
            if len(self._open_by_uid) >= self._args.max_log_requests:
                self._report_limit()
                return
            broken = self._broken_by_uid.get(uid_of(pod))
            command = await self._access.command_for(pod, LOG)
            since = broken.missing_duration() if broken else ""
            kubectl = [*command, *_kubectl_arguments(self._args, pod, single_pod=False, since=since)]
            if self._args.follow:
                self._open_by_uid[uid_of(pod)] = _start_log(pod, kubectl)
            else:
                self._close_log(pod, await grants.run_kubectl(kubectl))

    def _report_no_logs(self, jobs: Sequence[JobFacts], pods: Sequence[Raw]) -> None:
        if not jobs or self._finished_uids or any(has_started(pod) for pod in pods if not is_head(pod)):
            return
        if any(kind in job.unread_reasons for job in jobs for kind in ("rayclusters", "pods")):
            return  # workers may exist
        messages = [
            (
                f"No worker of {self._args.what} has a log now: the workers of a finished job are gone, "
                "and the others have not started."
            )
        ]
        messages += [
            f"What {job.title} itself printed: kubectl -n {job.namespace} logs job/{job.name}"
            for job in jobs
            if _has_submitter_job(job)
        ]
        for message in messages:
            print_note(message)

    def _report_limit(self) -> None:
        if not self._limit_reported:
            limit = self._args.max_log_requests
            print_note(f"{limit} logs are open, and more workers run: raise --max-log-requests.")
        self._limit_reported = True

    async def _wait_and_collect(self, pods: Sequence[Raw]) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        for uid in [uid for uid, log in self._open_by_uid.items() if log.ended_at.done()]:
            log = self._open_by_uid.pop(uid)
            code = log.task.result()
            pod = next((candidate for candidate in pods if uid_of(candidate) == uid), None)
            if code == EXIT_OK or pod is None or has_ended(pod):
                self._finished_uids.add(uid)
                self._report_end(log.name, code)
            else:
                self._schedule_retry(pod, log, code)

    def _schedule_retry(self, pod: Raw, log: _OpenLog, code: int) -> None:
        """Retry at once a log that was followed for at least MIN_FOLLOW_SECONDS.

        Any other log is retried with backoff, and closed after MAX_FAILURES failures.
        """
        now = asyncio.get_running_loop().time()
        if now - log.started_at >= MIN_FOLLOW_SECONDS:
            self._broken_by_uid[uid_of(pod)] = _BrokenLog(log.ended_at.result())
            return
        broken = self._broken_by_uid.setdefault(uid_of(pod), _BrokenLog(None))
        broken.record_failure(now)
        if broken.failures < MAX_FAILURES:
            return
        name = meta(pod).get("name")
        print_error(
            f"Pod {name}: its log could not be followed {MAX_FAILURES} times in a row, and is no "
            f"longer requested; the errors are printed above. `kubectl rayspan logs {name}` prints "
            "this log alone.",
            code,
        )
        self._close_log(pod, code)

    def _report_end(self, name: str, code: int) -> None:
        if code != EXIT_OK:
            print_note(f"Pod {name}: its log broke off, and the pod has ended, so its last lines may be missing.")

    def _close_log(self, pod: Raw, code: int) -> None:
        self._finished_uids.add(uid_of(pod))
        self._exit_code = self._exit_code or code
