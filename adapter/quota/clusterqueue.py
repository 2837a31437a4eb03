"""What do a worker cluster's ClusterQueues, Cohorts and LocalQueues say, and which of them take nothing at all?

Tolerant readers from raw objects of kueue.x-k8s.io/v1beta2: an object that cannot be read becomes one that is closed,
with a reason, because one odd queue must not hide the others. How much fits is `quota.tree`'s question.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from adapter import names
from adapter.objects.pod_requests import quantity
from adapter.objects.unstructured import UNREADABLE, Raw
from adapter.quota import cohort, resource_flavor
from adapter.quota.cohort import Cell, Forest, Key, Member, Quota
from adapter.quota.resource_flavor import Flavor

QUEUE: Final = "ClusterQueue"
COHORT: Final = "Cohort"


@dataclass(frozen=True, slots=True)
class Group:
    """A resource group: resources that must share one flavor, and its flavors in order of preference."""

    resources: frozenset[str]
    flavors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Queue:
    """A ClusterQueue's rules; its numbers are in the Forest. `closed` says why it takes nothing, empty when it does."""

    name: str
    groups: tuple[Group, ...] = ()
    next_before_borrowing: bool = False  # flavorFungibility.whenCanBorrow is TryNextFlavor
    topology_only: bool = False
    reclaims: bool = (
        False  # preemption.reclaimWithinCohort is Any: what others borrowed comes back, whatever their priority
    )
    namespaces: Raw | None = None
    closed: str = ""


def read_flavors(objects: Iterable[Raw]) -> dict[str, Flavor]:
    """Read ResourceFlavors by name; one that cannot be read takes no pod."""
    flavors = {}
    for name, raw in _named(objects):
        try:
            flavors[name] = resource_flavor.read(name, raw)
        except UNREADABLE as error:
            flavors[name] = Flavor(name, fault=f"ResourceFlavor {name} cannot be read ({error})")
    return flavors


Read = tuple[Raw, Queue, Member]  # a ClusterQueue as it came, and what it says


def read_queues(
    cluster_queues: Iterable[Raw], cohorts: Iterable[Raw], flavors: Mapping[str, Flavor], before: Mapping[str, Read]
) -> tuple[dict[str, Queue], Forest, dict[str, Read]]:
    """Read every ClusterQueue and sum up the trees that they and the Cohorts form.

    A ClusterQueue that is the very object that was read `before`, with the same flavors, is not read again. A stopped or inactive ClusterQueue still lends its quota, as in Kueue; one that cannot be read counts for nothing.
    A ClusterQueue is closed too when a Cohort above it cannot be read or the Cohorts above it form a cycle.
    """
    members: dict[Key, Member] = {}
    faults: dict[Key, str] = {}
    for name, raw in _named(cohorts):
        try:
            members[COHORT, name] = _cohort(raw)
        except UNREADABLE as error:
            members[COHORT, name] = Member()
            faults[COHORT, name] = f"Cohort {name} cannot be read ({error})"
    read = {name: _read(name, raw, flavors, before.get(name)) for name, raw in _named(cluster_queues)}
    forest = cohort.plant(members | {(QUEUE, name): member for name, (_, _, member) in read.items()})
    return {name: _under(forest, faults, queue) for name, (_, queue, _) in read.items()}, forest, read


def _read(name: str, raw: Raw, flavors: Mapping[str, Flavor], before: Read | None) -> Read:
    if before is not None and before[0] is raw:
        return before
    try:
        return raw, _queue(name, raw, flavors), _member(raw)
    except UNREADABLE as error:
        return raw, Queue(name, closed=f"ClusterQueue {name} cannot be read ({error})"), Member()


def leads_to(local_queue: Raw) -> tuple[str, str]:
    """Say which ClusterQueue a LocalQueue feeds (empty if none) and, as a sentence fragment, why it takes nothing now."""
    try:
        name, spec = local_queue["metadata"]["name"], local_queue["spec"]
        target = str(spec["clusterQueue"])
        return target, _stopped("LocalQueue", name, local_queue)
    except UNREADABLE as error:
        return "", f"the LocalQueue cannot be read ({error})"


def root(cluster_queue: Raw, cohort: Callable[[str], Raw | None]) -> Key:
    """The root of the tree of cohorts in which a ClusterQueue stands, itself where it stands alone: what other trees use is nothing to
    it. `cohort` gives a Cohort by name. Raises one of UNREADABLE for what cannot be read."""
    at, above = (
        (QUEUE, str(cluster_queue["metadata"]["name"])),
        _parent((cluster_queue.get("spec") or {}).get("cohortName")),
    )
    passed: set[Key] = set()
    while above and above not in passed:  # a cycle has no root; Kueue admits nothing in it
        passed.add(above)
        at, raw = above, cohort(above[1]) or {}
        above = _parent((raw.get("spec") or {}).get("parentName"))
    return at


def _named(objects: Iterable[Raw]) -> Iterator[tuple[str, Raw]]:
    """Skip what has no name: nobody can refer to it."""
    for raw in objects:
        metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if name and isinstance(name, str):
            yield name, raw


def _under(forest: Forest, faults: Mapping[Key, str], queue: Queue) -> Queue:
    key = (QUEUE, queue.name)
    if queue.closed:
        return queue
    if key not in forest.subtree:
        return replace(queue, closed=f"the Cohorts above ClusterQueue {queue.name} form a cycle")
    above = [faults[node] for node in forest.paths[key] if node in faults]
    return replace(queue, closed=above[0]) if above else queue


def _queue(name: str, raw: Raw, flavors: Mapping[str, Flavor]) -> Queue:
    spec = raw.get("spec") or {}
    groups = tuple(_group(group) for group in spec.get("resourceGroups") or ())
    listed = [one for group in groups for one in group.flavors]
    missing = [one for one in listed if one not in flavors]
    return Queue(
        name=name,
        groups=groups,
        next_before_borrowing=(spec.get("flavorFungibility") or {}).get("whenCanBorrow") == "TryNextFlavor",
        topology_only=all(flavors[one].topology for one in listed if one in flavors),
        reclaims=(spec.get("preemption") or {}).get("reclaimWithinCohort") == "Any",
        namespaces=spec.get("namespaceSelector"),
        closed=_missing(name, missing) or _stopped(QUEUE, name, raw),
    )


def _missing(name: str, flavors: list[str]) -> str:
    return f"ClusterQueue {name} names the flavor {flavors[0]}, which does not exist" if flavors else ""


def _stopped(kind: str, name: str, raw: Raw) -> str:
    policy = (raw.get("spec") or {}).get("stopPolicy") or "None"
    if raw["metadata"].get("deletionTimestamp"):
        return f"{kind} {name} is being deleted"
    if policy != "None":
        return f"{kind} {name} is stopped (stopPolicy {policy})"
    for condition in (raw.get("status") or {}).get("conditions") or ():
        if condition.get("type") == names.ACTIVE and condition.get("status") != "True":
            return f"{kind} {name} is not active: {condition.get('message') or condition.get('reason')}"
    return ""


def _cohort(raw: Raw) -> Member:
    spec = raw.get("spec") or {}
    return Member(_parent(spec.get("parentName")), _quotas(spec))


def _member(raw: Raw) -> Member:
    spec = raw.get("spec") or {}
    return Member(_parent(spec.get("cohortName")), _quotas(spec), _reserved(raw.get("status") or {}))


def _parent(name: object) -> Key | None:
    return (COHORT, str(name)) if name else None


def _group(raw: Raw) -> Group:
    if not raw.get("flavors"):
        raise ValueError("a resource group has no flavors")
    return Group(frozenset(map(str, raw["coveredResources"])), tuple(_name(one) for one in raw["flavors"]))


def _quotas(spec: Raw) -> dict[Cell, Quota]:
    return {
        (_name(one), _name(row)): Quota(
            nominal=quantity(row.get("nominalQuota"), row["name"]),
            borrowing=_limit(row, "borrowingLimit"),
            lending=_limit(row, "lendingLimit"),
        )
        for group in spec.get("resourceGroups") or ()
        for one in group["flavors"]
        for row in one.get("resources") or ()
    }


def _limit(row: Raw, which: str) -> int | None:
    return None if row.get(which) is None else quantity(row[which], row["name"])


def _reserved(status: Raw) -> dict[Cell, int]:
    # flavorsReservation, not flavorsUsage: quota is taken when it is reserved, before the checks admit the Workload
    return {
        (_name(one), _name(row)): quantity(row.get("total") or 0, row["name"])
        for one in status.get("flavorsReservation") or ()
        for row in one.get("resources") or ()
    }


def _name(raw: Mapping[str, Any]) -> str:
    if not isinstance(raw.get("name"), str):
        raise ValueError(f"{dict(raw)!r} has no name")
    return str(raw["name"])
