"""`python -m hack.trials.gangs`: many gangs at once over all worker clusters of the lab, with the deployed controller.

The last line says how many finished, in how many samples a cluster was beyond its quota, how well quota was used, and
the command that repeats the run. It fails unless all finished, no sample was beyond quota, and the use was at least 90
%.
"""

import argparse
import sys
from collections.abc import Sequence

from hack.lab.base import sidebyside
from hack.lab.base.progress import step, told
from hack.testbed import deployment, seed
from hack.testbed.stage import Stage
from hack.testbed.workerclusters import connected
from hack.trials.gangs import draw, report
from hack.trials.gangs.course import Course
from hack.trials.sampler import QuotaSampler

LEAST_USE = 90.0  # percent
_PATIENCE = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    asked.seed = seed.drawn(asked.seed)
    return told(lambda: _run(asked, seed.again("hack.trials.gangs", argv, asked.seed)))


def _run(asked: argparse.Namespace, again: str) -> int:
    seed.tell(asked.seed, again)
    fleet = deployment.on_lab(renew=asked.renew)
    chosen = tuple(asked.clusters or fleet.workers)
    capacity = asked.cpu * len(chosen)
    gangs = draw.gangs(asked.gangs, asked.seed, capacity)
    least = draw.area(gangs) / capacity
    print(f"{len(gangs)} gangs of seed {asked.seed} ask for {sum(gang.needs for gang in gangs)} CPUs; "
          f"{len(chosen)} clusters have {capacity}. They run {least:.0f} s or more.", flush=True)  # fmt: skip
    with connected(fleet, chosen), Stage(fleet, "gangs", chosen) as stage:
        stage.build(dict.fromkeys(chosen, asked.cpu), manager_cpu=asked.manager * capacity)
        course = Course(stage, gangs)
        workers = [fleet.workers[name] for name in chosen]
        with step("gangs: submitted at once"), QuotaSampler(workers, stage.name, [stage.name]) as sampler:
            course.run(4 * least + _PATIENCE)
    return _tell(course, sampler, capacity, again)


def _tell(course: Course, sampler: QuotaSampler, capacity: int, again: str) -> int:
    used = report.use(course, sampler.samples, capacity)
    print("\n" + report.table(course))
    print(
        f"\n{sampler.missed} samples were not answered; the longest time without one was {sampler.longest_gap():.2f} s."
    )
    for sample in sampler.beyond[:10]:
        print(f"{sample.cluster} after {sample.at - course.begun:.1f} s: {'; '.join(sample.beyond)}")
    print(f"{report.last_line(course, sampler.samples, used)}; again: {again}")
    well = len(course.ended) == len(course.gangs) and not sampler.beyond and used.percent >= LEAST_USE
    return 0 if well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.trials.gangs", description=__doc__)
    parser.add_argument("--gangs", type=int, default=40, metavar="N", help="how many (default 40)")
    parser.add_argument("--seed", type=int, help=seed.HELP)
    parser.add_argument("--clusters", nargs="+", metavar="NAME", help="worker clusters (default all of the lab)")
    parser.add_argument("--cpu", type=int, default=16, metavar="N", help="quota of each cluster in CPUs (default 16)")
    parser.add_argument("--manager", type=int, default=3, metavar="N",
                        help="the manager's quota in fleets: how much may be on its way at once "
                             "(default 3)")  # fmt: skip
    parser.add_argument("--as-is", dest="renew", action="store_false",
                        help="use the controller that is deployed, not the checkout's")  # fmt: skip
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
