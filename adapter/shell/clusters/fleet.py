"""Which worker clusters are connected: engages a member for each WorkerCluster object and lets it go with it.

A Secret whose content changes means a new connection, not a new process; so does another cluster that is accepted in the place of
the one on record. What cannot be connected has a sentence instead of a member, and costs the others nothing.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from adapter.admission import cluster_identity
from adapter.admission.cluster_claim import RENEW_SECONDS
from adapter.admission.cluster_identity import Known
from adapter.objects import specs
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.capacity_versions import Room
from adapter.shell.clusters.claim_holder import Claim, Election
from adapter.shell.clusters.logins import Login, Logins, unusable
from adapter.shell.clusters.worker_cache import Listeners, Member
from adapter.shell.kube.client import Client, MayWrite, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.supervise import contained, failed, guarded


@dataclass(slots=True)
class _Engagement:
    digest: str
    member: Member
    leaves: bool = False  # its WorkerCluster is gone, and its claim is yet to be given back
    task: asyncio.Task[None] = field(init=False)


class Fleet:
    """Members by name; `problems` says why a WorkerCluster has none."""

    def __init__(
        self, tasks: asyncio.TaskGroup, manager_id: str, may_write: MayWrite, election: Election | None = None
    ) -> None:
        """`election`: by which this process leads; without one it claims no cluster."""
        self.problems: dict[str, str] = {}
        self.room = Room()
        self._tasks, self._manager_id, self._may_write, self._election = tasks, manager_id, may_write, election
        self._tell, self._spares = Listeners(), False
        self._engaged: dict[str, _Engagement] = {}
        self._members: dict[
            str, Member
        ] = {}  # the same, and never changed in place: each look asks for it several times

    def listen(self, tell: Listeners) -> None:
        """Tell of what changes in the members that are engaged from now on."""
        self._tell = tell

    def spare(self) -> None:
        """Read of those that are engaged from now on only what can be planned by, until `complete`."""
        self._spares = True

    def complete(self) -> None:
        """Follow in all of them what is to be known to decide."""
        self._spares = False
        for member in self._members.values():
            member.complete()

    def members(self) -> dict[str, Member]:
        """All engaged members, seen or not; not to be changed."""
        return self._members

    def seen(self) -> dict[str, Member]:
        """The members from whose stores something may be concluded."""
        return {name: member for name, member in self.members().items() if not member.why_silent}

    def connected(self, name: str) -> Member:
        """The member of that name, seen or not; raises Unreachable when there is none."""
        member = self.members().get(name)
        if member is None:
            raise Unreachable(f"worker cluster {name} is not connected")
        return member

    def silent(self) -> dict[str, str]:
        """Why clusters cannot be seen now: engaged ones that do not answer, and those never engaged."""
        quiet = {name: member.why_silent for name, member in self.members().items() if member.why_silent}
        return {**self.problems, **quiet}

    def draining(self) -> frozenset[str]:
        """The clusters that workers are to leave."""
        return frozenset(name for name, member in self.members().items() if member.spec.draining)

    async def reconcile(self, name: str, cluster: Raw | None, logins: Logins, everyone: Iterable[Raw] = ()) -> None:
        """Make the member match its WorkerCluster object and Secret; `everyone`: all WorkerClusters."""
        if cluster is None:
            logins.forget(name)
            self.problems.pop(name, None)
            await self._disengage(name, leaves=True)
            return
        try:
            await self._match(name, cluster, logins, cluster_identity.known(cluster, everyone))
        except Exception as error:  # it can be seen no more, and must not count as if it could
            failed("fleet", error, name)
            self.problems[name] = (
                f"WorkerCluster {name} cannot be connected ({type(error).__name__}); see the controller's log, "
                f"and make its Secret anew with `kubectl rayspan join {name}`."
            )
            await self._disengage(name)

    async def _match(self, name: str, cluster: Raw, logins: Logins, known: Known) -> None:
        try:
            spec = specs.worker_cluster(cluster)
            login = await logins.of(name, spec)
        except (specs.Invalid, BadLogin) as error:
            self.problems[name] = str(error)
            await self._disengage(name)
            return
        await self._engage(name, spec, login, known)

    async def _engage(self, name: str, spec: specs.WorkerCluster, login: Login, known: Known) -> None:
        digest = hashlib.sha256(login.kubeconfig.encode()).hexdigest()
        before = self._engaged.get(name)
        follows_the_same = before and before.member.spec.head.mirrored == spec.head.mirrored
        if before and before.digest == digest and follows_the_same and before.member.identity.holds(known):
            before.member.identity.known = known
            if before.member.spec != spec:
                before.member.spec = spec
                self._tell.contact(name)  # cordoned or not, another zone: plans may differ
            return
        await self._disengage(name)
        try:
            client = await Client.from_kubeconfig(login.kubeconfig, name, self._may_write)
        except BadLogin as error:
            self.problems[name] = unusable(name, login, error)
            return
        self.problems.pop(name, None)
        member = Member(name, spec, client, self._manager_id, self._tell, known)
        client.guard = member.fence
        if self._election:
            own = await Client.from_kubeconfig(login.kubeconfig, name, self._may_write)
            own.guard = member.identity.fence
            member.claim = Claim(own, self._manager_id, member.identity, self._election, member.claimed)
        if self._spares:  # with no await until it is one of the members, whom `complete` tells to follow everything
            member.spare()
        self._engaged[name] = made = _Engagement(digest, member)
        made.task = self._tasks.create_task(self._run(made))
        self._members = {**self._members, name: member}

    async def _run(self, engagement: _Engagement) -> None:
        """Run a member; whatever happens to it, the others and the process go on, and it is run anew."""
        member = engagement.member
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(guarded("cluster", member.run, broke=member.broken))
                if member.claim:
                    tasks.create_task(guarded("claim", member.claim.run, longest=RENEW_SECONDS))
        finally:
            await _close(engagement)

    async def _disengage(self, name: str, *, leaves: bool = False) -> None:
        """Let a member go; `leaves`: its WorkerCluster is gone, and nobody waits until its claim is given back, or cannot be."""
        before = self._engaged.pop(name, None)
        self._members = {other: member for other, member in self._members.items() if other != name}
        if before:
            claim = before.member.claim if leaves else None
            before.leaves = claim is not None
            before.task.cancel()
            await asyncio.gather(before.task, return_exceptions=True)
            await _close(before)  # by nobody else, where its task had not begun
            before.member.release()
            if claim:
                self._tasks.create_task(_give_back(claim))
            self._tell.contact(name)


async def _close(engagement: _Engagement) -> None:
    """Close its connections, but for the one by which its claim is yet to be given back."""
    await engagement.member.client.close()
    if engagement.member.claim and not engagement.leaves:
        await engagement.member.claim.client.close()


async def _give_back(claim: Claim) -> None:
    try:
        with contained("claim"):
            await claim.give_back()
    finally:
        await claim.client.close()
