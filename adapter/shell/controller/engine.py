"""The one loop: a key is due -> observe -> decide -> execute -> look again when something changes.

Keys: a gang (Workload), a worker pod (with its copies), a WorkerCluster, an AdmissionCheck, a ClusterQueue. What to do is
recomputed from the stores each time. Actions on different clusters do not wait for each other, so a cluster that hangs delays
nobody else.

Of several replicas one leads. The others follow the same clusters, so that they can take over at once and say meanwhile
what would be planned; they decide nothing and write nothing.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from adapter.actions import Action, CreatePod, DeletePod, LookAgain, MirrorHead, Plan, Release, Reserve, Say, SetCheck
from adapter.gang import lifecycle
from adapter.objects.raw import Key, Raw, key_of, uid_of
from adapter.shell import metrics
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.logins import Logins
from adapter.shell.clusters.manager import Home
from adapter.shell.clusters.remote import Listeners
from adapter.shell.controller import measure
from adapter.shell.controller.handlers import Waker
from adapter.shell.controller.keys import ANCHOR, CHECK, CLUSTER, GANG, POD, QUEUE, QueueKey
from adapter.shell.controller.lease import Lease
from adapter.shell.controller.workqueue import Postpone, WorkQueue
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.observe.gangs import Observer
from adapter.shell.observe.losses import Losses
from adapter.shell.observe.slots import Claims
from adapter.shell.planning.plans import Planning
from adapter.shell.planning.preview import Preview
from adapter.shell.write import anchors
from adapter.shell.write.conditions import Conditions
from adapter.shell.write.events import Announcer
from adapter.shell.write.execute import Executor
from adapter.shell.write.quotas import Aggregator
from adapter.worker import dispatch

log = logging.getLogger(__name__)

# A net under the watches: every key is looked at once in this many seconds. Seldom, since nothing should hang on it.
RESYNC_SECONDS = 60.0
# How long a start waits for its worker clusters: a list takes a fraction of a second, and one that is cut off shall not
# hold up the others for longer than a user would notice.
FIRST_CONTACT_SECONDS = 3.0


class Engine:
    """Runs everything; `run` ends only by cancellation or by a fault that the process shall not survive."""

    def __init__(self, client: Client, lease: Lease | None) -> None:
        """`client` is fenced by the lease; without one, nobody else must run."""
        self._lease, self._leads = lease, False
        self.home = Home(client, self._heard)
        self._queue: WorkQueue[QueueKey] = WorkQueue(self._handle)
        self._planning = asyncio.Lock()
        self._claims = Claims()
        self._waker: Waker | None = None
        self._preview: Preview | None = None

    @property
    def preview(self) -> Preview | str:
        """Who answers for jobs that are not submitted, or why nobody can now."""
        if self.home.lost:
            return f"{self.home.lost[:1].upper()}{self.home.lost[1:]}."
        return self._preview or "The controller has just started and still reads its clusters; ask again in a moment."

    async def run(self) -> None:
        """Follow, lead when it is this process's turn, and decide then, until cancelled; raises Lost in a group."""
        manager = await self.home.identity()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.home.run())
            await self.home.filled.wait()  # NB: nothing is decided from half a picture
            log.info("manager cluster is read")
            fleet = self._fleet = Fleet(tasks, manager, self._listeners(), self.home.client.may_write)
            losses = Losses(self.home, fleet)
            self._observer = Observer(self.home, fleet, self._claims, losses, manager)
            announcer = Announcer(self.home.client)
            self._executor = Executor(self.home, fleet, self._observer, announcer)
            logins = Logins(tasks, self.home)
            self._conditions = Conditions(self.home, fleet, logins, self._observer, announcer)
            self._aggregator = Aggregator(self.home, fleet, self._observer, announcer)
            self._waker = Waker(self._queue, self.home, fleet)
            await self._first_contact(fleet)
            self._preview = Preview(
                self.home, fleet, self._observer, Planning(self.home, fleet, self._observer, self._executor.memory)
            )
            tasks.create_task(self._queue.run())
            await self._lead(tasks)
            tasks.create_task(self._resync(self._waker))
            tasks.create_task(losses.run(self._waker.unseen))
            tasks.create_task(anchors.run(self._observer.shares.seen, self.home, manager))
            tasks.create_task(self._executor.copier.run())

    async def _lead(self, tasks: asyncio.TaskGroup) -> None:
        """Wait until this process leads; it does not campaign before it could do the work."""
        if self._lease:
            tasks.create_task(self._lease.run())
            await self._lease.held.wait()
        self._leads = True
        metrics.LEADER.set(1)
        log.info("leading; deciding")

    async def _first_contact(self, fleet: Fleet) -> None:
        """Give the worker clusters a moment to be read, so that a restart does not report each of them as silent."""
        await asyncio.gather(*(self._conditions.engage(key_of(raw)[1]) for raw in self.home.worker_clusters))
        try:
            async with asyncio.timeout(FIRST_CONTACT_SECONDS):
                await asyncio.gather(*(member.seen.wait() for member in fleet.members().values()))
        except TimeoutError:
            log.info("not every worker cluster can be seen; going on with the others")

    async def _resync(self, waker: Waker) -> None:
        while True:
            waker.everything()
            shares = (raw for member in self._observer.shares.seen().values() for raw in member.workloads)
            self._executor.memory.keep(
                map(uid_of, self.home.placements), map(uid_of, self.home.pods), map(uid_of, shares)
            )
            await asyncio.sleep(RESYNC_SECONDS)

    def _heard(self, store: str, before: Raw | None, after: Raw | None) -> None:
        if not self._waker:
            return
        try:
            self._waker.heard(store, before, after)
        except Exception:  # an object may hold anything; whom it concerns is looked at in RESYNC_SECONDS all the same
            log.exception("hearing of %s", store)

    def _listeners(self) -> Listeners:
        """What members tell; they are engaged only after the waker stands."""

        def waker() -> Waker:
            assert self._waker is not None
            return self._waker

        return Listeners(
            reservation=lambda *change: waker().reservation(*change),
            pod=lambda *change: waker().remote_pod(*change),
            room=lambda *change: waker().room(*change),
            head_mirror=lambda *change: waker().head_mirror(*change),
            contact=lambda cluster: waker().contact(cluster),
        )

    async def _handle(self, key: QueueKey) -> float | None:
        what, namespace, name = key
        if self.home.lost:
            raise Postpone(self.home.lost)
        if not self._leads:  # whoever takes over looks at everything
            if what == CLUSTER:
                await self._conditions.engage(name)
            return None
        metrics.LOOKS.labels(what).inc()
        log.debug("looking at %s %s/%s", what, namespace, name)
        try:
            if what == CLUSTER:
                return await self._conditions.cluster(name)
            elif what == CHECK:
                await self._conditions.check(name)
            elif what == QUEUE:
                await self._aggregator.look(name)
            elif what == ANCHOR:
                cluster, _, share = name.partition("/")
                return await anchors.look(self._fleet.members().get(cluster), namespace, share, self.home)
            else:
                return await self._look(what, (namespace, name))
        except (ApiError, Unreachable) as trouble:
            if what == POD and self._waker:
                self._waker.refused((namespace, name))
            raise Postpone(str(trouble)) from None
        return None

    async def _look(self, what: str, key: Key) -> float | None:
        if what == GANG:
            news = await self._observer.look(key)
            if news and self._waker:
                self._waker.turns()
            if self.home.lost:  # meanwhile
                raise Postpone(self.home.lost)
        actions = self._decide(what, key)
        try:
            return await self._execute(key, actions)
        finally:
            self._claims.release(actions)
            if self._waker:
                self._waker.tried(actions)

    def _decide(self, what: str, key: Key) -> list[Action]:
        now = datetime.now(UTC)
        if what == POD:
            return self._claims.take(dispatch.decide(self._observer.workers.facts(key, self._executor.memory), now))
        assert what == GANG, what
        return lifecycle.decide(self._observer.gang(key, self._executor.memory, now), now)

    async def _execute(self, key: Key, actions: Sequence[Action]) -> float | None:
        """Do the actions in order, those of different clusters side by side; the first trouble is raised at the end."""
        parts: dict[str, list[Action]] = defaultdict(list)
        for action in actions:
            parts[_cluster_of(action)].append(action)
        done = await asyncio.gather(*(self._in_order(key, part) for part in parts.values()), return_exceptions=True)
        for trouble in done:
            if isinstance(trouble, BaseException):
                raise trouble
        waits = [action.after.total_seconds() for action in actions if isinstance(action, LookAgain)]
        return max(min(waits), 0.05) if waits else None

    async def _in_order(self, key: Key, actions: Sequence[Action]) -> None:
        for action in actions:
            if not isinstance(action, LookAgain | Say):  # what is said again every time is not done every time
                log.info("%s/%s %s", *key, _describe(action))
            if isinstance(action, Plan):
                async with self._planning:
                    await self._executor.do(action)
            else:
                await self._executor.do(action)
            measure.done(action, _cluster_of(action), datetime.now(UTC))


def _cluster_of(action: Action) -> str:
    """The worker cluster that an action waits for, empty for the manager."""
    match action:
        case Release():
            return action.reservation.cluster
        case Reserve():
            return action.share.cluster
        case MirrorHead() | CreatePod() | DeletePod():
            return action.cluster
        case _:
            return ""


def _describe(action: Action) -> str:
    """One log line for an action: what, where, why; never a body, which may hold a user's secrets."""
    words = [type(action).__name__]
    if cluster := _cluster_of(action):
        words.append(f"cluster={cluster}")
    if isinstance(action, SetCheck):
        words.append(f"state={action.state} {action.message}")
    words += [f"{field}={value}" for field in ("slot", "reason", "why") if (value := getattr(action, field, ""))]
    return " ".join(words)
