"""The EndpointSlices by which a Service's requests go straight to remote workers.

A Service of a RayService has Kubernetes' own endpoints for pods on nodes. In the manager cluster these are heads alone,
since a worker's gated pod has no node. Our slices are added beside them; kube-proxy joins all slices of a Service by
the names of their ports (docs/upstream.md, "Endpoints that others write"). A slice has addresses of one family, and the
number of endpoints is limited. endpoint_objects.py compares the slices with the existing ones.

Addresses come from worker clusters and are untrusted. An address that no API server accepts, or that the cluster's pods
cannot have, is left out, at the cost of its pod alone. An address is dropped when its pod is deleted or its remote pod
does not have it any more, since another pod may get it.
"""

import heapq
import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.objects import raycluster
from adapter.objects.selectors import has_labels
from adapter.objects.specs import Network
from adapter.objects.unstructured import (
    Key,
    Raw,
    controller_uid,
    is_condition_true,
    key_of,
    label,
    meta,
    printable,
    uid_of,
)
from adapter.objects.worker_pod import has_ended, is_deleting, is_dispatched, slot_of, unlocked_reason

IP_FAMILIES = ("IPv4", "IPv6")
# k8s:pkg/apis/discovery/validation/validation.go, maxEndpoints.
MAX_ENDPOINTS = 1000
SERVICE_OWNERS = (names.RAY_SERVICE, "RayCluster")
# KubeRay creates one Service for Serve of a RayCluster and one of its RayService. Each is written at every change of a
# worker, and job submitters may create any number of them.
MAX_SERVICES = 4

_PortList = tuple[tuple[str, str, int, str], ...]  # name, protocol, number, application protocol


@dataclass(frozen=True, slots=True)
class Backend:
    """A manager's worker pod, and what is known of its remote pod."""

    pod: Raw
    remote_pod: Raw | None  # None if absent, and while its cluster is unreachable
    reachable: bool
    # For an unreachable cluster: Ray's head reports the node dead, or its proxy is unresponsive.
    node_dead: bool = False
    cluster: str = ""
    pod_networks: tuple[Network, ...] = ()  # spec.podCIDRs of the WorkerCluster; empty: any


@dataclass(frozen=True, slots=True)
class _Endpoint:
    name: str  # of the pod
    ready: bool
    ports: _PortList
    body: dict[str, Any]


def wanted_slices(
    service: Raw, ray_cluster: Raw | None, backends: Iterable[Backend]
) -> tuple[dict[str, dict[str, Any]], str]:
    """The slices of a Service by address family, and a sentence about omitted workers; empty if there are none.

    `ray_cluster` is the RayCluster that the Service's selector names.
    """
    own_backends = [backend for backend in backends if is_backend(service, ray_cluster, backend.pod)]
    strangers = [backend for backend in own_backends if not _is_in_networks(backend)]
    own_backends = [backend for backend in own_backends if _is_in_networks(backend)]
    slices, sentences = dict[str, dict[str, Any]](), list(_stranger_messages(service, strangers))
    for family in (service.get("spec") or {}).get("ipFamilies") or IP_FAMILIES:
        endpoints = [endpoint for backend in own_backends if (endpoint := _build_endpoint(service, family, backend))]
        listed, other_ports, surplus = _fit_to_slice(endpoints)
        if listed:
            slices[family] = _build_slice(service, family, listed)
        sentences += _left_out_messages(service, other_ports, surplus)
    return slices, next(iter(sentences), "")


def is_backend(service: Raw, ray_cluster: Raw | None, pod: Raw) -> bool:
    """Whether a Service selects a pod that is kept from the manager's nodes, and both have the same owner.

    KubeRay's RayService or RayCluster controls the Service, and its RayCluster controls the pod. Labels and names alone
    are easily forged.
    """
    selector = (service.get("spec") or {}).get("selector") or {}
    if ray_cluster is None or not is_service_of(service, ray_cluster):
        return False
    if not has_labels(meta(pod).get("labels") or {}, selector) or label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD:
        return False
    return (controller_uid(pod), key_of(pod)[0]) == (uid_of(ray_cluster), key_of(service)[0]) and not unlocked_reason(
        pod
    )


def is_service_of(service: Raw, ray_cluster: Raw) -> bool:
    """Whether a Service with a selector is controlled by a RayCluster, or by that RayCluster's RayService."""
    spec, owner = service.get("spec") or {}, raycluster.kuberay_owner(service, SERVICE_OWNERS)
    if not (owner and owner.uid and spec.get("selector")) or spec.get("type") == "ExternalName":
        return False
    return bool(uid_of(ray_cluster)) and owner.uid in (uid_of(ray_cluster), controller_uid(ray_cluster))


def routed_services(services: Iterable[Raw], ray_cluster: Raw) -> list[Key]:
    """The Services of a RayCluster that get slices: the oldest of its own. Other Services only have the same labels."""
    own = (service for service in services if is_service_of(service, ray_cluster))
    return [key_of(service) for service in heapq.nsmallest(MAX_SERVICES, own, key=_creation_order)]


def _creation_order(service: Raw) -> tuple[str, Key]:
    return str(meta(service).get("creationTimestamp") or ""), key_of(service)


def over_limit_message(service: Raw) -> str:
    """The message for a Service beyond the limit."""
    return (
        f"Service {key_of(service)[1]} leads to no worker: its RayCluster has more than {MAX_SERVICES} Services with "
        f"the label {names.RAY_SERVE_LABEL}, and the oldest {MAX_SERVICES} are led straight. Delete one of them, or "
        "take that label off it."
    )


def _build_endpoint(service: Raw, family: str, backend: Backend) -> _Endpoint | None:
    pod = backend.pod
    address, ports = _current_address(backend, family), _endpoint_ports(service, pod)
    if not (address and ports) or is_deleting(pod) or has_ended(pod) or not (slot_of(pod) and is_dispatched(pod)):
        return None
    serving, terminating = is_condition_true(pod, "Ready"), bool(backend.remote_pod and is_deleting(backend.remote_pod))
    ready = serving and not terminating and not (backend.node_dead and not backend.reachable)
    namespace, name = key_of(pod)
    body = {
        "addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": name, "uid": uid_of(pod)},
    }
    return _Endpoint(name, ready, ports, body)


def _current_address(backend: Backend, family: str) -> str:
    """The pod's address of a family, if its remote pod still has it as far as that is known."""
    address = next((text for text in _pod_ips(backend.pod) if _is_valid_address(family, text)), "")
    if not backend.reachable:
        return address
    is_own = (
        backend.remote_pod is not None
        and label(backend.remote_pod, names.POD_UID_LABEL) == uid_of(backend.pod)
        and not has_ended(backend.remote_pod)
    )
    return address if is_own and backend.remote_pod and address in _pod_ips(backend.remote_pod) else ""


def _pod_ips(pod: Raw) -> list[str]:
    status = pod.get("status") or {}
    entries = status.get("podIPs")
    addresses = [entry.get("ip") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [text for text in addresses or [status.get("podIP")] if text and isinstance(text, str)]


def _is_valid_address(family: str, address: str) -> bool:
    """Whether an EndpointSlice of that family may have the address, in the API server's own notation.

    Follows k8s:pkg/apis/core/validation/validation.go, ValidateEndpointIP.
    """
    parsed = _parse_address(address)
    if parsed is None:
        return False
    is_special = parsed.is_unspecified or parsed.is_loopback or parsed.is_link_local or parsed.is_multicast
    return (
        f"IPv{parsed.version}" == family
        and str(parsed) == address
        and not is_special
        and not getattr(parsed, "ipv4_mapped", None)
    )


def _is_in_networks(backend: Backend) -> bool:
    """Whether all of a pod's addresses are in its cluster's pod networks, as far as an administrator has set them."""
    return not backend.pod_networks or all(
        any(address in network for network in backend.pod_networks)
        for address in map(_parse_address, _pod_ips(backend.pod))
        if address
    )


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _endpoint_ports(service: Raw, pod: Raw) -> _PortList:
    """The Service's ports as this pod has them, without those whose name none of its containers has."""
    ports = []
    for port in (service.get("spec") or {}).get("ports") or ():
        protocol = str(port.get("protocol") or "TCP")
        if number := _target_port(port, protocol, pod):
            ports.append((str(port.get("name") or ""), protocol, number, str(port.get("appProtocol") or "")))
    return tuple(ports)


def _target_port(port: Raw, protocol: str, pod: Raw) -> int:
    """The number of the pod's port; 0 if it has none (k8s:staging/src/k8s.io/endpointslice/utils.go, FindPort)."""
    target = port.get("targetPort") or port.get("port")
    if not isinstance(target, str):
        return int(target or 0)
    containers = (pod.get("spec") or {}).get("containers") or ()
    container_ports = (container_port for container in containers for container_port in container.get("ports") or ())
    matches = (
        container_port
        for container_port in container_ports
        if container_port.get("name") == target and (container_port.get("protocol") or "TCP") == protocol
    )
    return next((int(container_port.get("containerPort") or 0) for container_port in matches), 0)


def _fit_to_slice(endpoints: Sequence[_Endpoint]) -> tuple[Sequence[_Endpoint], int, int]:
    """The endpoints that fit into one slice, and how many do not.

    A slice has one number for each port. The first count is of endpoints with other numbers than most, the second of
    endpoints beyond the limit. Ready endpoints come first.
    """
    if not endpoints:
        return (), 0, 0
    numbers = Counter(endpoint.ports for endpoint in endpoints)
    common_ports = min(numbers, key=lambda ports: (-numbers[ports], ports))
    matching = sorted(
        (endpoint for endpoint in endpoints if endpoint.ports == common_ports),
        key=lambda endpoint: (not endpoint.ready, endpoint.name),
    )
    listed = sorted(matching[:MAX_ENDPOINTS], key=lambda endpoint: endpoint.name)
    return listed, len(endpoints) - len(matching), len(matching) - len(listed)


def _stranger_messages(service: Raw, strangers: Sequence[Backend]) -> Iterator[str]:
    if strangers:
        stranger = min(strangers, key=lambda backend: key_of(backend.pod))
        addresses = printable(", ".join(_pod_ips(stranger.pod)))
        yield (
            f"Service {key_of(service)[1]} leads to {len(strangers)} workers less: pod {key_of(stranger.pod)[1]} has "
            f"the address {addresses} in worker cluster {stranger.cluster}, which none of spec.podCIDRs of that "
            "WorkerCluster has. Correct the field, or ask who runs the cluster."
        )


def _left_out_messages(service: Raw, odd: int, many: int) -> Iterator[str]:
    name = key_of(service)[1]
    if many:
        yield (
            f"Service {name} has {MAX_ENDPOINTS + many} workers in worker clusters, of which {many} get no request "
            f"straight: an EndpointSlice has at most {MAX_ENDPOINTS} endpoints. Their replicas are asked by the "
            "proxies of the others; to have all asked straight, serve them by more than one RayService."
        )
    if odd:
        yield (
            f"Service {name} leads to no port of {odd} workers that the others have: spec.ports names its targetPort, "
            "and their containers give that name another number. Give the port one number in all worker groups."
        )


def _build_slice(service: Raw, family: str, endpoints: Sequence[_Endpoint]) -> dict[str, Any]:
    namespace, name = key_of(service)
    owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid_of(service), "controller": True}
    return {
        "apiVersion": names.DISCOVERY_API_VERSION,
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": slice_name(name, family),
            "labels": {names.SERVICE_NAME_LABEL: name, names.SLICE_MANAGED_BY_LABEL: names.SERVING_SLICES_MANAGER},
            "ownerReferences": [owner],
        },
        "addressType": family,
        "endpoints": [endpoint.body for endpoint in endpoints],
        "ports": [_port_body(*port) for port in endpoints[0].ports],
    }


def slice_name(service: str, family: str) -> str:
    """The name of a Service's slice for an address family, which is immutable in a slice."""
    return f"{service}-rayspan-{family.lower()}"


def _port_body(name: str, protocol: str, number: int, application: str) -> dict[str, Any]:
    return {"name": name, "protocol": protocol, "port": number, **({"appProtocol": application} if application else {})}
