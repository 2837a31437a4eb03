"""Lets KubeRay's init container request as much as the Ray container of its worker.

KubeRay requests 200m and 256Mi for it, whatever the worker requests. A LimitRange with a larger minimum, as GKE
Autopilot's rules have it, would deny every worker of any size. A pod requests the larger of its init containers and its
containers, so the raised requests cost no quota.
"""

from collections.abc import Mapping
from typing import Any

from adapter import names
from adapter.objects.pod_requests import parse_quantity
from adapter.objects.unstructured import Raw

# The resources of the init container that KubeRay adds to every worker (kuberay:controllers/ray/common/pod.go).
GCS_WAITER_RESOURCES = {"cpu": "200m", "memory": "256Mi"}


def with_worker_requests(spec: Raw) -> dict[str, Any]:
    """The pod spec with the init container's requests raised; an amount that is no quantity stays."""
    containers, inits = spec.get("containers") or (), spec.get("initContainers") or ()
    if not containers or not any(map(_is_waiter, inits)):
        return dict(spec)
    requests = _effective_requests(containers[0])
    raised = [_raise_requests(container, requests) if _is_waiter(container) else container for container in inits]
    return {**spec, "initContainers": raised}


def _is_waiter(container: Raw) -> bool:
    """Whether it is that init container; a sidecar of this name would add its requests to the pod's."""
    return container.get("name") == names.GCS_WAITER and container.get("restartPolicy") != "Always"


def _raise_requests(waiter: Raw, worker_requests: Mapping[str, Any]) -> Raw:
    resources, own = waiter.get("resources") or {}, _effective_requests(waiter)
    raised = {
        name: worker_requests[name]
        for name, amount in own.items()
        if name in worker_requests and _is_less(name, amount, worker_requests[name])
    }
    if not raised:
        return waiter
    limits = resources.get("limits") or {}
    changed: dict[str, Raw] = {"requests": {**(resources.get("requests") or {}), **raised}}
    # A limit must not be below the request; KubeRay's is equal to it.
    if raised_limits := {
        name: amount for name, amount in raised.items() if name in limits and _is_less(name, limits[name], amount)
    }:
        changed["limits"] = {**limits, **raised_limits}
    return {**waiter, "resources": {**resources, **changed}}


def _is_less(name: str, amount: Any, other: Any) -> bool:
    try:
        return parse_quantity(amount, name) < parse_quantity(other, name)
    except ValueError:  # the API server denies such a pod
        return False


def _effective_requests(container: Raw) -> dict[str, Any]:
    """A container's requests; a limit without a request is one, as Kubernetes defaults it."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
