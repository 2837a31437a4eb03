"""From when on does a Workload without quota count as one that waits for what others hold?

Kueue counts in a ClusterQueue's status all that are pending. Among them are those that no quota coming free would help: they ask for
what the queue does not have, or for more than it can ever give. Who gave way to one of these would do so for nothing, and for ever. And
there are those that Kueue has not tried yet, which mostly get their quota within a second: gangs that gave way themselves and come
back, say. Were these counted at once, every one that comes back would make all others give way. Of some it can never write down
what it found, for they are too large: these count only where they may stand behind another one, in a queue of strict order.

Nothing here is asked of a Workload that has quota, and nothing is said of how long it waits.
"""

from datetime import datetime, timedelta
from typing import Final

from adapter import names
from adapter.objects.raw import Raw, condition, is_true, meta, moment

# By when Kueue has tried a Workload that came into its queue. It does so at once, or a second after quota came free
# (requeueBatchPeriod of kueue:pkg/cache/queue), and may be busy. What it has said then is the answer.
TRIED_IN = timedelta(seconds=5)
# What Kueue writes of one that it has tried (docs/upstream.md, "Who is pending").
_TRIED: Final = "couldn't assign flavors"
_OTHERS_MAY_END: Final = ("insufficient unused quota", "topology")
# Why one is not in its queue, or would not be helped by quota (kueue:apis/kueue/v1beta2/workload_types.go).
_NOT_FOR_QUOTA: Final = frozenset(
    {"Inadmissible", "OnHold", "Suspended", "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota"}
)


def waits_from(raw: Raw, strict: bool, now: datetime) -> datetime | None:
    """From when on it counts, None while it does not wait for quota that others hold. `strict`: its queue tries nobody before the
    first one has quota."""
    if is_true(raw, names.QUOTA_RESERVED) or is_true(raw, names.FINISHED) or not _is_wanted(raw):
        return None
    said = condition(raw, names.QUOTA_RESERVED)
    text = str(said.get("message") or "")
    if said.get("reason") in _NOT_FOR_QUOTA:
        return None
    came = _came(raw)
    if not text.startswith(_TRIED):
        return ((came if strict else None) or now) + TRIED_IN
    return came if any(why in text for why in _OTHERS_MAY_END) else None


def _is_wanted(raw: Raw) -> bool:
    return (raw.get("spec") or {}).get("active") is not False and not meta(raw).get("deletionTimestamp")


def _came(raw: Raw) -> datetime | None:
    """When it came into its queue last: as new, evicted, or taken up again."""
    times = (condition(raw, kind).get("lastTransitionTime") for kind in (names.QUOTA_RESERVED, names.REQUEUED))
    return max(filter(None, map(moment, (meta(raw).get("creationTimestamp"), *times))), default=None)
