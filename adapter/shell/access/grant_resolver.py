"""Reads the objects of an access request: its grant, the manager pod and the remote pod.

All objects are read for each request, and only the manager's cluster identity is cached. So a deleted grant, a replaced
pod or a renewed login takes effect at once. A grant that the policy has not judged is not accepted
(access/policy_check.py). A request without a grant costs the API server one request.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from adapter import membership, names
from adapter.access import grant as grants
from adapter.access import policy_check, route
from adapter.access.access_request import POD, AccessRequest
from adapter.access.grant import Grant
from adapter.access.route import ErrorStatus
from adapter.objects import specs
from adapter.objects.unstructured import Raw
from adapter.shell.clusters import logins
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin

# The API server's message names the object: a WorkerCluster, its Secret, ClusterProfile or MultiKueueCluster.
_LOGIN_UNREADABLE = (
    f"the manager does not show {names.ACCESS_ACCOUNT} what leads there ({{}}); an administrator of the manager "
    "applies kustomize/components/worker-access again, and for a MultiKueueCluster gives it that right (docs/logs.md)"
)


class AccessRefused(Exception):
    """A request is refused; `refusal` has the reason."""

    def __init__(self, refusal: ErrorStatus) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class ResolvedGrant:
    """The grant of a request, and the manager pod."""

    grant: Grant
    pod: Raw


class GrantResolver:
    """Reads a request's objects with the account of the access server."""

    def __init__(self, manager: Client) -> None:
        self._manager = manager
        self._manager_identity = ""

    async def read_grant(self, access_request: AccessRequest) -> Grant:
        """The grant of a request; raises AccessRefused, ApiError or Unreachable."""
        raw = await self._manager.find(resources.WORKER_ACCESSES.path(access_request.namespace, access_request.grant))
        grant = grants.parse(raw) if raw else None
        if grant is None or not grants.accepts_key(grant, access_request.key, datetime.now(UTC)):
            raise AccessRefused(route.NO_GRANT)
        refusal = policy_check.problem(*await self._read_policy(), grant.created)
        if refusal:
            raise AccessRefused(refusal)
        return grant

    async def read_pod(self, access_request: AccessRequest, grant: Grant) -> tuple[Raw, str]:
        """The manager pod, and the worker cluster in which it runs; raises AccessRefused, ApiError or Unreachable."""
        pod = await self._manager.find(resources.PODS.path(grant.namespace, grant.pod))
        cluster = route.target_cluster(access_request, grant, pod)
        if isinstance(cluster, ErrorStatus):
            raise AccessRefused(cluster)
        refusal = None if access_request.resource == POD else route.subresource_mismatch(access_request, grant)
        if refusal:
            raise AccessRefused(refusal)
        return pod or {}, cluster

    @asynccontextmanager
    async def worker_cluster_client(self, grant: Grant, cluster: str) -> AsyncIterator[Client]:
        """A client of the worker cluster in which the remote pod was verified.

        Raises AccessRefused, ApiError or Unreachable.
        """
        identity = self._manager_identity or await self._read_manager_identity()
        client = await self._new_client(cluster)
        try:
            remote_pod = await self._read_remote_pod(client, grant, cluster)
            refusal = route.remote_pod_mismatch(grant, remote_pod, identity, cluster)
            if refusal:
                raise AccessRefused(refusal)
            yield client
        finally:
            await client.close()

    async def consume_grant(self, grant: Grant) -> None:
        """Delete a single-use grant; raises AccessRefused where another request used it first."""
        path = resources.WORKER_ACCESSES.path(grant.namespace, grant.name)
        if not await self._manager.delete(path, grant.uid):
            raise AccessRefused(route.NO_GRANT)

    async def _read_policy(self) -> tuple[Raw | None, Raw | None]:
        """The policy that judges grants, and its binding."""
        policies, bindings = resources.ACCESS_POLICIES, resources.ACCESS_BINDINGS
        policy, binding = (self._manager.find(kind.path(name=names.ACCESS_POLICY)) for kind in (policies, bindings))
        return await asyncio.gather(policy, binding)

    async def _read_manager_identity(self) -> str:
        path = resources.NAMESPACES.path(name="kube-system")
        self._manager_identity = membership.cluster_identity_of(await self._manager.get(path))
        return self._manager_identity

    async def _new_client(self, cluster: str) -> Client:
        raw = await self._manager.find(resources.WORKER_CLUSTERS.path(name=cluster))
        try:
            if raw is None:
                raise BadLogin(f"there is no WorkerCluster {cluster}")
            login = await logins.read_login_once(self._manager, specs.parse_worker_cluster(raw))
            return await Client.from_kubeconfig(login.kubeconfig, cluster)
        except (BadLogin, specs.InvalidSpec) as error:
            raise AccessRefused(route.unreachable_error(cluster, str(error).rstrip("."))) from None
        except ApiError as error:
            raise AccessRefused(route.unreachable_error(cluster, _LOGIN_UNREADABLE.format(error))) from None

    async def _read_remote_pod(self, client: Client, grant: Grant, cluster: str) -> Raw | None:
        try:
            return await client.find(resources.PODS.path(grant.namespace, grant.pod))
        except ApiError as error:
            raise AccessRefused(
                route.unreachable_error(cluster, f"it answers {error.status} when asked for the pod")
            ) from None
        except Unreachable as error:
            raise AccessRefused(route.unreachable_error(cluster, str(error))) from None
