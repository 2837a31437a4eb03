"""`python -m hack.trials.cuts`: a RayJob with real Ray over two clusters while one, or both, are cut off in every way.

For each cut it prints how many worker pods were replaced and how many actors restarted, and the time after the cut
until all was well: four workers ready, four Ray nodes alive, every actor answering. It fails when a cut of the API
alone replaced anything, when a short cut of the data replaced a worker, when a worker ran twice or that is unknown,
when recovery takes too long, or when the job does not end well.
"""

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from adapter import names
from adapter.objects.worker_pod import slot_cluster
from hack.lab import faults
from hack.lab.base import lab as definition
from hack.lab.base import sidebyside
from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError, told
from hack.lab.faults import SCOPES, WAYS
from hack.testbed import actors, deployment
from hack.testbed.clusters import condition
from hack.testbed.rayjob import NAMESPACE, Job
from hack.trials.outages import Outages
from hack.trials.sampler import CopySampler
from hack.trials.watch import Blind

CLUSTERS = ("east", "west")
# Ray gives an unreachable node up after a minute. Then its container restarts or its pod is replaced, which takes half
# a minute on a lab whose two cores run everything, and Ray's own backoff may double that.
_PATIENCE = 240.0
# A failing container restarts only after a pause, which is never longer than this, nor than it has failed.
_LONGEST_BACKOFF = 300.0
_PAUSE = 1.0
# Ray gives a node up after a minute without an answer, and Rayspan gives up no worker whose API server answers: a cut
# of the data for half of that must replace no worker. Processes in workers may restart, since Ray's calls have shorter
# timeouts: two actors of four did.
_SHORT = 30.0


@dataclass(frozen=True)
class Cut:
    """The first cluster is cut off for some seconds, or the first two."""

    ways: tuple[tuple[str, str], ...]  # for each cluster the scope and the way
    seconds: float

    def __str__(self) -> str:
        return f"{' + '.join(map('/'.join, self.ways)):<11} {self.seconds:4.0f} s"

    @property
    def spared(self) -> set[str]:
        """Where no worker may be replaced: in clusters of which only the API was cut, or only the data for a short
        time.
        """
        return self._cut("api") | (self._cut("data") if self.seconds <= _SHORT else set())

    @property
    def only_api(self) -> bool:
        """Whether only APIs were cut: then no process of Ray's notices anything."""
        return len(self._cut("api")) == len(self.ways)

    def judged(self, replaced: Sequence[str], anew: int) -> list[str]:
        """Sentences about what it must not have done; `replaced` has the cluster of each worker that went."""
        wrong = Counter(cluster for cluster in replaced if cluster in self.spared)
        said = [
            f"{self}: {count} workers in {cluster} were replaced, and none may be" for cluster, count in wrong.items()
        ]
        return said + (
            [f"{self}: only the API was cut, and {anew} actors started anew"] if anew and self.only_api else []
        )

    def _cut(self, scope: str) -> set[str]:
        return {cluster for cluster, (each, _) in zip(CLUSTERS, self.ways, strict=False) if each == scope}


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    return told(lambda: _run(asked))


def _run(asked: argparse.Namespace) -> int:
    fleet, lab = deployment.on_lab(renew=asked.renew), definition.load()
    job = Job(fleet, "cuts")
    every = [Cut(ways, seconds) for ways, seconds in itertools.product(asked.only or _every(), asked.seconds)]
    try:
        actors.submit(job)
        problems = _all(job, lab, every)
        found = actors.end(job)
    finally:
        faults.heal(lab)
        job.delete()
    print(*problems, sep="\n")
    print(f"cuts {len(every)}, calls answered {found['asked']} times by each of 4 actors, problems {len(problems)}")
    return 1 if problems else 0


def _all(job: Job, lab: Lab, cuts: Sequence[Cut]) -> list[str]:
    """Cut in every way, and look on all the time; returns what was wrong."""
    problems: list[str] = []
    outages = Outages()
    try:
        with CopySampler(list(job.fleet.workers.values()), NAMESPACE, outages) as sampler:
            for cut in cuts:
                problems += _suffer(job, lab, cut, outages)
            problems += sampler.lives.doubled()
    except Blind as blind:
        problems += blind.said
    return problems


def _suffer(job: Job, lab: Lab, cut: Cut, outages: Outages) -> list[str]:
    pods, before = _pods(job), actors.seen(job)
    for cluster, (scope, way) in zip(CLUSTERS, cut.ways, strict=False):
        if way == "link":  # the other ways let this machine in
            outages.begin(cluster)
        faults.cut(lab, lab.cluster(cluster), scope=scope, way=way)
    time.sleep(cut.seconds)
    faults.heal(lab)
    outages.over()
    recovery = _recovery(job, _PATIENCE + min(cut.seconds, _LONGEST_BACKOFF))
    stayed = _pods(job)
    replaced = [cluster for uid, cluster in pods.items() if uid not in stayed]
    anew = len(set(actors.seen(job).processes) - set(before.processes))
    print(f"{cut}: {len(replaced)} pods replaced, {anew} actors anew, well after {recovery:.0f} s", flush=True)
    return cut.judged(replaced, anew)


def _recovery(job: Job, patience: float) -> float:
    """Seconds until all is well; raises LabError when that takes too long."""
    begun = time.monotonic()
    asked = actors.seen(job).asked
    while not _well(job, asked):
        if time.monotonic() - begun > patience:
            raise LabError(f"after {patience:.0f} s all is not well again:\n{job.dump()}")
        time.sleep(_PAUSE)
    return time.monotonic() - begun


def _well(job: Job, asked: int) -> bool:
    pods = job.pods()
    ready = [pod for pod in pods if condition(pod, "Ready").get("status") == "True"]
    known = [pod for pod in pods if condition(pod, names.DISPATCHED_CONDITION).get("status") == "True"]
    now = actors.seen(job)
    return len(pods) == len(ready) == len(known) == now.alive == job.workers and now.asked > asked + 1


def _pods(job: Job) -> dict[str, str]:
    """The cluster of each worker, by its uid."""
    return {pod["metadata"]["uid"]: slot_cluster(pod) for pod in job.pods()}


def _every() -> list[tuple[tuple[str, str], ...]]:
    """Every scope by every way, in one cluster; a pulled cable cuts everything."""
    return [((scope, way),) for scope in SCOPES for way in WAYS if way != "link" or scope == "all"]


def _ways(text: str) -> tuple[tuple[str, str], ...]:
    """The value of --only, for one cluster or with a plus sign for both."""
    ways = tuple((scope, way) for part in text.split("+") for scope, _, way in [part.partition("/")])
    if len(ways) > len(CLUSTERS) or not all((way,) in _every() for way in ways):
        known = ", ".join("/".join(way) for (way,) in _every())
        raise argparse.ArgumentTypeError(f"{text!r} is none of {known}, nor two of them with a plus sign between")
    return ways


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.trials.cuts", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, nargs="+", default=[30.0, 90.0], help="how long each cut lasts (default 30 90)"
    )
    parser.add_argument("--only", nargs="+", type=_ways, metavar="SCOPE/WAY",
                        help="these only, for instance api/drop, or api/drop+data/drop for two clusters "
                             "at once")  # fmt: skip
    parser.add_argument("--as-is", dest="renew", action="store_false",
                        help="use the controller that is deployed, not the checkout's")  # fmt: skip
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
