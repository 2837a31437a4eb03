"""Names the containers of a remote pod that a LimitRange denies, and who added them; the API server names neither."""

from typing import Final

from adapter import names
from adapter.objects import api_messages
from adapter.objects.pod_requests import parse_quantity
from adapter.objects.unstructured import Raw, mapping_field, mapping_list, printable, text_field

_KUBERAY_NOTE: Final = ", which KubeRay adds and which requests as much as the worker, at least 200m cpu and 256Mi"
_OTHERS_NOTE: Final = " (a container that the admission of the worker cluster adds or changes)"


def denied_containers(pod: Raw, message: str) -> str:
    """` (container ray-worker)`: the containers that ask for what is denied; empty if the message is another one.

    Where no container of the `pod`, as it was sent, asks for that amount, the worker cluster put it there.
    """
    bounds = [bound for bound in api_messages.container_bounds(message) if _is_quantity(bound[2], bound[0])]
    names_of_denied = [
        text_field(container, "name")
        for kind in ("containers", "initContainers")
        for container in mapping_list(mapping_field(pod, "spec"), kind)
        if any(_asks_for(container, *bound) for bound in bounds)
    ]
    denied = [f"{printable(name)}{_KUBERAY_NOTE if name == names.GCS_WAITER else ''}" for name in names_of_denied]
    return f" (container {'; '.join(denied)})" if denied else _OTHERS_NOTE if bounds else ""


def _asks_for(container: Raw, resource: str, kind: str, amount: str) -> bool:
    resources = mapping_field(container, "resources")
    amounts = {**mapping_field(resources, "limits"), **mapping_field(resources, f"{kind}s")}
    try:
        return resource in amounts and parse_quantity(amounts[resource], resource) == parse_quantity(amount, resource)
    except ValueError:
        return False


def _is_quantity(amount: str, resource: str) -> bool:
    try:
        parse_quantity(amount, resource)
    except ValueError:
        return False
    return True
