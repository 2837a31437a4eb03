"""Which copies of workers are there, five times a second? Asks every worker cluster itself, each in a thread of its own.

A cluster that is out is asked again and again: what it holds when it is back tells what it held meanwhile.
"""

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from adapter import names
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Unreachable
from hack.trials.lives import Lives

PERIOD = 0.2  # seconds; a copy takes longer to start and to go, so two that lived together are seen together


class Sampler:
    """Watches over one namespace while the context is open."""

    def __init__(self, workers: Sequence[Cluster], namespace: str) -> None:
        self.lives = Lives()
        self._namespace = namespace
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

    def _follow(self, cluster: Cluster) -> None:
        while not self._stop.wait(PERIOD):
            asked = time.time()  # the clock of creationTimestamps
            try:
                pods = cluster.items("pods", self._namespace, names.MANAGER_LABEL)
            except Unreachable:
                continue
            self.lives.saw(cluster.name, pods, asked)
