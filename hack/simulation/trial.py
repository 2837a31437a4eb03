"""One trial: a world on virtual time, the plan of a seed, and what came of it."""

import asyncio
import gc
import logging
import math
import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from adapter.shell.supervise import handle_loop_exception
from hack.simulation import plan, virtualtime
from hack.simulation.faults import Faults
from hack.simulation.forked_trial import ANY
from hack.simulation.plan import Event
from hack.simulation.promises import Promises
from hack.simulation.trace import Trace, Violation
from hack.simulation.world import Shape, World

_JOBS_END = 240.0  # seconds before the end of a trial
WARM_UP = 30.0
# Garbage is collected by virtual time: what it ends, such as an abandoned generator, ends at the same time in each
# trial of a seed.
_COLLECT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial showed."""

    seed: int
    virtual_hours: float
    digest: str
    steps: int
    requests: int
    writes: int
    cpu_seconds: float
    events: list[Event] = field(repr=False)
    violations: list[Violation] = field(repr=False)
    lines: list[str] = field(repr=False)


def run(
    seed: int,
    hours: float,
    only: Collection[int] | None = None,
    show: Callable[[str], None] | None = None,
    until: str = "",
    longest: float = math.inf,
) -> Outcome:
    """Run a seed's trial, with all its events or `only` those of some numbers. Virtual time is installed.

    It ends at the first violation of the rule `until`, of any rule if that is ANY, and after `longest` seconds.
    """
    shape = plan.draw_shape(seed)
    events = [one for one in plan.draw_events(seed, hours, shape) if only is None or one.number in only]
    return play(seed, shape, events, plan.length(hours), show, until, longest)


def play(
    seed: int,
    shape: Shape,
    events: list[Event],
    seconds: float,
    show: Callable[[str], None] | None = None,
    until: str = "",
    longest: float = math.inf,
) -> Outcome:
    """Run a world of a shape through some events; the seed draws all delays. Jobs end before `seconds`."""
    began = time.process_time()
    random.seed(seed)
    loop, trace = virtualtime.Loop(), Trace(show)
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(handle_loop_exception)
    logging.getLogger().addHandler(logging.NullHandler())  # promises.py hears what matters
    trace.note(f"seed {seed}: {shape}")
    world = World(loop, seed, shape, trace)
    faults = Faults(world)
    promises = Promises(world, faults)
    gc.collect()
    gc.freeze()
    gc.disable()
    loop.call_later(_COLLECT_SECONDS, _collect_garbage, loop)
    main = loop.create_task(_play(world, faults, promises, events, seconds))
    trace.on_violation = lambda rule: main.cancel() if until in (rule, ANY) else None
    if longest < math.inf:
        loop.call_later(longest, main.cancel)
    try:
        loop.run_until_complete(main)
    except asyncio.CancelledError:
        trace.note("the trial ends here")
    except virtualtime.Stalled:
        trace.violate("stalled", "", "all tasks wait for ever")
    return Outcome(
        seed, trace.now() / 3600, trace.digest, loop.steps, world.network.requests, trace.count,
        time.process_time() - began, events, trace.violations, list(trace.lines),
    )  # fmt: skip


def _collect_garbage(loop: virtualtime.Loop) -> None:
    gc.collect()
    loop.call_later(_COLLECT_SECONDS, _collect_garbage, loop)


async def _play(world: World, faults: Faults, promises: Promises, events: list[Event], length: float) -> None:
    world.start()
    end = world.loop.time() + WARM_UP + length
    for event in events:
        world.loop.call_later(WARM_UP + event.at, faults.begin, event)
    await asyncio.sleep(end - _JOBS_END - world.loop.time())
    for name in list(faults.jobs):
        faults.end_job(name)
    await asyncio.sleep(end - world.loop.time())
    promises.check_end()
