"""Warns of a worker group's fields that mean something else, or nothing, in a worker cluster.

Such a job is dispatched: an administrator may have made the same Service or image there. A warning is a fragment with
the field, its value and the remedy. `pod_validation` has what is rejected.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapter import names
from adapter.admission import size_limits
from adapter.objects import ray_start
from adapter.objects.cluster_keys import is_cluster_key
from adapter.objects.named_objects import NamedObject, find_object
from adapter.objects.raycluster import WorkerGroup
from adapter.objects.service_names import ServiceName, find_service_names
from adapter.objects.specs import PodMapping
from adapter.objects.topology_request import manager_topology_warning
from adapter.objects.unstructured import Raw, mapping_field, mapping_list, printable, text_field, text_list

MAX_WARNINGS: Final = 8  # of one job: more have a common cause
_MAX_VALUE_LENGTH: Final = 128  # a Service's whole name has up to 140 characters
_TEXT_FIELDS: Final = ("command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_DEFAULT_SCHEDULERS: Final = ("", names.DEFAULT_SCHEDULER)
_OTHER_DNS: Final = (
    "a worker in a worker cluster asks the DNS there, which does not know the manager's Services; use an address that "
    "all clusters reach, or make a Service of that name there"
)


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What every WorkerCluster of a policy sets in `spec.pods`."""

    schedulers: tuple[tuple[NamedObject, ...], ...] = ()  # of each cluster: those whose pods have one there
    registries: bool = False

    @classmethod
    def of_clusters(cls, clusters: Iterable[Raw]) -> "PodSettings":
        pods = [mapping_field(mapping_field(raw, "spec"), "pods") for raw in clusters]
        return cls(
            tuple(map(_schedulers_of, pods)),
            bool(pods) and all(mapping_field(settings, "imageRegistries") for settings in pods),
        )

    @classmethod
    def of_mapping(cls, mapping: PodMapping) -> "PodSettings":
        """Those of one WorkerCluster."""
        schedulers = _all_schedulers(bool(mapping.scheduler), mapping.schedulers)
        return cls((schedulers,), bool(mapping.image_registries))

    def sets_scheduler(self, scheduler: str, namespace: str) -> bool:
        """Whether each cluster has a scheduler for the pods of a namespace that name this one."""
        named = [find_object(entries, scheduler, namespace) for entries in self.schedulers]
        return bool(named) and None not in named


def _schedulers_of(settings: Raw) -> tuple[NamedObject, ...]:
    entries = (
        NamedObject(
            name=text_field(entry, "name"),
            namespaces=text_list(entry, "namespaces") if "namespaces" in entry else None,
        )
        for entry in mapping_list(settings, "schedulers")
    )
    return _all_schedulers(bool(text_field(settings, "schedulerName")), entries)


def _all_schedulers(has_default: bool, entries: Iterable[NamedObject]) -> tuple[NamedObject, ...]:
    """Where a cluster has a scheduler for all pods, any name has one there."""
    return (NamedObject(name="*"),) if has_default else tuple(entries)


def start_param_warnings(path: str, group: WorkerGroup, namespace: str, own_services: Iterable[str]) -> Iterator[str]:
    """Warn of `ray start` parameters; `path` is that of the group."""
    address = text_field(group.join_params, ray_start.ADDRESS_PARAM)
    where = f"{path}.rayStartParams.{ray_start.ADDRESS_PARAM} is {printable(address, _MAX_VALUE_LENGTH)}"
    service = ray_start.service_of_address(address, namespace)
    if service and service.split(".")[0] not in own_services:
        yield (
            f"{where}, a Service of the manager: workers in worker clusters join this job's own head in its place; "
            "leave it out, and workers everywhere do"
        )
    elif not service and _foreign_services(address, own_services):
        yield f"{where}: {_OTHER_DNS}; without the parameter workers join this job's own head"
    node_address = text_field(group.join_params, ray_start.NODE_ADDRESS_PARAM)
    where = f"{path}.rayStartParams.{ray_start.NODE_ADDRESS_PARAM} is {printable(node_address, _MAX_VALUE_LENGTH)}"
    if ray_start.names_node_by_service(node_address):
        yield (
            f"{where}, a name that no other cluster resolves: workers in worker clusters use their pods' IPs in its "
            "place, as Ray does without the parameter; a service mesh that admits names only does not let them join"
        )
    elif ray_start.is_host_name(node_address) or _foreign_services(node_address, ()):
        yield f"{where}, a name that no other cluster resolves; leave it out, and Ray uses the pod's IP"


def template_warnings(
    template: Raw, own_services: Iterable[str] = (), settings: PodSettings = PodSettings(), namespace: str = ""
) -> Iterator[str]:
    """Warn of a pod template's fields; nothing about an oversized one, which is rejected."""
    if next(size_limits.template_excesses(template), ""):
        return
    spec = mapping_field(template, "spec")
    for kind in ("initContainers", "containers"):
        for container in mapping_list(spec, kind):
            where = f"spec.{kind}[{printable(text_field(container, 'name'))}]"
            yield from _container_warnings(where, container, own_services, settings)
    yield from _cluster_key_warnings(mapping_field(template, "metadata"))
    if topology := manager_topology_warning(template):
        yield topology
    scheduler = text_field(spec, "schedulerName")
    if scheduler not in _DEFAULT_SCHEDULERS and not settings.sets_scheduler(scheduler, namespace):
        yield (
            f"spec.schedulerName is {printable(scheduler)}: it is removed in worker clusters, and with it that "
            "scheduler's gangs and queues; Rayspan starts the workers together by their quota, and for a scheduler "
            "there set spec.pods.schedulerName on every WorkerCluster of the policy, or name it in spec.pods.schedulers"
        )


def _cluster_key_warnings(metadata: Raw) -> Iterator[str]:
    for field in ("labels", "annotations"):
        for key in filter(is_cluster_key, mapping_field(metadata, field)):
            yield (
                f"metadata.{field} has {printable(key)}: it is removed in worker clusters, since it names an identity, "
                f"a network, a device or a queue of one cluster; an administrator sets it in spec.pods.{field} of a "
                "WorkerCluster"
            )


def _container_warnings(
    where: str, container: Raw, own_services: Iterable[str], settings: PodSettings
) -> Iterator[str]:
    for variable in mapping_list(container, "env"):
        path = f"{where}.env[{printable(text_field(variable, 'name'))}]"
        yield from _service_warnings(path, text_field(variable, "value"), own_services)
    for field in _TEXT_FIELDS:
        text = "\n".join(_texts(container.get(field)))
        yield from _service_warnings(f"{where}.{field}", text, own_services)
    image = text_field(container, "image")
    registry = image.partition("/")[0]
    if not settings.registries and _foreign_services(registry, ()):
        yield (
            f"{where}.image is {printable(image, _MAX_VALUE_LENGTH)}: nodes of another cluster do not know that "
            "registry; use one that all clusters reach, or set spec.pods.imageRegistries on every WorkerCluster of "
            "the policy"
        )
    if text_field(container, "imagePullPolicy") == "Never":
        yield (
            f"{where}.imagePullPolicy is Never: nodes of a worker cluster that lack the image never get it; use "
            "IfNotPresent"
        )


def _service_warnings(where: str, text: str, own_services: Iterable[str]) -> Iterator[str]:
    for service in _foreign_services(text, own_services):
        yield f"{where} has {printable(service.text, _MAX_VALUE_LENGTH)}: {_OTHER_DNS}"


def _foreign_services(text: str, own_services: Iterable[str]) -> list[ServiceName]:
    """The Services in a text, without those of the job's own head, each once."""
    by_text = {service.text: service for service in find_service_names(text)}
    return [service for service in by_text.values() if service.name not in own_services]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for item in items:
        yield from _texts(item)
