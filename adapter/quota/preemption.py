"""How much of a ClusterQueue would Kueue take from gangs of lower priority, to give it to one of higher?

Reckoned from our own shares only: of what others run in the queue, neither size nor priority is known here. Whom Kueue
really preempts, and whether it does, stays its choice; a gang that is not admitted in time is withdrawn as ever.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from adapter import names
from adapter.objects.pod_requests import as_text, quantity
from adapter.objects.unstructured import Raw, is_true, key_of

# Those by which a Workload may preempt one of lower priority in its own ClusterQueue. The second would also preempt newer ones of
# the same priority: not reckoned with, since a gang must not lose its place to one that merely waits longer.
_PREEMPTING = ("LowerPriority", "LowerOrNewerEqualPriority")
_Cell = tuple[str, str]  # flavor, resource


def relieved(cluster_queues: Iterable[Raw], shares: Iterable[Raw], priority: int) -> Sequence[Raw] | None:
    """Return the ClusterQueues without what shares of a lower priority hold in those that preempt; None if that is nothing.

    `shares` are group Workloads of ours in that worker cluster. Source: kueue:pkg/scheduler/preemption/preemption.go,
    candidates of the same ClusterQueue (preemption.withinClusterQueue).
    """
    queues = list(cluster_queues)
    able = {key_of(raw)[1] for raw in queues if _preemption(raw).get("withinClusterQueue") in _PREEMPTING}
    held: dict[str, Counter[_Cell]] = {}
    for share in shares:
        admission = (share.get("status") or {}).get("admission") or {}
        queue = admission.get("clusterQueue") or ""
        if queue in able and is_true(share, names.QUOTA_RESERVED) and _priority(share) < priority:
            held.setdefault(queue, Counter()).update(_usage(admission))
    return [_without(raw, held.get(key_of(raw)[1], Counter())) for raw in queues] if held else None


def _without(raw: Raw, held: Counter[_Cell]) -> Raw:
    """Lower what the queue's status counts as reserved; what it does not count yet cannot be lowered."""
    if not held:
        return raw
    status = raw.get("status") or {}
    rows = [
        {**flavor, "resources": [_lowered(row, held[flavor["name"], row["name"]]) for row in flavor["resources"]]}
        for flavor in status.get("flavorsReservation") or ()
    ]
    return {**raw, "status": {**status, "flavorsReservation": rows}}


def _lowered(row: Raw, by: int) -> Raw:
    return {**row, "total": as_text(max(0, quantity(row.get("total") or 0, row["name"]) - by), row["name"])}


def _usage(admission: Raw) -> Counter[_Cell]:
    used: Counter[_Cell] = Counter()
    for podset in admission.get("podSetAssignments") or ():
        flavors = podset.get("flavors") or {}
        for name, amount in (podset.get("resourceUsage") or {}).items():
            used[flavors.get(name, ""), name] += quantity(amount, name)
    return used


def _priority(share: Raw) -> int:
    return int((share.get("spec") or {}).get("priority") or 0)


def _preemption(raw: Raw) -> Raw:
    return (raw.get("spec") or {}).get("preemption") or {}
