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
class Standing:
    """What a worker cluster has of the mirror of one head: only what is ours."""

    service: Raw | None
    slices: Sequence[Raw]
    known: bool = True  # False: it may not be read, so nothing is said of what stands there


def slice_keys(service: Key) -> list[Key]:
    """Namespace and name of each EndpointSlice that a mirrored Service may have: an address's family cannot be changed."""
    return [_slice_key(service, family) for family in ("IPv4", "IPv6")]


def lacking(key: Key, head: Raw | None, standing: Standing, target: Target, anchor_uid: str) -> list[dict[str, Any]]:
    """Give what is to be written there for one share, none when all is well: a whole object where there is none, a JSON
    merge patch with its resourceVersion as a precondition where there is one.

    `key` is namespace and name of the head's Service; `head` the head pod, None while there is none that stays. Its address
    is taken out at once then, as the manager's own Service does it: another pod may get it, and workers that start again
    must not join somebody else's head.
    """
    found = {str(raw.get("addressType")): raw for raw in standing.slices}
    address = str(((head or {}).get("status") or {}).get("podIP") or "")
    families = {family: "" for family in found} | ({_family_of(address): address} if address else {})
    labels = _labels(target, head)
    service = _object("v1", "Service", key, labels, spec=_service(head))
    wanted = [(service, standing.service)] if head or standing.service else []
    for family, each in families.items():
        wanted.append((_slice(key, family, each, labels, head), found.get(family)))
    owner = anchor_owner(target, anchor_uid)
    return [write for body, there in wanted if (write := _difference(body, there, owner))]


def rebased(body: Raw, there: Raw) -> dict[str, Any] | None:
    """The same write upon what stands there by now, where nothing but the owners was changed since it was decided; None where more was,
    or where it has become needless.

    Each single worker of an elastic job has an anchor of its own: were each new owner to have all others decided anew, hundreds that
    start at once would be looked at hundreds of times.
    """
    metadata = dict(body["metadata"])
    known, new = list(meta(there).get("ownerReferences") or ()), metadata.pop("ownerReferences", ())
    metadata.pop("resourceVersion", None)
    missing = [one for one in new if all(one["uid"] != other.get("uid") for other in known)]
    named = {**there, "apiVersion": body["apiVersion"], "kind": body["kind"]}
    if not missing or not _holds(named, {**body, "metadata": metadata}):
        return None
    version = {"resourceVersion": meta(there).get("resourceVersion")}
    return {**body, "metadata": {**metadata, **version, "ownerReferences": known + missing}}


def _labels(target: Target, head: Raw | None) -> dict[str, str]:
    """Those of the mirror, which many Workloads may share: what is of one of them is not in it."""
    ray_cluster = label(head, names.RAY_GCS_CLUSTER_LABEL) if head else ""
    ours = {names.MANAGER_LABEL: target.manager, names.CLUSTER_LABEL: target.cluster}
    return {**ours, **({names.RAY_CLUSTER_LABEL: ray_cluster} if ray_cluster else {})}


def _service(head: Raw | None) -> dict[str, Any]:
    headless = {"clusterIP": "None", "selector": None}  # with a selector, that cluster itself would add endpoints
    return headless | ({"ports": [{**port, "targetPort": port["port"]} for port in _ports(head)]} if head else {})


def _slice(key: Key, family: str, address: str, labels: dict[str, str], head: Raw | None) -> dict[str, Any]:
    slice_labels = {**labels, names.SERVICE_NAME_LABEL: key[1], names.SLICE_MANAGED_BY_LABEL: names.DOMAIN}
    # Ready from the start: KubeRay's own Service publishes a head that is not ready, too (publishNotReadyAddresses).
    endpoints = [{"addresses": [address], "conditions": {"ready": True}}] if address else []
    ports = {"ports": list(_ports(head))} if head else {}
    rest = {"addressType": family, "endpoints": endpoints, **ports}
    return _object(names.DISCOVERY_API_VERSION, "EndpointSlice", _slice_key(key, family), slice_labels, **rest)


def _slice_key(service: Key, family: str) -> Key:
    return service[0], f"{service[1]}-rayspan-{family.lower()}"


def _object(api_version: str, kind: str, key: Key, labels: dict[str, str], **rest: Any) -> dict[str, Any]:
    metadata = {"namespace": key[0], "name": key[1], "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _ports(head: Raw | None) -> Iterator[dict[str, Any]]:
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


def _difference(body: dict[str, Any], there: Raw | None, owner: dict[str, Any]) -> dict[str, Any] | None:
    metadata = body["metadata"]
    if there is None:
        return {**body, "metadata": {**metadata, "ownerReferences": [owner]}}
    owners = list(meta(there).get("ownerReferences") or ())
    missing = [] if any(one.get("uid") == owner["uid"] for one in owners) else [owner]
    named = {**there, "apiVersion": body["apiVersion"], "kind": body["kind"]}  # what is listed does not say its kind
    if not missing and _holds(named, body):
        return None
    version = {"resourceVersion": meta(there).get("resourceVersion")}
    return {**body, "metadata": {**metadata, **version, "ownerReferences": owners + missing}}


def _holds(there: Any, wanted: Any) -> bool:
    """Whether an object says all that is wanted; what else it says is the API server's, or no harm."""
    if isinstance(wanted, dict):
        return all(_holds((there or {}).get(key), value) for key, value in wanted.items())
    return bool(there == wanted) or (not there and not wanted)


def _family_of(address: str) -> str:
    return f"IPv{ipaddress.ip_address(address).version}"
