"""Builds the controller's parts and passes them to each other; engine.py runs them."""

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
from adapter.shell.observe.drains import DrainObserver
from adapter.shell.observe.dry_run_answers import DryRunAnswers
from adapter.shell.observe.gang_observer import GangObserver
from adapter.shell.observe.job_problems import JobProblems
from adapter.shell.observe.kuberay_rejections import KubeRayRejections
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.shell.observe.relay_observer import RelayObserver
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
from adapter.shell.write.ended_gangs import EndedGangs
from adapter.shell.write.endpoint_slices import EndpointSliceWriter
from adapter.shell.write.events import EventRecorder
from adapter.shell.write.execute import Executor
from adapter.shell.write.gang_writer import GangWriter
from adapter.shell.write.job_labels import JobLabels
from adapter.shell.write.pod_writer import PodWriter
from adapter.shell.write.quotas import QuotaAggregator
from adapter.shell.write.relay_upkeep import RelayUpkeep
from adapter.shell.write.relay_writer import RelayWriter


@dataclass(frozen=True, slots=True)
class ControllerParts:
    fleet: Fleet
    transient: TransientState
    cluster_losses: ClusterLosses
    proxy_health: ProxyHealth
    preview: Preview
    object_copier: ObjectCopier
    relay_upkeep: RelayUpkeep
    job_labels: JobLabels
    condition_writer: ConditionWriter
    event_handlers: EventHandlers
    reconciler: Reconciler


@dataclass(frozen=True, slots=True)
class Observers:
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
    slots: SlotObserver
    relay: RelayObserver


def build_observers(
    manager: ManagerCache,
    fleet: Fleet,
    assignments: PendingAssignments,
    cluster_losses: ClusterLosses,
    proxy_health: ProxyHealth,
    transient: TransientState,
    manager_id: str,
) -> Observers:
    """`manager_id` identifies the manager in the worker clusters."""
    policies, sources = PolicyObserver(manager), SourceObjects(manager)
    job_problems = JobProblems(manager, policies, sources, KubeRayRejections(manager, transient))
    targets, shares, slots = (
        TargetBuilder(manager, manager_id),
        ReservationObserver(manager, fleet),
        SlotObserver(manager, fleet, assignments, transient),
    )
    dry_run_answers, replan_check = (
        DryRunAnswers(fleet, targets, manager.clock.now),
        ReplanCheck(manager, fleet, policies, transient),
    )
    workers = WorkerObserver(manager, fleet, policies, shares, targets, slots, cluster_losses, transient)
    gangs = GangObserver(
        manager,
        fleet,
        policies,
        sources,
        job_problems,
        targets,
        shares,
        slots,
        cluster_losses,
        transient,
        dry_run_answers,
        replan_check,
    )
    services = ServiceObserver(manager, fleet, cluster_losses, proxy_health)
    return Observers(
        policies,
        sources,
        job_problems,
        targets,
        shares,
        dry_run_answers,
        replan_check,
        workers,
        gangs,
        services,
        slots,
        RelayObserver(manager, fleet, policies),
    )


def build_planner(manager: ManagerCache, fleet: Fleet, observers: Observers, transient: TransientState) -> GangPlanner:
    drains = DrainObserver(manager, fleet)
    snapshot = Snapshot(
        manager, fleet, observers.policies, observers.targets, observers.reservations, observers.dry_run_answers
    )
    waiting_gangs = WaitingGangs(
        manager,
        drains,
        observers.policies,
        observers.job_problems,
        observers.reservations,
        transient,
        observers.replan_check,
        snapshot,
    )
    return GangPlanner(drains, observers.policies, observers.replan_check, snapshot, waiting_gangs)


def build_executor(
    manager: ManagerCache,
    fleet: Fleet,
    observers: Observers,
    planner: GangPlanner,
    recorder: EventRecorder,
    transient: TransientState,
    copier: ObjectCopier,
    relay: RelayWriter,
) -> Executor:
    gangs = GangWriter(manager, fleet, planner, transient, observers.dry_run_answers, relay)
    pods = PodWriter(manager, fleet, recorder, transient, copier, relay)
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
    """Build the controller of a manager cluster; `election`: None for a single process."""
    fleet = Fleet(tasks, manager_id, manager.client.may_write, election)
    transient, assignments, cluster_losses, proxy_health = (
        TransientState(),
        PendingAssignments(),
        ClusterLosses(manager, fleet),
        ProxyHealth(manager, fleet),
    )
    observers = build_observers(manager, fleet, assignments, cluster_losses, proxy_health, transient, manager_id)
    planner, recorder = build_planner(manager, fleet, observers, transient), EventRecorder(manager.client)
    copier = ObjectCopier(manager, fleet, observers.sources, observers.worker_observer)
    condition_writer = ConditionWriter(
        manager,
        fleet,
        LoginReader(tasks, manager),
        observers.policies,
        observers.reservations,
        recorder,
        observers.relay,
    )
    event_handlers = EventHandlers(queue, manager, fleet, observers.replan_check)
    relay = RelayWriter(manager, observers.policies)
    executor = build_executor(manager, fleet, observers, planner, recorder, transient, copier, relay)
    reconciler = Reconciler(
        manager=manager,
        fleet=fleet,
        gang_observer=observers.gang_observer,
        worker_observer=observers.worker_observer,
        service_observer=observers.service_observer,
        assignments=assignments,
        executor=executor,
        condition_writer=condition_writer,
        quota_aggregator=QuotaAggregator(manager, fleet, observers.policies, recorder),
        ended_gangs=EndedGangs(manager, fleet, observers.slots, transient, executor, recorder),
        event_handlers=event_handlers,
    )
    preview = Preview(manager, observers.policies, observers.job_problems, planner)
    return ControllerParts(
        fleet,
        transient,
        cluster_losses,
        proxy_health,
        preview,
        copier,
        RelayUpkeep(manager, fleet, observers.policies, observers.relay, relay),
        JobLabels(manager),
        condition_writer,
        event_handlers,
        reconciler,
    )
