"""What stands in the clusters when somebody asks for a worker: is there a grant, does the pod stand, is its copy there?

Everything is read when it is asked for, and nothing is kept but who the manager is: a grant that is taken back, a pod that was
replaced or a login that was renewed counts at once. Nobody is let in by a grant that the policy has not judged (access/policy_check.py). Who has
none costs the API server one question.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from adapter import membership, names
from adapter.access import grant as grants
from adapter.access import policy_check, route
from adapter.access.access_request import POD, Asked
from adapter.access.grant import Grant
from adapter.access.route import Refusal
from adapter.objects import specs
from adapter.objects.unstructured import Raw
from adapter.shell.clusters import logins
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin

# The API server's own words name the object, of whatever kind: a WorkerCluster, its Secret, ClusterProfile or MultiKueueCluster.
_UNREAD = (
    f"the manager does not show {names.ACCESS_ACCOUNT} what leads there ({{}}); an administrator of the manager applies "
    "kustomize/components/worker-access again, and for a MultiKueueCluster gives it that right (docs/logs.md)"
)


class Refused(Exception):
    """A request is not answered; `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Found:
    """What a request may have: its grant, and the manager's pod."""

    grant: Grant
    pod: Raw


class Door:
    """Reads what a request is about, with the account of the access server."""

    def __init__(self, manager: Client) -> None:
        self._manager = manager
        self._identity = ""

    async def grant(self, asked: Asked) -> Grant:
        """The grant that a request has; raises Refused, ApiError or Unreachable."""
        raw = await self._manager.find(resources.WORKER_ACCESSES.path(asked.namespace, asked.grant))
        found = grants.read(raw) if raw else None
        if found is None or not grants.opens(found, asked.key, datetime.now(UTC)):
            raise Refused(route.NO_GRANT)
        refusal = policy_check.problem(*await self._policy(), found.created)
        if refusal:
            raise Refused(refusal)
        return found

    async def pod(self, asked: Asked, grant: Grant) -> tuple[Raw, str]:
        """The manager's pod, and the worker cluster in which it runs; raises as above."""
        pod = await self._manager.find(resources.PODS.path(grant.namespace, grant.pod))
        cluster = route.cluster_of(asked, grant, pod)
        if isinstance(cluster, Refusal):
            raise Refused(cluster)
        refusal = None if asked.what == POD else route.beyond(asked, grant)
        if refusal:
            raise Refused(refusal)
        return pod or {}, cluster

    @asynccontextmanager
    async def there(self, grant: Grant, cluster: str) -> AsyncIterator[Client]:
        """The worker cluster, once the copy of the grant's pod was seen in it; raises as above."""
        identity = self._identity or await self._who()
        client = await self._login(cluster)
        try:
            copy = await self._copy(client, grant, cluster)
            refusal = route.not_its_copy(grant, copy, identity, cluster)
            if refusal:
                raise Refused(refusal)
            yield client
        finally:
            await client.close()

    async def consume(self, grant: Grant) -> None:
        """Take a grant that serves once, so that it serves nobody else; raises Refused where somebody was quicker."""
        path = resources.WORKER_ACCESSES.path(grant.namespace, grant.name)
        if not await self._manager.delete(path, grant.uid):
            raise Refused(route.NO_GRANT)

    async def _policy(self) -> tuple[Raw | None, Raw | None]:
        """What judges who may have a grant, and its binding."""
        policies, bindings = resources.ACCESS_POLICIES, resources.ACCESS_BINDINGS
        policy, binding = (self._manager.find(kind.path(name=names.ACCESS_POLICY)) for kind in (policies, bindings))
        return await asyncio.gather(policy, binding)

    async def _who(self) -> str:
        path = resources.NAMESPACES.path(name="kube-system")
        self._identity = membership.identity(await self._manager.get(path))
        return self._identity

    async def _login(self, cluster: str) -> Client:
        raw = await self._manager.find(resources.WORKER_CLUSTERS.path(name=cluster))
        try:
            if raw is None:
                raise BadLogin(f"there is no WorkerCluster {cluster}")
            login = await logins.once(self._manager, specs.worker_cluster(raw))
            return await Client.from_kubeconfig(login.kubeconfig, cluster)
        except (BadLogin, specs.Invalid) as error:
            raise Refused(route.unreached(cluster, str(error).rstrip("."))) from None
        except ApiError as error:
            raise Refused(route.unreached(cluster, _UNREAD.format(error))) from None

    async def _copy(self, client: Client, grant: Grant, cluster: str) -> Raw | None:
        try:
            return await client.find(resources.PODS.path(grant.namespace, grant.pod))
        except ApiError as error:
            raise Refused(route.unreached(cluster, f"it answers {error.status} when asked for the pod")) from None
        except Unreachable as error:
            raise Refused(route.unreached(cluster, str(error))) from None
