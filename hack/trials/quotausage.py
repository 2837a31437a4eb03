"""What is reserved in a worker cluster at one instant, and is it more than its queues may use? Pure: raw objects in.

Usage is added up from the Workloads that hold quota, not read from status counters, which Kueue writes in batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adapter import names
from adapter.objects.podrequests import UNLIMITED, as_text, pod_requests, quantity
from adapter.objects.raw import Raw, is_true, label, meta

Cell = tuple[str, str]  # flavor, resource
Usage = Mapping[str, Mapping[Cell, int]]  # by ClusterQueue; millicores for cpu, whole units for all else

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Queue:
    """What a ClusterQueue may use: `most` with borrowing, UNLIMITED where only its cohort bounds it."""

    name: str
    cohort: str
    nominal: Mapping[Cell, int]
    most: Mapping[Cell, int]


def queue(raw: Raw) -> Queue:
    """Read a ClusterQueue; it is on a stage of ours, so nothing in it is odd."""
    nominal, most = {}, {}
    cohort = str(raw["spec"].get("cohortName") or "")
    for flavor in (flavor for group in raw["spec"]["resourceGroups"] for flavor in group["flavors"]):
        for row in flavor["resources"]:
            cell = flavor["name"], row["name"]
            nominal[cell] = quantity(row["nominalQuota"], row["name"])
            limit = row.get("borrowingLimit")
            most[cell] = nominal[cell] + (quantity(limit, row["name"]) if limit is not None else 0)
            if cohort and limit is None:
                most[cell] = UNLIMITED
    return Queue(raw["metadata"]["name"], cohort, nominal, most)


def reserved(workloads: Iterable[Raw]) -> dict[str, Counter[Cell]]:
    """What Workloads hold, by ClusterQueue."""
    found: dict[str, Counter[Cell]] = {}
    for raw in workloads:
        if is_true(raw, names.QUOTA_RESERVED) and not is_true(raw, names.FINISHED):
            held = found.setdefault(str(_admission(raw).get("clusterQueue")), Counter())
            for cell, amount in _cells(raw):
                held[cell] += amount
    return found


def by_job(workloads: Iterable[Raw], resource: str) -> Counter[str]:
    """How much of a resource each job's Workloads hold; a Placement is named after its job and attempt."""
    found: Counter[str] = Counter()
    for raw in workloads:
        if is_true(raw, names.QUOTA_RESERVED) and not is_true(raw, names.FINISHED):
            job = label(raw, names.PLACEMENT_LABEL).rpartition("-")[0]
            found[job] += sum(amount for (_, name), amount in _cells(raw) if name == resource)
    return found


def in_use(pods: Iterable[Raw]) -> dict[str, Counter[str]]:
    """What pods ask for that are let go and are not about to leave, by LocalQueue and resource."""
    found: dict[str, Counter[str]] = {}
    for raw in pods:
        gone = meta(raw).get("deletionTimestamp") or (raw.get("status") or {}).get("phase") in _OVER
        if not gone and not raw["spec"].get("schedulingGates"):
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
    return f"{who} uses {as_text(used, resource)} {resource}, and may use {as_text(may, resource)}"


def _admission(raw: Raw) -> Raw:
    found: Raw = (raw.get("status") or {}).get("admission") or {}
    return found


def _cells(raw: Raw) -> Iterator[tuple[Cell, int]]:
    for podset in _admission(raw).get("podSetAssignments") or ():
        for resource, amount in (podset.get("resourceUsage") or {}).items():
            flavor = (podset.get("flavors") or {}).get(resource)
            if flavor:
                yield (flavor, resource), quantity(amount, resource)
