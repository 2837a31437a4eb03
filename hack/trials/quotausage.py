"""A worker cluster's reservations at one instant, and whether they exceed its queues' quota. Pure: raw objects in.

Usage is added up from the Workloads that hold quota, not read from status counters, which Kueue writes in batches.

Leaving pods run on for their grace period, and their use is counted as Kueue counts it. Kueue holds an evicted
Workload's quota until none of its pods runs within its grace (kueue:pkg/controller/jobs/pod/pod_controller.go,
IsActive). So a leaving pod counts while its Workload holds quota: a successor that is made too early exceeds the
Workload's quota, which is a fault of ours to find. A deleted Workload does not count, though its pods may remain: stock
Kueue treats every deleted job so, and what is admitted in their place is no over-commit of ours.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adapter import names
from adapter.objects.pod_requests import UNLIMITED, format_quantity, parse_quantity, pod_requests
from adapter.objects.unstructured import Raw, annotation, is_condition_true, label, meta, parse_time, uid_of

Cell = tuple[str, str]  # flavor, resource
Usage = Mapping[str, Mapping[Cell, int]]  # by ClusterQueue; millicores for cpu, whole units for all else

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Queue:
    """A ClusterQueue's limits: `most` with borrowing, UNLIMITED where only its cohort bounds it."""

    name: str
    cohort: str
    nominal: Mapping[Cell, int]
    most: Mapping[Cell, int]


@dataclass(frozen=True, slots=True)
class Holder:
    """A Workload that holds quota: `since` is its creation, as the API writes it, `amounts` its quota by resource."""

    name: str
    since: str
    amounts: Mapping[str, int]


def queue(raw: Raw) -> Queue:
    """Read a ClusterQueue; it is on a stage of ours, so nothing in it is odd."""
    nominal, most = {}, {}
    cohort = str(raw["spec"].get("cohortName") or "")
    for flavor in (flavor for group in raw["spec"]["resourceGroups"] for flavor in group["flavors"]):
        for row in flavor["resources"]:
            cell = flavor["name"], row["name"]
            nominal[cell] = parse_quantity(row["nominalQuota"], row["name"])
            limit = row.get("borrowingLimit")
            most[cell] = nominal[cell] + (parse_quantity(limit, row["name"]) if limit is not None else 0)
            if cohort and limit is None:
                most[cell] = UNLIMITED
    return Queue(raw["metadata"]["name"], cohort, nominal, most)


def reserved(workloads: Iterable[Raw]) -> dict[str, Counter[Cell]]:
    """The quota of Workloads, by ClusterQueue."""
    found: dict[str, Counter[Cell]] = {}
    for raw in workloads:
        if _holds(raw):
            held = found.setdefault(str(_admission(raw).get("clusterQueue")), Counter())
            for cell, amount in _cells(raw):
                held[cell] += amount
    return found


def by_job(workloads: Iterable[Raw], resource: str) -> Counter[str]:
    """How much of a resource each job's Workloads hold; a Placement is named after its job and attempt."""
    found: Counter[str] = Counter()
    for raw in workloads:
        if _holds(raw):
            job = label(raw, names.PLACEMENT_LABEL).rpartition("-")[0]
            found[job] += sum(amount for (_, name), amount in _cells(raw) if name == resource)
    return found


def throughout(before: Iterable[Raw], after: Iterable[Raw]) -> list[Holder]:
    """The Workloads that held quota in both of two lists, with the larger amount: certainly between the two as well."""
    first = {uid_of(raw): _holder(raw) for raw in before if _holds(raw)}
    last = {uid_of(raw): _holder(raw) for raw in after if _holds(raw)}
    return [_larger(one, last[uid]) for uid, one in first.items() if uid in last]


def running(pods: Iterable[Raw], asked: float, held: Sequence[Holder] = ()) -> list[Raw]:
    """The pods that use capacity: ungated, not ended, and not leaving, or leaving within grace while their Workload
    holds quota.

    `asked`: when they were listed, in seconds since the epoch.
    """
    return [pod for pod in pods if _let_go(pod) and (not _ends(pod) or (_in_grace(pod, asked) and _of(pod, held)))]


def in_use(pods: Iterable[Raw]) -> dict[str, Counter[str]]:
    """The requests of pods, by LocalQueue and resource."""
    found: dict[str, Counter[str]] = {}
    for raw in pods:
        found.setdefault(label(raw, names.QUEUE_LABEL), Counter()).update(pod_requests(raw["spec"]))
    return found


def beyond(queues: Sequence[Queue], usage: Usage) -> list[str]:
    """A sentence for each queue and each cohort that uses more than it may; the cohort has what its queues own."""
    return [*_queues_beyond(queues, usage), *_cohorts_beyond(queues, usage)]


def pods_beyond(queues: Sequence[Queue], pods: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A sentence for each resource of which running pods ask more than all queues own together."""
    found = []
    for resource in sorted({name for one in queues for _, name in one.nominal}):
        used = sum(amounts.get(resource, 0) for amounts in pods.values())
        owned = sum(amount for one in queues for (_, name), amount in one.nominal.items() if name == resource)
        if used > owned:
            found.append(_sentence("pods", resource, used, owned))
    return found


def shares_beyond(pods: Iterable[Raw], held: Sequence[Holder]) -> list[str]:
    """A sentence for each Workload whose pods use more than it holds."""
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        for one in _of(pod, held):
            used.setdefault(one.name, Counter()).update(pod_requests(pod["spec"]))
    return [
        _sentence(f"pods of Workload {one.name}", resource, used[one.name][resource], amount)
        for one in held
        if one.name in used
        for resource, amount in one.amounts.items()
        if used[one.name][resource] > amount
    ]


def _queues_beyond(queues: Sequence[Queue], usage: Usage) -> Iterator[str]:
    for one in queues:
        for (flavor, resource), used in usage.get(one.name, {}).items():
            may = one.most.get((flavor, resource), 0)
            if used > may:
                yield _sentence(f"ClusterQueue {one.name}", resource, used, may)


def _cohorts_beyond(queues: Sequence[Queue], usage: Usage) -> Iterator[str]:
    for cohort in sorted({one.cohort for one in queues if one.cohort}):
        members = [one for one in queues if one.cohort == cohort]
        used, owned = Counter[Cell](), Counter[Cell]()
        for one in members:
            used.update(usage.get(one.name, {}))
            owned.update(one.nominal)
        for cell, amount in used.items():
            if amount > owned[cell]:
                yield _sentence(f"cohort {cohort}", cell[1], amount, owned[cell])


def _sentence(who: str, resource: str, used: int, may: int) -> str:
    return f"{who} uses {format_quantity(used, resource)} {resource}, and may use {format_quantity(may, resource)}"


def _holds(workload: Raw) -> bool:
    return is_condition_true(workload, names.QUOTA_RESERVED) and not is_condition_true(workload, names.FINISHED)


def _holder(workload: Raw) -> Holder:
    amounts: Counter[str] = Counter()
    for (_, resource), amount in _cells(workload):
        amounts[resource] += amount
    return Holder(meta(workload)["name"], str(meta(workload).get("creationTimestamp") or ""), amounts)


def _larger(one: Holder, other: Holder) -> Holder:
    every = {*one.amounts, *other.amounts}
    return Holder(one.name, one.since, {key: max(one.amounts.get(key, 0), other.amounts.get(key, 0)) for key in every})


def _of(pod: Raw, held: Sequence[Holder]) -> list[Holder]:
    """The Workload among these whose quota a pod uses; a pod older than the Workload used an earlier one's."""
    name, born = annotation(pod, names.GROUP_NAME_ANNOTATION), str(meta(pod).get("creationTimestamp") or "")
    return [one for one in held if one.name == name and born >= one.since]


def _let_go(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") not in _OVER and not pod["spec"].get("schedulingGates")


def _ends(pod: Raw) -> str:
    """The end of the grace of a pod that leaves, empty for one that stays."""
    return str(meta(pod).get("deletionTimestamp") or "")


def _in_grace(pod: Raw, asked: float) -> bool:
    ends = parse_time(_ends(pod))
    return ends is not None and asked < ends.timestamp()


def _admission(raw: Raw) -> Raw:
    found: Raw = (raw.get("status") or {}).get("admission") or {}
    return found


def _cells(raw: Raw) -> Iterator[tuple[Cell, int]]:
    for podset in _admission(raw).get("podSetAssignments") or ():
        for resource, amount in (podset.get("resourceUsage") or {}).items():
            flavor = (podset.get("flavors") or {}).get(resource)
            if flavor:
                yield (flavor, resource), parse_quantity(amount, resource)
