"""The EndpointSlice writes by which a Service's requests go straight to its remote workers.

service_endpoints.py computes the wanted slices; here they are compared with ours, for at most one write per address
family. A Service that is deleted or not followed any more has no slices. Slices of other writers are not touched.
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
    """The facts for the slices of one Service."""

    service: Raw | None
    ray_cluster: Raw | None = None  # named by the Service's selector
    backends: tuple[Backend, ...] = ()  # workers of that RayCluster
    current_slices: tuple[Raw, ...] = ()  # ours
    exceeds_limit: bool = False  # this Service is beyond MAX_SERVICES of its RayCluster


def decide(serving: ServiceFacts) -> list[Action]:
    service = serving.service
    if service is None:
        return [
            DeleteEndpointSlice(
                _owning_service(endpoint_slice),
                endpoint_slice,
                "its Service does not exist, or is not one of Ray Serve's",
            )
            for endpoint_slice in serving.current_slices
        ]
    bodies, omission = _wanted_slices(service, serving)
    regarding = raycluster.kuberay_owner(service, service_endpoints.SERVICE_OWNERS) or _service_as_job(service)
    families = {
        service_endpoints.slice_name(key_of(service)[1], family): family for family in service_endpoints.IP_FAMILIES
    }
    current = {
        families.get(key_of(endpoint_slice)[1], key_of(endpoint_slice)[1]): endpoint_slice
        for endpoint_slice in serving.current_slices
    }
    actions = list[Action](_delete_unwanted(regarding, bodies, current))
    actions += [
        action for family, body in bodies.items() if (action := _put_slice(regarding, body, current.get(family)))
    ]
    return [
        *actions,
        *(emit_event(regarding, names.EventReason.REQUESTS_VIA_HEAD, omission, warning=True) if omission else ()),
    ]


def _wanted_slices(service: Raw, serving: ServiceFacts) -> tuple[dict[str, Any], str]:
    if is_deleting(service):  # a finalizer may keep it for longer than its workers
        return {}, ""
    if serving.exceeds_limit:
        return {}, service_endpoints.over_limit_message(service)
    return service_endpoints.wanted_slices(service, serving.ray_cluster, serving.backends)


def _delete_unwanted(regarding: Job, wanted: dict[str, Any], current_slices: dict[str, Raw]) -> Iterator[Action]:
    for family, current in current_slices.items():
        if family not in wanted:
            yield DeleteEndpointSlice(regarding, current, "its Service has no worker in a worker cluster")
        elif current.get("addressType") != family:
            yield DeleteEndpointSlice(regarding, current, "its address family differs from the one in its name")


def _put_slice(regarding: Job, body: dict[str, Any], current: Raw | None) -> PutEndpointSlice | None:
    ready = sum(endpoint["conditions"]["ready"] for endpoint in body["endpoints"])
    reason = f"{body['addressType']}: {ready} of {len(body['endpoints'])} workers ready"
    if current is None:
        return PutEndpointSlice(regarding, body, reason)
    if current.get("addressType") != body["addressType"] or _is_up_to_date(current, body):
        return None
    version = {"resourceVersion": meta(current).get("resourceVersion")}
    return PutEndpointSlice(regarding, {**body, "metadata": {**body["metadata"], **version}}, reason)


def _is_up_to_date(current: Raw, body: Raw) -> bool:
    """Whether a slice has the wanted content; further labels are not ours."""
    wanted = body["metadata"]
    has_content = all(list(current.get(field) or ()) == body[field] for field in ("endpoints", "ports"))
    has_labels = all(label(current, key) == value for key, value in wanted["labels"].items())
    return has_content and has_labels and list(meta(current).get("ownerReferences") or ()) == wanted["ownerReferences"]


def _owning_service(endpoint_slice: Raw) -> Job:
    owner: Raw = next(iter(meta(endpoint_slice).get("ownerReferences") or ()), {})
    return Job("v1", "Service", key_of(endpoint_slice)[0], str(owner.get("name") or ""), str(owner.get("uid") or ""))


def _service_as_job(service: Raw) -> Job:
    """The Service in place of a job: a Service that KubeRay no longer controls may still have slices."""
    namespace, name = key_of(service)
    return Job("v1", "Service", namespace, name, str(meta(service).get("uid") or ""))
