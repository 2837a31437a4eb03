"""Which parts is the controller made of, and who is given whom? Each is built once, here and nowhere else.

It starts nothing and decides nothing: who runs when is for the engine.
"""

import asyncio
from dataclasses import dataclass

from adapter.shell.clusters.claim_holder import Election
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.logins import Logins
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.controller.enqueue import QueueKey
from adapter.shell.controller.event_handlers import Waker
from adapter.shell.controller.reconciler import Looks
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.cluster_losses import Losses
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.observe.dry_run_answers import Trials
from adapter.shell.observe.gang_observer import Gangs
from adapter.shell.observe.job_problems import Refusals
from adapter.shell.observe.proxy_health import Proxies
from adapter.shell.observe.replan import Seen
from adapter.shell.observe.reservations import Shares
from adapter.shell.observe.service_observer import Services
from adapter.shell.observe.slots import PendingAssignments, Slots
from adapter.shell.observe.source_objects import Sources
from adapter.shell.observe.targets import Targets
from adapter.shell.observe.transient_state import Memory
from adapter.shell.observe.worker_observer import Workers
from adapter.shell.planning.plans import Planning, Waiters
from adapter.shell.planning.preview import Preview
from adapter.shell.planning.snapshot import Snapshot
from adapter.shell.write.conditions import Conditions
from adapter.shell.write.copies import Copier
from adapter.shell.write.dry_run_requests import Trier
from adapter.shell.write.endpoint_slices import SliceWriter
from adapter.shell.write.events import Announcer
from adapter.shell.write.execute import Executor
from adapter.shell.write.gang_writer import GangWriter
from adapter.shell.write.pod_writer import PodWriter
from adapter.shell.write.quotas import Aggregator


@dataclass(frozen=True, slots=True)
class Parts:
    """What the engine runs; everything else is behind these."""

    fleet: Fleet
    memory: Memory
    losses: Losses
    proxies: Proxies
    preview: Preview
    copier: Copier
    conditions: Conditions
    waker: Waker
    looks: Looks


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads which facts from the stores."""

    policies: Policies
    sources: Sources
    refusals: Refusals
    targets: Targets
    shares: Shares
    trials: Trials
    seen: Seen
    workers: Workers
    gangs: Gangs
    services: Services


def read(
    manager: Manager,
    fleet: Fleet,
    assignments: PendingAssignments,
    losses: Losses,
    proxies: Proxies,
    memory: Memory,
    manager_id: str,
) -> Readers:
    """Build those who read facts, of a manager cluster that is called `manager` in the worker clusters."""
    policies, sources = Policies(manager), Sources(manager)
    refusals = Refusals(manager, policies, sources)
    targets, shares, slots = (
        Targets(manager, manager_id),
        Shares(manager, fleet),
        Slots(manager, fleet, assignments, memory),
    )
    trials, seen = Trials(fleet, targets), Seen(manager, fleet, policies, memory)
    workers = Workers(manager, fleet, policies, shares, targets, slots, losses, memory)
    gangs = Gangs(manager, fleet, policies, sources, refusals, targets, shares, slots, losses, memory, trials, seen)
    services = Services(manager, fleet, losses, proxies)
    return Readers(policies, sources, refusals, targets, shares, trials, seen, workers, gangs, services)


def plan(manager: Manager, fleet: Fleet, facts: Readers, memory: Memory) -> Planning:
    """Build who makes plans."""
    snapshot = Snapshot(manager, fleet, facts.policies, facts.targets, facts.shares, facts.trials)
    waiters = Waiters(manager, fleet, facts.policies, facts.refusals, facts.shares, memory, facts.seen, snapshot)
    return Planning(fleet, facts.policies, facts.seen, snapshot, waiters)


def execute(
    manager: Manager,
    fleet: Fleet,
    facts: Readers,
    planning: Planning,
    announcer: Announcer,
    memory: Memory,
    copier: Copier,
) -> Executor:
    """Build who does actions."""
    gangs = GangWriter(manager, fleet, planning, memory, facts.trials)
    pods = PodWriter(manager, fleet, announcer, memory, copier)
    return Executor(gangs, Trier(fleet, facts.trials), pods, SliceWriter(manager, announcer), announcer)


def assemble(
    tasks: asyncio.TaskGroup,
    manager: Manager,
    manager_id: str,
    queue: WorkQueue[QueueKey],
    election: Election | None = None,
) -> Parts:
    """Build the controller of a manager cluster, which is called `manager` in the worker clusters; `election`: that by which this
    process leads, if it is one of several."""
    fleet = Fleet(tasks, manager_id, manager.client.may_write, election)
    memory, assignments, losses, proxies = (
        Memory(),
        PendingAssignments(),
        Losses(manager, fleet),
        Proxies(manager, fleet),
    )
    facts = read(manager, fleet, assignments, losses, proxies, memory, manager_id)
    planning, announcer = plan(manager, fleet, facts, memory), Announcer(manager.client)
    copier = Copier(manager, fleet, facts.sources, facts.workers)
    conditions = Conditions(manager, fleet, Logins(tasks, manager), facts.policies, facts.shares, announcer)
    waker = Waker(queue, manager, fleet, facts.seen)
    looks = Looks(
        manager=manager,
        fleet=fleet,
        gangs=facts.gangs,
        workers=facts.workers,
        services=facts.services,
        assignments=assignments,
        executor=execute(manager, fleet, facts, planning, announcer, memory, copier),
        conditions=conditions,
        aggregator=Aggregator(manager, fleet, facts.policies, announcer),
        waker=waker,
    )
    preview = Preview(manager, fleet, facts.policies, facts.refusals, planning)
    return Parts(fleet, memory, losses, proxies, preview, copier, conditions, waker, looks)
