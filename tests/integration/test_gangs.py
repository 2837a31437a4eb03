"""Many gangs at once, and two tenants in one cohort: quota is never exceeded, and no gang waits for ever."""

import pytest

from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage
from hack.trials.gangs import draw, report, tenants
from hack.trials.gangs.course import Course
from hack.trials.sampler import QuotaSampler

pytestmark = [pytest.mark.alone, pytest.mark.long]  # it takes all of the machine

GANGS, SEED, CPU = 12, 7, 8
# 3 to 9 s: what takes seconds is what is tested. They come and go for most of that, so use in percent says little
PACE = 0.15


def test_a_crowd_of_gangs_finishes_and_never_overcommits(stage: Stage, running: Controller) -> None:
    """Twelve gangs of random size over two clusters, submitted at once: none waits while there is room for it.

    One after the other, or in one of the two clusters only, more would stand free than the bound allows.
    """
    capacity = CPU * len(stage.clusters)
    gangs = draw.gangs(GANGS, SEED, capacity, pace=PACE)
    stage.build(dict.fromkeys(stage.clusters, CPU), manager_cpu=3 * capacity)
    course = Course(stage, gangs)
    with QuotaSampler([stage.fleet.workers[name] for name in stage.clusters], stage.name, [stage.name]) as sampler:
        course.run(80, running.tail)
    used = report.use(course, sampler.samples, capacity)
    assert not sampler.beyond, sampler.beyond[0]
    told = f"{report.table(course)}\n{report.last_line(course, sampler.samples, used)}"
    free, most = report.stood_free(course, sampler.samples, len(stage.clusters), capacity)
    assert free <= most, f"{told}\n{free:.0f} CPU seconds stood free while a gang waited, and {most:.0f} may."


def test_a_tenant_gets_its_own_back_in_every_cluster(stage: Stage, running: Controller) -> None:
    """A borrows B's half of each cluster; B submits, and has its half in both. No instant shows more than there is."""
    a, b = tenants.build(stage, gpus=2)
    with QuotaSampler([stage.fleet.workers[name] for name in stage.clusters], stage.name, [a, b]) as sampler:
        tenants.submit(stage, "borrower", workers=8)
        wait(lambda: stage.running(8), 60, "tenant A runs on its own quota and on B's", running.tail)
        tenants.submit(stage, "owner", workers=4, tenant=tenants.B)
        wait(lambda: stage.where("owner") == "2 east, 2 west", 60, "tenant B has its own back", running.tail)
        wait(lambda: _ready(stage, "owner") == 4, 60, "tenant B's workers run", running.tail)
    assert not sampler.beyond, sampler.beyond[0]
    for name in stage.clusters:
        cell = (stage.name, tenants.GPU)
        seen = [sample.usage for sample in sampler.samples if sample.cluster == name]
        assert max(usage.get(a, {}).get(cell, 0) for usage in seen) == 4, f"A borrowed in {name}"
        assert max(usage.get(b, {}).get(cell, 0) for usage in seen) == 2, f"B had its own in {name}"


def test_a_gang_that_follows_closely_is_not_left_waiting(stage: Stage, running: Controller) -> None:
    """Kueue has just counted the first gang's share, and it is still deducted, too: the second gang fits when that
    ends."""
    stage.build({"east": 4, "west": 0})
    stage.ray_cluster("first", workers=2)
    wait(lambda: stage.reserving() == 1, 60, "Kueue has counted the first", running.tail)
    stage.ray_cluster("second", workers=2)
    wait(lambda: stage.where("second") == "2 east", 20, "the second is placed", running.tail)


def _ready(stage: Stage, job: str) -> int:
    return Course(stage, ()).ready_workers()[job]
