"""To which workers elsewhere do the requests of a Service go straight: which EndpointSlices of ours does it have?

A Service of a RayService has endpoints of Kubernetes' own for pods on nodes, which in the manager are heads alone: a worker's gated
pod has no node. These stand beside them; kube-proxy adds all slices of a Service up by the names of their ports (docs/upstream.md, "Endpoints that others write"). One is of one family of
addresses, and has as many endpoints as Kubernetes lets one have. Which slices stand, and what is to be written, is not asked here.

An address comes from a worker cluster, which may say anything: what no API server takes, or that cluster's pods cannot have, is left out, and costs its pod alone.
An address is dropped as soon as its pod is being deleted, or its copy has it no more, for another pod may get it.
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
# KubeRay makes one Service for Serve of a RayCluster and one of its RayService. Each is written again with each change of a worker, and
# who submits jobs may make any number of them.
MAX_SERVICES = 4

_PortList = tuple[tuple[str, str, int, str], ...]  # name, protocol, number, application protocol


@dataclass(frozen=True, slots=True)
class Backend:
    """A worker pod of the manager, and what is known of its copy."""

    pod: Raw
    remote_pod: Raw | None  # None where there is none, and where its cluster cannot be seen
    reachable: bool  # whether that can be seen
    node_dead: bool = False  # while it cannot: Ray's head says that the node is dead, or its proxy answers no more
    cluster: str = ""
    pod_networks: tuple[Network, ...] = ()  # spec.podCIDRs of that WorkerCluster; empty: any


@dataclass(frozen=True, slots=True)
class _Endpoint:
    name: str  # of the pod
    ready: bool
    ports: _PortList
    body: dict[str, Any]


def wanted_slices(
    service: Raw, ray_cluster: Raw | None, backends: Iterable[Backend]
) -> tuple[dict[str, dict[str, Any]], str]:
    """The slices of a Service by family, and a sentence about workers that are left out, empty where none is.

    `ray_cluster` is the one whose name the Service's selector says.
    """
    own = [one for one in backends if is_backend(service, ray_cluster, one.pod)]
    strangers = [one for one in own if not _is_in_networks(one)]
    own = [one for one in own if _is_in_networks(one)]
    found, sentences = dict[str, dict[str, Any]](), list(_stranger_messages(service, strangers))
    for family in (service.get("spec") or {}).get("ipFamilies") or IP_FAMILIES:
        endpoints = [made for one in own if (made := _build_endpoint(service, family, one))]
        kept, odd, many = _fit_to_slice(endpoints)
        if kept:
            found[family] = _build_slice(service, family, kept)
        sentences += _left_out_messages(service, odd, many)
    return found, next(iter(sentences), "")


def is_backend(service: Raw, ray_cluster: Raw | None, pod: Raw) -> bool:
    """Whether a Service selects a pod that we keep from the manager's nodes, and both are of one owner: KubeRay's RayService or
    RayCluster controls the Service, and a RayCluster of it the pod. Labels and names alone are easily forged."""
    selector = (service.get("spec") or {}).get("selector") or {}
    if ray_cluster is None or not is_service_of(service, ray_cluster):
        return False
    if not has_labels(meta(pod).get("labels") or {}, selector) or label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD:
        return False
    return (controller_uid(pod), key_of(pod)[0]) == (uid_of(ray_cluster), key_of(service)[0]) and not unlocked_reason(
        pod
    )


def is_service_of(service: Raw, ray_cluster: Raw) -> bool:
    """Whether a Service with a selector is controlled by a RayCluster, or by the RayService that controls it."""
    spec, owner = service.get("spec") or {}, raycluster.kuberay_owner(service, SERVICE_OWNERS)
    if not (owner and owner.uid and spec.get("selector")) or spec.get("type") == "ExternalName":
        return False
    return bool(uid_of(ray_cluster)) and owner.uid in (uid_of(ray_cluster), controller_uid(ray_cluster))


def routed_services(services: Iterable[Raw], ray_cluster: Raw) -> list[Key]:
    """Which Services of a RayCluster are led straight: of those that are its own, the oldest. Others have the same labels only."""
    own = (one for one in services if is_service_of(one, ray_cluster))
    return [key_of(one) for one in heapq.nsmallest(MAX_SERVICES, own, key=_creation_order)]


def _creation_order(service: Raw) -> tuple[str, Key]:
    return str(meta(service).get("creationTimestamp") or ""), key_of(service)


def over_limit_message(service: Raw) -> str:
    """What is said of a Service that is one too many."""
    return (
        f"Service {key_of(service)[1]} leads to no worker: its RayCluster has more than {MAX_SERVICES} Services with the label "
        f"{names.RAY_SERVE_LABEL}, and the oldest {MAX_SERVICES} are led straight. Delete one of them, or take that label off it."
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
    """The pod's address of a family, as its copy has it still, where that can be known."""
    found = next((text for text in _pod_ips(backend.pod) if _is_valid_address(family, text)), "")
    if not backend.reachable:
        return found
    mine = (
        backend.remote_pod is not None
        and label(backend.remote_pod, names.POD_UID_LABEL) == uid_of(backend.pod)
        and not has_ended(backend.remote_pod)
    )
    return found if mine and backend.remote_pod and found in _pod_ips(backend.remote_pod) else ""


def _pod_ips(pod: Raw) -> list[str]:
    status = pod.get("status") or {}
    listed = status.get("podIPs")
    every = [each.get("ip") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return [text for text in every or [status.get("podIP")] if text and isinstance(text, str)]


def _is_valid_address(family: str, address: str) -> bool:
    """Whether it is an address of that family that an EndpointSlice may have (k8s:pkg/apis/core/validation/validation.go,
    ValidateEndpointIP), written as API servers write it."""
    found = _parse_address(address)
    if found is None:
        return False
    odd = found.is_unspecified or found.is_loopback or found.is_link_local or found.is_multicast
    return (
        f"IPv{found.version}" == family
        and str(found) == address
        and not odd
        and not getattr(found, "ipv4_mapped", None)
    )


def _is_in_networks(backend: Backend) -> bool:
    """Whether all of a pod's addresses are such as its cluster's pods have, as far as an administrator has said."""
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
    """The Service's ports as this pod has them; without those whose name none of its containers knows."""
    found = []
    for port in (service.get("spec") or {}).get("ports") or ():
        protocol = str(port.get("protocol") or "TCP")
        if number := _target_port(port, protocol, pod):
            found.append((str(port.get("name") or ""), protocol, number, str(port.get("appProtocol") or "")))
    return tuple(found)


def _target_port(port: Raw, protocol: str, pod: Raw) -> int:
    """The number of the pod's port, 0 where it has none (k8s:staging/src/k8s.io/endpointslice/utils.go, FindPort)."""
    target = port.get("targetPort") or port.get("port")
    if not isinstance(target, str):
        return int(target or 0)
    containers = (pod.get("spec") or {}).get("containers") or ()
    each = (one for container in containers for one in container.get("ports") or ())
    same = (one for one in each if one.get("name") == target and (one.get("protocol") or "TCP") == protocol)
    return next((int(one.get("containerPort") or 0) for one in same), 0)


def _fit_to_slice(endpoints: Sequence[_Endpoint]) -> tuple[Sequence[_Endpoint], int, int]:
    """The endpoints of one slice, which has one number for each port, and how many are left out: because their pods have other
    numbers than most, and because there are too many. Who is ready goes before who is not."""
    if not endpoints:
        return (), 0, 0
    numbers = Counter(one.ports for one in endpoints)
    most = min(numbers, key=lambda ports: (-numbers[ports], ports))
    same = sorted((one for one in endpoints if one.ports == most), key=lambda one: (not one.ready, one.name))
    kept = sorted(same[:MAX_ENDPOINTS], key=lambda one: one.name)
    return kept, len(endpoints) - len(same), len(same) - len(kept)


def _stranger_messages(service: Raw, strangers: Sequence[Backend]) -> Iterator[str]:
    if strangers:
        one = min(strangers, key=lambda each: key_of(each.pod))
        said = printable(", ".join(_pod_ips(one.pod)))
        yield (
            f"Service {key_of(service)[1]} leads to {len(strangers)} workers less: pod {key_of(one.pod)[1]} has the address {said} in "
            f"worker cluster {one.cluster}, which none of spec.podCIDRs of that WorkerCluster has. Correct the field, or ask who runs the cluster."
        )


def _left_out_messages(service: Raw, odd: int, many: int) -> Iterator[str]:
    name = key_of(service)[1]
    if many:
        yield (
            f"Service {name} has {MAX_ENDPOINTS + many} workers in worker clusters, of which {many} get no request straight: an "
            f"EndpointSlice has at most {MAX_ENDPOINTS} endpoints. Their replicas are asked by the proxies of the others; to have all "
            f"asked straight, serve them by more than one RayService."
        )
    if odd:
        yield (
            f"Service {name} leads to no port of {odd} workers that the others have: spec.ports names its targetPort, and their "
            f"containers give that name another number. Give the port one number in all worker groups."
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
        "endpoints": [one.body for one in endpoints],
        "ports": [_port_body(*each) for each in endpoints[0].ports],
    }


def slice_name(service: str, family: str) -> str:
    """The name of a Service's slice; an address's family cannot be changed, so each has one of its own."""
    return f"{service}-rayspan-{family.lower()}"


def _port_body(name: str, protocol: str, number: int, application: str) -> dict[str, Any]:
    return {"name": name, "protocol": protocol, "port": number, **({"appProtocol": application} if application else {})}
