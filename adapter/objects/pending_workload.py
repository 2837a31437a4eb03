"""From when on does a Workload without quota count as one that waits for what others hold?

Kueue counts in a ClusterQueue's status all that are pending. Among them are those that no quota coming free would help: they ask for
what the queue does not have, or for more than it can ever give. Who gave way to one of these would do so for nothing, and for ever. And
there are those that Kueue has not tried yet, which mostly get their quota within a second: gangs that gave way themselves and come
back, say. Were these counted at once, every one that comes back would make all others give way. Of some it never writes down what it
found, for they are too large, or are parked with others of their shape: these count when they were pending for minutes.

Nothing here is asked of a Workload that has quota, and nothing is said of how long it waits.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from adapter import names
from adapter.objects.unstructured import Raw, condition, is_condition_true, meta, parse_time, uid_of

QueueOrder = tuple[int, datetime, str]  # priority, when it came to its place, uid

# By when Kueue has tried a Workload that came into its queue. It does so at once, or a second after quota came free
# (requeueBatchPeriod of kueue:pkg/cache/queue), and may be busy. What it has said then is the answer.
TRIED_WITHIN = timedelta(seconds=5)
# From when on one of which Kueue says nothing counts all the same, in a queue that passes over who does not fit. Gangs that give way to
# it for nothing do so later each time (gang/timeouts.py).
UNTRIED_COUNTS_AFTER = timedelta(minutes=5)
# What Kueue writes of each podset of one that it has tried, and where it is helped by who ends (docs/upstream.md, "Who is pending").
_TRIED_MESSAGE: Final = "couldn't assign flavors to pod set "
_HELPED_BY_FREED_QUOTA: Final = re.compile(
    r"insufficient unused quota|topology \"[^\"]*\" (allows|doesn't allow) to fit"
)
# Who was evicted so queues as if it had come then. Where Kueue's waitForPodsReady says `timestamp: Creation`, PodsReadyTimeout does not
# count, which no object tells: Eviction is its default.
_EVICTIONS_THAT_REORDER: Final = frozenset({"AdmissionCheck", "PodsReadyTimeout"})
# It admits nobody while a Workload that holds quota is not ready, as a gang that waits never is (kueue:pkg/scheduler/scheduler.go).
_WAITS_FOR_PODS_READY: Final = "waiting for all admitted workloads to be in PodsReady condition"
# Why one is not in its queue, or would not be helped by quota (kueue:apis/kueue/v1beta2/workload_types.go).
_NOT_WAITING_FOR_QUOTA: Final = frozenset(
    {"Inadmissible", "OnHold", "Suspended", "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota"}
)


def counts_as_waiting_from(raw: Raw, strict: bool, now: datetime) -> datetime | None:
    """From when on it counts, None while it does not wait for quota that others hold. `strict`: its queue tries nobody before the
    first one has quota."""
    if not is_pending(raw) or quota_would_not_help(raw):
        return None
    came, text = _queued_at(raw) or now, _quota_message(raw)
    if text.startswith(_TRIED_MESSAGE) or text == _WAITS_FOR_PODS_READY:
        return came
    return came + TRIED_WITHIN if strict else min(now + TRIED_WITHIN, came + UNTRIED_COUNTS_AFTER)


def quota_would_not_help(raw: Raw) -> bool:
    """Whether Kueue has said of a Workload without quota that none which others hold would help it."""
    if condition(raw, names.QUOTA_RESERVED).get("reason") in _NOT_WAITING_FOR_QUOTA:
        return True
    text = _quota_message(raw)
    return text.startswith(_TRIED_MESSAGE) and not all(
        map(_HELPED_BY_FREED_QUOTA.search, text.split(_TRIED_MESSAGE)[1:])
    )


def blocks_strict_queue(raw: Raw) -> bool:
    """Whether a strict queue of which it is the first gets no further: it was tried, and no quota that others hold would help it.
    (kueue:pkg/cache/queue/cluster_queue.go, RequeueIfNotPresent: there it stays the first.)"""
    return is_pending(raw) and _quota_message(raw).startswith(_TRIED_MESSAGE) and quota_would_not_help(raw)


def queue_order(raw: Raw) -> QueueOrder:
    """Whose turn is earlier in a ClusterQueue, to be sorted by: by priority, then by when it came to its place in it, then by uid, as Kueue
    sorts (kueue:pkg/workload/workload.go, GetQueueOrderTimestamp; pkg/cache/queue/cluster_queue.go, baseCompareFunc)."""
    evicted = condition(raw, names.EVICTED)
    behind = evicted.get("status") == "True" and evicted.get("reason") in _EVICTIONS_THAT_REORDER
    when = parse_time(evicted.get("lastTransitionTime") if behind else meta(raw).get("creationTimestamp"))
    return -int((raw.get("spec") or {}).get("priority") or 0), when or datetime.max.replace(tzinfo=UTC), uid_of(raw)


def is_pending(raw: Raw) -> bool:
    """Whether a Workload has no quota, and somebody wants it to have some."""
    over = (
        is_condition_true(raw, names.QUOTA_RESERVED)
        or is_condition_true(raw, names.FINISHED)
        or meta(raw).get("deletionTimestamp")
    )
    return not over and (raw.get("spec") or {}).get("active") is not False


def _quota_message(raw: Raw) -> str:
    return str(condition(raw, names.QUOTA_RESERVED).get("message") or "")


def _queued_at(raw: Raw) -> datetime | None:
    """When it came into its queue last: as new, evicted, or taken up again."""
    times = (condition(raw, kind).get("lastTransitionTime") for kind in (names.QUOTA_RESERVED, names.REQUEUED))
    return max(filter(None, map(parse_time, (meta(raw).get("creationTimestamp"), *times))), default=None)
