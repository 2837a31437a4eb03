"""Samples what the worker clusters hold while a trial runs: through every API server itself, each in its own thread.

CopySampler follows remote pods, and reports whether two of one worker ever ran at the same time. A remote pod lives
from the second after its creationTimestamp (which has no fractions) to the last sample that shows it, by the time of
that request. Both bounds are safe, so what is called doubled was: all clocks are one machine's, and where a trial sets
a cluster's clock wrong, it sets it ahead (hack/trials/chaos/clockjumps.py). An unreachable cluster is asked repeatedly:
its state on return shows what it held meanwhile.

QuotaSampler follows reservations as well. One list of Workloads is one instant: Kueue cannot change anything between
two of its entries. Changes between two lists are tolerated: a pod is compared with Workloads that held quota before and
after it was seen. Nothing here waits for an event; a sample without an answer is missed, and counted.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from adapter import names
from adapter.objects.unstructured import Raw, label, meta, parse_time, uid_of
from hack.testbed.clusters import Cluster
from hack.trials import quotausage
from hack.trials.outages import Outages
from hack.trials.watch import Watch

# Seconds; a remote pod takes longer to start and to go, so two that live together are seen together.
COPIES_PERIOD = 0.2
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
            born = parse_time(meta(pod).get("creationTimestamp"))
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
    beyond: Sequence[str]  # sentences: use beyond quota


class CopySampler(Watch):
    """Watches over the copies of workers in one namespace while the context is open."""

    def __init__(
        self,
        workers: Sequence[Cluster],
        namespace: str,
        outages: Outages | None = None,
        *,
        period: float = COPIES_PERIOD,
    ) -> None:
        super().__init__(workers, period, outages)
        self.lives = Lives()
        self._namespace = namespace

    def _look(self, cluster: Cluster) -> None:
        self._copies(cluster)

    def _copies(self, cluster: Cluster) -> tuple[Sequence[Raw], float]:
        """The copies that are there, and when they were asked for, by the clock of creationTimestamps."""
        asked = time.time()
        pods = cluster.items("pods", self._namespace, names.MANAGER_LABEL)
        self.lives.saw(cluster.name, pods, asked)
        return pods, asked


class QuotaSampler(CopySampler):
    """Samples one namespace's Workloads and pods, and the ClusterQueues named, while the context is open."""

    def __init__(
        self,
        workers: Sequence[Cluster],
        namespace: str,
        queues: Sequence[str],
        outages: Outages | None = None,
        *,
        period: float = QUOTA_PERIOD,
    ) -> None:
        super().__init__(workers, namespace, outages, period=period)
        self.samples: list[Sample] = []
        self._queues = queues
        self._before: dict[str, Sequence[Raw]] = {}  # the Workloads of the last sample, by cluster

    @property
    def beyond(self) -> list[Sample]:
        """The samples in which somebody used more than allowed."""
        return [sample for sample in list(self.samples) if sample.beyond]

    def _look(self, cluster: Cluster) -> None:
        queues = [quotausage.queue(raw) for name in self._queues if (raw := cluster.get("clusterqueues", name))]
        pods, asked = self._copies(cluster)
        workloads, at = cluster.items("workloads", self._namespace), time.monotonic()
        held = quotausage.throughout(self._before.get(cluster.name, []), workloads)
        self._before[cluster.name] = workloads
        there = quotausage.running(pods, asked, held)
        usage = quotausage.reserved(workloads)
        beyond = [
            *quotausage.beyond(queues, usage),
            *quotausage.pods_beyond(queues, quotausage.in_use(there)),
            *quotausage.shares_beyond(there, held),
        ]
        self.samples.append(Sample(at, cluster.name, quotausage.by_job(workloads, "cpu"), usage, beyond))
