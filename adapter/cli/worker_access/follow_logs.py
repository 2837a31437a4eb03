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
from adapter.cli.common import DONE, complain
from adapter.cli.job_reader import Unread
from adapter.cli.manager_reader import Look
from adapter.cli.worker_access import grants
from adapter.cli.worker_access.grants import Way
from adapter.diagnosis.job_facts import Facts, is_head
from adapter.objects.rayjob import Unusable
from adapter.objects.unstructured import Raw, meta, timestamp, uid_of
from adapter.objects.worker_pod import has_ended
from adapter.shell.kube.client import Client, Unreachable

PAUSE_SECONDS = 2.0  # between two looks for workers that have come: a new one takes longer to start
# A kubectl that ends sooner has found no log to follow: one that did goes on until the link or the access server breaks.
SOON_SECONDS = 10.0
# What fails so often, over a minute, is no server that is being exchanged: somebody has to mend it. Each time costs a grant.
LONGEST_PAUSE_SECONDS, MOST_FAILURES = 30.0, 5
NOT_ALL = 1
_SUBMITTED = ("Running", "Complete", "Failed")  # of a RayJob's status.jobDeploymentStatus


def main(given: argparse.Namespace) -> int:
    """Print and return the exit code."""

    async def doing(client: Client, namespace: str) -> int:
        with grants.ways(given, client) as ways:
            pod = None if _names_job(given.what) else await grants.find_pod(client, namespace, given.what)
            if pod is not None:
                return await grants.run([*await ways.to(pod, LOG), *_words(given, pod, one=True)])
            return await _Followed(given, client, namespace, ways).run()

    return grants.attempt(given, doing)


def _names_job(word: str) -> bool:
    kind, slash, _ = word.partition("/")
    return bool(slash) and not kind.startswith("pod")


def _words(given: argparse.Namespace, pod: Raw, *, one: bool, since: str = "") -> list[str]:
    """What kubectl is told to print of a pod. `since`: only what came later, where more of it was printed before."""
    options = {"-c": given.container, "--tail": given.tail, "--since": given.since}
    if since:
        options = {"-c": given.container, "--since-time": since}
    flags = {
        "--follow": given.follow,
        "--timestamps": given.timestamps,
        "--previous": given.previous,
        "--prefix": not one,
    }
    said = [word for name, value in options.items() if value != "" for word in (name, str(value))]
    return ["logs", str(meta(pod).get("name")), *said, *(flag for flag, on in flags.items() if on)]


def started(pod: Raw) -> bool:
    """Whether a container of a pod has printed anything yet, or may have."""
    states = [one.get("state") or {} for one in (pod.get("status") or {}).get("containerStatuses") or ()]
    return has_ended(pod) or any("running" in state or "terminated" in state for state in states)


def to_begin(pods: Iterable[Raw], open_now: Iterable[str], done: Iterable[str]) -> list[Raw]:
    """The workers whose log is to be asked for now: those that have started, and are neither open nor shown to their end."""
    known = {*open_now, *done}
    return [pod for pod in pods if not is_head(pod) and uid_of(pod) not in known and started(pod)]


@dataclass(slots=True)
class _Broken:
    """A log that broke off before its worker ended."""

    since: str  # what came from then on was not printed
    failures: int = 0  # in a row, each at once
    again: float = 0.0  # when it is asked for again, by the loop's clock

    def failed(self, now: float) -> None:
        self.failures += 1
        self.again = now + min(PAUSE_SECONDS * 2**self.failures, LONGEST_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class _Open:
    """One kubectl."""

    task: asyncio.Task[int]
    begun: float


def _submitted(job: Facts) -> bool:
    """Whether KubeRay has made a Job that submits it, which prints what it prints."""
    return job.job_object.has_submitter and job.status.deployment_status in _SUBMITTED


class _Followed:
    """The logs of a job's workers, one kubectl for each that is open."""

    def __init__(self, given: argparse.Namespace, client: Client, namespace: str, ways: Way) -> None:
        self._given, self._client, self._namespace, self._ways = given, client, namespace, ways
        self._open: dict[str, _Open] = {}
        self._done: set[str] = set()
        self._broken: dict[str, _Broken] = {}
        self._code, self._told = DONE, False  # that there are more than are followed

    async def run(self) -> int:
        """Print until nothing more can come, or, without -f, until all is printed that there is now."""
        try:
            while True:
                jobs, over = await self._look()
                pods = [pod for job in jobs for pod in job.pods]
                await self._begin(pods)
                if not self._given.follow or (over and not self._open):
                    self._tell_of_none(jobs, pods)
                    return self._code
                await self._wait(pods)
        finally:
            for one in self._open.values():
                one.task.cancel()
            await asyncio.gather(*(one.task for one in self._open.values()), return_exceptions=True)

    async def _look(self) -> tuple[Sequence[Facts], bool]:
        """What is known of the job, and whether no more pods will come; a manager that does not answer for a while ends nothing."""
        try:
            found = await job_reader.read(Look(self._client), self._namespace, self._given.what)
        except Unreachable as error:
            complain(f"The manager cluster cannot be asked: {error}; asking again ...", NOT_ALL)
            return (), False
        except Unread:
            raise  # whether it was deleted is not known
        except Unusable as error:
            if self._open or self._done:
                return (), True  # it was deleted meanwhile
            if _names_job(self._given.what):
                raise
            raise Unusable(
                f"{error} There is no pod of that name either; `kubectl get pods` lists those there are."
            ) from None
        over = all(job.status.deployment_status in ("Complete", "Failed") for job in found.jobs)
        return found.jobs, over

    async def _begin(self, pods: Sequence[Raw]) -> None:
        now = asyncio.get_running_loop().time()
        resting = {uid for uid, broken in self._broken.items() if now < broken.again}
        for pod in to_begin(pods, {*self._open, *resting}, self._done):
            if len(self._open) >= self._given.max_log_requests:
                self._tell_of_more()
                return
            broken = self._broken.get(uid_of(pod))
            words = _words(self._given, pod, one=False, since=broken.since if broken else "")
            kubectl = [*await self._ways.to(pod, LOG), *words]
            if self._given.follow:
                self._open[uid_of(pod)] = _Open(asyncio.create_task(grants.run(kubectl)), now)
            else:
                self._ended(pod, await grants.run(kubectl))

    def _tell_of_none(self, jobs: Sequence[Facts], pods: Sequence[Raw]) -> None:
        if not jobs or self._done or any(started(pod) for pod in pods if not is_head(pod)):
            return
        if any(kind in job.unread for job in jobs for kind in ("rayclusters", "pods")):
            return  # whether there are any is not known
        said = [
            f"No worker of {self._given.what} has a log now: those of a job that is over are gone, and others have not started."
        ]
        said += [
            f"What {job.title} itself printed: kubectl -n {job.namespace} logs job/{job.name}"
            for job in jobs
            if _submitted(job)
        ]
        print("\n".join(said), file=sys.stderr)

    def _tell_of_more(self) -> None:
        if not self._told:
            most = self._given.max_log_requests
            print(f"{most} logs are open, and more workers run: raise --max-log-requests.", file=sys.stderr)
        self._told = True

    async def _wait(self, pods: Sequence[Raw]) -> None:
        """Wait a moment. Of a log that has ended before its worker the rest is asked for next."""
        await asyncio.sleep(PAUSE_SECONDS)
        for uid in [uid for uid, one in self._open.items() if one.task.done()]:
            one = self._open.pop(uid)
            code = one.task.result()
            pod = next((each for each in pods if uid_of(each) == uid), None)
            if code == DONE or pod is None or has_ended(pod):
                self._done.add(uid)
            else:
                self._broke_off(pod, one.begun, code)

    def _broke_off(self, pod: Raw, begun: float, code: int) -> None:
        """Have it asked for again: soon where it was followed for a while, and where it never was, later and later until it is given up."""
        now = asyncio.get_running_loop().time()
        if now - begun >= SOON_SECONDS:
            since = timestamp(datetime.now(UTC) - timedelta(seconds=PAUSE_SECONDS))
            self._broken[uid_of(pod)] = _Broken(since)
            return
        broken = self._broken.setdefault(uid_of(pod), _Broken(""))
        broken.failed(now)
        if broken.failures < MOST_FAILURES:
            return
        name = meta(pod).get("name")
        complain(
            f"Pod {name}: its log could not be followed {MOST_FAILURES} times in a row, and is not asked for any more; why is said above. "
            f"`kubectl rayspan logs {name}` asks for it alone.", code,
        )  # fmt: skip
        self._ended(pod, code)

    def _ended(self, pod: Raw, code: int) -> None:
        self._done.add(uid_of(pod))
        self._code = self._code or code
