"""How large is the manager's quota for remote workers if it is to be the sum of the worker queues behind it?

For ClusterQueues whose admin opted in by an annotation. Counted is nominal quota, which is what the worker clusters promise;
what they may borrow is not. A cluster of which nothing is known makes the sum a lower bound: then the quota grows, but
never shrinks. Who may write it, and how, is the shell's business.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.objects import specs
from adapter.objects.pod_requests import CPU, UNLIMITED, format_quantity, parse_quantity
from adapter.objects.queues import read_cluster_queue
from adapter.objects.unstructured import UNREADABLE, Key, Raw, annotation, key_of, uid_of
from adapter.quota.clusterqueue import local_queue_target

PatchOperation = dict[str, Any]  # of a JSON patch


@dataclass(frozen=True, slots=True)
class WorkerQueues:
    """The queues of one worker cluster, as they were seen last."""

    local_queues: Collection[Raw]
    cluster_queues: Mapping[str, Raw]


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Another nominal quota for a resource: amounts as people write them, `parts` is what each cluster adds."""

    flavor: str
    resource: str
    indexes: tuple[int, int, int]  # index of the resource group, of the flavor in it, and of the resource in that
    before: object  # as it stands in the object
    after: str
    amount_by_cluster: Mapping[str, str]

    def __str__(self) -> str:
        parts = ", ".join(f"{cluster} {amount}" for cluster, amount in self.amount_by_cluster.items())
        return f"{self.resource} in flavor {self.flavor} from {self.before} to {self.after} ({parts})"


def is_opted_in(queue: Raw) -> bool:
    """Whether the admin of a ClusterQueue opted in; raises specs.Invalid for a value that is neither yes nor no."""
    said = annotation(queue, names.QUOTA_ANNOTATION)
    if said not in ("", "true", "false"):
        raise specs.InvalidSpec(
            f'ClusterQueue {_queue_name(queue)}: annotation {names.QUOTA_ANNOTATION} is "{said}"; make it "true" or "false".'
        )
    return said == "true"


def check_and_flavor(queue: Raw, our_checks: Collection[str]) -> tuple[str, str]:
    """Find which of our AdmissionChecks the ClusterQueue lists, and the one flavor that it is limited to.

    Raises specs.Invalid with a sentence: heads and submitters take quota of a flavor that the check does not have to itself,
    and a sum of workers leaves no room for them; with several flavors nobody says which part of the sum is whose.
    """
    found = [(check, flavors) for check, flavors in read_cluster_queue(queue).checks.items() if check in our_checks]
    start = f"ClusterQueue {_queue_name(queue)}: annotation {names.QUOTA_ANNOTATION}"
    if len(found) != 1:
        raise specs.InvalidSpec(
            f"{start} needs one AdmissionCheck of {names.CONTROLLER_NAME} in spec.admissionChecksStrategy, "
            f"found {len(found)}; list one there, or remove the annotation."
        )
    check, flavors = found[0]
    if len(flavors) != 1:
        raise specs.InvalidSpec(
            f"{start} needs a flavor for the workers alone, since heads would find no room in the sum of worker queues; "
            f"AdmissionCheck {check} has {len(flavors)} onFlavors there, give it one."
        )
    return check, flavors[0]


def quota_changes(
    queue: Raw, flavor: str, served: Iterable[Key], workers: Mapping[str, WorkerQueues | None]
) -> list[QuotaChange]:
    """Compare the ClusterQueue's nominal quota in that flavor with the sum of the worker queues, resource by resource.

    `served` are the LocalQueues (namespace and name) that lead to the ClusterQueue; the worker queues are those behind the
    LocalQueues of the same names. `workers` are the policy's clusters, None for one of which nothing is known. A worker
    queue counts once, with all its flavors; a resource that it does not have adds nothing. No LocalQueue, no change.
    """
    keys = set(served)
    sums = {cluster: _sum_nominal(worker, keys) for cluster, worker in workers.items()}
    known = {cluster: total for cluster, total in sums.items() if total is not None}
    found = []
    for at, resource in _quota_rows(queue, flavor) if keys else ():
        total = min(sum(part.get(resource["name"], 0) for part in known.values()), UNLIMITED)
        now = parse_quantity(resource["nominalQuota"], resource["name"])
        if total > now or (total < now and len(known) == len(sums)):
            parts = {
                cluster: _nominal_text(part.get(resource["name"], 0), resource["name"])
                for cluster, part in known.items()
            }
            after = _nominal_text(total, resource["name"])
            found.append(QuotaChange(flavor, resource["name"], at, resource["nominalQuota"], after, parts))
    return found


def patch_operations(queue: Raw, changes: Iterable[QuotaChange]) -> list[PatchOperation]:
    """Write the changes as a JSON patch that touches these numbers only, and only where all is as it was read.

    ClusterQueue.spec.resourceGroups is an atomic list, so an applied part of it would take over, and replace, the whole
    quota. The tests stand for the rest: the same object, still opted in, the same flavor and resource at that place, and
    the number that was read. A resourceVersion would be a sharper one, but a busy queue's status moves it all the time.
    """
    opted = f"/metadata/annotations/{names.QUOTA_ANNOTATION.replace('~', '~0').replace('/', '~1')}"
    made = [_test_operation("/metadata/uid", uid_of(queue)), _test_operation(opted, "true")]
    for change in changes:
        group, flavor, resource = change.indexes
        there = f"/spec/resourceGroups/{group}/flavors/{flavor}"
        number = f"{there}/resources/{resource}/nominalQuota"
        made += [
            _test_operation(f"{there}/name", change.flavor),
            _test_operation(f"{there}/resources/{resource}/name", change.resource),
            _test_operation(number, change.before),
            {"op": "replace", "path": number, "value": change.after},
        ]
    return made


def _test_operation(path: str, value: object) -> PatchOperation:
    return {"op": "test", "path": path, "value": value}


def _quota_rows(queue: Raw, flavor: str) -> Iterable[tuple[tuple[int, int, int], Raw]]:
    for i, group in enumerate((queue.get("spec") or {}).get("resourceGroups") or ()):
        for j, one in enumerate(group.get("flavors") or ()):
            for k, resource in enumerate(one.get("resources") or ()):
                if one.get("name") == flavor:
                    yield (i, j, k), resource


def _sum_nominal(worker: WorkerQueues | None, keys: Collection[Key]) -> dict[str, int] | None:
    """What the queues behind these LocalQueues have, None if that is not known."""
    if worker is None:
        return None
    behind = {local_queue_target(raw)[0] for raw in worker.local_queues if key_of(raw) in keys}
    total: dict[str, int] = {}
    try:
        for name in behind & set(worker.cluster_queues):
            for resource, amount in _nominal_quotas(worker.cluster_queues[name]):
                total[resource] = total.get(resource, 0) + amount
    except UNREADABLE:
        return None  # a queue that cannot be read is no queue without quota
    return total


def _nominal_quotas(queue: Raw) -> Iterable[tuple[str, int]]:
    for group in (queue.get("spec") or {}).get("resourceGroups") or ():
        for one in group["flavors"]:
            for resource in one["resources"]:
                yield resource["name"], parse_quantity(resource["nominalQuota"], resource["name"])


def _nominal_text(amount: int, resource: str) -> str:
    if amount >= UNLIMITED:  # which as_text has a word for, and the API server has not
        return f"{UNLIMITED}m" if resource == CPU else str(UNLIMITED)
    return format_quantity(amount, resource)


def _queue_name(queue: Raw) -> str:
    return key_of(queue)[1]
