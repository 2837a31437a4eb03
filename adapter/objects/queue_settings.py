"""Names the settings of Kueue's queues and configuration that a plan does not foresee, or that work against Rayspan.

A note is a sentence with the object, the field and what it means for jobs of Rayspan. No note stops a job: Kueue
decides. The settings are those of Kueue 0.19 and 0.20 (kueue:apis/kueue/v1beta2, kueue:apis/config/v1beta2).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from adapter import names
from adapter.objects.queues import read_cluster_queue, read_flavor
from adapter.objects.unstructured import (
    Raw,
    key_of,
    mapping_field,
    mapping_list,
    meta,
    printable,
    printable_list,
    text_field,
    text_list,
)

_OLD_VERSION: Final = f"{names.KUEUE_DOMAIN}/v1beta1"
_POD_FRAMEWORK: Final = "pod"
_MAX_LISTED: Final = 4  # names in one sentence
# By field of spec.preemption: the values that a plan foresees. Absent is Never.
_FORESEEN_PREEMPTION: Final[Mapping[str, tuple[str, ...]]] = {
    "withinClusterQueue": ("", "Never", "LowerPriority"),
    "reclaimWithinCohort": ("", "Never", "Any"),
}
_TIMEOUT: Final = "spec.reservationTimeout of the DispatchPolicy"


def worker_queue_notes(cluster_queue: Raw, flavors: Iterable[Raw]) -> list[str]:
    """The notes on a ClusterQueue of a worker cluster that gets shares; `flavors` are that cluster's."""
    spec, where = mapping_field(cluster_queue, "spec"), f"ClusterQueue {key_of(cluster_queue)[1]}"
    return [
        *_order_notes(where, spec),
        *_check_notes(where, cluster_queue),
        *_preemption_notes(where, spec),
        *_topology_notes(cluster_queue, flavors),
    ]


def manager_queue_notes(cluster_queue: Raw, controllers: Mapping[str, str]) -> list[str]:
    """The notes on a ClusterQueue of the manager with a check of ours; `controllers` has each check's controller."""
    queue, spec = read_cluster_queue(cluster_queue), mapping_field(cluster_queue, "spec")
    where = f"ClusterQueue {queue.name}"
    ours = [set(flavors) for name, flavors in queue.checks.items() if controllers.get(name) == names.CONTROLLER_NAME]
    if not ours:
        return []
    covered = queue.flavors if not all(ours) else set().union(*ours)
    provisioning = [
        name
        for name, flavors in queue.checks.items()
        if controllers.get(name) == names.PROVISIONING_CONTROLLER_NAME and (not flavors or covered & {*flavors})
    ]
    notes = [
        f"{where}: AdmissionCheck {name} asks the manager's autoscaler for nodes of remote workers, which run on none "
        "of them; limit it to the flavors of heads with onFlavors."
        for name in provisioning
    ]
    if mapping_field(spec, "concurrentAdmissionPolicy"):
        notes.append(
            f"{where} has spec.concurrentAdmissionPolicy: where Kueue's feature ConcurrentAdmission is on, Kueue makes "
            "a Workload without a job for each flavor, which Rayspan rejects; remove the field."
        )
    return notes


def version_note(raw: Raw) -> str:
    """A sentence if the spec of a Kueue object was last written in a version that Kueue 0.20 does not serve."""
    entries = [
        entry
        for entry in mapping_list(meta(raw), "managedFields")
        if not text_field(entry, "subresource") and "f:spec" in mapping_field(entry, "fieldsV1")
    ]
    # Times are whole seconds; of two writers in one second the older version counts.
    newest = max(entries, key=lambda entry: (text_field(entry, "time"), _is_old_version(entry)), default={})
    if not _is_old_version(newest):
        return ""
    return (
        f"{text_field(raw, 'kind') or 'The queue'} {key_of(raw)[1]} was last written as {_OLD_VERSION} by "
        f"{printable(text_field(newest, 'manager'))}: Kueue 0.20 no longer serves that version; write the file as "
        f"{names.KUEUE_API_VERSION}."
    )


def _is_old_version(entry: Raw) -> bool:
    return text_field(entry, "apiVersion") == _OLD_VERSION


def configuration_notes(config: Raw) -> list[str]:
    """The notes on the configuration of a worker cluster's Kueue."""
    return [*_resource_notes(mapping_field(config, "resources")), *_policy_notes(config)]


def configuration_faults(config: Raw) -> list[str]:
    """A sentence for each setting of a worker cluster's Kueue by which no worker runs within its quota.

    Without a list, Kueue has batch/job alone (kueue:apis/config/v1beta2/defaults.go).
    """
    if _POD_FRAMEWORK in text_list(mapping_field(config, "integrations"), "frameworks"):
        return []
    return [
        f"Kueue's configuration lacks {_POD_FRAMEWORK} in integrations.frameworks, so Kueue does not hold remote pods "
        "to their quota; add it, and restart Kueue."
    ]


def _order_notes(where: str, spec: Raw) -> Iterator[str]:
    if text_field(spec, "queueingStrategy") == names.STRICT_FIFO:
        yield (
            f"{where} is {names.STRICT_FIFO}: a share waits behind the first Workload of the queue even where it fits, "
            f"which plans do not foresee, and is withdrawn after {_TIMEOUT}; BestEffortFIFO avoids that."
        )
    mode = text_field(mapping_field(spec, "admissionScope"), "admissionMode")
    if mode not in ("", "NoAdmissionFairSharing"):
        yield (
            f"{where} has spec.admissionScope.admissionMode {printable(mode)}: Kueue orders Workloads by the past "
            "usage of their LocalQueues, which plans do not foresee; a share may wait behind others."
        )
    if mapping_field(spec, "fairSharing"):
        yield (
            f"{where} has spec.fairSharing: where Kueue's fairSharing is on, Kueue preempts shares that borrow for "
            "queues with a smaller share of the cohort, which plans do not foresee; lost workers are placed again."
        )
    if mapping_field(spec, "concurrentAdmissionPolicy"):
        yield (
            f"{where} has spec.concurrentAdmissionPolicy: where Kueue's feature ConcurrentAdmission is on, Kueue makes "
            "a Workload of each share for each flavor, which plans and shares do not follow; use a queue without it."
        )


def _check_notes(where: str, cluster_queue: Raw) -> Iterator[str]:
    if checks := sorted(read_cluster_queue(cluster_queue).checks):
        yield (
            f"{where} lists AdmissionCheck {printable_list(checks, _MAX_LISTED)}: a share is admitted when it is "
            f"Ready, and withdrawn after {_TIMEOUT}; set that to longer than the check takes. Plans do not count "
            "today's nodes as a limit."
        )


def _preemption_notes(where: str, spec: Raw) -> Iterator[str]:
    preemption = mapping_field(spec, "preemption")
    fields = [
        f"{field} {printable(value)}"
        for field, foreseen in _FORESEEN_PREEMPTION.items()
        if (value := text_field(preemption, field)) not in foreseen
    ]
    borrow = text_field(mapping_field(preemption, "borrowWithinCohort"), "policy")
    fields += [f"borrowWithinCohort.policy {printable(borrow)}"] if borrow not in ("", "Never") else []
    if fields:
        yield (
            f"{where} has spec.preemption.{' and '.join(fields)}, by which Kueue preempts more than plans foresee: a "
            "gang that fits only after such a preemption waits until the quota is free."
        )


def _topology_notes(cluster_queue: Raw, flavors: Iterable[Raw]) -> Iterator[str]:
    used = read_cluster_queue(cluster_queue).flavors
    for flavor in sorted(map(read_flavor, flavors), key=lambda flavor: flavor.name):
        if flavor.topology and flavor.name in used:
            yield (
                f"ResourceFlavor {flavor.name} has spec.topologyName {printable(flavor.topology)}: plans count its "
                "quota and its nodes, not how full the topology's domains are; a share that no domain has capacity "
                f"for is withdrawn after {_TIMEOUT}."
            )


def _resource_notes(resources: Raw) -> Iterator[str]:
    prefixes = text_list(resources, "excludeResourcePrefixes")
    inputs = [text_field(entry, "input") for entry in mapping_list(resources, "transformations")]
    settings = [
        f"excludeResourcePrefixes {printable_list(prefixes, _MAX_LISTED)}" if prefixes else "",
        f"transformations of {printable_list(inputs, _MAX_LISTED)}" if inputs else "",
        "quotaCheckStrategy IgnoreUndeclared"
        if text_field(resources, "quotaCheckStrategy") == "IgnoreUndeclared"
        else "",
    ]
    if given := [setting for setting in settings if setting]:
        yield (
            f"Kueue's configuration has resources.{' and '.join(given)}: plans learn what Kueue counts from the first "
            "share that it admits or refuses, and count the requests of the template until then."
        )


def _policy_notes(config: Raw) -> Iterator[str]:
    if mapping_field(config, "waitForPodsReady").get("blockAdmission") is True:
        yield (
            "Kueue's configuration has waitForPodsReady.blockAdmission true: Kueue admits no share while another "
            "Workload's pods are not ready, and a gang's pods start only when all of its shares are admitted; leave "
            "it out."
        )
    gates = mapping_field(config, "featureGates")
    if gates.get("TopologyAwareScheduling") is False:
        yield (
            "Kueue's configuration has featureGates.TopologyAwareScheduling false: Kueue ignores the topology that a "
            "worker group requests."
        )
