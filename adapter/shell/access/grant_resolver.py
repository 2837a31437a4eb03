"""Reads an access request's grant, manager pod and remote pod.

All three are read for each request, so a deleted grant, a replaced pod or a renewed login takes effect at once. A grant
that the policy has not checked is not accepted (access/policy_check.py). A worker cluster must be the one on record,
and for what may change something there its claim must be this manager's (access/cluster_check.py). A request without a
grant costs the API server one request.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from adapter import membership, names
from adapter.access import cluster_check, policy_check, route
from adapter.access import grant as grants
from adapter.access.access_request import POD, AccessRequest
from adapter.access.grant import LOG, Grant
from adapter.access.route import ErrorStatus
from adapter.admission import cluster_claim
from adapter.objects import specs
from adapter.objects.unstructured import Raw
from adapter.shell.clusters import logins
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.shipped_policies import access_policy

# The API server's error is inserted: it names the WorkerCluster, Secret, ClusterProfile or MultiKueueCluster.
_LOGIN_UNREADABLE = (
    f"the manager does not show {names.ACCESS_ACCOUNT} what leads there ({{}}); an administrator of the manager "
    "applies kustomize/components/worker-access again, and for a MultiKueueCluster gives it that right (docs/logs.md)"
)
_LEASE_UNREADABLE = (
    f"the manager does not show {names.ACCESS_ACCOUNT} Lease {names.LEASE} in {names.SYSTEM_NAMESPACE} ({{}}); an "
    "administrator of the manager applies kustomize/components/worker-access again"
)


class AccessRefused(Exception):
    def __init__(self, refusal: ErrorStatus) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class ResolvedGrant:
    grant: Grant
    pod: Raw


class GrantResolver:
    """Reads with the account of the access server."""

    def __init__(self, manager: Client) -> None:
        self._manager = manager
        self._manager_identity = ""

    async def read_grant(self, access_request: AccessRequest) -> Grant:
        """The grant of a request; raises AccessRefused, ApiError or Unreachable."""
        raw = await self._manager.find(resources.WORKER_ACCESSES.path(access_request.namespace, access_request.grant))
        grant = grants.parse(raw) if raw else None
        if grant is None or not grants.accepts_key(grant, access_request.key, self._manager.clock.latest_now()):
            raise AccessRefused(route.NO_GRANT)
        refusal = policy_check.problem(*await self._read_policy(), access_policy(), grant.created)
        if refusal:
            raise AccessRefused(refusal)
        return grant

    async def read_pod(self, access_request: AccessRequest, grant: Grant) -> tuple[Raw, str]:
        """The manager pod and its worker cluster; raises AccessRefused, ApiError or Unreachable."""
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
        """A client of the worker cluster, once the cluster and the remote pod there are verified.

        Raises AccessRefused, ApiError or Unreachable.
        """
        identity = self._manager_identity or await self._read_manager_identity()
        worker_cluster = await self._read_worker_cluster(cluster)
        _refuse_if(cluster, cluster_check.record_problem(worker_cluster, acts=grant.subresource != LOG))
        client = await self._new_client(cluster, worker_cluster)
        try:
            await _verify_identity(client, worker_cluster)
            if grant.subresource != LOG:
                await self._verify_claim(client, identity)
            remote_pod = await self._read_remote_pod(client, grant, cluster)
            refusal = route.remote_pod_mismatch(grant, remote_pod, identity, cluster)
            if refusal:
                raise AccessRefused(refusal)
            yield client
        finally:
            await client.close()

    async def consume_grant(self, grant: Grant) -> None:
        """Delete a single-use grant; raises AccessRefused if another request used it first."""
        path = resources.WORKER_ACCESSES.path(grant.namespace, grant.name)
        if not await self._manager.delete(path, grant.uid):
            raise AccessRefused(route.NO_GRANT)

    async def _read_policy(self) -> tuple[Raw | None, Raw | None]:
        policies, bindings = resources.ACCESS_POLICIES, resources.ACCESS_BINDINGS
        policy, binding = (self._manager.find(kind.path(name=names.ACCESS_POLICY)) for kind in (policies, bindings))
        return await asyncio.gather(policy, binding)

    async def _read_manager_identity(self) -> str:
        path = resources.NAMESPACES.path(name="kube-system")
        self._manager_identity = membership.cluster_identity_of(await self._manager.get(path))
        return self._manager_identity

    async def _read_worker_cluster(self, cluster: str) -> Raw:
        try:
            worker_cluster = await self._manager.find(resources.WORKER_CLUSTERS.path(name=cluster))
        except ApiError as error:
            raise AccessRefused(route.unreachable_error(cluster, _LOGIN_UNREADABLE.format(error))) from None
        if worker_cluster is None:
            raise AccessRefused(route.unreachable_error(cluster, f"there is no WorkerCluster {cluster}"))
        return worker_cluster

    async def _new_client(self, cluster: str, worker_cluster: Raw) -> Client:
        try:
            login = await logins.read_login_once(self._manager, specs.parse_worker_cluster(worker_cluster))
            return await Client.from_kubeconfig(login.kubeconfig, cluster)
        except (BadLogin, specs.InvalidSpec) as error:
            raise AccessRefused(route.unreachable_error(cluster, str(error).rstrip("."))) from None
        except ApiError as error:
            raise AccessRefused(route.unreachable_error(cluster, _LOGIN_UNREADABLE.format(error))) from None

    async def _verify_claim(self, client: Client, identity: str) -> None:
        """Raise AccessRefused if another manager has the claim to the worker cluster."""
        claim_name = cluster_claim.lease_name(identity, client.cluster)
        with _worker_errors(client.cluster, "its claim"):
            try:
                claim = await client.find(resources.LEASES.path(names.SYSTEM_NAMESPACE, claim_name))
            except ApiError as error:
                if error.status != 403:
                    raise
                return  # the account has no right to claims, and the controller goes on without one, too
        try:
            leader_lease = await self._manager.find(resources.LEASES.path(names.SYSTEM_NAMESPACE, names.LEASE))
        except ApiError as error:
            raise AccessRefused(route.unreachable_error(client.cluster, _LEASE_UNREADABLE.format(error))) from None
        _refuse_if(client.cluster, cluster_check.claim_problem(identity, client.cluster, claim, leader_lease))

    async def _read_remote_pod(self, client: Client, grant: Grant, cluster: str) -> Raw | None:
        with _worker_errors(cluster, "the pod"):
            return await client.find(resources.PODS.path(grant.namespace, grant.pod))


async def _verify_identity(client: Client, worker_cluster: Raw) -> None:
    """Raise AccessRefused if this is not the cluster on record."""
    with _worker_errors(client.cluster, "its identity"):
        uid = await client.cluster_uid()
    _refuse_if(client.cluster, cluster_check.identity_problem(worker_cluster, uid))


@contextmanager
def _worker_errors(cluster: str, subject: str) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        reason = f"it answers {error.status} when asked for {subject}"
        raise AccessRefused(route.unreachable_error(cluster, reason)) from None
    except Unreachable as error:
        raise AccessRefused(route.unreachable_error(cluster, str(error))) from None


def _refuse_if(cluster: str, problem: str) -> None:
    if problem:
        raise AccessRefused(route.unreachable_error(cluster, problem))
