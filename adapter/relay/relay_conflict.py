"""What a job has that does not work through the relay, so that relayed clusters are left out for it from the start."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from adapter import names
from adapter.objects.rayjob import JobObject
from adapter.objects.unstructured import Raw, mapping_field, mapping_list, printable, text_field
from adapter.objects.workload import PodSet
from adapter.relay.relay_pod import is_counted_sidecar

_CONTAINERS: Final = frozenset({names.RELAY_CLIENT, names.RELAY_SERVER, names.RELAY_HOOK})


def find_conflict(job: JobObject, podsets: Sequence[PodSet]) -> str:
    """Why a job cannot use the relay, a fragment; empty if it can. `podsets`: the head's, then those of workers."""
    return next(_conflicts(job, podsets), "")


def _conflicts(job: JobObject, podsets: Sequence[PodSet]) -> Iterator[str]:
    if job.cluster.autoscaling and not _has_autoscaler_v2(job, podsets):
        yield (
            "version 1 of Ray's autoscaler knows workers by their IPs, not by names; set "
            f"{'spec.rayClusterConfig' if job.service else job.cluster_path}.autoscalerOptions.version to v2"
        )
    for podset in podsets:
        yield from _template_conflicts(podset)


def _template_conflicts(podset: PodSet) -> Iterator[str]:
    spec, where = mapping_field(podset.template, "spec"), f"the template of {printable(podset.name)}"
    if spec.get("hostNetwork"):
        yield f"{where} has hostNetwork, where the relay's sidecars of two pods take the same ports; remove it"
    containers = [*mapping_list(spec, "initContainers"), *mapping_list(spec, "containers")]
    containers = [container for container in containers if not is_counted_sidecar(container)]
    for kind, taken in (("container", _names_of(containers)), ("volume", _names_of(mapping_list(spec, "volumes")))):
        reserved = _CONTAINERS if kind == "container" else frozenset({names.RELAY_VOLUME})
        for name in sorted(reserved.intersection(taken)):
            yield f"{where} has a {kind} {name}, which is the relay's name; give it another name"


def _names_of(items: Iterable[Raw]) -> set[str]:
    return {text_field(item, "name") for item in items}


def _has_autoscaler_v2(job: JobObject, podsets: Sequence[PodSet]) -> bool:
    """As KubeRay chooses it (kuberay:controllers/ray/utils/util.go, IsAutoscalingV2Enabled), or by Ray's variable."""
    return job.cluster.autoscaler_version == "v2" or any(
        text_field(variable, "name") == names.RAY_AUTOSCALER_V2_ENV and text_field(variable, "value") in ("1", "true")
        for podset in podsets[:1]
        for container in mapping_list(mapping_field(podset.template, "spec"), "containers")
        for variable in mapping_list(container, "env")
    )
