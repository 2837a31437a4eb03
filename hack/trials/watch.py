"""Checks that the samplers of a trial live until its end and sample often enough. A thread for each cluster.

A sampler that died, hangs or skipped samples proves nothing, so each of these fails the trial. Only an unreachable API
server is excused, sample by sample; for how long is judged in the end, beside the trial's own outages.
"""

import itertools
import statistics
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from hack.lab.base.progress import LabError
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Unreachable
from hack.trials.outages import Outages, Span, uncovered

# Seconds without a sample, the trial's own outages left out. A request on a connection that just broke is given up
# after 10 s, and the next sample comes at once: 15 leave half of that to a busy machine. One such gap in an hour hides
# no grace period or outage that must be seen; that samples are usually close is judged apart.
LONGEST_GAP = 15.0
# Seconds that a sample may take beyond its period, as a rule (the median). They take some hundredths on an idle lab,
# and a few tenths beside forty gangs on two cores. At seconds, events that belong together would not be seen together.
USUAL_DELAY = 2.0
_JOIN = 45.0  # seconds until a thread has ended: four questions that hang, and a busy machine


class Blind(LabError):
    """The samplers did not see all; `said` are sentences."""

    def __init__(self, said: Sequence[str]) -> None:
        super().__init__("\n".join(said))
        self.said = said


class Watch(ABC):
    """Samples each cluster every `period` seconds while the context is open; raises Blind at its end if that was too
    little.
    """

    def __init__(self, clusters: Sequence[Cluster], period: float, outages: Outages | None = None) -> None:
        self.period = period
        self.looks: dict[str, list[float]] = {cluster.name: [] for cluster in clusters}
        self._outages = outages or Outages()
        self._missed: Counter[str] = Counter({cluster.name: 0 for cluster in clusters})
        self._deaths: list[str] = []
        self._stop = threading.Event()
        self._span: Span = (0.0, 0.0)
        fresh = [Cluster(cluster.name, cluster.kubeconfig) for cluster in clusters]  # a reader belongs to one thread
        self._threads = [threading.Thread(target=self._live, args=(one,), name=one.name, daemon=True) for one in fresh]

    @property
    def deaths(self) -> list[str]:
        """A sentence for each cluster of which the watcher died."""
        return list(self._deaths)

    @property
    def missed(self) -> int:
        """How many looks were not answered."""
        return self._missed.total()

    def __enter__(self) -> Self:
        self._span = (time.monotonic(), 0.0)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._span = (self._span[0], time.monotonic())
        for thread in self._threads:
            thread.join(_JOIN)
        said = self._complaints()
        if said and kind is None:
            raise Blind(said)

    @abstractmethod
    def _look(self, cluster: Cluster) -> None:
        """Look once; raises Unreachable when there is no answer."""

    def longest_gap(self) -> float:
        """The longest time in seconds without a look, outages left out."""
        return max((gap for name in self.looks for gap in self._gaps(name)), default=0.0)

    def _live(self, cluster: Cluster) -> None:
        due = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                due = max(due + self.period, time.monotonic())
                self._once(cluster)
        except Exception as broken:  # an exception in a thread would be lost otherwise
            self._deaths.append(f"the watcher of {cluster.name} died: {type(broken).__name__}: {broken}")

    def _once(self, cluster: Cluster) -> None:
        try:
            self._look(cluster)
        except Unreachable:
            self._missed[cluster.name] += 1
        else:
            self.looks[cluster.name].append(time.monotonic())

    def _complaints(self) -> list[str]:
        hung = [
            f"the watcher of {one.name} has not ended within {_JOIN:.0f} s" for one in self._threads if one.is_alive()
        ]
        blind = [said for name in self.looks for said in judged(name, self._gaps(name), self.period)]
        return [*self._deaths, *hung, *blind]

    def _gaps(self, name: str) -> list[float]:
        begun, ended = self._span
        ended = ended or time.monotonic()
        return gaps(list(self.looks[name]), (begun, ended), self._outages.of(name, ended))


def gaps(looks: Sequence[float], span: Span, outages: Sequence[Span]) -> list[float]:
    """The seconds between samples, from the first moment to the last, where no outage excuses them; [] without
    samples."""
    if not looks:
        return []
    return [uncovered(pair, outages) for pair in itertools.pairwise([span[0], *looks, span[1]])]


def judged(name: str, found: Sequence[float], period: float) -> list[str]:
    """A sentence for each way in which a cluster was looked at too little; `found` is from `gaps`."""
    if not found:
        return [f"{name} was never looked at"]
    said = []
    if max(found) > LONGEST_GAP:
        said.append(f"{name} was not looked at for {max(found):.1f} s, beside outages; it may be {LONGEST_GAP:.0f}")
    usual = statistics.median(found)
    if usual > period + USUAL_DELAY:
        said.append(f"{name} was looked at every {usual:.1f} s, and shall be every {period:g}")
    return said
