"""What is there to be seen of one cluster before workers are sent to it: namespace, queues, rights, pod network?

It reads, and asks the cluster what its own account may do. What may not be read is left out, and the missing right is told.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import yaml

from adapter import names
from adapter.objects.unstructured import Raw, key_of
from adapter.preflight.preflight_facts import CLUSTER_RIGHTS, NAMESPACE_RIGHTS, ClusterFacts, needed_rights
from adapter.quota import tree
from adapter.shell.kube import pagination, resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import Resource

# Nodes tell which addresses their pods get, unless their network has its own ways; then some pods must do.
_POD_LIMIT = "500"


@dataclass(frozen=True, slots=True)
class _AccessRight:
    group: str
    resource: str
    verb: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f' in namespace {self.namespace}' if self.namespace else ''}"


async def inspect_manager(client: Client, name: str, namespace: str) -> ClusterFacts:
    """Look at the manager cluster, by the rights of who asks."""
    # A worker that runs elsewhere shows its address there.
    networks, addresses, unread = await _pod_network(client, labelSelector=f"!{names.CLUSTER_LABEL}")
    services = await list_if_allowed(client, resources.RAY_SERVICES, namespace, labelSelector=names.QUEUE_LABEL) or []
    side = ClusterFacts(name, networks=networks, addresses=addresses, network_error=unread)
    if not services:
        return side
    frameworks, held = await asyncio.gather(_kueue_frameworks(client), _has_gate_policy(client))
    return replace(
        side, ray_services=[key_of(raw)[1] for raw in services], frameworks=frameworks, has_service_policy=held
    )


async def _kueue_frameworks(client: Client) -> list[str] | None:
    """Which kinds Kueue takes for jobs, none of Ray's where it is told nothing; None where that may not be read, or is not where stock
    Kueue has it."""
    for found in await list_if_allowed(client, resources.CONFIG_MAPS, names.KUEUE_NAMESPACE) or ():
        if text := (found.get("data") or {}).get(names.KUEUE_CONFIG_KEY):
            try:
                integrations = yaml.safe_load(text).get("integrations") or {}
                return [str(one) for one in integrations.get("frameworks") or ()]
            except (yaml.YAMLError, AttributeError, TypeError):
                return None
    return None


async def _has_gate_policy(client: Client) -> bool:
    found = await list_if_allowed(
        client, resources.GATE_POLICIES, fieldSelector=f"metadata.name={names.SERVICE_POLICY}"
    )
    return found is None or bool(found)


async def inspect_worker(
    client: Client, name: str, head: str, scheduler: str, namespace: str, queues: Sequence[str]
) -> ClusterFacts:
    """Look at a worker cluster, by the rights of its WorkerCluster's account; `head` and `scheduler` are what its spec says."""
    try:
        exists = await _namespace_exists(client, namespace)
        found, missing, (networks, addresses, unread) = await asyncio.gather(
            _queue_problems(client, namespace, queues),
            _missing_rights(client, head, scheduler, namespace if exists else ""),
            _pod_network(client),
        )
    except (ApiError, Unreachable) as error:
        return ClusterFacts(
            name,
            f"The API server of {name} cannot be asked: {error}; see `kubectl describe workercluster {name}`.",
            head,
        )
    return ClusterFacts(name, "", head, exists, found, missing, networks, addresses, unread)


async def list_if_allowed(client: Client, resource: Resource, namespace: str = "", **params: str) -> list[Raw] | None:
    """The objects of a kind; None where they may not be read, or the kind is not known there."""
    try:
        return (await pagination.list_all(client, resource.path(namespace), **params))[0]
    except ApiError as error:
        if error.status == 403 or error.not_found:
            return None
        raise


async def _namespace_exists(client: Client, namespace: str) -> bool:
    found = await list_if_allowed(client, resources.NAMESPACES, fieldSelector=f"metadata.name={namespace}")
    return found is None or bool(found)  # who may not look finds out by what is made in it


async def _queue_problems(client: Client, namespace: str, queues: Sequence[str]) -> Mapping[str, str | None]:
    there = {key_of(raw)[1]: raw for raw in await list_if_allowed(client, resources.LOCAL_QUEUES, namespace) or ()}
    return {name: tree.local_queue_target(there[name])[1] if name in there else None for name in queues}


async def _missing_rights(client: Client, head: str, scheduler: str, namespace: str) -> list[str]:
    """Which rights the account lacks; those in a namespace only where one is given."""
    rights = [
        _AccessRight(*kind, verb)
        for kind, verbs in needed_rights(CLUSTER_RIGHTS, head, scheduler).items()
        for verb in verbs
    ]
    if namespace:
        there = needed_rights(NAMESPACE_RIGHTS, head, scheduler)
        rights += [_AccessRight(*kind, verb, namespace) for kind, verbs in there.items() for verb in verbs]
    granted = await asyncio.gather(*(_has_right(client, right) for right in rights))
    return [str(right) for right, yes in zip(rights, granted, strict=True) if not yes]


async def _has_right(client: Client, right: _AccessRight) -> bool:
    resource, _, part = right.resource.partition("/")
    where = {"group": right.group, "resource": resource, "subresource": part, "namespace": right.namespace}
    body = {
        "apiVersion": resources.ACCESS_REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**where, "verb": right.verb}},
    }
    answer = await client.create(resources.ACCESS_REVIEWS.path(), body)
    return bool((answer.get("status") or {}).get("allowed"))


async def _pod_network(client: Client, **selectors: str) -> tuple[list[str], list[str], str]:
    """The nodes' pod CIDRs, addresses of some pods that are selected, and why these are not known."""
    nodes = await list_if_allowed(client, resources.NODES)
    pods = await list_if_allowed(
        client, resources.PODS, limit=_POD_LIMIT, fieldSelector="status.phase=Running", **selectors
    )
    if nodes is None or pods is None:
        return [], [], "its nodes and pods may not be listed"
    networks = sorted({text for node in nodes for text in (node.get("spec") or {}).get("podCIDRs") or ()})
    own = (pod for pod in pods if not (pod.get("spec") or {}).get("hostNetwork"))
    addresses = {(pod.get("status") or {}).get("podIP") or "" for pod in own} - {""}
    return networks, sorted(addresses), ""
