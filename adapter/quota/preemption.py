"""Computes the quota that Kueue could preempt from gangs of lower priority in a gang's own ClusterQueue.

Only our own shares count: size and priority of other Workloads are unknown here. Workloads of other ClusterQueues of
the cohort are under other rules (reclaimWithinCohort and borrowWithinCohort), and are not counted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from adapter import names
from adapter.objects.pod_requests import format_quantity, parse_quantity
from adapter.objects.unstructured import Raw, is_condition_true, key_of

# The policies of a ClusterQueue that preempts lower priorities. The second also preempts newer Workloads of equal
# priority. These are not counted: a gang must not lose its quota to a gang that only waits longer.
_PREEMPTING_POLICIES = ("LowerPriority", "LowerOrNewerEqualPriority")
_FlavorResource = tuple[str, str]


def simulate_removal(
    cluster_queues: Iterable[Raw], shares: Iterable[Raw], priority: int, queue: str
) -> Sequence[Raw] | None:
    """The ClusterQueues without the usage of lower-priority shares in `queue`, if it preempts; None without such.

    Source: kueue:pkg/scheduler/preemption/classical/hierarchical_preemption.go classifyPreemptionVariant, WithinCQ.
    """
    queues = list(cluster_queues)
    own_queue = next((raw for raw in queues if key_of(raw)[1] == queue), {})
    if _preemption_spec(own_queue).get("withinClusterQueue") not in _PREEMPTING_POLICIES:
        return None
    usage: Counter[_FlavorResource] = Counter()
    for share in shares:
        admission = (share.get("status") or {}).get("admission") or {}
        is_lower = admission.get("clusterQueue") == queue and _workload_priority(share) < priority
        if is_lower and is_condition_true(share, names.QUOTA_RESERVED):
            usage.update(_assigned_usage(admission))
    return [_subtract_usage(raw, usage) if raw is own_queue else raw for raw in queues] if usage else None


def _subtract_usage(raw: Raw, usage: Counter[_FlavorResource]) -> Raw:
    """The ClusterQueue with `usage` subtracted from its status; usage that the status does not count yet is ignored."""
    if not usage:
        return raw
    status = raw.get("status") or {}
    rows = [
        {**flavor, "resources": [_lowered_row(row, usage[flavor["name"], row["name"]]) for row in flavor["resources"]]}
        for flavor in status.get("flavorsReservation") or ()
    ]
    return {**raw, "status": {**status, "flavorsReservation": rows}}


def _lowered_row(row: Raw, amount: int) -> Raw:
    return {
        **row,
        "total": format_quantity(max(0, parse_quantity(row.get("total") or 0, row["name"]) - amount), row["name"]),
    }


def _assigned_usage(admission: Raw) -> Counter[_FlavorResource]:
    used: Counter[_FlavorResource] = Counter()
    for podset in admission.get("podSetAssignments") or ():
        flavors = podset.get("flavors") or {}
        for name, amount in (podset.get("resourceUsage") or {}).items():
            used[flavors.get(name, ""), name] += parse_quantity(amount, name)
    return used


def _workload_priority(share: Raw) -> int:
    return int((share.get("spec") or {}).get("priority") or 0)


def _preemption_spec(raw: Raw) -> Raw:
    return (raw.get("spec") or {}).get("preemption") or {}
