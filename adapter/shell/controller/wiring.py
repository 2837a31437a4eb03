"""Which parts is the controller made of, and who is given whom? Each is built once, here and nowhere else.

It starts nothing and decides nothing: who runs when is for the engine.
"""

import asyncio
from dataclasses import dataclass

from adapter.shell.clusters.claim_holder import Election
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.logins import LoginReader
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.controller.enqueue import QueueKey
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.reconciler import Reconciler
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.dry_run_answers import DryRunAnswers
from adapter.shell.observe.gang_observer import GangObserver
from adapter.shell.observe.job_problems import JobProblems
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.service_observer import ServiceObserver
from adapter.shell.observe.slots import PendingAssignments, SlotObserver
from adapter.shell.observe.source_objects import SourceObjects
from adapter.shell.observe.targets import TargetBuilder
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.observe.worker_observer import WorkerObserver
from adapter.shell.planning.plans import GangPlanner, WaitingGangs
from adapter.shell.planning.preview import Preview
from adapter.shell.planning.snapshot import Snapshot
from adapter.shell.write.conditions import ConditionWriter
from adapter.shell.write.copies import ObjectCopier
from adapter.shell.write.dry_run_requests import DryRunner
from adapter.shell.write.endpoint_slices import EndpointSliceWriter
from adapter.shell.write.events import EventRecorder
from adapter.shell.write.execute import Executor
from adapter.shell.write.gang_writer import GangWriter
from adapter.shell.write.pod_writer import PodWriter
from adapter.shell.write.quotas import QuotaAggregator


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """What the engine runs; everything else is behind these."""

    fleet: Fleet
    transient: TransientState
    cluster_losses: ClusterLosses
    proxy_health: ProxyHealth
    preview: Preview
    object_copier: ObjectCopier
    condition_writer: ConditionWriter
    event_handlers: EventHandlers
    reconciler: Reconciler


@dataclass(frozen=True, slots=True)
class Observers:
    """Who reads which facts from the stores."""

    policies: PolicyObserver
    sources: SourceObjects
    job_problems: JobProblems
    targets: TargetBuilder
    reservations: ReservationObserver
    dry_run_answers: DryRunAnswers
    replan_check: ReplanCheck
    worker_observer: WorkerObserver
    gang_observer: GangObserver
    service_observer: ServiceObserver


def build_observers(
    manager: ManagerCache,
    fleet: Fleet,
    assignments: PendingAssignments,
    cluster_losses: ClusterLosses,
    proxy_health: ProxyHealth,
    transient: TransientState,
    manager_id: str,
) -> Observers:
    """Build those who read facts, of a manager cluster that is called `manager` in the worker clusters."""
    policies, sources = PolicyObserver(manager), SourceObjects(manager)
    refusals = JobProblems(manager, policies, sources)
    targets, shares, slots = (
        TargetBuilder(manager, manager_id),
        ReservationObserver(manager, fleet),
        SlotObserver(manager, fleet, assignments, transient),
    )
    trials, seen = DryRunAnswers(fleet, targets), ReplanCheck(manager, fleet, policies, transient)
    workers = WorkerObserver(manager, fleet, policies, shares, targets, slots, cluster_losses, transient)
    gangs = GangObserver(
        manager, fleet, policies, sources, refusals, targets, shares, slots, cluster_losses, transient, trials, seen
    )
    services = ServiceObserver(manager, fleet, cluster_losses, proxy_health)
    return Observers(policies, sources, refusals, targets, shares, trials, seen, workers, gangs, services)


def build_planner(manager: ManagerCache, fleet: Fleet, observers: Observers, transient: TransientState) -> GangPlanner:
    """Build who makes plans."""
    snapshot = Snapshot(
        manager, fleet, observers.policies, observers.targets, observers.reservations, observers.dry_run_answers
    )
    waiters = WaitingGangs(
        manager,
        fleet,
        observers.policies,
        observers.job_problems,
        observers.reservations,
        transient,
        observers.replan_check,
        snapshot,
    )
    return GangPlanner(fleet, observers.policies, observers.replan_check, snapshot, waiters)


def build_executor(
    manager: ManagerCache,
    fleet: Fleet,
    observers: Observers,
    planner: GangPlanner,
    recorder: EventRecorder,
    transient: TransientState,
    copier: ObjectCopier,
) -> Executor:
    """Build who does actions."""
    gangs = GangWriter(manager, fleet, planner, transient, observers.dry_run_answers)
    pods = PodWriter(manager, fleet, recorder, transient, copier)
    return Executor(
        gangs, DryRunner(fleet, observers.dry_run_answers), pods, EndpointSliceWriter(manager, recorder), recorder
    )


def assemble(
    tasks: asyncio.TaskGroup,
    manager: ManagerCache,
    manager_id: str,
    queue: WorkQueue[QueueKey],
    election: Election | None = None,
) -> ControllerParts:
    """Build the controller of a manager cluster, which is called `manager` in the worker clusters; `election`: that by which this
    process leads, if it is one of several."""
    fleet = Fleet(tasks, manager_id, manager.client.may_write, election)
    memory, assignments, losses, proxies = (
        TransientState(),
        PendingAssignments(),
        ClusterLosses(manager, fleet),
        ProxyHealth(manager, fleet),
    )
    facts = build_observers(manager, fleet, assignments, losses, proxies, memory, manager_id)
    planning, announcer = build_planner(manager, fleet, facts, memory), EventRecorder(manager.client)
    copier = ObjectCopier(manager, fleet, facts.sources, facts.worker_observer)
    conditions = ConditionWriter(
        manager, fleet, LoginReader(tasks, manager), facts.policies, facts.reservations, announcer
    )
    waker = EventHandlers(queue, manager, fleet, facts.replan_check)
    looks = Reconciler(
        manager=manager,
        fleet=fleet,
        gang_observer=facts.gang_observer,
        worker_observer=facts.worker_observer,
        service_observer=facts.service_observer,
        assignments=assignments,
        executor=build_executor(manager, fleet, facts, planning, announcer, memory, copier),
        condition_writer=conditions,
        quota_aggregator=QuotaAggregator(manager, fleet, facts.policies, announcer),
        event_handlers=waker,
    )
    preview = Preview(manager, fleet, facts.policies, facts.job_problems, planning)
    return ControllerParts(fleet, memory, losses, proxies, preview, copier, conditions, waker, looks)
