"""What is to be written so that a Service's requests go straight to its workers elsewhere?

At most one write for each family of addresses, none when all is well. What is wanted is service_endpoints.py's; here it is compared with
what stands. Where nobody looks after the endpoints of a Service any more, there are none: it is gone, or going, or no longer one of
those that are followed. A slice that is not ours is not seen here, and is never touched.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.actions import Action, DeleteEndpointSlice, PutEndpointSlice, emit_event
from adapter.objects import raycluster
from adapter.objects.unstructured import Raw, key_of, label, meta
from adapter.objects.worker_pod import is_deleting
from adapter.objects.workload import Job
from adapter.worker import service_endpoints
from adapter.worker.service_endpoints import Backend


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Everything on which the slices of one Service depend."""

    service: Raw | None
    ray_cluster: Raw | None = None  # of the name that its selector says
    backends: tuple[Backend, ...] = ()  # the worker pods of that name's RayCluster
    current_slices: tuple[Raw, ...] = ()  # the Service's slices that are ours
    exceeds_limit: bool = False  # its RayCluster has more Services than are led straight


def decide(serving: ServiceFacts) -> list[Action]:
    """Say what to write for one Service."""
    service = serving.service
    if service is None:
        return [
            DeleteEndpointSlice(_owning_service(one), one, "its Service is gone, or is none of Ray Serve's")
            for one in serving.current_slices
        ]
    wanted, left_out = _wanted_slices(service, serving)
    about = raycluster.kuberay_owner(service, service_endpoints.SERVICE_OWNERS) or _service_as_job(service)
    family_of = {
        service_endpoints.slice_name(key_of(service)[1], family): family for family in service_endpoints.IP_FAMILIES
    }
    there = {family_of.get(key_of(one)[1], key_of(one)[1]): one for one in serving.current_slices}
    actions = list[Action](_delete_unwanted(about, wanted, there))
    actions += [action for family, body in wanted.items() if (action := _put_slice(about, body, there.get(family)))]
    return [
        *actions,
        *(emit_event(about, names.EventReason.REQUESTS_VIA_HEAD, left_out, warning=True) if left_out else ()),
    ]


def _wanted_slices(service: Raw, serving: ServiceFacts) -> tuple[dict[str, Any], str]:
    if is_deleting(service):  # a finalizer may keep it, with its address, for longer than its workers
        return {}, ""
    if serving.exceeds_limit:
        return {}, service_endpoints.over_limit_message(service)
    return service_endpoints.wanted_slices(service, serving.ray_cluster, serving.backends)


def _delete_unwanted(regarding: Job, wanted: dict[str, Any], current_slices: dict[str, Raw]) -> Iterator[Action]:
    for family, found in current_slices.items():
        if family not in wanted:
            yield DeleteEndpointSlice(regarding, found, "its Service has no worker elsewhere that it would lead to")
        elif found.get("addressType") != family:
            yield DeleteEndpointSlice(regarding, found, "its addresses are of another family than its name says")


def _put_slice(regarding: Job, body: dict[str, Any], current: Raw | None) -> PutEndpointSlice | None:
    ready = sum(one["conditions"]["ready"] for one in body["endpoints"])
    why = f"{body['addressType']}: {ready} of {len(body['endpoints'])} workers ready"
    if current is None:
        return PutEndpointSlice(regarding, body, why)
    if current.get("addressType") != body["addressType"] or _is_up_to_date(current, body):
        return None
    version = {"resourceVersion": meta(current).get("resourceVersion")}
    return PutEndpointSlice(regarding, {**body, "metadata": {**body["metadata"], **version}}, why)


def _is_up_to_date(current: Raw, body: Raw) -> bool:
    """Whether a slice says just what is wanted; what else its labels say is somebody else's."""
    wanted = body["metadata"]
    same = all(list(current.get(field) or ()) == body[field] for field in ("endpoints", "ports"))
    labelled = all(label(current, key) == value for key, value in wanted["labels"].items())
    return same and labelled and list(meta(current).get("ownerReferences") or ()) == wanted["ownerReferences"]


def _owning_service(endpoint_slice: Raw) -> Job:
    """The Service that a slice was made for."""
    owner: Raw = next(iter(meta(endpoint_slice).get("ownerReferences") or ()), {})
    return Job("v1", "Service", key_of(endpoint_slice)[0], str(owner.get("name") or ""), str(owner.get("uid") or ""))


def _service_as_job(service: Raw) -> Job:
    """A Service that nobody of KubeRay's controls any more, of which something may stand."""
    namespace, name = key_of(service)
    return Job("v1", "Service", namespace, name, str(meta(service).get("uid") or ""))
