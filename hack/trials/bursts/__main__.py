"""`python -m hack.trials.bursts`: a job grows and shrinks on the lab, with the controller that is deployed there.

First it goes from no worker to eight and back, three times over two clusters: what is left, and who sent which
requests. Then it changes by one and by fifty workers, over two clusters and, beside it, in one without us. Then a
worker finds the first choice full, and another one finds no capacity anywhere for five minutes.

The last line says what was lost, doubled, left behind or leaked, and how much longer a step takes than in one cluster;
lines `BENCH …` for programs precede it. Status 1 means a fault. A slow step is reported and is no fault; a worker that
waits beside free capacity is one.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hack.lab.base import sidebyside
from hack.lab.base.progress import LabError, told
from hack.testbed import deployment, figures
from hack.testbed.clusters import Clusters
from hack.testbed.figures import Value
from hack.testbed.stage import Stage
from hack.trials.bursts import report, steps, waits, waves
from hack.trials.bursts.job import NAME, Job
from hack.trials.bursts.steps import Taken
from hack.trials.bursts.waves import Half
from hack.trials.chaos.invariants import BLIND, DOUBLED, LAB, LEDGER, Finding
from hack.trials.sampler import COPIES_PERIOD, QuotaSampler
from hack.trials.watch import Blind

# Quota of each of two clusters, where a worker has one CPU: both together hold fifty-four, and neither holds all.
_CPU = 32
_SPREAD = {"strategy": "Spread"}  # so that a burst is in both clusters
# Seconds between two reads of the clusters while times are taken: reads use the measured processors.
_SELDOM = 1.0
_BEYOND = 5  # reported samples beyond quota: one cause gives many


@dataclass
class Found:
    """The results so far."""

    halves: list[Half] = field(default_factory=list)
    ours: dict[str, list[Taken]] = field(default_factory=dict)
    alone: dict[str, list[Taken]] = field(default_factory=dict)
    waits: dict[str, Value] = field(default_factory=dict)
    wrong: list[Finding] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    return told(lambda: _run(asked))


def _run(asked: argparse.Namespace) -> int:
    fleet, found = deployment.on_lab(renew=asked.renew), Found()
    try:
        _spanning(fleet, found)
        _alone(fleet, found)
        _waits(fleet, found, asked.wait)
    except LabError as trouble:  # results so far are reported all the same
        found.wrong.append(Finding(LAB, str(trouble)))
    found.wrong += [one for half in found.halves for one in half.wrong]
    manager, rows = fleet.manager.name, report.steps_rows(found.ours, found.alone)
    print("\n" + report.requests_table(found.halves, manager) if found.halves else "")
    print("\n" + report.steps_table(rows) + "\n")
    lines = [
        *report.lines(found.halves, manager, rows),
        *([figures.line("bursts-waits", found.waits)] if found.waits else []),
    ]
    print(*lines, report.closing(found.wrong, rows), sep="\n", flush=True)
    return 1 if found.wrong else 0


def _spanning(fleet: Clusters, found: Found) -> None:
    """Over two clusters: up and down, then step by step, then nothing of it may be left."""
    with Stage(fleet, "bursts", tuple(fleet.workers)[:2]) as stage:
        stage.build(dict.fromkeys(stage.clusters, _CPU), policy=_SPREAD)
        job = Job(stage)
        job.submit()
        _tell(f"{waves.TIMES} times from 0 to {waves.WORKERS} workers and back, over {' and '.join(stage.clusters)}:")
        with _watched(stage, COPIES_PERIOD, found):
            waves.run(job, found.halves, _tell)
        _tell(f"steps from {steps.BASE} workers, over {' and '.join(stage.clusters)}:")
        with _watched(stage, _SELDOM, found):
            steps.run(job, found.ours, _tell, spans=True)
        found.wrong += job.wrong({NAME: steps.BASE})
        job.end()
        found.wrong += job.wrong({})


def _alone(fleet: Clusters, found: Found) -> None:
    """In the manager, in a queue without our check."""
    with Stage(fleet, "bursts-alone", tuple(fleet.workers)[:2]) as stage:
        stage.build({})
        stage.uncheck()
        job = Job(stage)
        job.submit()
        _tell(f"steps from {steps.BASE} workers, in {fleet.manager.name} alone:")
        steps.run(job, found.alone, _tell, spans=False)


def _waits(fleet: Clusters, found: Found, seconds: float) -> None:
    """Over two clusters that are soon full."""
    with Stage(fleet, "bursts-wait", tuple(fleet.workers)[:2]) as stage:
        stage.build(dict.fromkeys(stage.clusters, waits.ROOM))
        job = Job(stage)
        job.submit()
        with _watched(stage, _SELDOM, found):
            found.wrong += waits.run(job, seconds, found.waits, _tell)
        job.end()
        found.wrong += job.wrong({})


@contextmanager
def _watched(stage: Stage, period: float, found: Found) -> Iterator[None]:
    """Look on from worker cluster to worker cluster; what may not be for an instant is among what was found then."""
    clusters = [stage.fleet.workers[name] for name in stage.clusters]
    sampler = QuotaSampler(clusters, stage.name, [stage.name], period=period)
    try:
        with sampler:
            yield
    except Blind as blind:
        found.wrong += [Finding(BLIND, one) for one in blind.said]
    finally:
        found.wrong += [Finding(DOUBLED, one) for one in sampler.lives.doubled()]
        beyond = (f"in {one.cluster} {said}" for one in sampler.beyond[:_BEYOND] for said in one.beyond)
        found.wrong += [Finding(LEDGER, one) for one in beyond]


def _tell(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.trials.bursts", description=__doc__)
    parser.add_argument("--as-is", dest="renew", action="store_false",
                        help="use the controller that is deployed, not the checkout's")  # fmt: skip
    parser.add_argument("--wait", type=float, default=waits.WAITED, metavar="SECONDS",
                        help="how long a worker has no room anywhere (default %(default)g)")  # fmt: skip
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
