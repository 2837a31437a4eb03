"""The EndpointSlices by which a Service's requests go straight to remote workers.

In the manager cluster, Kubernetes' own endpoints of a RayService's Service are heads alone: a gated worker pod has no
node. kube-proxy joins our slices with them by port names (docs/upstream.md, "Endpoints that others write").
endpoint_objects.py writes them.

Addresses come from worker clusters and are untrusted. An address that no API server accepts, or that the cluster's pods
cannot have, leaves out only its own pod. An address is dropped when its pod is deleted or its remote pod no longer has
it: another pod may get it.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.objects import raycluster
from adapter.objects.pod_address import parse_pod_address, read_address, reported_addresses
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
# Endpoints of one slice (k8s:pkg/apis/discovery/validation/validation.go, maxEndpoints).
MAX_ENDPOINTS = 1000
SERVICE_OWNERS = (names.RAY_SERVICE, "RayCluster")
# Services of a RayCluster that get slices. KubeRay creates one for Serve of a RayCluster and one for its RayService.
# Slices are written at every change of a worker, and job submitters may create any number of Services.
MAX_SERVICES = 4

_PortList = tuple[tuple[str, str, int, str], ...]  # name, protocol, number, application protocol


@dataclass(frozen=True, slots=True)
class Backend:
    """A manager pod, and what is known of its remote pod."""

    pod: Raw
    remote_pod: Raw | None  # None if absent or unreachable
    reachable: bool
    # In an unreachable cluster: Ray's head reports the node dead, or the proxy is unresponsive.
    node_dead: bool = False
    cluster: str = ""
    pod_networks: tuple[Network, ...] = ()  # spec.podCIDRs; empty: any
    relayed: bool = False  # no route leads to its cluster, whose pods may have the addresses of other pods here


@dataclass(frozen=True, slots=True)
class _Endpoint:
    name: str  # of the pod
    ready: bool
    ports: _PortList
    body: dict[str, Any]


def wanted_slices(
    service: Raw, ray_cluster: Raw | None, backends: Iterable[Backend]
) -> tuple[dict[str, dict[str, Any]], str]:
    """A Service's slices by address family, and a sentence on omitted workers.

    `ray_cluster`: the one that the Service's selector names.
    """
    own_backends = [backend for backend in backends if is_backend(service, ray_cluster, backend.pod)]
    relayed = [backend for backend in own_backends if backend.relayed]
    strangers = [backend for backend in own_backends if not backend.relayed and not _is_in_networks(backend)]
    own_backends = [backend for backend in own_backends if not backend.relayed and _is_in_networks(backend)]
    slices, sentences = dict[str, dict[str, Any]](), list(_stranger_messages(service, strangers))
    for family in (service.get("spec") or {}).get("ipFamilies") or IP_FAMILIES:
        endpoints = [endpoint for backend in own_backends if (endpoint := _build_endpoint(service, family, backend))]
        listed, other_ports, surplus = _fit_to_slice(endpoints)
        if listed:
            slices[family] = _build_slice(service, family, listed)
        sentences += _left_out_messages(service, other_ports, surplus)
    sentences += _relayed_messages(service, relayed)
    return slices, next(iter(sentences), "")


def is_backend(service: Raw, ray_cluster: Raw | None, pod: Raw) -> bool:
    """Whether a Service selects a gated pod, and both belong to the RayCluster.

    Labels and names are easily forged, so controlling owners count: the Service's must be the RayCluster or its
    RayService.
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
    """Whether the RayCluster or its RayService controls a Service with a selector."""
    spec, owner = service.get("spec") or {}, raycluster.kuberay_owner(service, SERVICE_OWNERS)
    if not (owner and owner.uid and spec.get("selector")) or spec.get("type") == "ExternalName":
        return False
    return bool(uid_of(ray_cluster)) and owner.uid in (uid_of(ray_cluster), controller_uid(ray_cluster))


def routed_services(services: Iterable[Raw], ray_cluster: Raw) -> list[Key]:
    """The oldest MAX_SERVICES Services of the RayCluster; Services of other owners only have the same labels."""
    own = (service for service in services if is_service_of(service, ray_cluster))
    return [key_of(service) for service in heapq.nsmallest(MAX_SERVICES, own, key=_creation_order)]


def _creation_order(service: Raw) -> tuple[str, Key]:
    return str(meta(service).get("creationTimestamp") or ""), key_of(service)


def over_limit_message(service: Raw) -> str:
    return (
        f"Service {key_of(service)[1]} gets no endpoints in worker clusters: its RayCluster has more than "
        f"{MAX_SERVICES} Services with the label {names.RAY_SERVE_LABEL}, and only the oldest {MAX_SERVICES} get them. "
        "Delete one of them, or remove the label from it."
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
    """The pod's address of a family, unless its remote pod is known not to have it."""
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
    return [text for text in reported_addresses(pod.get("status") or {}, "podIP") if text and isinstance(text, str)]


def _is_valid_address(family: str, text: str) -> bool:
    """Whether an EndpointSlice may have the address."""
    address = parse_pod_address(text)
    return address is not None and f"IPv{address.version}" == family


def _is_in_networks(backend: Backend) -> bool:
    """Whether all of a pod's addresses are in spec.podCIDRs, if that is set."""
    return not backend.pod_networks or all(
        any(address in network for network in backend.pod_networks)
        for address in map(read_address, _pod_ips(backend.pod))
        if address
    )


def _endpoint_ports(service: Raw, pod: Raw) -> _PortList:
    """The Service's ports with this pod's numbers, without those that the pod has no number for."""
    ports = []
    for port in (service.get("spec") or {}).get("ports") or ():
        protocol = str(port.get("protocol") or "TCP")
        if number := _target_port(port, protocol, pod):
            ports.append((str(port.get("name") or ""), protocol, number, str(port.get("appProtocol") or "")))
    return tuple(ports)


def _target_port(port: Raw, protocol: str, pod: Raw) -> int:
    """The pod's number for a Service's port, or 0 (k8s:staging/src/k8s.io/endpointslice/utils.go, FindPort)."""
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
    """The endpoints of one slice, ready ones preferred; how many have other port numbers; how many are too many.

    A slice has one number for each port; the most common numbers win.
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
            f"Service {key_of(service)[1]} leaves out {len(strangers)} workers: pod {key_of(stranger.pod)[1]} has the "
            f"address {addresses} in worker cluster {stranger.cluster}, which is outside spec.podCIDRs of that "
            "WorkerCluster. Correct the field, or ask the administrator of the cluster."
        )


def _relayed_messages(service: Raw, relayed: Sequence[Backend]) -> Iterator[str]:
    if relayed:
        clusters = ", ".join(sorted({backend.cluster for backend in relayed}))
        yield (
            f"Service {key_of(service)[1]} leads no requests straight to workers in {clusters}, which are reached "
            "through the relay (spec.network of a WorkerCluster). The head's proxy forwards requests to them; leave "
            "out spec.excludeHeadPodFromServeSvc of the RayService."
        )


def _left_out_messages(service: Raw, odd: int, many: int) -> Iterator[str]:
    name = key_of(service)[1]
    if many:
        yield (
            f"Service {name} has {MAX_ENDPOINTS + many} workers in worker clusters, of which {many} get no requests "
            f"directly: an EndpointSlice has at most {MAX_ENDPOINTS} endpoints. The proxies of the others forward "
            "requests to their replicas; to reach all directly, use more than one RayService."
        )
    if odd:
        yield (
            f"Service {name} leaves out {odd} workers: spec.ports refers to its targetPort by name, and their "
            "containers give that name a different number. Use one port number in all worker groups."
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
    """The name of a slice of ours; the address family is in it, because it is immutable."""
    return f"{service}-rayspan-{family.lower()}"


def _port_body(name: str, protocol: str, number: int, application: str) -> dict[str, Any]:
    return {"name": name, "protocol": protocol, "port": number, **({"appProtocol": application} if application else {})}
