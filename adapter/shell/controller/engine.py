"""Runs one replica: follows the clusters, campaigns for the Lease, and reconciles keys while it leads.

A standby follows the clusters, to take over at once, and answers previews. It reads pods, which are most of the objects
and do not affect a plan, only when the leader is late (`lease.py`, `may_lead_soon`). It decides nothing before it
leads.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping

from adapter.leader_election import RETRY_PERIOD_SECONDS
from adapter.objects.unstructured import key_of, uid_of
from adapter.shell import metrics
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.controller import wiring
from adapter.shell.controller.enqueue import CLUSTER, QueueKey
from adapter.shell.controller.lease import LeaderElector, LeadershipLost
from adapter.shell.controller.wiring import ControllerParts
from adapter.shell.controller.workqueue import Postpone, WorkQueue
from adapter.shell.kube.client import Client
from adapter.shell.planning.preview import Preview
from adapter.shell.supervise import contain_errors, run_with_restarts
from adapter.shell.write import anchors
from adapter.worker.template_slots import must_check_slot

log = logging.getLogger(__name__)

# A safety net for the watches: each key is reconciled once in this time.
RESYNC_SECONDS = 60.0
CRD_SECONDS = 60.0  # between two reads of what the CRDs declare
# The longest wait for the worker clusters at the start. A list takes a fraction of a second, and an unreachable cluster
# must not delay the others noticeably.
FIRST_CONTACT_SECONDS = 3.0
# The clusters that are engaged at once: kubeconfig and certificates take some milliseconds for each of up to a hundred.
ENGAGED_AT_ONCE = 4


def ignore() -> None:
    """Do nothing."""


class Engine:
    """`run` ends only by cancellation or by a fault that must end the process."""

    def __init__(self, client: Client, elector: LeaderElector | None, on_settled: Callable[[], None] = ignore) -> None:
        """`client` is fenced by the Lease; without `elector` no other process may run.

        `on_settled` is called each time that caches have been filled.
        """
        self._elector, self._leading, self._on_settled = elector, False, on_settled
        self.manager = ManagerCache(client)
        if elector:
            self.manager.skip_deferred()
        self._queue: WorkQueue[QueueKey] = WorkQueue(self._handle_key)
        self.manager.on_reachable = self._queue.retry_failed
        self._parts: ControllerParts | None = None  # None until the manager cluster was read

    @property
    def preview(self) -> Preview | str:
        """The preview of unsubmitted jobs, or the reason why there is none."""
        if self.manager.unreachable_reason:
            return f"{self.manager.unreachable_reason[:1].upper()}{self.manager.unreachable_reason[1:]}."
        if self._parts is None:
            return "The controller has just started and still reads its clusters; ask again in a moment."
        return self._parts.preview

    def worker_caches(self) -> Mapping[str, WorkerClusterCache]:
        """The caches of the worker clusters by name; none until the manager cluster was read."""
        return self._parts.fleet.caches() if self._parts else {}

    async def run(self) -> None:
        """Follow the clusters, and decide while leading; raises LeadershipLost in an exception group."""
        manager_id = await self.manager.read_identity()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_with_restarts("manager", self.manager.run, on_failure=self.manager.on_run_failed))
            # Nothing may be decided on a partial snapshot.
            await self.manager.stores_filled.wait()
            log.info("manager cluster is read")
            parts = wiring.assemble(tasks, self.manager, manager_id, self._queue, self._elector)
            parts.event_handlers.register()
            if self._elector:
                parts.fleet.skip_deferred()
            await self._first_contact(parts)
            self._parts = parts
            self._on_settled()
            tasks.create_task(run_with_restarts("queue", self._queue.run))
            await self._read_crds()
            await self._wait_to_lead(tasks, parts)
            sweep = functools.partial(anchors.run, parts.fleet.reachable, self.manager, manager_id)
            tasks.create_task(run_with_restarts("crds", functools.partial(self._watch_crds, parts)))
            tasks.create_task(run_with_restarts("resync", functools.partial(self._resync, parts)))
            tasks.create_task(
                run_with_restarts(
                    "losses", functools.partial(parts.cluster_losses.run, parts.event_handlers.on_unreachable_pod)
                )
            )
            tasks.create_task(
                run_with_restarts(
                    "proxies", functools.partial(parts.proxy_health.run, parts.event_handlers.on_unreachable_pod)
                )
            )
            tasks.create_task(run_with_restarts("anchors", sweep))
            tasks.create_task(run_with_restarts("copies", parts.object_copier.run))
            tasks.create_task(run_with_restarts("relay", parts.relay_upkeep.run))
            tasks.create_task(run_with_restarts("job labels", parts.job_labels.run))

    async def _wait_to_lead(self, tasks: asyncio.TaskGroup, parts: ControllerParts) -> None:
        if self._elector:
            # A failed renewal must not delay the next one: a Lease that is lost ends the process.
            lease_task = run_with_restarts(
                "lease", self._elector.run, fatal=(LeadershipLost,), longest_pause=RETRY_PERIOD_SECONDS
            )
            tasks.create_task(lease_task)
            await self._elector.may_lead_soon.wait()
            self.manager.follow_deferred()
            parts.fleet.follow_deferred()
            # The wait begins before the Lease is held: an unreachable cluster must not prolong the time without a
            # leader.
            reachable_wait = tasks.create_task(_wait_until_reachable(parts))
            await self._elector.leading.wait()
            await self.manager.stores_filled.wait()
            await reachable_wait
            self._on_settled()
        self._leading = True
        parts.transient.start_leading(self.manager.clock.now(), map(uid_of, filter(must_check_slot, self.manager.pods)))
        metrics.LEADER.set(1)
        log.info("leading; deciding")

    async def _first_contact(self, parts: ControllerParts) -> None:
        """Wait for the worker clusters briefly, so that a restart does not report each as unreachable."""
        semaphore = asyncio.Semaphore(ENGAGED_AT_ONCE)
        await asyncio.gather(
            *(self._engage_cluster(parts, key_of(raw)[1], semaphore) for raw in self.manager.worker_clusters)
        )
        await _wait_until_reachable(parts)

    async def _engage_cluster(self, parts: ControllerParts, name: str, few: asyncio.Semaphore) -> None:
        async with few:
            with contain_errors("fleet", name):
                await parts.condition_writer.engage_cluster(name)

    async def _read_crds(self) -> bool:
        """Read what the CRDs lack; whether that has changed."""
        has_changed = False
        with contain_errors("resync", "crds"):
            has_changed = await self.manager.crds.refresh()
        return has_changed

    async def _watch_crds(self, parts: ControllerParts) -> None:
        """Read the CRDs again and again; jobs wait for a change."""
        while True:
            if await self._read_crds():
                parts.event_handlers.resync_all(0.0)
            await asyncio.sleep(CRD_SECONDS)

    async def _resync(self, parts: ControllerParts) -> None:
        spread_seconds = 0.0  # a new leader reconciles everything at once
        while True:
            with contain_errors("resync", "everything"):
                parts.event_handlers.resync_all(spread_seconds)
            spread_seconds = RESYNC_SECONDS
            with contain_errors("resync", "memory"):
                shares = (raw for member in parts.fleet.reachable().values() for raw in member.workloads)
                alive = self.manager.placements, self.manager.pods, self.manager.ray_clusters, shares
                parts.transient.keep_only(*(map(uid_of, objects) for objects in alive))
            await asyncio.sleep(RESYNC_SECONDS)

    async def _handle_key(self, key: QueueKey) -> float | None:
        """Reconcile a key; a standby only engages worker clusters."""
        if self.manager.unreachable_reason:
            raise Postpone(self.manager.unreachable_reason)
        if self._parts is None:
            return None  # everything is enqueued once the parts exist
        if self._leading:
            return await self._parts.reconciler.reconcile(key)
        kind, _, name = key
        if kind == CLUSTER:
            await self._parts.condition_writer.engage_cluster(name)
        return None  # a new leader reconciles everything


async def _wait_until_reachable(parts: ControllerParts) -> None:
    try:
        async with asyncio.timeout(FIRST_CONTACT_SECONDS):
            await asyncio.gather(*(member.first_reached.wait() for member in parts.fleet.caches().values()))
    except TimeoutError:
        log.info("not every worker cluster is reachable; continuing with the others")
