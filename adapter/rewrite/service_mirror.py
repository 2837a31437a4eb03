"""What makes the name of a head's Service resolve in a worker cluster, to the head pod's address in the manager?

A headless Service of the same name and namespace, without a selector, and an EndpointSlice with the head's address: DNS
there answers as it does in the manager. Owned by the anchors of all shares whose workers use it, so it goes with the last
one. It is compared with what stands there; whether a cluster is to have one, and who writes it, is not asked here.
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
    """What a worker cluster has of the mirror of one head: only what is ours."""

    service: Raw | None
    slices: Sequence[Raw]
    readable: bool = True  # False: it may not be read, so nothing is said of what stands there


def slice_keys(service: Key) -> list[Key]:
    """Namespace and name of each EndpointSlice that a mirrored Service may have: an address's family cannot be changed."""
    return [_slice_key(service, family) for family in ("IPv4", "IPv6")]


def mirror_writes(
    key: Key, head: Raw | None, state: MirrorState, target: Target, anchor_uid: str
) -> list[dict[str, Any]]:
    """Give what is to be written there for one share, none when all is well: a whole object where there is none, a JSON
    merge patch with its resourceVersion as a precondition where there is one.

    `key` is namespace and name of the head's Service; `head` the head pod, None while there is none that stays. Its address
    is taken out at once then, as the manager's own Service does it: another pod may get it, and workers that start again
    must not join somebody else's head.
    """
    found = {str(raw.get("addressType")): raw for raw in state.slices}
    address = str(((head or {}).get("status") or {}).get("podIP") or "")
    families = {family: "" for family in found} | ({_address_family(address): address} if address else {})
    labels = _mirror_labels(target, head)
    service = _build_object("v1", "Service", key, labels, spec=_service_spec(head))
    wanted = [(service, state.service)] if head or state.service else []
    for family, each in families.items():
        wanted.append((_endpoint_slice(key, family, each, labels, head), found.get(family)))
    owner = anchor_owner(target, anchor_uid)
    return [write for body, there in wanted if (write := _write_if_different(body, there, owner))]


def rebase_write(body: Raw, current: Raw) -> dict[str, Any] | None:
    """The same write upon what stands there by now, where nothing but the owners was changed since it was decided; None where more was,
    or where it has become needless.

    Each single worker of an elastic job has an anchor of its own: were each new owner to have all others decided anew, hundreds that
    start at once would be looked at hundreds of times.
    """
    metadata = dict(body["metadata"])
    known, new = list(meta(current).get("ownerReferences") or ()), metadata.pop("ownerReferences", ())
    metadata.pop("resourceVersion", None)
    missing = [one for one in new if all(one["uid"] != other.get("uid") for other in known)]
    named = {**current, "apiVersion": body["apiVersion"], "kind": body["kind"]}
    if not missing or not _satisfies_wanted(named, {**body, "metadata": metadata}):
        return None
    version = {"resourceVersion": meta(current).get("resourceVersion")}
    return {**body, "metadata": {**metadata, **version, "ownerReferences": known + missing}}


def _mirror_labels(target: Target, head: Raw | None) -> dict[str, str]:
    """Those of the mirror, which many Workloads may share: what is of one of them is not in it."""
    ray_cluster = label(head, names.RAY_GCS_CLUSTER_LABEL) if head else ""
    ours = {names.MANAGER_LABEL: target.manager, names.CLUSTER_LABEL: target.cluster}
    return {**ours, **({names.REMOTE_RAY_CLUSTER_LABEL: ray_cluster} if ray_cluster else {})}


def _service_spec(head: Raw | None) -> dict[str, Any]:
    headless = {"clusterIP": "None", "selector": None}  # with a selector, that cluster itself would add endpoints
    return headless | ({"ports": [{**port, "targetPort": port["port"]} for port in _head_ports(head)]} if head else {})


def _endpoint_slice(key: Key, family: str, address: str, labels: dict[str, str], head: Raw | None) -> dict[str, Any]:
    slice_labels = {**labels, names.SERVICE_NAME_LABEL: key[1], names.SLICE_MANAGED_BY_LABEL: names.DOMAIN}
    # Ready from the start: KubeRay's own Service publishes a head that is not ready, too (publishNotReadyAddresses).
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
    """The ports of the head's Ray container that a Service can name: for people and SRV records, since a headless Service
    forwards nothing."""
    containers: Sequence[Raw] = ((head or {}).get("spec") or {}).get("containers") or ({},)
    seen: set[object] = set()
    for each in containers[0].get("ports") or ():
        number, protocol = each.get("containerPort"), each.get("protocol") or "TCP"
        name = each.get("name") or f"port-{number}"
        if name not in seen and (number, protocol) not in seen:
            seen |= {name, (number, protocol)}
            yield {"name": name, "port": number, "protocol": protocol}


def _write_if_different(body: dict[str, Any], current: Raw | None, owner: dict[str, Any]) -> dict[str, Any] | None:
    metadata = body["metadata"]
    if current is None:
        return {**body, "metadata": {**metadata, "ownerReferences": [owner]}}
    owners = list(meta(current).get("ownerReferences") or ())
    missing = [] if any(one.get("uid") == owner["uid"] for one in owners) else [owner]
    named = {**current, "apiVersion": body["apiVersion"], "kind": body["kind"]}  # what is listed does not say its kind
    if not missing and _satisfies_wanted(named, body):
        return None
    version = {"resourceVersion": meta(current).get("resourceVersion")}
    return {**body, "metadata": {**metadata, **version, "ownerReferences": owners + missing}}


def _satisfies_wanted(current: Any, wanted: Any) -> bool:
    """Whether an object says all that is wanted; what else it says is the API server's, or no harm."""
    if isinstance(wanted, dict):
        return all(_satisfies_wanted((current or {}).get(key), value) for key, value in wanted.items())
    return bool(current == wanted) or (not current and not wanted)


def _address_family(address: str) -> str:
    return f"IPv{ipaddress.ip_address(address).version}"
