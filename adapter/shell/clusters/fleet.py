"""The fleet: engages a cache for each WorkerCluster object, and disengages it with the object.

A changed Secret, or another cluster accepted in place of the recorded one, means a new connection. A cluster that
cannot be connected has a message instead of a cache.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from adapter.admission import cluster_identity
from adapter.admission.cluster_claim import RENEW_SECONDS
from adapter.admission.cluster_identity import IdentityRecord
from adapter.names import ReasonCode
from adapter.objects import specs
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.reason import Reason
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.capacity_versions import CapacityVersions
from adapter.shell.clusters.claim_holder import ClaimHolder, Election
from adapter.shell.clusters.logins import Login, LoginReader, unusable_message
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from adapter.shell.kube.client import Client, MayWrite, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.server_clock import ServerClock
from adapter.shell.supervise import contain_errors, report_failure, run_with_restarts


@dataclass(slots=True)
class _Engagement:
    digest: str
    cache: WorkerClusterCache
    cluster_deleted: bool = False  # its claim must still be released
    task: asyncio.Task[None] = field(init=False)


class Fleet:
    """The worker clusters' caches; `problems` says why a WorkerCluster has none."""

    def __init__(
        self, tasks: asyncio.TaskGroup, manager_id: str, may_write: MayWrite, election: Election | None = None
    ) -> None:
        """Without `election`, no cluster is claimed."""
        self.problems: dict[str, str] = {}
        self.capacity_versions = CapacityVersions()
        self._tasks, self._manager_id, self._may_write, self._election = tasks, manager_id, may_write, election
        self._listeners, self._skips_deferred = WorkerClusterListeners(), False
        self._engagements: dict[str, _Engagement] = {}
        # The caches of `_engagements`. The dict is replaced, never changed: each reconcile reads it several times.
        self._caches: dict[str, WorkerClusterCache] = {}

    def set_listeners(self, listeners: WorkerClusterListeners) -> None:
        """Notify `listeners` of changes in clusters engaged from now on."""
        self._listeners = listeners

    def skip_deferred(self) -> None:
        """Leave out deferred kinds of clusters engaged from now on, until `follow_deferred`."""
        self._skips_deferred = True

    def follow_deferred(self) -> None:
        self._skips_deferred = False
        for member in self._caches.values():
            member.follow_deferred()

    def caches(self) -> dict[str, WorkerClusterCache]:
        """All caches, even of unreachable clusters; not to be changed."""
        return self._caches

    def reachable(self, namespace: str = "") -> dict[str, WorkerClusterCache]:
        """The caches from whose stores conclusions may be drawn, about a namespace if one is given."""
        return {
            name: member
            for name, member in self.caches().items()
            if not member.unreachable_reason and member.namespace_shares.is_complete(namespace)
        }

    def connected_cache(self, name: str) -> WorkerClusterCache:
        """The cache of a cluster, even if unreachable; raises Unreachable when there is none."""
        member = self.caches().get(name)
        if member is None:
            raise Unreachable(f"worker cluster {name} is not connected")
        return member

    def unreachable(self, namespace: str = "") -> dict[str, str]:
        """Why clusters are unreachable, as predicates: engaged ones that do not answer, and those never engaged.

        With a namespace, also those in which it is incomplete.
        """
        incomplete = {
            name: f"is left out, because namespace {namespace} there {reason.text}"
            for name, member in self.caches().items()
            if (reason := member.namespace_shares.reason(namespace))
        }
        return {**incomplete, **{name: reason.text for name, reason in self.unreachable_reasons().items()}}

    def unreachable_reasons(self) -> dict[str, Reason]:
        problems = {
            name: Reason(ReasonCode.CLUSTER_UNREACHABLE, f"cannot be reached: {text}")
            for name, text in self.problems.items()
        }
        reasons = {name: cache.unreachable for name, cache in self.caches().items()}
        return {**problems, **{name: reason for name, reason in reasons.items() if reason}}

    def clock_offsets(self, clusters: Iterable[str], manager_clock: ServerClock) -> ClockOffsets:
        """How far the clocks of some clusters are ahead of the manager cluster's."""
        clocks = {name: self.caches()[name].clock for name in clusters if name in self.caches()}
        return ClockOffsets({name: clock.ahead_of(manager_clock) for name, clock in clocks.items()})

    def draining(self) -> frozenset[str]:
        return frozenset(name for name, member in self.caches().items() if member.spec.draining)

    def growing(self) -> frozenset[str]:
        """The worker clusters in which an autoscaler adds nodes."""
        return frozenset(name for name, member in self.caches().items() if member.spec.can_grow)

    async def reconcile(
        self, name: str, cluster: Raw | None, logins: LoginReader, worker_clusters: Iterable[Raw] = ()
    ) -> None:
        """Make the cache match its WorkerCluster and Secret; `worker_clusters`: all of them."""
        if cluster is None:
            logins.forget_cluster(name)
            self.problems.pop(name, None)
            await self._disengage(name, cluster_deleted=True)
            return
        try:
            await self._reconcile_existing(
                name, cluster, logins, cluster_identity.identity_record(cluster, worker_clusters)
            )
        except Exception as error:  # the cluster must not count as reachable
            report_failure("fleet", error, name)
            self.problems[name] = (
                f"WorkerCluster {name} cannot be connected ({type(error).__name__}); see the controller's log, "
                f"and create its Secret again with `kubectl rayspan join {name}`."
            )
            await self._disengage(name)

    async def _reconcile_existing(self, name: str, cluster: Raw, logins: LoginReader, known: IdentityRecord) -> None:
        try:
            spec = specs.parse_worker_cluster(cluster)
            login = await logins.read_login(name, spec)
        except (specs.InvalidSpec, BadLogin) as error:
            self.problems[name] = str(error)
            await self._disengage(name)
            return
        await self._engage(name, spec, login, known)

    async def _engage(self, name: str, spec: specs.WorkerCluster, login: Login, known: IdentityRecord) -> None:
        digest = hashlib.sha256(login.kubeconfig.encode()).hexdigest()
        before = self._engagements.get(name)
        follows_the_same = before and before.cache.spec.head.is_mirrored == spec.head.is_mirrored
        if before and before.digest == digest and follows_the_same and before.cache.identity.still_valid_for(known):
            before.cache.identity.known = known
            if before.cache.spec != spec:
                before.cache.spec = spec
                self._listeners.on_contact(name)  # cordoned, or in another zone: plans may differ
            return
        await self._disengage(name)
        try:
            client = await Client.from_kubeconfig(login.kubeconfig, name, self._may_write)
        except BadLogin as error:
            self.problems[name] = unusable_message(name, login, error)
            return
        self.problems.pop(name, None)
        member = WorkerClusterCache(name, spec, client, self._manager_id, self._listeners, known)
        client.write_guard = member.fence_reason
        if self._election:
            claim_client = await Client.from_kubeconfig(login.kubeconfig, name, self._may_write)
            claim_client.write_guard = member.identity.fence_reason
            member.claim = ClaimHolder(claim_client, self._manager_id, member.identity, self._election, member.on_claim)
        # Nothing is awaited before the cache is in `_caches`, where `follow_deferred` reaches it.
        if self._skips_deferred:
            member.skip_deferred()
        self._engagements[name] = engagement = _Engagement(digest, member)
        engagement.task = self._tasks.create_task(self._run_cache(engagement))
        self._caches = {**self._caches, name: member}

    async def _run_cache(self, engagement: _Engagement) -> None:
        member = engagement.cache
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_with_restarts("cluster", member.run, on_failure=member.on_run_failed))
                if member.claim:
                    tasks.create_task(run_with_restarts("claim", member.claim.run, longest_pause=RENEW_SECONDS))
        finally:
            await _close_connections(engagement)

    async def _disengage(self, name: str, *, cluster_deleted: bool = False) -> None:
        """Disengage a cache. `cluster_deleted`: release its claim, without waiting."""
        before = self._engagements.pop(name, None)
        self._caches = {other: member for other, member in self._caches.items() if other != name}
        if before:
            claim = before.cache.claim if cluster_deleted else None
            before.cluster_deleted = claim is not None
            before.task.cancel()
            await asyncio.gather(before.task, return_exceptions=True)
            await _close_connections(before)  # the task does not close them if it had not begun
            before.cache.drop_objects()
            if claim:
                self._tasks.create_task(_give_back_claim(claim))
            self._listeners.on_contact(name)


async def _close_connections(engagement: _Engagement) -> None:
    await engagement.cache.client.close()
    if engagement.cache.claim and not engagement.cluster_deleted:
        await engagement.cache.claim.client.close()


async def _give_back_claim(claim: ClaimHolder) -> None:
    try:
        with contain_errors("claim"):
            await claim.give_back()
    finally:
        await claim.client.close()
