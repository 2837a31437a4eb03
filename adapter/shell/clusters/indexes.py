"""Index keys of the stores, for the manager and the worker clusters.

A key is one string. An object without the parts of a key is stored under a key that no caller asks for.
"""

from adapter import names
from adapter.objects.placement import gang_name_of
from adapter.objects.unstructured import Raw, annotation, key_of, label
from adapter.objects.worker_pod import slot_of
from adapter.objects.workload import gang_key
from adapter.worker.template_slots import must_check_slot

IN_DOUBT = "in doubt"  # no slot has this name


def by_reserved_workload(reservation: Raw) -> str:
    """Index of remote group Workloads: namespace and gang."""
    return f"{key_of(reservation)[0]}/{annotation(reservation, names.WORKLOAD_ANNOTATION)}"


def by_placement(pod: Raw) -> str:
    """Index of manager pods and remote pods: namespace and name of the Placement in their label."""
    return f"{key_of(pod)[0]}/{label(pod, names.PLACEMENT_LABEL)}"


def by_slot(pod: Raw) -> tuple[str, ...]:
    """Search words of a pod within its Placement: its slot (empty: none), that slot's cluster, and `IN_DOUBT` while the
    slot may not be its own."""
    slot = slot_of(pod)
    words = (str(slot), in_cluster(slot.cluster)) if slot else ("", in_cluster(""))
    return (*words, IN_DOUBT) if must_check_slot(pod) else words


def in_cluster(name: str) -> str:
    """Search word of the pods with a slot in a cluster, or without a slot for an empty name."""
    return f"cluster {name}"


def by_ray_cluster(pod: Raw) -> str:
    """Index of head pods: namespace and name of their RayCluster."""
    return f"{key_of(pod)[0]}/{label(pod, names.RAY_GCS_CLUSTER_LABEL)}"


def by_selected_ray_cluster(service: Raw) -> str:
    """Index of Services: namespace and name of the RayCluster whose pods they select."""
    selector = (service.get("spec") or {}).get("selector") or {}
    return f"{key_of(service)[0]}/{selector.get(names.RAY_GCS_CLUSTER_LABEL) or ''}"


def by_service(endpoint_slice: Raw) -> str:
    """Index of EndpointSlices: namespace and name of their Service."""
    return f"{key_of(endpoint_slice)[0]}/{label(endpoint_slice, names.SERVICE_NAME_LABEL)}"


def by_gang(placement: Raw) -> str:
    """Index of Placements: namespace and gang."""
    return f"{key_of(placement)[0]}/{gang_name_of(placement)}"


def by_own_gang(workload: Raw) -> str:
    """Index of the manager's Workloads: namespace and gang; an elastic job has one gang for all of its slices."""
    return "/".join(gang_key(workload))
