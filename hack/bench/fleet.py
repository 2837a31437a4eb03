"""Measures what a fleet costs the controller: stalls of its loop, the cost of a worker, memory for ten thousand.

It needs no cluster. The whole controller runs in processes of its own over API servers in memory (fleetapi.py). Stalls
and costs are CPU time, so other work on the machine changes little; memory is the process's. Correctness is proved
elsewhere, on real API servers.
"""

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import replace

import uvloop

from hack.bench import promises
from hack.bench.fleetinput import Size
from hack.bench.fleetprocess import RESYNC, Numbers
from hack.bench.fleetworld import Process, World
from hack.bench.promises import Found, Promise, Row
from hack.lab.base.progress import LabError, step
from hack.testbed import figures
from hack.testbed.figures import Value

NAME = "fleet"
HELP = "stalls of the loop, costs of a worker, and memory, with thousands of workers"
_FRESH = 20  # workers without a remote pod when a controller starts
# Pods, clusters and the workers of a gang. A gang of 4 000 must end.
SHAPES = {
    "10k": Size(10_000, 2, 4_000),
    "wide": Size(3_000, 100, 1_000),
    "chosen": Size(1_000, 100, 500, selector=True),
}
_FEW = 20  # worker clusters of a gang: as many as templates list slots of
PACES = {
    **{f"{pods}x{clusters}": Size(pods, clusters, pods, across=_FEW) for pods in (100, 1_000) for clusters in (2, 100)},
    "1000x100-chosen": Size(1_000, 100, 1_000, across=_FEW, selector=True),
}
# Shapes whose slots are written one by one, as of a gang that spans all of a hundred clusters.
WRITTEN = {
    f"{pods}x{clusters}-written": Size(pods, clusters, pods, listed=False)
    for pods, clusters in ((100, 2), (1_000, 100))
}
# Rows in which a worker must cost about as much.
_FLAT = {"flat": ("100x2", "1000x100"), "flat-written": ("100x2-written", "1000x100-written")}
_ROWS = {**SHAPES, **PACES, **WRITTEN}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The rows to measure, and their size."""
    rows = [*_ROWS]
    parser.add_argument(
        "--fleet-rows", nargs="+", choices=rows, default=rows, metavar="ROW",
        help=f"which rows (fleet; default all: {', '.join(rows)})",
    )  # fmt: skip
    parser.add_argument("--fleet-pods", type=int, help="workers of each row in place of its own (fleet)")
    parser.add_argument("--fleet-clusters", type=int, help="worker clusters of each row in place of its own (fleet)")


def run(asked: argparse.Namespace) -> Found:
    """Measure, print tables, and return lines for programs, and what is promised beside what it is."""
    lines, told = list[str](), list[Row]()
    measured: dict[str, dict[str, Value]] = {}
    for row in asked.fleet_rows:
        size = _sized(_ROWS[row], asked)
        with step(f"fleet {row}: {size.pods} workers over {size.clusters} clusters"):
            measured[row] = values = uvloop.run(_stands(size) if row in SHAPES else _comes(size))
        kept = {key: promise for key, promise in _promises(row).items() if key in values}
        values["met"] = str(promises.met(values, kept)).lower()
        lines.append(figures.line(NAME, {"row": row, "pods": size.pods, "clusters": size.clusters, **values}))
        told += promises.rows(NAME, row, values, kept)
    for rows in (SHAPES, PACES, WRITTEN):
        print(_table({row: values for row, values in measured.items() if row in rows}))
    for row, (few, many) in _FLAT.items():
        if flat := _flat(measured, few, many):
            lines.append(figures.line(NAME, {"row": row, **flat}))
            told += promises.rows(NAME, row, flat, promises.FLAT)
    return Found(lines, told)


def _promises(row: str) -> Mapping[str, Promise]:
    return {**promises.FLEET, **promises.WRITTEN} if row in WRITTEN else promises.FLEET


def _sized(size: Size, asked: argparse.Namespace) -> Size:
    pods = asked.fleet_pods or size.pods
    gang = pods if size.gang == size.pods else min(size.gang, pods)
    return replace(size, pods=pods, clusters=asked.fleet_clusters or size.clusters, gang=gang)


def _table(rows: Mapping[str, Mapping[str, Value]]) -> str:
    keys = list(dict.fromkeys(key for values in rows.values() for key in values))
    nothing = float("nan")
    cells = [[key, *(values.get(key, nothing) for values in rows.values())] for key in keys]
    return f"\n{figures.table(('', *rows), cells)}\n" if rows else ""


def _flat(measured: Mapping[str, Mapping[str, Value]], few: str, many: str) -> dict[str, Value]:
    """The cost of a worker in the largest crowd against the smallest."""
    if not {few, many} <= measured.keys():
        return {}
    return {"cpu_factor": figures.ratio(float(measured[many]["cpu_ms"]), float(measured[few]["cpu_ms"]))}


async def _stands(size: Size) -> dict[str, Value]:
    """Workers run: a controller starts, another stands by, a resync runs, clusters are lost and return, a gang ends."""
    async with World(size, _FRESH) as world:
        for gang in world.gangs[:-1]:
            world.run(gang)
        await world.create(world.gangs[-1])
        leader = await world.controller()
        values = await _starts(world, leader)
        standby = await world.controller()
        values["standby_mb"] = (await standby.until(quiet=True)).rss_mb
        await leader.ask(RESYNC)
        values |= _of("resync", await leader.until(looks=size.pods, quiet=False), size.pods)
        values |= _of("contact", await _loses(world, leader), size.pods)
        if size.gang >= 1_000:
            values |= _of("teardown", await _ends(world, leader), size.gang)
        await standby.until()
        return values


async def _starts(world: World, leader: Process) -> dict[str, Value]:
    """A controller starts: its first decision is a copy that it makes."""
    loop = asyncio.get_running_loop()
    began, first = loop.time(), await leader.until(world.any_made, quiet=False)
    values: dict[str, Value] = {"start_s": loop.time() - began, "start_cpu_s": first.cpu_s}
    settled = await leader.until(lambda: world.runs(world.gangs[-1]), looks=world.size.pods - int(first.looks))
    stall = max(first.stall_ms, settled.stall_ms)
    return {**values, "start_stall_ms": stall, "start_peak_mb": settled.peak_mb, "leader_mb": settled.rss_mb}


async def _loses(world: World, leader: Process) -> Numbers:
    """All worker clusters fall silent, and come back."""
    world.silence(silent=True)
    lost = await leader.until(lambda: not any(world.connected()))
    world.silence(silent=False)
    return lost + await leader.until(lambda: all(world.connected()))


async def _ends(world: World, leader: Process) -> Numbers:
    """A gang ends."""
    gang = world.gangs[0]
    ending = asyncio.create_task(world.end(gang))
    spent = await leader.until(lambda: ending.done() and world.is_gone(gang))
    await ending
    return spent


def _of(what: str, spent: Numbers, pods: int) -> dict[str, Value]:
    found = {"stall_ms": spent.stall_ms, "cpu_ms": spent.cpu_s * 1000 / pods, "looks": spent.looks / pods}
    return {f"{what}_{key}": value for key, value in found.items()}


async def _comes(size: Size) -> dict[str, Value]:
    """A gang's workers are made while a controller leads and another one stands by, until all of them run."""
    async with World(size) as world:
        leader = await world.controller()
        await leader.until(lambda: all(world.connected()))
        standby = await world.controller()
        await standby.until()
        await leader.until()
        making = asyncio.create_task(world.create(world.gangs[0]))
        led = await leader.until(lambda: making.done() and world.runs(world.gangs[0]))
        stood = await standby.until()
        if sum(world.made.values()) != size.pods:
            raise LabError(f"{sum(world.made.values())} copies were made of {size.pods} workers.")
        each = {"leader_ms": led.cpu_s * 1000, "standby_ms": stood.cpu_s * 1000, "looks": led.looks}
        asked = {
            "manager_writes": led.manager,
            "worker_writes": led.workers,
            "cpu_ms": (led.cpu_s + stood.cpu_s) * 1000,
        }
        return {**{key: value / size.pods for key, value in (each | asked).items()}, "stall_ms": led.stall_ms}
