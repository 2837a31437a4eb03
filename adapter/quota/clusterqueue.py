"""Reads a worker cluster's ClusterQueues, Cohorts and LocalQueues (kueue.x-k8s.io/v1beta2), and why some are closed.

An unreadable object is closed with a reason, because one malformed queue must not hide the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from adapter import names
from adapter.objects.pod_requests import parse_quantity
from adapter.objects.queues import quota_source
from adapter.objects.unstructured import UNREADABLE, Raw
from adapter.quota import cohort, resource_flavor
from adapter.quota.cohort import FlavorResource, Forest, Quota, ResourceNode, TreeKey
from adapter.quota.resource_flavor import Flavor

CLUSTER_QUEUE: Final = "ClusterQueue"
COHORT: Final = "Cohort"


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that must share one flavor, and its flavors in order of preference."""

    resources: frozenset[str]
    flavors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterQueueRules:
    """A ClusterQueue without its numbers, which are in the Forest."""

    name: str
    groups: tuple[ResourceGroup, ...] = ()
    next_before_borrowing: bool = False  # whenCanBorrow is TryNextFlavor
    topology_only: bool = False
    reclaims_within_cohort: bool = False  # reclaimWithinCohort is Any
    has_checks: bool = False  # it lists AdmissionChecks; ProvisioningRequests may add nodes
    namespace_selector: Raw | None = None
    closed_reason: str = ""
    covered_resources: frozenset[str] = field(init=False, compare=False)  # of all groups; each plan asks often

    def __post_init__(self) -> None:
        covered = frozenset[str]().union(*(group.resources for group in self.groups))
        object.__setattr__(self, "covered_resources", covered)


def parse_flavors(objects: Iterable[Raw]) -> dict[str, Flavor]:
    """Read ResourceFlavors by name; an unreadable one takes no pod."""
    flavors = {}
    for name, raw in _named_objects(objects):
        try:
            flavors[name] = resource_flavor.parse(name, raw)
        except UNREADABLE as error:
            flavors[name] = Flavor(name, fault=f"ResourceFlavor {name} cannot be read ({error})")
    return flavors


ParsedQueue = tuple[Raw, ClusterQueueRules, ResourceNode]


def parse_queues(
    cluster_queues: Iterable[Raw],
    cohorts: Iterable[Raw],
    flavors: Mapping[str, Flavor],
    previous: Mapping[str, ParsedQueue],
) -> tuple[dict[str, ClusterQueueRules], Forest, dict[str, ParsedQueue]]:
    """Read every ClusterQueue and sum up the trees that they and the Cohorts form.

    Objects in `previous` are not read again; the flavors must be unchanged. A stopped or inactive ClusterQueue still
    lends its quota, as in Kueue; an unreadable one has none. An unreadable Cohort above a ClusterQueue, or a cycle of
    Cohorts, closes the ClusterQueue.
    """
    members: dict[TreeKey, ResourceNode] = {}
    faults: dict[TreeKey, str] = {}
    for name, raw in _named_objects(cohorts):
        try:
            members[COHORT, name] = _cohort_node(raw)
        except UNREADABLE as error:
            members[COHORT, name] = ResourceNode()
            faults[COHORT, name] = f"Cohort {name} cannot be read ({error})"
    parsed = {
        name: _reuse_or_parse(name, raw, flavors, previous.get(name)) for name, raw in _named_objects(cluster_queues)
    }
    forest = cohort.build_forest(members | {(CLUSTER_QUEUE, name): member for name, (_, _, member) in parsed.items()})
    return {name: _with_cohort_faults(forest, faults, queue) for name, (_, queue, _) in parsed.items()}, forest, parsed


def _reuse_or_parse(name: str, raw: Raw, flavors: Mapping[str, Flavor], previous: ParsedQueue | None) -> ParsedQueue:
    if previous is not None and previous[0] is raw:
        return previous
    try:
        return raw, _parse_rules(name, raw, flavors), _queue_node(raw)
    except UNREADABLE as error:
        return (
            raw,
            ClusterQueueRules(name, closed_reason=f"ClusterQueue {name} cannot be read ({error})"),
            ResourceNode(),
        )


def local_queue_target(local_queue: Raw) -> tuple[str, str]:
    """The ClusterQueue of a LocalQueue (empty if none), and a fragment that says why it takes nothing now."""
    try:
        name, spec = local_queue["metadata"]["name"], local_queue["spec"]
        target = str(spec["clusterQueue"])
        return target, _stopped_reason("LocalQueue", name, local_queue)
    except UNREADABLE as error:
        return "", f"the LocalQueue cannot be read ({error})"


def covered_resources(cluster_queue: Raw) -> frozenset[str]:
    """The resources that a ClusterQueue covers. Raises one of UNREADABLE."""
    groups = quota_source(cluster_queue).get("resourceGroups") or ()
    return frozenset[str]().union(*(_resource_group(group).resources for group in groups))


def tree_root(cluster_queue: Raw, find_cohort: Callable[[str], Raw | None]) -> TreeKey:
    """The root of a ClusterQueue's cohort tree, or the queue itself; other trees do not affect the queue.

    Raises one of UNREADABLE.
    """
    root, parent = (
        (CLUSTER_QUEUE, str(cluster_queue["metadata"]["name"])),
        _cohort_key((cluster_queue.get("spec") or {}).get("cohortName")),
    )
    visited: set[TreeKey] = set()
    while parent and parent not in visited:  # Kueue admits nothing in a cycle
        visited.add(parent)
        root, raw = parent, find_cohort(parent[1]) or {}
        parent = _cohort_key((raw.get("spec") or {}).get("parentName"))
    return root


def _named_objects(objects: Iterable[Raw]) -> Iterator[tuple[str, Raw]]:
    for raw in objects:
        metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if name and isinstance(name, str):
            yield name, raw


def _with_cohort_faults(forest: Forest, faults: Mapping[TreeKey, str], queue: ClusterQueueRules) -> ClusterQueueRules:
    key = (CLUSTER_QUEUE, queue.name)
    if queue.closed_reason:
        return queue
    if key not in forest.subtree_quota:
        return replace(queue, closed_reason=f"the Cohorts above ClusterQueue {queue.name} form a cycle")
    path_faults = [faults[node] for node in forest.paths[key] if node in faults]
    return replace(queue, closed_reason=path_faults[0]) if path_faults else queue


def _parse_rules(name: str, raw: Raw, flavors: Mapping[str, Flavor]) -> ClusterQueueRules:
    spec = raw.get("spec") or {}
    groups = tuple(_resource_group(group) for group in quota_source(raw).get("resourceGroups") or ())
    listed = [flavor for group in groups for flavor in group.flavors]
    missing = [flavor for flavor in listed if flavor not in flavors]
    return ClusterQueueRules(
        name=name,
        groups=groups,
        next_before_borrowing=(spec.get("flavorFungibility") or {}).get("whenCanBorrow") == "TryNextFlavor",
        topology_only=all(flavors[flavor].has_topology for flavor in listed if flavor in flavors),
        reclaims_within_cohort=(spec.get("preemption") or {}).get("reclaimWithinCohort") == "Any",
        has_checks=bool((spec.get("admissionChecksStrategy") or {}).get("admissionChecks")),
        namespace_selector=spec.get("namespaceSelector"),
        closed_reason=_missing_flavor(name, missing) or _stopped_reason(CLUSTER_QUEUE, name, raw),
    )


def _missing_flavor(name: str, flavors: list[str]) -> str:
    return f"ClusterQueue {name} names the flavor {flavors[0]}, which does not exist" if flavors else ""


def _stopped_reason(kind: str, name: str, raw: Raw) -> str:
    policy = (raw.get("spec") or {}).get("stopPolicy") or "None"
    if raw["metadata"].get("deletionTimestamp"):
        return f"{kind} {name} is being deleted"
    if policy != "None":
        return f"{kind} {name} is stopped (stopPolicy {policy})"
    for condition in (raw.get("status") or {}).get("conditions") or ():
        if condition.get("type") == names.ACTIVE and condition.get("status") != "True":
            return f"{kind} {name} is not active: {condition.get('message') or condition.get('reason')}"
    return ""


def _cohort_node(raw: Raw) -> ResourceNode:
    spec = raw.get("spec") or {}
    return ResourceNode(_cohort_key(spec.get("parentName")), _parse_quotas(raw))


def _queue_node(raw: Raw) -> ResourceNode:
    spec = raw.get("spec") or {}
    return ResourceNode(
        _cohort_key(spec.get("cohortName")), _parse_quotas(raw), _reserved_usage(raw.get("status") or {})
    )


def _cohort_key(name: object) -> TreeKey | None:
    return (COHORT, str(name)) if name else None


def _resource_group(raw: Raw) -> ResourceGroup:
    if not raw.get("flavors"):
        raise ValueError("a resource group has no flavors")
    return ResourceGroup(
        frozenset(map(str, raw["coveredResources"])), tuple(_required_name(flavor) for flavor in raw["flavors"])
    )


def _parse_quotas(raw: Raw) -> dict[FlavorResource, Quota]:
    return {
        (_required_name(flavor), _required_name(row)): Quota(
            nominal=parse_quantity(row.get("nominalQuota"), row["name"]),
            borrowing_limit=_optional_limit(row, "borrowingLimit"),
            lending_limit=_optional_limit(row, "lendingLimit"),
        )
        for group in quota_source(raw).get("resourceGroups") or ()
        for flavor in group["flavors"]
        for row in flavor.get("resources") or ()
    }


def _optional_limit(row: Raw, field: str) -> int | None:
    return None if row.get(field) is None else parse_quantity(row[field], row["name"])


def _reserved_usage(status: Raw) -> dict[FlavorResource, int]:
    # flavorsUsage is not read, because quota is in use once it is reserved, before the checks admit the Workload.
    return {
        (_required_name(flavor), _required_name(row)): parse_quantity(row.get("total") or 0, row["name"])
        for flavor in status.get("flavorsReservation") or ()
        for row in flavor.get("resources") or ()
    }


def _required_name(raw: Mapping[str, Any]) -> str:
    if not isinstance(raw.get("name"), str):
        raise ValueError(f"{dict(raw)!r} has no name")
    return str(raw["name"])
