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

FAMILIES = ("IPv4", "IPv6")
# k8s:pkg/apis/discovery/validation/validation.go, maxEndpoints.
MOST_ENDPOINTS = 1000
OWNERS = (names.RAY_SERVICE, "RayCluster")
# KubeRay makes one Service for Serve of a RayCluster and one of its RayService. Each is written again with each change of a worker, and
# who submits jobs may make any number of them.
MOST_SERVICES = 4

_Ports = tuple[tuple[str, str, int, str], ...]  # name, protocol, number, application protocol


@dataclass(frozen=True, slots=True)
class Backend:
    """A worker pod of the manager, and what is known of its copy."""

    pod: Raw
    copy: Raw | None  # None where there is none, and where its cluster cannot be seen
    seen: bool  # whether that can be seen
    dead: bool = False  # while it cannot: Ray's head says that the node is dead, or its proxy answers no more
    cluster: str = ""
    networks: tuple[Network, ...] = ()  # spec.podCIDRs of that WorkerCluster; empty: any


@dataclass(frozen=True, slots=True)
class _Endpoint:
    name: str  # of the pod
    ready: bool
    ports: _Ports
    body: dict[str, Any]


def wanted(service: Raw, ray_cluster: Raw | None, backends: Iterable[Backend]) -> tuple[dict[str, dict[str, Any]], str]:
    """The slices of a Service by family, and a sentence about workers that are left out, empty where none is.

    `ray_cluster` is the one whose name the Service's selector says.
    """
    own = [one for one in backends if is_backend(service, ray_cluster, one.pod)]
    strangers = [one for one in own if not _is_at_home(one)]
    own = [one for one in own if _is_at_home(one)]
    found, sentences = dict[str, dict[str, Any]](), list(_told(service, strangers))
    for family in (service.get("spec") or {}).get("ipFamilies") or FAMILIES:
        endpoints = [made for one in own if (made := _endpoint(service, family, one))]
        kept, odd, many = _kept(endpoints)
        if kept:
            found[family] = _slice(service, family, kept)
        sentences += _left_out(service, odd, many)
    return found, next(iter(sentences), "")


def is_backend(service: Raw, ray_cluster: Raw | None, pod: Raw) -> bool:
    """Whether a Service selects a pod that we keep from the manager's nodes, and both are of one owner: KubeRay's RayService or
    RayCluster controls the Service, and a RayCluster of it the pod. Labels and names alone are easily forged."""
    selector = (service.get("spec") or {}).get("selector") or {}
    if ray_cluster is None or not is_of(service, ray_cluster):
        return False
    if not has_labels(meta(pod).get("labels") or {}, selector) or label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD:
        return False
    return (controller_uid(pod), key_of(pod)[0]) == (uid_of(ray_cluster), key_of(service)[0]) and not unlocked_reason(
        pod
    )


def is_of(service: Raw, ray_cluster: Raw) -> bool:
    """Whether a Service with a selector is controlled by a RayCluster, or by the RayService that controls it."""
    spec, owner = service.get("spec") or {}, raycluster.kuberay_owner(service, OWNERS)
    if not (owner and owner.uid and spec.get("selector")) or spec.get("type") == "ExternalName":
        return False
    return bool(uid_of(ray_cluster)) and owner.uid in (uid_of(ray_cluster), controller_uid(ray_cluster))


def led(services: Iterable[Raw], ray_cluster: Raw) -> list[Key]:
    """Which Services of a RayCluster are led straight: of those that are its own, the oldest. Others have the same labels only."""
    own = (one for one in services if is_of(one, ray_cluster))
    return [key_of(one) for one in heapq.nsmallest(MOST_SERVICES, own, key=_age)]


def _age(service: Raw) -> tuple[str, Key]:
    return str(meta(service).get("creationTimestamp") or ""), key_of(service)


def beyond(service: Raw) -> str:
    """What is said of a Service that is one too many."""
    return (
        f"Service {key_of(service)[1]} leads to no worker: its RayCluster has more than {MOST_SERVICES} Services with the label "
        f"{names.RAY_SERVE_LABEL}, and the oldest {MOST_SERVICES} are led straight. Delete one of them, or take that label off it."
    )


def _endpoint(service: Raw, family: str, one: Backend) -> _Endpoint | None:
    pod = one.pod
    address, ports = _address(one, family), _ports(service, pod)
    if not (address and ports) or is_deleting(pod) or has_ended(pod) or not (slot_of(pod) and is_dispatched(pod)):
        return None
    serving, terminating = is_condition_true(pod, "Ready"), bool(one.copy and is_deleting(one.copy))
    ready = serving and not terminating and not (one.dead and not one.seen)
    namespace, name = key_of(pod)
    body = {
        "addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": name, "uid": uid_of(pod)},
    }
    return _Endpoint(name, ready, ports, body)


def _address(one: Backend, family: str) -> str:
    """The pod's address of a family, as its copy has it still, where that can be known."""
    found = next((text for text in _addresses(one.pod) if _is_of(family, text)), "")
    if not one.seen:
        return found
    mine = one.copy is not None and label(one.copy, names.POD_UID_LABEL) == uid_of(one.pod) and not has_ended(one.copy)
    return found if mine and one.copy and found in _addresses(one.copy) else ""


def _addresses(pod: Raw) -> list[str]:
    status = pod.get("status") or {}
    listed = status.get("podIPs")
    every = [each.get("ip") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return [text for text in every or [status.get("podIP")] if text and isinstance(text, str)]


def _is_of(family: str, text: str) -> bool:
    """Whether it is an address of that family that an EndpointSlice may have (k8s:pkg/apis/core/validation/validation.go,
    ValidateEndpointIP), written as API servers write it."""
    found = _read(text)
    if found is None:
        return False
    odd = found.is_unspecified or found.is_loopback or found.is_link_local or found.is_multicast
    return (
        f"IPv{found.version}" == family and str(found) == text and not odd and not getattr(found, "ipv4_mapped", None)
    )


def _is_at_home(one: Backend) -> bool:
    """Whether all of a pod's addresses are such as its cluster's pods have, as far as an administrator has said."""
    return not one.networks or all(
        any(address in network for network in one.networks) for address in map(_read, _addresses(one.pod)) if address
    )


def _read(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _ports(service: Raw, pod: Raw) -> _Ports:
    """The Service's ports as this pod has them; without those whose name none of its containers knows."""
    found = []
    for port in (service.get("spec") or {}).get("ports") or ():
        protocol = str(port.get("protocol") or "TCP")
        if number := _target(port, protocol, pod):
            found.append((str(port.get("name") or ""), protocol, number, str(port.get("appProtocol") or "")))
    return tuple(found)


def _target(port: Raw, protocol: str, pod: Raw) -> int:
    """The number of the pod's port, 0 where it has none (k8s:staging/src/k8s.io/endpointslice/utils.go, FindPort)."""
    target = port.get("targetPort") or port.get("port")
    if not isinstance(target, str):
        return int(target or 0)
    containers = (pod.get("spec") or {}).get("containers") or ()
    each = (one for container in containers for one in container.get("ports") or ())
    same = (one for one in each if one.get("name") == target and (one.get("protocol") or "TCP") == protocol)
    return next((int(one.get("containerPort") or 0) for one in same), 0)


def _kept(endpoints: Sequence[_Endpoint]) -> tuple[Sequence[_Endpoint], int, int]:
    """The endpoints of one slice, which has one number for each port, and how many are left out: because their pods have other
    numbers than most, and because there are too many. Who is ready goes before who is not."""
    if not endpoints:
        return (), 0, 0
    numbers = Counter(one.ports for one in endpoints)
    most = min(numbers, key=lambda ports: (-numbers[ports], ports))
    same = sorted((one for one in endpoints if one.ports == most), key=lambda one: (not one.ready, one.name))
    kept = sorted(same[:MOST_ENDPOINTS], key=lambda one: one.name)
    return kept, len(endpoints) - len(same), len(same) - len(kept)


def _told(service: Raw, strangers: Sequence[Backend]) -> Iterator[str]:
    if strangers:
        one = min(strangers, key=lambda each: key_of(each.pod))
        said = printable(", ".join(_addresses(one.pod)))
        yield (
            f"Service {key_of(service)[1]} leads to {len(strangers)} workers less: pod {key_of(one.pod)[1]} has the address {said} in "
            f"worker cluster {one.cluster}, which none of spec.podCIDRs of that WorkerCluster has. Correct the field, or ask who runs the cluster."
        )


def _left_out(service: Raw, odd: int, many: int) -> Iterator[str]:
    name = key_of(service)[1]
    if many:
        yield (
            f"Service {name} has {MOST_ENDPOINTS + many} workers in worker clusters, of which {many} get no request straight: an "
            f"EndpointSlice has at most {MOST_ENDPOINTS} endpoints. Their replicas are asked by the proxies of the others; to have all "
            f"asked straight, serve them by more than one RayService."
        )
    if odd:
        yield (
            f"Service {name} leads to no port of {odd} workers that the others have: spec.ports names its targetPort, and their "
            f"containers give that name another number. Give the port one number in all worker groups."
        )


def _slice(service: Raw, family: str, endpoints: Sequence[_Endpoint]) -> dict[str, Any]:
    namespace, name = key_of(service)
    owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid_of(service), "controller": True}
    return {
        "apiVersion": names.DISCOVERY_API_VERSION,
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": slice_name(name, family),
            "labels": {names.SERVICE_NAME_LABEL: name, names.SLICE_MANAGED_BY_LABEL: names.SERVING_SLICES},
            "ownerReferences": [owner],
        },
        "addressType": family,
        "endpoints": [one.body for one in endpoints],
        "ports": [_port(*each) for each in endpoints[0].ports],
    }


def slice_name(service: str, family: str) -> str:
    """The name of a Service's slice; an address's family cannot be changed, so each has one of its own."""
    return f"{service}-rayspan-{family.lower()}"


def _port(name: str, protocol: str, number: int, application: str) -> dict[str, Any]:
    return {"name": name, "protocol": protocol, "port": number, **({"appProtocol": application} if application else {})}
