"""Decides from when on a pending Workload counts as waiting for quota that other gangs hold.

Some Workloads never count: they request what the queue does not have, or more than it can ever give, so deactivating a
gang would not help. Workloads that Kueue has not tried yet, such as reactivated gangs, mostly get quota within a
second. If these counted at once, each reactivated gang would deactivate all others. Kueue never writes a result for
Workloads that are too large, or parked with others of their shape: these count after minutes.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from adapter import names
from adapter.objects.unstructured import Raw, condition, is_condition_true, meta, parse_time, uid_of

QueueOrder = tuple[int, datetime, str]  # negated priority, time of queueing, uid

# The time in which Kueue tries a queued Workload: at once, or a second after quota was freed (requeueBatchPeriod of
# kueue:pkg/cache/queue), unless it is busy.
TRIED_WITHIN = timedelta(seconds=5)
# The time after which a Workload without a message counts, in a queue that skips Workloads that do not fit. Gangs that
# are deactivated for it in vain wait longer each time (gang/timeouts.py).
UNTRIED_COUNTS_AFTER = timedelta(minutes=5)
# Kueue's message for each podset of a tried Workload, and its parts where freed quota helps (docs/upstream.md,
# "Who is pending").
_TRIED_MESSAGE: Final = "couldn't assign flavors to pod set "
_HELPED_BY_FREED_QUOTA: Final = re.compile(
    r"insufficient unused quota|topology \"[^\"]*\" (allows|doesn't allow) to fit"
)
# After these evictions the time of eviction is the time of queueing. With Kueue's waitForPodsReady `timestamp:
# Creation` PodsReadyTimeout would not count, but no object shows that setting; its default is Eviction.
_EVICTIONS_THAT_REORDER: Final = frozenset({"AdmissionCheck", "PodsReadyTimeout"})
# Kueue admits no Workload while one with quota is not ready. A waiting gang is never ready
# (kueue:pkg/scheduler/scheduler.go).
_WAITS_FOR_PODS_READY: Final = "waiting for all admitted workloads to be in PodsReady condition"
# Reasons why a Workload is not in its queue, or quota would not help it (kueue:apis/kueue/v1beta2/workload_types.go).
_NOT_WAITING_FOR_QUOTA: Final = frozenset(
    {"Inadmissible", "OnHold", "Suspended", "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota"}
)


def counts_as_waiting_from(raw: Raw, strict: bool, now: datetime) -> datetime | None:
    """The time from which a Workload counts as waiting; None while it does not. `strict`: its queue is StrictFIFO."""
    if not is_pending(raw) or quota_would_not_help(raw):
        return None
    queued_at, text = _queued_at(raw) or now, _quota_message(raw)
    if text.startswith(_TRIED_MESSAGE) or text == _WAITS_FOR_PODS_READY:
        return queued_at
    return queued_at + TRIED_WITHIN if strict else min(now + TRIED_WITHIN, queued_at + UNTRIED_COUNTS_AFTER)


def quota_would_not_help(raw: Raw) -> bool:
    """Whether freed quota would not help a Workload, by Kueue's message."""
    if condition(raw, names.QUOTA_RESERVED).get("reason") in _NOT_WAITING_FOR_QUOTA:
        return True
    text = _quota_message(raw)
    return text.startswith(_TRIED_MESSAGE) and not all(
        map(_HELPED_BY_FREED_QUOTA.search, text.split(_TRIED_MESSAGE)[1:])
    )


def blocks_strict_queue(raw: Raw) -> bool:
    """Whether a Workload that is the first of a strict queue blocks it, although freed quota would not help.

    Such a Workload stays the first (kueue:pkg/cache/queue/cluster_queue.go, RequeueIfNotPresent).
    """
    return is_pending(raw) and _quota_message(raw).startswith(_TRIED_MESSAGE) and quota_would_not_help(raw)


def queue_order(raw: Raw) -> QueueOrder:
    """The sort key of a Workload in its ClusterQueue.

    Source: kueue:pkg/workload/workload.go, GetQueueOrderTimestamp; pkg/cache/queue/cluster_queue.go, baseCompareFunc.
    """
    evicted = condition(raw, names.EVICTED)
    behind = evicted.get("status") == "True" and evicted.get("reason") in _EVICTIONS_THAT_REORDER
    when = parse_time(evicted.get("lastTransitionTime") if behind else meta(raw).get("creationTimestamp"))
    return -int((raw.get("spec") or {}).get("priority") or 0), when or datetime.max.replace(tzinfo=UTC), uid_of(raw)


def is_pending(raw: Raw) -> bool:
    """Whether a Workload is active, not finished or deleted, and has no quota."""
    over = (
        is_condition_true(raw, names.QUOTA_RESERVED)
        or is_condition_true(raw, names.FINISHED)
        or meta(raw).get("deletionTimestamp")
    )
    return not over and (raw.get("spec") or {}).get("active") is not False


def _quota_message(raw: Raw) -> str:
    return str(condition(raw, names.QUOTA_RESERVED).get("message") or "")


def _queued_at(raw: Raw) -> datetime | None:
    """The last time at which a Workload was queued: created, evicted or requeued."""
    times = (condition(raw, kind).get("lastTransitionTime") for kind in (names.QUOTA_RESERVED, names.REQUEUED))
    return max(filter(None, map(parse_time, (meta(raw).get("creationTimestamp"), *times))), default=None)
