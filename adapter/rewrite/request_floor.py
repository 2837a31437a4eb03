"""Keeps the requests of a template where admission in a worker cluster lowers them.

Remote pods are compared with their share before that admission (worker/create_pod.py), and the policy may lower the
next pod less. group_workload.py builds the share.
"""

from collections.abc import Mapping
from typing import Any

from adapter.objects.pod_requests import format_quantity, parse_quantity, pod_requests
from adapter.objects.unstructured import Raw


def with_request_floor(spec: Raw, template_spec: Raw, added: Mapping[str, Raw]) -> dict[str, Any]:
    """The admitted spec, in which the pod and each container request at least what they request in the template.

    Requests at pod level replace the sum of the containers, so their floor is the sum of the template. `added` has the
    requests of containers that are in no template, by name. Raises ValueError for a negative sum: the floor would hide
    it.
    """
    if min(pod_requests(spec).values()) < 0:
        raise ValueError("negative requests")
    floors = dict(added)
    for kind in ("initContainers", "containers"):
        for container in template_spec.get(kind) or ():
            floors[str(container.get("name"))] = _effective_requests(container)
    raised = {
        kind: [_raise_requests(container, floors.get(str(container.get("name"))) or {}) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if spec.get(kind)
    }
    # Admission adds the overhead to requests at pod level (`pod_requests`), so the floor is without it.
    total = pod_requests({**template_spec, "overhead": None})
    pod_floor = {name: format_quantity(total.get(name, 0), name) for name in _effective_requests(spec)}
    return _raise_requests({**spec, **raised}, pod_floor)


def _raise_requests(holder: Raw, floor: Raw) -> dict[str, Any]:
    """A container or a pod spec that requests at least the floor.

    A limit below the floor is raised, too: Kueue admits no Workload whose request is above its limit
    (kueue:pkg/workload/resources.go, ValidateResources).
    """
    requests, resources = _effective_requests(holder), holder.get("resources") or {}
    lowered = {
        name: amount
        for name, amount in floor.items()
        if parse_quantity(requests.get(name, 0), name) < parse_quantity(amount, name)
    }
    if not lowered:
        return dict(holder)
    limits = resources.get("limits") or {}
    raised_limits = {
        name: amount
        for name, amount in lowered.items()
        if name in limits and parse_quantity(limits[name], name) < parse_quantity(amount, name)
    }
    changed: dict[str, Raw] = {"requests": {**(resources.get("requests") or {}), **lowered}}
    if raised_limits:
        changed["limits"] = {**limits, **raised_limits}
    return {**holder, "resources": {**resources, **changed}}


def _effective_requests(holder: Raw) -> dict[str, Any]:
    """The requests of a container or a pod; a limit without a request is one, as Kubernetes defaults it."""
    resources = holder.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
