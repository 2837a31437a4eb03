"""What is there to be seen of one cluster before workers are sent to it: namespace, queues, rights, pod network?

It reads, and asks the cluster what its own account may do. What may not be read is left out, and the missing right is told.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import yaml

from adapter import names
from adapter.objects.unstructured import Raw, key_of
from adapter.preflight.preflight_facts import CLUSTER_RIGHTS, NAMESPACE_RIGHTS, Side, needed
from adapter.quota import tree
from adapter.shell.kube import pagination, resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import Resource

# Nodes tell which addresses their pods get, unless their network has its own ways; then some pods must do.
_SOME_PODS = "500"


@dataclass(frozen=True, slots=True)
class _Right:
    group: str
    resource: str
    verb: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f' in namespace {self.namespace}' if self.namespace else ''}"


async def manager(client: Client, name: str, namespace: str) -> Side:
    """Look at the manager cluster, by the rights of who asks."""
    # A worker that runs elsewhere shows its address there.
    networks, addresses, unread = await _network(client, labelSelector=f"!{names.CLUSTER_LABEL}")
    services = await listed(client, resources.RAY_SERVICES, namespace, labelSelector=names.QUEUE_LABEL) or []
    side = Side(name, networks=networks, addresses=addresses, unread=unread)
    if not services:
        return side
    frameworks, held = await asyncio.gather(_frameworks(client), _held(client))
    return replace(side, services=[key_of(raw)[1] for raw in services], frameworks=frameworks, held=held)


async def _frameworks(client: Client) -> list[str] | None:
    """Which kinds Kueue takes for jobs, none of Ray's where it is told nothing; None where that may not be read, or is not where stock
    Kueue has it."""
    for found in await listed(client, resources.CONFIG_MAPS, names.KUEUE_NAMESPACE) or ():
        if text := (found.get("data") or {}).get(names.KUEUE_CONFIG_KEY):
            try:
                integrations = yaml.safe_load(text).get("integrations") or {}
                return [str(one) for one in integrations.get("frameworks") or ()]
            except (yaml.YAMLError, AttributeError, TypeError):
                return None
    return None


async def _held(client: Client) -> bool:
    found = await listed(client, resources.GATE_POLICIES, fieldSelector=f"metadata.name={names.SERVICE_POLICY}")
    return found is None or bool(found)


async def worker(client: Client, name: str, head: str, scheduler: str, namespace: str, queues: Sequence[str]) -> Side:
    """Look at a worker cluster, by the rights of its WorkerCluster's account; `head` and `scheduler` are what its spec says."""
    try:
        exists = await _exists(client, namespace)
        found, missing, (networks, addresses, unread) = await asyncio.gather(
            _queues(client, namespace, queues),
            _missing(client, head, scheduler, namespace if exists else ""),
            _network(client),
        )
    except (ApiError, Unreachable) as error:
        return Side(
            name,
            f"The API server of {name} cannot be asked: {error}; see `kubectl describe workercluster {name}`.",
            head,
        )
    return Side(name, "", head, exists, found, missing, networks, addresses, unread)


async def listed(client: Client, resource: Resource, namespace: str = "", **params: str) -> list[Raw] | None:
    """The objects of a kind; None where they may not be read, or the kind is not known there."""
    try:
        return (await pagination.listed(client, resource.path(namespace), **params))[0]
    except ApiError as error:
        if error.status == 403 or error.missing:
            return None
        raise


async def _exists(client: Client, namespace: str) -> bool:
    found = await listed(client, resources.NAMESPACES, fieldSelector=f"metadata.name={namespace}")
    return found is None or bool(found)  # who may not look finds out by what is made in it


async def _queues(client: Client, namespace: str, queues: Sequence[str]) -> Mapping[str, str | None]:
    there = {key_of(raw)[1]: raw for raw in await listed(client, resources.LOCAL_QUEUES, namespace) or ()}
    return {name: tree.leads_to(there[name])[1] if name in there else None for name in queues}


async def _missing(client: Client, head: str, scheduler: str, namespace: str) -> list[str]:
    """Which rights the account lacks; those in a namespace only where one is given."""
    rights = [_Right(*kind, verb) for kind, verbs in needed(CLUSTER_RIGHTS, head, scheduler).items() for verb in verbs]
    if namespace:
        there = needed(NAMESPACE_RIGHTS, head, scheduler)
        rights += [_Right(*kind, verb, namespace) for kind, verbs in there.items() for verb in verbs]
    granted = await asyncio.gather(*(_granted(client, right) for right in rights))
    return [str(right) for right, yes in zip(rights, granted, strict=True) if not yes]


async def _granted(client: Client, right: _Right) -> bool:
    resource, _, part = right.resource.partition("/")
    where = {"group": right.group, "resource": resource, "subresource": part, "namespace": right.namespace}
    body = {
        "apiVersion": resources.ACCESS_REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**where, "verb": right.verb}},
    }
    answer = await client.create(resources.ACCESS_REVIEWS.path(), body)
    return bool((answer.get("status") or {}).get("allowed"))


async def _network(client: Client, **which: str) -> tuple[list[str], list[str], str]:
    """The nodes' pod CIDRs, addresses of some pods that are selected, and why these are not known."""
    nodes = await listed(client, resources.NODES)
    pods = await listed(client, resources.PODS, limit=_SOME_PODS, fieldSelector="status.phase=Running", **which)
    if nodes is None or pods is None:
        return [], [], "its nodes and pods may not be listed"
    networks = sorted({text for node in nodes for text in (node.get("spec") or {}).get("podCIDRs") or ()})
    own = (pod for pod in pods if not (pod.get("spec") or {}).get("hostNetwork"))
    addresses = {(pod.get("status") or {}).get("podIP") or "" for pod in own} - {""}
    return networks, sorted(addresses), ""
