"""Computes the manager's quota for remote workers as the sum of the worker queues behind it.

This is done for ClusterQueues with an opt-in annotation. Only nominal quota counts, since worker clusters promise no
other quota. An unreachable cluster makes the sum a lower bound: the quota may grow then, but not shrink.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter import names
from adapter.objects import specs
from adapter.objects.pod_requests import CPU, UNLIMITED, format_quantity, parse_quantity
from adapter.objects.queues import quota_source, read_cluster_queue
from adapter.objects.unstructured import UNREADABLE, Key, Raw, annotation, key_of, uid_of
from adapter.quota.clusterqueue import local_queue_target

PatchOperation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkerQueues:
    local_queues: Collection[Raw]
    cluster_queues: Mapping[str, Raw]
    resource_names: Mapping[str, str] = field(default_factory=dict)  # the manager's name -> the cluster's own


@dataclass(frozen=True, slots=True)
class QuotaChange:
    flavor: str
    resource: str
    indexes: tuple[int, int, int]  # resource group, flavor, resource
    before: object
    after: str
    amount_by_cluster: Mapping[str, str]

    def __str__(self) -> str:
        parts = ", ".join(f"{cluster} {amount}" for cluster, amount in self.amount_by_cluster.items())
        return f"{self.resource} in flavor {self.flavor} from {self.before} to {self.after} ({parts})"


def is_opted_in(queue: Raw) -> bool:
    """Whether the annotation is true; raises `specs.InvalidSpec` for another value than true or false."""
    value = annotation(queue, names.QUOTA_ANNOTATION)
    if value not in ("", "true", "false"):
        raise specs.InvalidSpec(
            f'ClusterQueue {_queue_name(queue)}: annotation {names.QUOTA_ANNOTATION} is "{value}"; set it to "true" or '
            '"false".'
        )
    return value == "true"


def check_and_flavor(queue: Raw, our_checks: Collection[str]) -> tuple[str, str]:
    """Find the one AdmissionCheck of ours on the ClusterQueue, and the one flavor that it is limited to.

    Raises `specs.InvalidSpec` for other numbers. A shared flavor also serves heads and submitters, for which a sum of
    workers has no capacity. With several flavors the sum cannot be divided.
    """
    checks = [(check, flavors) for check, flavors in read_cluster_queue(queue).checks.items() if check in our_checks]
    start = f"ClusterQueue {_queue_name(queue)}: annotation {names.QUOTA_ANNOTATION}"
    if len(checks) != 1:
        raise specs.InvalidSpec(
            f"{start} needs one AdmissionCheck of {names.CONTROLLER_NAME} in spec.admissionChecksStrategy, "
            f"found {len(checks)}; list one there, or remove the annotation."
        )
    check, flavors = checks[0]
    if len(flavors) != 1:
        raise specs.InvalidSpec(
            f"{start} needs a flavor for workers only, because the sum of the worker queues has no capacity for heads; "
            f"AdmissionCheck {check} has {len(flavors)} onFlavors there: list one."
        )
    return check, flavors[0]


def quota_changes(
    queue: Raw, flavor: str, served: Iterable[Key], workers: Mapping[str, WorkerQueues | None]
) -> list[QuotaChange]:
    """Compare the ClusterQueue's nominal quota in that flavor with the sum of the worker queues, by resource.

    The worker queues are those behind LocalQueues with a key in `served`; each queue counts once, with all its flavors.
    A cluster's quota of a resource counts under each name that the manager has for it.
    `workers` are the policy's clusters, None for an unreachable one.
    """
    keys = set(served)
    sums = {cluster: _sum_nominal(worker, keys) for cluster, worker in workers.items()}
    known = {cluster: total for cluster, total in sums.items() if total is not None}
    changes = []
    for indexes, resource in _quota_rows(queue, flavor) if keys else ():
        total = min(sum(part.get(resource["name"], 0) for part in known.values()), UNLIMITED)
        current = parse_quantity(resource["nominalQuota"], resource["name"])
        if total > current or (total < current and len(known) == len(sums)):
            parts = {
                cluster: _nominal_text(part.get(resource["name"], 0), resource["name"])
                for cluster, part in known.items()
            }
            after = _nominal_text(total, resource["name"])
            changes.append(QuotaChange(flavor, resource["name"], indexes, resource["nominalQuota"], after, parts))
    return changes


def patch_operations(queue: Raw, changes: Iterable[QuotaChange]) -> list[PatchOperation]:
    """Build a JSON patch that changes only these numbers, and fails if the queue has changed since the read.

    ClusterQueue.spec.resourceGroups is an atomic list: a partial apply would own and replace the whole quota. The
    resourceVersion is no precondition, because the status of a busy queue changes it all the time.
    """
    annotation_path = f"/metadata/annotations/{names.QUOTA_ANNOTATION.replace('~', '~0').replace('/', '~1')}"
    operations = [_test_operation("/metadata/uid", uid_of(queue)), _test_operation(annotation_path, "true")]
    for change in changes:
        group, flavor, resource = change.indexes
        flavor_path = f"/spec/resourceGroups/{group}/flavors/{flavor}"
        quota_path = f"{flavor_path}/resources/{resource}/nominalQuota"
        operations += [
            _test_operation(f"{flavor_path}/name", change.flavor),
            _test_operation(f"{flavor_path}/resources/{resource}/name", change.resource),
            _test_operation(quota_path, change.before),
            {"op": "replace", "path": quota_path, "value": change.after},
        ]
    return operations


def _test_operation(path: str, value: object) -> PatchOperation:
    return {"op": "test", "path": path, "value": value}


def _quota_rows(queue: Raw, flavor: str) -> Iterable[tuple[tuple[int, int, int], Raw]]:
    for i, group in enumerate((queue.get("spec") or {}).get("resourceGroups") or ()):
        for j, entry in enumerate(group.get("flavors") or ()):
            for k, resource in enumerate(entry.get("resources") or ()):
                if entry.get("name") == flavor:
                    yield (i, j, k), resource


def _sum_nominal(worker: WorkerQueues | None, keys: Collection[Key]) -> dict[str, int] | None:
    if worker is None:
        return None
    behind = {local_queue_target(raw)[0] for raw in worker.local_queues if key_of(raw) in keys}
    total: dict[str, int] = {}
    try:
        for name in behind & set(worker.cluster_queues):
            for resource, amount in _nominal_quotas(worker.cluster_queues[name]):
                total[resource] = total.get(resource, 0) + amount
    except UNREADABLE:
        return None  # an unreadable queue must not count as zero
    return total | {name: total.get(renamed, 0) for name, renamed in worker.resource_names.items()}


def _nominal_quotas(queue: Raw) -> Iterable[tuple[str, int]]:
    for group in quota_source(queue).get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                yield resource["name"], parse_quantity(resource["nominalQuota"], resource["name"])


def _nominal_text(amount: int, resource: str) -> str:
    if amount >= UNLIMITED:  # the API server rejects the word that `format_quantity` returns
        return f"{UNLIMITED}m" if resource == CPU else str(UNLIMITED)
    return format_quantity(amount, resource)


def _queue_name(queue: Raw) -> str:
    return key_of(queue)[1]
