"""`python -m hack.trials.soak`: small jobs for half an hour through the deployed controller, which must keep nothing.

The last line says how many were done, how memory grew with them, what was open before the first and after the last one,
and the command that repeats the run. It fails when a task or a watch is left over or lost, or when memory grew by more
than judge.MOST_KB_PER_JOB.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from hack.lab.base import sidebyside
from hack.lab.base.progress import step, told
from hack.testbed import deployment, seed
from hack.testbed.clusters import Cluster
from hack.testbed.stage import Stage
from hack.trials.soak import judge, reading
from hack.trials.soak.judge import Sample
from hack.trials.soak.reading import Reading
from hack.trials.soak.traffic import Traffic, jobs
from hack.trials.watch import Watch

_CPU = 8  # quota of each cluster: some overlapping jobs have to wait, as in a controller's usual life
_PERIOD = 3.0  # seconds between two samples: hundreds of them in half an hour, and no load
_SETTLED = 20.0  # seconds after which unused connections are closed: the client keeps them for 15


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    asked.seed = seed.drawn(asked.seed)
    return told(lambda: _run(asked, seed.again("hack.trials.soak", argv, asked.seed)))


def _run(asked: argparse.Namespace, again: str) -> int:
    seed.tell(asked.seed, again)
    fleet = deployment.on_lab(renew=asked.renew)
    with Stage(fleet, "soak", tuple(fleet.workers)[:2]) as stage, deployment.undisturbed(fleet.manager):
        stage.build(dict.fromkeys(stage.clusters, _CPU), policy={"strategy": "Spread"})
        with step("soak: what is open while nothing happens"):
            begin = _at_rest(fleet.manager)
        traffic = Traffic(stage, jobs(asked.jobs, asked.minutes * 60, asked.seed))
        with (
            step(f"soak: {asked.jobs} jobs over {asked.minutes:g} minutes"),
            _Memory(fleet.manager, traffic) as memory,
        ):
            traffic.run()
        with step("soak: what is open when all is gone"):
            end = _at_rest(fleet.manager)
        # Also reported where the controller was disturbed.
        status = _tell(traffic, memory.samples, begin, end, again)
    return status


def _at_rest(manager: Cluster) -> Reading:
    time.sleep(_SETTLED)
    return reading.at_rest(manager)


def _tell(traffic: Traffic, samples: Sequence[Sample], begin: Reading, end: Reading, again: str) -> int:
    memory, hourly = judge.per_job(samples), judge.per_hour(samples)
    complaints = judge.complaints(begin, end, memory)
    print("", f"{len(samples)} samples.", *complaints, sep="\n")
    print(
        f"jobs {len(traffic.done)} of {len(traffic.jobs)}, "
        f"memory {memory.value:+.1f} ± {memory.error:.1f} KB per job "
        f"({hourly.value:+.0f} ± {hourly.error:.0f} KB per hour), "
        f"RSS {begin.rss / 1024:.1f} → {end.rss / 1024:.1f} MB, "
        f"tasks {sum(begin.tasks.values())} → {sum(end.tasks.values())}, "
        f"watches {sum(begin.watches.values())} → {sum(end.watches.values())}, fds {begin.fds} → {end.fds}, "
        f"leaked {'yes' if complaints else 'no'}; again: {again}"
    )
    return 1 if complaints else 0


class _Memory(Watch):
    """Samples the controller's memory while the context is open; one that is not answered is missing."""

    def __init__(self, manager: Cluster, traffic: Traffic) -> None:
        super().__init__([manager], _PERIOD)
        self.samples: list[Sample] = []
        self._traffic = traffic

    def _look(self, cluster: Cluster) -> None:
        found = reading.parse(deployment.exposition(cluster))
        self.samples.append(Sample(time.monotonic() - self._traffic.begun, len(self._traffic.done), found.rss))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.trials.soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200, metavar="N", help="how many (default 200)")
    parser.add_argument("--minutes", type=float, default=30, metavar="N", help="over how long (default 30)")
    parser.add_argument("--seed", type=int, help=seed.HELP)
    parser.add_argument("--as-is", dest="renew", action="store_false",
                        help="use the controller that is deployed, not the checkout's")  # fmt: skip
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
