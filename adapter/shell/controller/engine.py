"""Which process decides, and what runs in it? Follows the clusters, campaigns for the Lease, and looks at keys while it leads.

Of several replicas one leads. The others follow the same clusters, so that they can take over at once and say meanwhile
what would be planned; they decide nothing and write nothing. Pods, which are most of what there is and nothing to plan by, they follow
from when the leader is late (`leader_election.near`), and whoever leads decides nothing before it has read them. What a look is, is for
`looks`; who the parts are, for `wiring`.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from adapter.leader_election import RETRY_PERIOD_SECONDS
from adapter.objects.unstructured import key_of, uid_of
from adapter.shell import metrics
from adapter.shell.clusters.manager_cache import ManagerCache
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

# A net under the watches: every key is looked at once in this many seconds, each at a moment of its own. Seldom, since nothing should hang
# on it.
RESYNC_SECONDS = 60.0
# How long a start waits for its worker clusters: a list takes a fraction of a second, and one that is cut off shall not
# hold up the others for longer than a user would notice.
FIRST_CONTACT_SECONDS = 3.0
# Whose kubeconfigs and certificates are read in one turn of the loop: some milliseconds each, and a fleet has a hundred.
ENGAGED_AT_ONCE = 4


def ignore() -> None:
    """Nobody wants to know."""


class Engine:
    """Runs everything; `run` ends only by cancellation or by a fault that the process shall not survive."""

    def __init__(self, client: Client, elector: LeaderElector | None, on_settled: Callable[[], None] = ignore) -> None:
        """`client` is fenced by the lease; without one, nobody else must run. `settled` is told when all that is followed was read."""
        self._elector, self._leading, self._on_settled = elector, False, on_settled
        self.manager = ManagerCache(client)
        if elector:
            self.manager.skip_deferred()
        self._queue: WorkQueue[QueueKey] = WorkQueue(self._handle_key)
        self.manager.on_reachable = self._queue.retry_failed
        self._parts: ControllerParts | None = None  # while the manager is read for the first time

    @property
    def preview(self) -> Preview | str:
        """Who answers for jobs that are not submitted, or why nobody can now."""
        if self.manager.unreachable_reason:
            return f"{self.manager.unreachable_reason[:1].upper()}{self.manager.unreachable_reason[1:]}."
        if self._parts is None:
            return "The controller has just started and still reads its clusters; ask again in a moment."
        return self._parts.preview

    async def run(self) -> None:
        """Follow, lead when it is this process's turn, and decide then, until cancelled; raises Lost in a group."""
        manager_id = await self.manager.read_identity()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_with_restarts("manager", self.manager.run, on_failure=self.manager.on_run_failed))
            await self.manager.stores_filled.wait()  # NB: nothing is decided from half a picture
            log.info("manager cluster is read")
            parts = wiring.assemble(tasks, self.manager, manager_id, self._queue, self._elector)
            parts.event_handlers.register()
            if self._elector:
                parts.fleet.skip_deferred()
            await self._first_contact(parts)
            self._parts = parts
            self._on_settled()
            tasks.create_task(run_with_restarts("queue", self._queue.run))
            await self._wait_to_lead(tasks, parts)
            sweep = functools.partial(anchors.run, parts.fleet.reachable, self.manager, manager_id)
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

    async def _wait_to_lead(self, tasks: asyncio.TaskGroup, parts: ControllerParts) -> None:
        """Wait until this process leads, and has read all that a leader reads; it does not campaign before it has read the rest."""
        if self._elector:
            # What breaks a renewal shall not hold up the next one: a Lease that is not renewed in time is lost, and that ends the process.
            renewed = run_with_restarts(
                "lease", self._elector.run, fatal=(LeadershipLost,), longest_pause=RETRY_PERIOD_SECONDS
            )
            tasks.create_task(renewed)
            await self._elector.may_lead_soon.wait()
            self.manager.follow_deferred()
            parts.fleet.follow_deferred()
            # From now on, not from when the Lease is held: a worker cluster that is cut off shall not prolong the time without a leader.
            seen = tasks.create_task(_wait_until_reachable(parts))
            await self._elector.leading.wait()
            await self.manager.stores_filled.wait()
            await seen
            self._on_settled()
        self._leading = True
        parts.transient.start_leading(datetime.now(UTC), map(uid_of, filter(must_check_slot, self.manager.pods)))
        metrics.LEADER.set(1)
        log.info("leading; deciding")

    async def _first_contact(self, parts: ControllerParts) -> None:
        """Give the worker clusters a moment to be read, so that a restart does not report each of them as silent."""
        few = asyncio.Semaphore(ENGAGED_AT_ONCE)
        await asyncio.gather(
            *(self._engage_cluster(parts, key_of(raw)[1], few) for raw in self.manager.worker_clusters)
        )
        await _wait_until_reachable(parts)

    async def _engage_cluster(self, parts: ControllerParts, name: str, few: asyncio.Semaphore) -> None:
        async with few:
            with contain_errors("fleet", name):
                await parts.condition_writer.engage_cluster(name)

    async def _resync(self, parts: ControllerParts) -> None:
        over = 0.0  # whoever has just come to lead looks at all there is
        while True:
            with contain_errors("resync", "everything"):
                parts.event_handlers.resync_all(over)
            over = RESYNC_SECONDS
            with contain_errors("resync", "memory"):
                shares = (raw for member in parts.fleet.reachable().values() for raw in member.workloads)
                alive = self.manager.placements, self.manager.pods, shares
                parts.transient.keep_only(*(map(uid_of, objects) for objects in alive))
            await asyncio.sleep(RESYNC_SECONDS)

    async def _handle_key(self, key: QueueKey) -> float | None:
        """Look at a key; a replica that stands by only follows worker clusters as their objects say."""
        if self.manager.unreachable_reason:
            raise Postpone(self.manager.unreachable_reason)
        if self._parts is None:
            return None  # everything is looked at when the parts stand
        if self._leading:
            return await self._parts.reconciler.reconcile(key)
        what, _, name = key
        if what == CLUSTER:
            await self._parts.condition_writer.engage_cluster(name)
        return None  # whoever takes over looks at everything


async def _wait_until_reachable(parts: ControllerParts) -> None:
    """Wait for the worker clusters, but not for long."""
    try:
        async with asyncio.timeout(FIRST_CONTACT_SECONDS):
            await asyncio.gather(*(member.first_reached.wait() for member in parts.fleet.caches().values()))
    except TimeoutError:
        log.info("not every worker cluster can be seen; going on with the others")
