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

from adapter.leader_election import RETRY_SECONDS
from adapter.objects.unstructured import key_of, uid_of
from adapter.shell import metrics
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.controller import wiring
from adapter.shell.controller.enqueue import CLUSTER, QueueKey
from adapter.shell.controller.lease import Lease, Lost
from adapter.shell.controller.wiring import Parts
from adapter.shell.controller.workqueue import Postpone, WorkQueue
from adapter.shell.kube.client import Client
from adapter.shell.planning.preview import Preview
from adapter.shell.supervise import contained, guarded
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


def _nobody() -> None:
    """Nobody wants to know."""


class Engine:
    """Runs everything; `run` ends only by cancellation or by a fault that the process shall not survive."""

    def __init__(self, client: Client, lease: Lease | None, settled: Callable[[], None] = _nobody) -> None:
        """`client` is fenced by the lease; without one, nobody else must run. `settled` is told when all that is followed was read."""
        self._lease, self._leads, self._settled = lease, False, settled
        self.manager = Manager(client)
        if lease:
            self.manager.spare()
        self._queue: WorkQueue[QueueKey] = WorkQueue(self._handle)
        self.manager.back = self._queue.retry
        self._parts: Parts | None = None  # while the manager is read for the first time

    @property
    def preview(self) -> Preview | str:
        """Who answers for jobs that are not submitted, or why nobody can now."""
        if self.manager.lost:
            return f"{self.manager.lost[:1].upper()}{self.manager.lost[1:]}."
        if self._parts is None:
            return "The controller has just started and still reads its clusters; ask again in a moment."
        return self._parts.preview

    async def run(self) -> None:
        """Follow, lead when it is this process's turn, and decide then, until cancelled; raises Lost in a group."""
        manager_id = await self.manager.identity()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(guarded("manager", self.manager.run, broke=self.manager.broken))
            await self.manager.filled.wait()  # NB: nothing is decided from half a picture
            log.info("manager cluster is read")
            parts = wiring.assemble(tasks, self.manager, manager_id, self._queue, self._lease)
            parts.waker.listen()
            if self._lease:
                parts.fleet.spare()
            await self._first_contact(parts)
            self._parts = parts
            self._settled()
            tasks.create_task(guarded("queue", self._queue.run))
            await self._lead(tasks, parts)
            sweep = functools.partial(anchors.run, parts.fleet.seen, self.manager, manager_id)
            tasks.create_task(guarded("resync", functools.partial(self._resync, parts)))
            tasks.create_task(guarded("losses", functools.partial(parts.losses.run, parts.waker.unseen)))
            tasks.create_task(guarded("proxies", functools.partial(parts.proxies.run, parts.waker.unseen)))
            tasks.create_task(guarded("anchors", sweep))
            tasks.create_task(guarded("copies", parts.copier.run))

    async def _lead(self, tasks: asyncio.TaskGroup, parts: Parts) -> None:
        """Wait until this process leads, and has read all that a leader reads; it does not campaign before it has read the rest."""
        if self._lease:
            # What breaks a renewal shall not hold up the next one: a Lease that is not renewed in time is lost, and that ends the process.
            renewed = guarded("lease", self._lease.run, ends=(Lost,), longest=RETRY_SECONDS)
            tasks.create_task(renewed)
            await self._lease.near.wait()
            self.manager.complete()
            parts.fleet.complete()
            # From now on, not from when the Lease is held: a worker cluster that is cut off shall not prolong the time without a leader.
            seen = tasks.create_task(_seen(parts))
            await self._lease.held.wait()
            await self.manager.filled.wait()
            await seen
            self._settled()
        self._leads = True
        parts.memory.lead(datetime.now(UTC), map(uid_of, filter(must_check_slot, self.manager.pods)))
        metrics.LEADER.set(1)
        log.info("leading; deciding")

    async def _first_contact(self, parts: Parts) -> None:
        """Give the worker clusters a moment to be read, so that a restart does not report each of them as silent."""
        few = asyncio.Semaphore(ENGAGED_AT_ONCE)
        await asyncio.gather(*(self._engage(parts, key_of(raw)[1], few) for raw in self.manager.worker_clusters))
        await _seen(parts)

    async def _engage(self, parts: Parts, name: str, few: asyncio.Semaphore) -> None:
        async with few:
            with contained("fleet", name):
                await parts.conditions.engage(name)

    async def _resync(self, parts: Parts) -> None:
        over = 0.0  # whoever has just come to lead looks at all there is
        while True:
            with contained("resync", "everything"):
                parts.waker.everything(over)
            over = RESYNC_SECONDS
            with contained("resync", "memory"):
                shares = (raw for member in parts.fleet.seen().values() for raw in member.workloads)
                alive = self.manager.placements, self.manager.pods, shares
                parts.memory.keep(*(map(uid_of, objects) for objects in alive))
            await asyncio.sleep(RESYNC_SECONDS)

    async def _handle(self, key: QueueKey) -> float | None:
        """Look at a key; a replica that stands by only follows worker clusters as their objects say."""
        if self.manager.lost:
            raise Postpone(self.manager.lost)
        if self._parts is None:
            return None  # everything is looked at when the parts stand
        if self._leads:
            return await self._parts.looks.look(key)
        what, _, name = key
        if what == CLUSTER:
            await self._parts.conditions.engage(name)
        return None  # whoever takes over looks at everything


async def _seen(parts: Parts) -> None:
    """Wait for the worker clusters, but not for long."""
    try:
        async with asyncio.timeout(FIRST_CONTACT_SECONDS):
            await asyncio.gather(*(member.seen.wait() for member in parts.fleet.members().values()))
    except TimeoutError:
        log.info("not every worker cluster can be seen; going on with the others")
