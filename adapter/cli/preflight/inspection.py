"""Reads the facts of a cluster for a preflight: namespace, queues, rights, pod network.

The account's own access reviews give its rights. A kind that is not readable is left out.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import yaml

from adapter import names
from adapter.admission import cluster_identity
from adapter.admission.cluster_identity import IdentityRecord
from adapter.objects import queue_settings
from adapter.objects.unstructured import UNREADABLE, Raw, key_of, mapping_field, text_field, text_list
from adapter.preflight.preflight_facts import CLUSTER_RIGHTS, NAMESPACE_RIGHTS, ClusterFacts, needed_rights
from adapter.quota import tree
from adapter.shell.kube import pagination, resources
from adapter.shell.kube.access_review import has_right
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import Resource

# How many pods are listed: a sample of addresses, for pod networks that do not follow the nodes' podCIDRs.
_POD_LIMIT = "500"
_MAX_CONFIGURATION = 256 * 1024  # characters; Kueue's own has 5 000


@dataclass(frozen=True, slots=True)
class _AccessRight:
    group: str
    resource: str
    verb: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f' in namespace {self.namespace}' if self.namespace else ''}"


async def inspect_manager(client: Client, name: str, namespace: str) -> ClusterFacts:
    """Read the facts of the manager cluster with the user's rights."""
    # A manager pod with this label is left out: its status mirrors an address of its worker cluster.
    networks, addresses, network_error = await _pod_network(client, labelSelector=f"!{names.CLUSTER_LABEL}")
    services = await list_if_allowed(client, resources.RAY_SERVICES, namespace, labelSelector=names.QUEUE_LABEL) or []
    side = ClusterFacts(name, networks=networks, addresses=addresses, network_error=network_error)
    if not services:
        return side
    frameworks, has_policy = await asyncio.gather(_kueue_frameworks(client), _has_gate_policy(client))
    return replace(
        side, ray_services=[key_of(raw)[1] for raw in services], frameworks=frameworks, has_service_policy=has_policy
    )


async def _kueue_frameworks(client: Client) -> list[str] | None:
    """Kueue's `integrations.frameworks`, empty by default; None if its configuration is unreadable."""
    config = await _kueue_configuration(client)
    if config is None or not isinstance(config.get("integrations") or {}, dict):
        return None
    return list(text_list(mapping_field(config, "integrations"), "frameworks"))


async def _kueue_configuration(client: Client) -> Raw | None:
    """Kueue's configuration; None if its ConfigMap is unreadable, or not where stock Kueue has it."""
    for config_map in await list_if_allowed(client, resources.CONFIG_MAPS, names.KUEUE_NAMESPACE) or ():
        text = text_field(mapping_field(config_map, "data"), names.KUEUE_CONFIG_KEY)
        if text and len(text) <= _MAX_CONFIGURATION:
            try:
                config = yaml.safe_load(text)
            except (yaml.YAMLError, RecursionError):
                return None
            return config if isinstance(config, dict) else None
    return None


async def _kueue_settings(client: Client, local_queues: Iterable[Raw]) -> tuple[list[str], list[str]]:
    """The notes and the faults of the ClusterQueues behind these LocalQueues, and of Kueue's configuration."""
    cluster_queues, flavors, config = await asyncio.gather(
        list_if_allowed(client, resources.CLUSTER_QUEUES),
        list_if_allowed(client, resources.FLAVORS),
        _kueue_configuration(client),
    )
    targets = {tree.local_queue_target(raw)[0] for raw in local_queues}
    notes = [
        note
        for raw in cluster_queues or ()
        if key_of(raw)[1] in targets
        for note in (*queue_settings.worker_queue_notes(raw, flavors or ()), queue_settings.version_note(raw))
        if note
    ]
    if config is None:
        return notes, []
    return [*notes, *queue_settings.configuration_notes(config)], queue_settings.configuration_faults(config)


async def _has_gate_policy(client: Client) -> bool:
    policies = await list_if_allowed(
        client, resources.GATE_POLICIES, fieldSelector=f"metadata.name={names.SERVICE_POLICY}"
    )
    return policies is None or bool(policies)


async def inspect_worker(
    client: Client, record: IdentityRecord, head: str, scheduler: str, namespace: str, queues: Sequence[str]
) -> ClusterFacts:
    """Read the facts of a worker cluster with the rights of its WorkerCluster's account.

    Nothing else is read from a cluster that is not the one on record, if there is a record. `head` and `scheduler` are
    `head.address` and `pods.schedulerName` of the spec.
    """
    name = record.name
    try:
        if record.uid and (conflict := cluster_identity.find_conflict(record, await client.cluster_uid())):
            return ClusterFacts(name, f"{name} is not inspected: {conflict.message}.", head)
        exists = await _namespace_exists(client, namespace)
        local_queues = await _named_local_queues(client, namespace, queues)
        queue_problems = _queue_problems(local_queues, queues)
        missing_rights, (networks, addresses, network_error), (notes, faults) = await asyncio.gather(
            _missing_rights(client, head, scheduler, namespace if exists else ""),
            _pod_network(client),
            _kueue_settings(client, local_queues.values()),
        )
    except UNREADABLE:
        text = f"The API server of {name} answers with objects that cannot be read"
        return ClusterFacts(name, f"{text}; see `kubectl get nodes,pods -o yaml` there.", head)
    except (ApiError, Unreachable) as error:
        return ClusterFacts(
            name,
            f"The API server of {name} cannot be reached: {error}; see `kubectl describe workercluster {name}`.",
            head,
        )
    return ClusterFacts(
        name,
        "",
        head,
        exists,
        queue_problems,
        missing_rights,
        networks,
        addresses,
        network_error,
        kueue_notes=notes,
        kueue_faults=faults,
    )


async def list_if_allowed(client: Client, resource: Resource, namespace: str = "", **params: str) -> list[Raw] | None:
    """The objects of a kind; None if they are not readable, or the cluster does not serve the kind."""
    try:
        return (await pagination.list_all(client, resource.path(namespace), **params))[0]
    except ApiError as error:
        if error.status == 403 or error.not_found:
            return None
        raise


async def _namespace_exists(client: Client, namespace: str) -> bool:
    namespaces = await list_if_allowed(client, resources.NAMESPACES, fieldSelector=f"metadata.name={namespace}")
    return namespaces is None or bool(namespaces)  # if unreadable, creating a pod will show it


async def _named_local_queues(client: Client, namespace: str, queues: Sequence[str]) -> dict[str, Raw]:
    """The LocalQueues with these names."""
    local_queues = await list_if_allowed(client, resources.LOCAL_QUEUES, namespace) or ()
    return {key_of(raw)[1]: raw for raw in local_queues if key_of(raw)[1] in queues}


def _queue_problems(local_queues: Mapping[str, Raw], queues: Sequence[str]) -> Mapping[str, str | None]:
    return {name: tree.local_queue_target(local_queues[name])[1] if name in local_queues else None for name in queues}


async def _missing_rights(client: Client, head: str, scheduler: str, namespace: str) -> list[str]:
    """The rights that the account lacks; an empty `namespace` skips those in a namespace."""
    rights = [
        _AccessRight(*kind, verb)
        for kind, verbs in needed_rights(CLUSTER_RIGHTS, head, scheduler).items()
        for verb in verbs
    ]
    if namespace:
        namespace_rights = needed_rights(NAMESPACE_RIGHTS, head, scheduler)
        rights += [_AccessRight(*kind, verb, namespace) for kind, verbs in namespace_rights.items() for verb in verbs]
    granted = await asyncio.gather(
        *(has_right(client, right.verb, right.group, right.resource, right.namespace) for right in rights)
    )
    return [str(right) for right, allowed in zip(rights, granted, strict=True) if not allowed]


async def _pod_network(client: Client, **selectors: str) -> tuple[list[str], list[str], str]:
    """The nodes' pod CIDRs, addresses of at most `_POD_LIMIT` selected pods, and why they are unknown, or empty."""
    nodes = await list_if_allowed(client, resources.NODES)
    pods = await list_if_allowed(
        client, resources.PODS, limit=_POD_LIMIT, fieldSelector="status.phase=Running", **selectors
    )
    if nodes is None or pods is None:
        return [], [], "its nodes and pods cannot be listed"
    networks = sorted({cidr for node in nodes for cidr in (node.get("spec") or {}).get("podCIDRs") or ()})
    network_pods = (pod for pod in pods if not (pod.get("spec") or {}).get("hostNetwork"))
    addresses = {(pod.get("status") or {}).get("podIP") or "" for pod in network_pods} - {""}
    return networks, sorted(addresses), ""
