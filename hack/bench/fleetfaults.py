"""Measures what faults cost a fleet: a slow cluster, lost workers, a killed leader, and who gets freed capacity.

It needs no cluster. The whole controller runs over API servers in memory, as in `fleet`. Figures are wall-clock time,
so they are meaningful only on an otherwise idle machine. Placements out of order and double creations are counted.
Those who replace and admit act at once (fleetactors.py): the delay of the clusters is subtracted as the floor.
"""

import argparse
import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from itertools import pairwise
from statistics import median
from typing import Any

import uvloop

from adapter import leader_election, names
from adapter.objects.unstructured import Raw, key_of, label, uid_of
from adapter.shell.kube import resources
from adapter.shell.kube.resources import Resource
from hack.bench import promises
from hack.bench.fleetactors import Crowd, KubeRay, check_of, number_of
from hack.bench.fleetapi import Cluster
from hack.bench.fleetgang import Gang
from hack.bench.fleetinput import Size
from hack.bench.fleetworld import PATIENCE, STARTS_IN, Process, World
from hack.bench.promises import Found, Row
from hack.lab.base.progress import LabError, step
from hack.testbed import figures
from hack.testbed.figures import Value

NAME = "faults"
HELP = "a slow cluster, lost workers, a killed leader, and room that comes free, beside thousands of workers"
_SLOW = 5.0  # seconds for each answer: half of the request timeout, so the cluster counts as reachable
# Of gangs, whether they meet it slow: alternating, so that going first has no advantage.
_ORDER = (False, True, True, False, False, True)
_ONE_BY_ONE, _AT_ONCE = 20, 100  # workers that are lost
_WORKERS = 8  # of a gang that waits
_ROOMS, _ROOMY = 10, 4  # times that capacity is freed, and worker clusters in which that happens in turn
# CPUs that are freed: enough for one gang and not for two. Each worker takes one.
_FREE = _WORKERS + _WORKERS // 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The faults to measure, and their size."""
    parser.add_argument("--faults", nargs="+", choices=[*_ROWS], default=[*_ROWS], metavar="FAULT",
                        help=f"which faults (faults; default all: {', '.join(_ROWS)})")  # fmt: skip
    parser.add_argument("--faults-pods", type=int, default=300, help="workers of each gang that starts (faults)")
    parser.add_argument("--faults-waiting", type=int, default=1_000, help="gangs that wait for room (faults)")


def run(asked: argparse.Namespace) -> Found:
    """Measure, print a table, and return lines for programs, and what is promised beside what it is."""
    lines, told, rows = list[str](), list[Row](), list[tuple[str, Value]]()
    for fault in asked.faults:
        with step(f"faults: {fault}"):
            values = uvloop.run(_ROWS[fault](asked))
        kept = {key: promise for key, promise in promises.FAULTS.items() if key in values}
        rows += values.items()
        met = str(promises.met(values, kept)).lower()
        lines.append(figures.line(NAME, {"fault": fault, **values, "met": met}))
        told += promises.rows(NAME, fault, values, kept)
    print(f"\n{figures.table(('', ''), rows)}\n")
    return Found(lines, told)


async def _slow(asked: argparse.Namespace) -> dict[str, Value]:
    """A gang's workers start in two clusters, of which one is well, and the other one is so, too, or answers late."""
    pods, east, west = asked.faults_pods, *Size(0, 2, 1).names
    paces: dict[bool, list[float]] = {False: [], True: []}
    async with World(Size(pods * (1 + len(_ORDER)), 2, pods)) as world:
        leader = await _leader(world)
        first, *gangs = world.gangs
        await _pace(world, first, east)  # unmeasured: it warms up what is read only once
        await leader.until(lambda: world.runs(first))
        for gang, slow in zip(gangs, _ORDER, strict=True):
            world.clusters[west].delay = _SLOW if slow else 0.0
            paces[slow].append(await _pace(world, gang, east))
            world.clusters[west].delay = 0.0
            await leader.until(functools.partial(world.runs, gang))
    well, late = median(paces[False]), median(paces[True])
    return {"east_well": well, "east_slow": late, "east_ratio": figures.ratio(late, well)}


async def _pace(world: World, gang: Gang, cluster: str) -> float:
    """How many of a gang's workers in a cluster begin to run in a second, from when the gang's are made."""
    clock = _Clock(world, lambda pod: label(pod, names.CLUSTER_LABEL) == cluster and _of(pod, gang))
    began = asyncio.get_running_loop().time()
    making = asyncio.create_task(world.create(gang))
    await _until(
        world, resources.PODS, lambda: len(clock.ran) == gang.counts[cluster], "not all of a gang's workers ran"
    )
    await making
    return gang.counts[cluster] / (max(clock.ran.values()) - began)


async def _lost(asked: argparse.Namespace) -> dict[str, Value]:
    """Remote pods vanish, one by one and then many at once: measures until their replacements run."""
    pods = asked.faults_pods
    async with World(Size(pods, 2, pods)) as world:
        (gang,) = world.gangs
        world.run(gang)
        leader = await _leader(world)
        KubeRay(world, gang)
        alone = [took for _ in range(_ONE_BY_ONE) for took in await _replaced(world, leader, gang, 1)]
        together = await _replaced(world, leader, gang, min(_AT_ONCE, pods))
    found = {"one": alone, "many": together}
    return {f"{key}_p99_s": figures.percentile(took, 99) - STARTS_IN for key, took in found.items()}


async def _replaced(world: World, leader: Process, gang: Gang, many: int) -> list[float]:
    clock = _Clock(world, lambda pod: _of(pod, gang))
    gone, lost = asyncio.get_running_loop().time(), set(map(number_of, world.lose(gang, many)))
    await _until(world, resources.PODS, lambda: clock.ran.keys() >= lost, "not all of the lost workers were replaced")
    await leader.until()
    return [clock.ran[number] - gone for number in lost]


async def _killed(asked: argparse.Namespace) -> dict[str, Value]:
    """Kill a leader when half of a gang's remote pods are made; another stands by. Measures the gap and double
    creations.
    """
    pods = asked.faults_pods
    async with World(Size(pods, 2, pods)) as world:
        (gang,), made = world.gangs, list[float]()
        leader = await _leader(world, shipped=True)
        standby = await world.controller(shipped=True)
        await standby.until()

        def count(*_: object) -> None:
            made.append(asyncio.get_running_loop().time())
            if len(made) == pods // 2:
                leader.kill()

        for name in world.size.names:
            world.clusters[name].listen(resources.PODS, count)
        await world.create(gang)
        spent = await standby.until(lambda: world.runs(gang))
        if not spent.workers:
            raise LabError("All copies were on their way when the leader was killed; take more workers.")
        copies = sum(len(world.workers(gang, name)) for name in world.size.names)
    gap = max(later - sooner for sooner, later in pairwise(made[pods // 2 - 1 :]))
    return {"gap_s": gap - leader_election.LEASE_DURATION_SECONDS, "doubled": len(made) - pods, "copies": copies}


async def _freed(asked: argparse.Namespace) -> dict[str, Value]:
    """Gangs wait, and room for one of them comes free, again and again, here and there."""
    async with World(Size(0, _ROOMY, 1)) as world:
        crowd = Crowd(world, asked.faults_waiting, _WORKERS)
        leader = await world.controller()
        await leader.until(crowd.waits, quiet=False)  # it is never quiet: waiting gangs are reconciled now and then
        placed = _placed(world)
        took = [await _filled(world, leader, crowd, placed) for _ in range(min(_ROOMS, asked.faults_waiting))]
    wanted = (gang.work.name for gang in crowd.gangs)
    wrong = sum(name != its for name, its in zip(placed, wanted, strict=False)) + len(placed) - len(took)
    return {"freed_p99_s": figures.percentile(took, 99), "wrong": wrong}


def _placed(world: World) -> dict[str, float]:
    """When gangs are placed from now on, as their Workloads say."""
    placed: dict[str, float] = {}

    def note(_: Cluster, work: Raw) -> None:
        if check_of(work)["state"] == names.CHECK_READY:
            placed.setdefault(key_of(work)[1], asyncio.get_running_loop().time())

    world.manager.follow(resources.WORKLOADS, note)
    return placed


async def _filled(world: World, leader: Process, crowd: Crowd, placed: Mapping[str, float]) -> float:
    """Seconds from when room comes free to when one more gang is placed."""
    before, since = len(placed), asyncio.get_running_loop().time()
    crowd.free(world.size.names[before % _ROOMY], _FREE)
    await _until(world, resources.WORKLOADS, lambda: len(placed) > before, "nobody got the room that came free")
    # The gangs behind learn that it is taken while the next capacity is freed elsewhere.
    await leader.until(others=1, quiet=False)
    return list(placed.values())[before] - since


_ROWS: Mapping[str, Callable[[argparse.Namespace], Coroutine[Any, Any, dict[str, Value]]]] = {
    "slow": _slow,
    "lost": _lost,
    "killed": _killed,
    "freed": _freed,
}


class _Clock:
    """When those of the manager's pods that are asked for say first that they run, by KubeRay's number, from now on."""

    def __init__(self, world: World, wanted: Callable[[Raw], bool]) -> None:
        self.ran: dict[int, float] = {}
        self._wanted, self._ran = wanted, {uid_of(pod) for pod in world.manager.all(resources.PODS) if _runs(pod)}
        world.manager.follow(resources.PODS, self._heard)

    def _heard(self, _: Cluster, pod: Raw) -> None:
        if _runs(pod) and uid_of(pod) not in self._ran and self._wanted(pod):
            self._ran.add(uid_of(pod))
            self.ran[number_of(pod)] = asyncio.get_running_loop().time()


def _runs(pod: Raw) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _of(pod: Raw, gang: Gang) -> bool:
    return label(pod, names.PLACEMENT_LABEL) == gang.name


async def _leader(world: World, *, shipped: bool = False) -> Process:
    """A controller that leads, and has nothing left to do."""
    leader = await world.controller(shipped=shipped)
    await leader.until(lambda: all(world.connected()))
    return leader


async def _until(world: World, resource: Resource, done: Callable[[], bool], otherwise: str) -> None:
    """Wait for what controllers do to the manager's objects of a kind."""
    changed = asyncio.Event()
    world.manager.follow(resource, lambda *_: changed.set())
    try:
        async with asyncio.timeout(PATIENCE):
            while not done():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        raise LabError(f"Within {PATIENCE:.0f} s {otherwise}.") from None
