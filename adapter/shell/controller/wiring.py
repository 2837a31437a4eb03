"""Which parts is the controller made of, and who is given whom? Each is built once, here and nowhere else.

It starts nothing and decides nothing: who runs when is for the engine.
"""

import asyncio
from dataclasses import dataclass

from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.logins import Logins
from adapter.shell.clusters.manager import Home
from adapter.shell.controller.handlers import Waker
from adapter.shell.controller.keys import QueueKey
from adapter.shell.controller.looks import Looks
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.gangs import Observer
from adapter.shell.observe.losses import Losses
from adapter.shell.observe.memory import Memory
from adapter.shell.observe.slots import Claims
from adapter.shell.planning.plans import Planning
from adapter.shell.planning.preview import Preview
from adapter.shell.write.conditions import Conditions
from adapter.shell.write.copies import Copier
from adapter.shell.write.events import Announcer
from adapter.shell.write.execute import Executor
from adapter.shell.write.gangs import GangWriter
from adapter.shell.write.pods import PodWriter
from adapter.shell.write.quotas import Aggregator


@dataclass(frozen=True, slots=True)
class Parts:
    """What the engine runs; everything else is behind these."""

    fleet: Fleet
    memory: Memory
    losses: Losses
    preview: Preview
    copier: Copier
    conditions: Conditions
    waker: Waker
    looks: Looks


def assemble(tasks: asyncio.TaskGroup, home: Home, manager: str, queue: WorkQueue[QueueKey]) -> Parts:
    """Build the controller of a manager cluster, which is called `manager` in the worker clusters."""
    fleet = Fleet(tasks, manager, home.client.may_write)
    memory, claims, losses = Memory(), Claims(), Losses(home, fleet)
    observer = Observer(home, fleet, claims, losses, manager)
    planning = Planning(home, fleet, observer, memory)
    announcer = Announcer(home.client)
    copier = Copier(home, fleet, observer.sources, observer.workers)
    gangs = GangWriter(home, fleet, planning, memory)
    pods = PodWriter(home, fleet, announcer, memory, copier)
    conditions = Conditions(home, fleet, Logins(tasks, home), observer.policies, observer.shares, announcer)
    waker = Waker(queue, home, fleet)
    looks = Looks(
        home=home,
        fleet=fleet,
        observer=observer,
        memory=memory,
        claims=claims,
        executor=Executor(gangs, pods, announcer),
        conditions=conditions,
        aggregator=Aggregator(home, fleet, observer.policies, announcer),
        waker=waker,
    )
    preview = Preview(home, fleet, observer, planning)
    return Parts(fleet, memory, losses, preview, copier, conditions, waker, looks)
