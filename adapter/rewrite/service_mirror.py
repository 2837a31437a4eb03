"""Mirrors a head's Service into a worker cluster, so that its name resolves to the head pod's address there.

The mirror is a headless Service of the same name and namespace, and an EndpointSlice. It is owned by the anchors of all
shares that use it, and so is deleted with the last of these anchors.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.objects.unstructured import Key, Raw, label, meta
from adapter.rewrite.target import Target, anchor_owner


@dataclass(frozen=True, slots=True)
class MirrorState:
    service: Raw | None
    slices: Sequence[Raw]
    readable: bool = True  # False: RBAC forbids the read


def slice_keys(service: Key) -> list[Key]:
    """The keys of the mirror's EndpointSlices, one for each address family: the family of a slice is immutable."""
    return [_slice_key(service, family) for family in ("IPv4", "IPv6")]


def mirror_writes(
    key: Key, head: Raw | None, state: MirrorState, target: Target, anchor_uid: str
) -> list[dict[str, Any]]:
    """The writes that bring the mirror up to date for one share.

    A write is a whole object where none exists, else a JSON merge patch with its resourceVersion as a precondition.
    `head` is None also while it is being deleted. Its address is then removed at once: another pod may get it, and
    restarted workers must not join another job's head.
    """
    slice_by_family = {str(raw.get("addressType")): raw for raw in state.slices}
    address = str(((head or {}).get("status") or {}).get("podIP") or "")
    families = {family: "" for family in slice_by_family} | ({_address_family(address): address} if address else {})
    labels = _mirror_labels(target, head)
    service = _build_object("v1", "Service", key, labels, spec=_service_spec(head))
    wanted = [(service, state.service)] if head or state.service else []
    for family, family_address in families.items():
        wanted.append((_endpoint_slice(key, family, family_address, labels, head), slice_by_family.get(family)))
    owner = anchor_owner(target, anchor_uid)
    return [write for body, current in wanted if (write := _write_if_different(body, current, owner))]


def rebase_write(body: Raw, current: Raw) -> dict[str, Any] | None:
    """The write, rebased on the current object, if nothing but its owners has changed since the decision; else None.

    Each single-worker share of an elastic job has its own anchor. If each new owner invalidated all other writes,
    hundreds of workers that start at once would be reconciled hundreds of times.
    """
    metadata = dict(body["metadata"])
    known, new = list(meta(current).get("ownerReferences") or ()), metadata.pop("ownerReferences", ())
    metadata.pop("resourceVersion", None)
    missing = [owner for owner in new if all(owner["uid"] != other.get("uid") for other in known)]
    named = {**current, "apiVersion": body["apiVersion"], "kind": body["kind"]}
    if not missing or not _satisfies_wanted(named, {**body, "metadata": metadata}):
        return None
    version = {"resourceVersion": meta(current).get("resourceVersion")}
    return {**body, "metadata": {**metadata, **version, "ownerReferences": known + missing}}


def _mirror_labels(target: Target, head: Raw | None) -> dict[str, str]:
    """The labels of a mirror. No label names a Workload, because shares of several Workloads may use the mirror."""
    ray_cluster = label(head, names.RAY_GCS_CLUSTER_LABEL) if head else ""
    origin = {names.MANAGER_LABEL: target.manager, names.CLUSTER_LABEL: target.cluster}
    return {**origin, **({names.REMOTE_RAY_CLUSTER_LABEL: ray_cluster} if ray_cluster else {})}


def _service_spec(head: Raw | None) -> dict[str, Any]:
    headless = {"clusterIP": "None", "selector": None}  # a selector would add endpoints
    return headless | ({"ports": [{**port, "targetPort": port["port"]} for port in _head_ports(head)]} if head else {})


def _endpoint_slice(key: Key, family: str, address: str, labels: dict[str, str], head: Raw | None) -> dict[str, Any]:
    slice_labels = {**labels, names.SERVICE_NAME_LABEL: key[1], names.SLICE_MANAGED_BY_LABEL: names.DOMAIN}
    # The endpoint is always ready, as in KubeRay's own Service (publishNotReadyAddresses).
    endpoints = [{"addresses": [address], "conditions": {"ready": True}}] if address else []
    ports = {"ports": list(_head_ports(head))} if head else {}
    rest = {"addressType": family, "endpoints": endpoints, **ports}
    return _build_object(names.DISCOVERY_API_VERSION, "EndpointSlice", _slice_key(key, family), slice_labels, **rest)


def _slice_key(service: Key, family: str) -> Key:
    return service[0], f"{service[1]}-rayspan-{family.lower()}"


def _build_object(api_version: str, kind: str, key: Key, labels: dict[str, str], **rest: Any) -> dict[str, Any]:
    metadata = {"namespace": key[0], "name": key[1], "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _head_ports(head: Raw | None) -> Iterator[dict[str, Any]]:
    """The head's ports, for people and SRV records only: a headless Service forwards no ports."""
    containers: Sequence[Raw] = ((head or {}).get("spec") or {}).get("containers") or ({},)
    used: set[object] = set()
    for port in containers[0].get("ports") or ():
        number, protocol = port.get("containerPort"), port.get("protocol") or "TCP"
        name = port.get("name") or f"port-{number}"
        if name not in used and (number, protocol) not in used:
            used |= {name, (number, protocol)}
            yield {"name": name, "port": number, "protocol": protocol}


def _write_if_different(body: dict[str, Any], current: Raw | None, owner: dict[str, Any]) -> dict[str, Any] | None:
    metadata = body["metadata"]
    if current is None:
        return {**body, "metadata": {**metadata, "ownerReferences": [owner]}}
    owners = list(meta(current).get("ownerReferences") or ())
    missing = [] if any(other.get("uid") == owner["uid"] for other in owners) else [owner]
    named = {**current, "apiVersion": body["apiVersion"], "kind": body["kind"]}  # listed objects lack these
    if not missing and _satisfies_wanted(named, body):
        return None
    version = {"resourceVersion": meta(current).get("resourceVersion")}
    return {**body, "metadata": {**metadata, **version, "ownerReferences": owners + missing}}


def _satisfies_wanted(current: Any, wanted: Any) -> bool:
    """Whether `current` has all fields of `wanted`; further fields are the API server's defaults, or harmless."""
    if isinstance(wanted, dict):
        return all(_satisfies_wanted((current or {}).get(key), value) for key, value in wanted.items())
    return bool(current == wanted) or (not current and not wanted)


def _address_family(address: str) -> str:
    return f"IPv{ipaddress.ip_address(address).version}"
