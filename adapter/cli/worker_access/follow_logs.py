"""`rayspan logs`: what do the workers of a job print, or one pod, wherever they run?

Of a job each worker is asked, and with -f each one that comes later, too: those that replace others, and those by which it grows. Stock
kubectl prints, so lines look as it makes them. A log that breaks off is asked for again, later and later, and given up when that fails each
time. Where no worker has a log it says so, and where the job's own is. Exit code 0: all that could be shown is; 2: there is no such job or pod; else kubectl's.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from adapter.access.grant import LOG
from adapter.cli import job_reader
from adapter.cli.common import EXIT_OK, print_error
from adapter.cli.job_reader import UnreadableJob
from adapter.cli.manager_reader import ManagerReader
from adapter.cli.worker_access import grants
from adapter.cli.worker_access.grants import KubectlAccess
from adapter.diagnosis.job_facts import JobFacts, is_head
from adapter.objects.rayjob import InvalidJob
from adapter.objects.unstructured import Raw, format_time, meta, uid_of
from adapter.objects.worker_pod import has_ended
from adapter.shell.kube.client import Client, Unreachable

PAUSE_SECONDS = 2.0  # between two looks for workers that have come: a new one takes longer to start
# A kubectl that ends sooner has found no log to follow: one that did goes on until the link or the access server breaks.
MIN_FOLLOW_SECONDS = 10.0
# What fails so often, over a minute, is no server that is being exchanged: somebody has to mend it. Each time costs a grant.
MAX_BACKOFF_SECONDS, MAX_FAILURES = 30.0, 5
EXIT_INCOMPLETE = 1
_SUBMITTED_STATUSES = ("Running", "Complete", "Failed")  # of a RayJob's status.jobDeploymentStatus


def main(args: argparse.Namespace) -> int:
    """Print and return the exit code."""

    async def doing(client: Client, namespace: str) -> int:
        with grants.open_access(args, client) as ways:
            pod = None if _names_job(args.what) else await grants.find_pod(client, namespace, args.what)
            if pod is not None:
                return await grants.run_kubectl(
                    [*await ways.command_for(pod, LOG), *_kubectl_arguments(args, pod, single_pod=True)]
                )
            return await _LogFollower(args, client, namespace, ways).run()

    return grants.run_in_namespace(args, doing)


def _names_job(word: str) -> bool:
    kind, slash, _ = word.partition("/")
    return bool(slash) and not kind.startswith("pod")


def _kubectl_arguments(args: argparse.Namespace, pod: Raw, *, single_pod: bool, since: str = "") -> list[str]:
    """What kubectl is told to print of a pod. `since`: only what came later, where more of it was printed before."""
    options = {"-c": args.container, "--tail": args.tail, "--since": args.since}
    if since:
        options = {"-c": args.container, "--since-time": since}
    flags = {
        "--follow": args.follow,
        "--timestamps": args.timestamps,
        "--previous": args.previous,
        "--prefix": not single_pod,
    }
    said = [word for name, value in options.items() if value != "" for word in (name, str(value))]
    return ["logs", str(meta(pod).get("name")), *said, *(flag for flag, on in flags.items() if on)]


def has_started(pod: Raw) -> bool:
    """Whether a container of a pod has printed anything yet, or may have."""
    states = [one.get("state") or {} for one in (pod.get("status") or {}).get("containerStatuses") or ()]
    return has_ended(pod) or any("running" in state or "terminated" in state for state in states)


def pods_to_follow(pods: Iterable[Raw], open_now: Iterable[str], done: Iterable[str]) -> list[Raw]:
    """The workers whose log is to be asked for now: those that have started, and are neither open nor shown to their end."""
    known = {*open_now, *done}
    return [pod for pod in pods if not is_head(pod) and uid_of(pod) not in known and has_started(pod)]


@dataclass(slots=True)
class _BrokenLog:
    """A log that broke off before its worker ended."""

    since: str  # what came from then on was not printed
    failures: int = 0  # in a row, each at once
    retry_at: float = 0.0  # when it is asked for again, by the loop's clock

    def record_failure(self, now: float) -> None:
        self.failures += 1
        self.retry_at = now + min(PAUSE_SECONDS * 2**self.failures, MAX_BACKOFF_SECONDS)


@dataclass(frozen=True, slots=True)
class _OpenLog:
    """One kubectl."""

    task: asyncio.Task[int]
    started_at: float


def _has_submitter_job(job: JobFacts) -> bool:
    """Whether KubeRay has made a Job that submits it, which prints what it prints."""
    return job.job_object.has_submitter and job.status.deployment_status in _SUBMITTED_STATUSES


class _LogFollower:
    """The logs of a job's workers, one kubectl for each that is open."""

    def __init__(self, args: argparse.Namespace, client: Client, namespace: str, access: KubectlAccess) -> None:
        self._args, self._client, self._namespace, self._access = args, client, namespace, access
        self._open_by_uid: dict[str, _OpenLog] = {}
        self._finished_uids: set[str] = set()
        self._broken_by_uid: dict[str, _BrokenLog] = {}
        self._exit_code, self._limit_reported = EXIT_OK, False  # that there are more than are followed

    async def run(self) -> int:
        """Print until nothing more can come, or, without -f, until all is printed that there is now."""
        try:
            while True:
                jobs, over = await self._read_jobs()
                pods = [pod for job in jobs for pod in job.pods]
                await self._open_logs(pods)
                if not self._args.follow or (over and not self._open_by_uid):
                    self._report_no_logs(jobs, pods)
                    return self._exit_code
                await self._wait_and_collect(pods)
        finally:
            for one in self._open_by_uid.values():
                one.task.cancel()
            await asyncio.gather(*(one.task for one in self._open_by_uid.values()), return_exceptions=True)

    async def _read_jobs(self) -> tuple[Sequence[JobFacts], bool]:
        """What is known of the job, and whether no more pods will come; a manager that does not answer for a while ends nothing."""
        try:
            found = await job_reader.read(ManagerReader(self._client), self._namespace, self._args.what)
        except Unreachable as error:
            print_error(f"The manager cluster cannot be asked: {error}; asking again ...", EXIT_INCOMPLETE)
            return (), False
        except UnreadableJob:
            raise  # whether it was deleted is not known
        except InvalidJob as error:
            if self._open_by_uid or self._finished_uids:
                return (), True  # it was deleted meanwhile
            if _names_job(self._args.what):
                raise
            raise InvalidJob(
                f"{error} There is no pod of that name either; `kubectl get pods` lists those there are."
            ) from None
        over = all(job.status.deployment_status in ("Complete", "Failed") for job in found.jobs)
        return found.jobs, over

    async def _open_logs(self, pods: Sequence[Raw]) -> None:
        now = asyncio.get_running_loop().time()
        resting = {uid for uid, broken in self._broken_by_uid.items() if now < broken.retry_at}
        for pod in pods_to_follow(pods, {*self._open_by_uid, *resting}, self._finished_uids):
            if len(self._open_by_uid) >= self._args.max_log_requests:
                self._report_limit()
                return
            broken = self._broken_by_uid.get(uid_of(pod))
            words = _kubectl_arguments(self._args, pod, single_pod=False, since=broken.since if broken else "")
            kubectl = [*await self._access.command_for(pod, LOG), *words]
            if self._args.follow:
                self._open_by_uid[uid_of(pod)] = _OpenLog(asyncio.create_task(grants.run_kubectl(kubectl)), now)
            else:
                self._close_log(pod, await grants.run_kubectl(kubectl))

    def _report_no_logs(self, jobs: Sequence[JobFacts], pods: Sequence[Raw]) -> None:
        if not jobs or self._finished_uids or any(has_started(pod) for pod in pods if not is_head(pod)):
            return
        if any(kind in job.unread_reasons for job in jobs for kind in ("rayclusters", "pods")):
            return  # whether there are any is not known
        said = [
            f"No worker of {self._args.what} has a log now: those of a job that is over are gone, and others have not started."
        ]
        said += [
            f"What {job.title} itself printed: kubectl -n {job.namespace} logs job/{job.name}"
            for job in jobs
            if _has_submitter_job(job)
        ]
        print("\n".join(said), file=sys.stderr)

    def _report_limit(self) -> None:
        if not self._limit_reported:
            most = self._args.max_log_requests
            print(f"{most} logs are open, and more workers run: raise --max-log-requests.", file=sys.stderr)
        self._limit_reported = True

    async def _wait_and_collect(self, pods: Sequence[Raw]) -> None:
        """Wait a moment. Of a log that has ended before its worker the rest is asked for next."""
        await asyncio.sleep(PAUSE_SECONDS)
        for uid in [uid for uid, one in self._open_by_uid.items() if one.task.done()]:
            one = self._open_by_uid.pop(uid)
            code = one.task.result()
            pod = next((each for each in pods if uid_of(each) == uid), None)
            if code == EXIT_OK or pod is None or has_ended(pod):
                self._finished_uids.add(uid)
            else:
                self._schedule_retry(pod, one.started_at, code)

    def _schedule_retry(self, pod: Raw, started_at: float, code: int) -> None:
        """Have it asked for again: soon where it was followed for a while, and where it never was, later and later until it is given up."""
        now = asyncio.get_running_loop().time()
        if now - started_at >= MIN_FOLLOW_SECONDS:
            since = format_time(datetime.now(UTC) - timedelta(seconds=PAUSE_SECONDS))
            self._broken_by_uid[uid_of(pod)] = _BrokenLog(since)
            return
        broken = self._broken_by_uid.setdefault(uid_of(pod), _BrokenLog(""))
        broken.record_failure(now)
        if broken.failures < MAX_FAILURES:
            return
        name = meta(pod).get("name")
        print_error(
            f"Pod {name}: its log could not be followed {MAX_FAILURES} times in a row, and is not asked for any more; why is said above. "
            f"`kubectl rayspan logs {name}` asks for it alone.", code,
        )  # fmt: skip
        self._close_log(pod, code)

    def _close_log(self, pod: Raw, code: int) -> None:
        self._finished_uids.add(uid_of(pod))
        self._exit_code = self._exit_code or code
