"""What do the worker clusters hold while a trial runs? Asks every worker cluster's API server itself, each in a thread of its own.

CopySampler follows the copies of workers, five times a second, and tells whether two copies of one worker ever ran at the same time.
A copy lives from the second after its creationTimestamp (which has no fractions) to the last look at which it was there, by the time
at which that look was asked for. Both are proofs, so what is called doubled was: clocks are one machine's. A cluster that is out is
asked again and again: what it holds when it is back tells what it held meanwhile.

QuotaSampler follows what is reserved, ten times a second. One list of Workloads is one instant: Kueue cannot change anything between
two of its entries. Nothing here waits for anything to happen; a sample that an API server did not answer is missed, and counted.
"""

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import TracebackType
from typing import Self

from adapter import names
from adapter.objects.raw import Raw, label, meta, moment, uid_of
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Unreachable
from hack.trials import quotausage

COPIES_PERIOD = 0.2  # seconds; a copy takes longer to start and to go, so two that lived together are seen together
QUOTA_PERIOD = 0.1  # seconds between two samples of quota

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Life:
    """A copy of the worker `owner` (uid), certainly alive from `born` to `seen`: seconds since the epoch."""

    cluster: str
    name: str
    owner: str
    born: float
    seen: float

    def __str__(self) -> str:
        return f"{self.name} in {self.cluster} (at least {max(0.0, self.seen - self.born):.1f} s)"


class Lives:
    """All copies that were ever seen, by their uids."""

    def __init__(self) -> None:
        self._known: dict[str, Life] = {}

    def saw(self, cluster: str, pods: Iterable[Raw], asked: float) -> None:
        """Note one list of a cluster's copies, which was asked for at that time."""
        for pod in pods:
            born = moment(meta(pod).get("creationTimestamp"))
            if born is None or (pod.get("status") or {}).get("phase") in _OVER:
                continue
            uid, owner = uid_of(pod), label(pod, names.POD_UID_LABEL)
            fresh = Life(cluster, meta(pod)["name"], owner, born.timestamp() + 1, asked)
            self._known[uid] = replace(self._known.get(uid, fresh), seen=asked)

    def doubled(self) -> list[str]:
        """A sentence for each worker of which two copies lived at the same time."""
        owners: dict[str, list[Life]] = {}
        for life in list(self._known.values()):  # another thread may add to it
            owners.setdefault(life.owner, []).append(life)
        return [
            f"worker {owner} lived twice: {one} and {other}"
            for owner, lives in owners.items()
            for one, other in combinations(lives, 2)
            if max(one.born, other.born) < min(one.seen, other.seen)
        ]


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one cluster's quota."""

    at: float
    cluster: str
    jobs: Counter[str]  # millicores of CPU that are reserved for each job
    usage: quotausage.Usage
    beyond: Sequence[str]  # sentences: what was used that may not be


class _Sampler(ABC):
    """Follows each of the worker clusters in a thread of its own while the context is open."""

    def __init__(self, workers: Sequence[Cluster], namespace: str) -> None:
        self._namespace = namespace
        self._stop = threading.Event()
        fresh = [Cluster(worker.name, worker.kubeconfig) for worker in workers]  # a reader is of one thread
        self._threads = [threading.Thread(target=self._follow, args=(each,), daemon=True) for each in fresh]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    @abstractmethod
    def _follow(self, cluster: Cluster) -> None:
        """Look again and again, until `_stop` is set."""


class CopySampler(_Sampler):
    """Watches over the copies of workers in one namespace while the context is open."""

    def __init__(self, workers: Sequence[Cluster], namespace: str) -> None:
        super().__init__(workers, namespace)
        self.lives = Lives()

    def _follow(self, cluster: Cluster) -> None:
        while not self._stop.wait(COPIES_PERIOD):
            asked = time.time()  # the clock of creationTimestamps
            try:
                pods = cluster.items("pods", self._namespace, names.MANAGER_LABEL)
            except Unreachable:
                continue
            self.lives.saw(cluster.name, pods, asked)


class QuotaSampler(_Sampler):
    """Samples one namespace's Workloads and pods, and the ClusterQueues named, while the context is open."""

    def __init__(self, workers: Sequence[Cluster], namespace: str, queues: Sequence[str]) -> None:
        super().__init__(workers, namespace)
        self.samples: list[Sample] = []
        self.missed = 0
        self._queues = queues

    @property
    def beyond(self) -> list[Sample]:
        """The samples in which somebody used more than allowed."""
        return [sample for sample in self.samples if sample.beyond]

    def longest_gap(self) -> float:
        """The longest time in seconds in which a cluster was not looked at."""
        gaps = [0.0]
        for cluster in {sample.cluster for sample in self.samples}:
            times = [sample.at for sample in self.samples if sample.cluster == cluster]
            gaps += [later - earlier for earlier, later in itertools.pairwise(times)]
        return max(gaps)

    def _follow(self, cluster: Cluster) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + QUOTA_PERIOD, time.monotonic())
            try:
                self.samples.append(self._look(cluster))
            except Unreachable:
                self.missed += 1

    def _look(self, cluster: Cluster) -> Sample:
        queues = [quotausage.queue(raw) for name in self._queues if (raw := cluster.get("clusterqueues", name))]
        workloads = cluster.items("workloads", self._namespace)
        at = time.monotonic()
        pods = quotausage.in_use(cluster.items("pods", self._namespace, names.MANAGER_LABEL))
        usage = quotausage.reserved(workloads)
        beyond = [*quotausage.beyond(queues, usage), *quotausage.pods_beyond(queues, pods)]
        return Sample(at, cluster.name, quotausage.by_job(workloads, "cpu"), usage, beyond)
