"""Index keys of stores, each one string. An object without a key's parts gets a key that no caller uses."""

from adapter import names
from adapter.objects.kuberay_events import involved_uid
from adapter.objects.placement import gang_name_of
from adapter.objects.replica import replica_name
from adapter.objects.unstructured import Raw, annotation, key_of, label
from adapter.objects.worker_pod import slot_of
from adapter.objects.workload import gang_key
from adapter.worker.template_slots import must_check_slot

IN_DOUBT = "in doubt"  # no slot has this name


def by_reserved_workload(reservation: Raw) -> str:
    """Remote group Workloads: namespace and gang."""
    return f"{key_of(reservation)[0]}/{annotation(reservation, names.WORKLOAD_ANNOTATION)}"


def by_placement(pod: Raw) -> str:
    """Manager pods and remote pods: namespace and Placement."""
    return f"{key_of(pod)[0]}/{label(pod, names.PLACEMENT_LABEL)}"


def by_slot(pod: Raw) -> tuple[str, ...]:
    """Search words of a pod within its Placement: its slot (empty if it has none), and that slot's cluster.

    `IN_DOUBT` is added while the slot may not be the pod's own, and its replica if that has several hosts.
    """
    slot, name = slot_of(pod), replica_name(pod)
    words: tuple[str, ...] = (str(slot), in_cluster(slot.cluster)) if slot else ("", in_cluster(""))
    if name:
        words = (*words, in_replica(name))
    return (*words, IN_DOUBT) if must_check_slot(pod) else words


def in_cluster(name: str) -> str:
    """Search word of pods with a slot in a cluster; with an empty name, of pods without a slot."""
    return f"cluster {name}"


def in_replica(name: str) -> str:
    """Search word of the pods of a replica of several hosts."""
    return f"replica {name}"


def by_ray_cluster(pod: Raw) -> str:
    """Head pods: namespace and RayCluster."""
    return f"{key_of(pod)[0]}/{label(pod, names.RAY_GCS_CLUSTER_LABEL)}"


def by_selected_ray_cluster(service: Raw) -> str:
    """Services: namespace and selected RayCluster."""
    selector = (service.get("spec") or {}).get("selector") or {}
    return f"{key_of(service)[0]}/{selector.get(names.RAY_GCS_CLUSTER_LABEL) or ''}"


def by_service(endpoint_slice: Raw) -> str:
    """EndpointSlices: namespace and Service."""
    return f"{key_of(endpoint_slice)[0]}/{label(endpoint_slice, names.SERVICE_NAME_LABEL)}"


def by_involved_object(event: Raw) -> str:
    """Events: namespace and uid of the object."""
    return f"{key_of(event)[0]}/{involved_uid(event)}"


def by_gang(placement: Raw) -> str:
    """Placements: namespace and gang."""
    return f"{key_of(placement)[0]}/{gang_name_of(placement)}"


def by_own_gang(workload: Raw) -> str:
    """The manager's Workloads: namespace and gang; all slices of an elastic job have one key."""
    return "/".join(gang_key(workload))
