"""What do the worker clusters hold, ten times a second? Asks every worker's API server itself, each in a thread of its own.

One list of Workloads is one instant: Kueue cannot change anything between two of its entries. Nothing here waits for
anything to happen; a sample that an API server did not answer is missed, and counted.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from adapter import names
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Unreachable
from hack.trials import books

PERIOD = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one cluster."""

    at: float
    cluster: str
    jobs: Counter[str]  # millicores of CPU that are reserved for each job
    usage: books.Usage
    beyond: Sequence[str]  # sentences: what was used that may not be


class Sampler:
    """Samples one namespace's Workloads and pods, and the ClusterQueues named, while the context is open."""

    def __init__(self, workers: Sequence[Cluster], namespace: str, queues: Sequence[str]) -> None:
        self.samples: list[Sample] = []
        self.missed = 0
        self._queues, self._namespace = queues, namespace
        self._stop = threading.Event()
        fresh = [Cluster(worker.name, worker.kubeconfig) for worker in workers]  # a reader is of one thread
        self._threads = [threading.Thread(target=self._follow, args=(each,), daemon=True) for each in fresh]

    def __enter__(self) -> "Sampler":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

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
            due = max(due + PERIOD, time.monotonic())
            try:
                self.samples.append(self._look(cluster))
            except Unreachable:
                self.missed += 1

    def _look(self, cluster: Cluster) -> Sample:
        queues = [books.queue(raw) for name in self._queues if (raw := cluster.get("clusterqueues", name))]
        workloads = cluster.items("workloads", self._namespace)
        at = time.monotonic()
        pods = books.in_use(cluster.items("pods", self._namespace, names.MANAGER_LABEL))
        usage = books.reserved(workloads)
        beyond = [*books.beyond(queues, usage), *books.pods_beyond(queues, pods)]
        return Sample(at, cluster.name, books.by_job(workloads, "cpu"), usage, beyond)
