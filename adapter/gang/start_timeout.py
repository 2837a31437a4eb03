"""Which workers did not start in time where they were placed, and who of them leaves for a place elsewhere?

A worker has started when its copy was ready once, or it is in place: it has a node and its images, and has joined the head. Its time begins when
the copy is made, and not before the head is ready, which everybody waits for. One that was ready and is not any more is left
alone, and so is one whose cluster cannot be seen or is being drained.

Who did not start stays where it is until it has a place in another cluster: where there is none, waiting for this one's node is
the best that it can do, and a pod made anew would only queue for it again. The first of a cluster that does not start closes
it: plans leave it out for a while, and its free slots are taken last. A share cannot be made smaller over there, so it is given
back when nobody is on it any more.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, PatchStatus
from adapter.gang import drain_order
from adapter.gang.drain_order import Gathered
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import excluded, unstarted_for
from adapter.objects.placement import Exclusion, Placement, Share, ShareKey
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, condition, key_of, meta, parse_time, truncate, uid_of
from adapter.objects.worker_pod import has_ended as over
from adapter.objects.worker_pod import (
    has_working_ray_node,
    is_dispatched,
    slot_cluster,
    slot_of,
    slot_share,
    waits_for_quota,
    worker_group_of,
)
from adapter.objects.worker_pod import is_deleting as deleting

# A kubelet begins with Ready False and the start time in one write (k8s:pkg/kubelet/status/status_manager.go); only a second or
# so of rounding may lie between the two.
_AT_ONCE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Unstarted:
    """What is to be known of a gang of which workers did not start in time; of any other, it is empty."""

    late: tuple[Raw, ...] = ()  # their pods in the manager
    exclusions: tuple[Exclusion, ...] = ()  # the clusters that are closed from now on
    why: str = ""  # a sentence on all of them
    # Share -> group -> slots that are no place: its cluster is closed, and nobody is on them who started, or still may.
    short: Mapping[ShareKey, Counter[str]] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    due: datetime | None = None  # when to look again, because another one may be late

    def places(self, share: Share, key: ShareKey) -> int:
        """For how many workers a share, with its cluster and round, is a place."""
        return share.workers - sum(self.short.get(key, Counter()).values())


def found(gang: Gang, current: Placement, now: datetime) -> Unstarted:
    """Which workers did not start in time, and what follows for their clusters."""
    if gang.workers is None:
        return Unstarted()
    starting = _starting(gang, gang.workers)
    late = _late(gang, starting, now)
    if gang.together and len(late) < len(_placed(gang.workers)):
        late = []  # they may not be apart, and what runs is not stopped for them
    keys = {key_of(pod) for pod in late}
    due = min(((since or now) + gang.start_timeout for pod, since in starting if key_of(pod) not in keys), default=None)
    return _unstarted(gang, gang.workers, current, late, due, now) if late else Unstarted(due=due)


def _unstarted(
    gang: Gang, workers: Gathered, current: Placement, late: list[Raw], due: datetime | None, now: datetime
) -> Unstarted:
    where = Counter(map(_cluster, late))
    first = {_cluster(pod): _stuck_at(workers.copies.get(key_of(pod))) for pod in reversed(late)}
    told = "; ".join(f"{count} in {cluster}: {first[cluster].removesuffix('.')}" for cluster, count in where.items())
    live = {one.cluster for one in excluded(current, now, gang.start_timeout)}
    until, reason = now + unstarted_for(gang.start_timeout, current), f"workers did not start there {_in_time(gang)}"
    closed = frozenset(where) | live
    return Unstarted(
        late=tuple(late),
        exclusions=tuple(
            Exclusion(cluster, until, f"{reason}: {first[cluster]}") for cluster in where if cluster not in live
        ),
        why=f"Workers did not start {_in_time(gang)}, {told}.",
        short=_short(workers, current, closed, late),
        closed=closed,
        due=due,
    )


def ended(gang: Gang, bad: Unstarted, now: datetime) -> list[Action]:
    """End those who did not start and may leave now: KubeRay makes another pod for each, which takes the place that there is."""
    return [_end(gang, pod, gang.workers) for pod in _leaving(gang, gang.workers, bad, now)] if gang.workers else []


def away(gang: Gang) -> bool:
    """Whether a worker is between two places: KubeRay has yet to make its pod, or that has no slot."""
    workers = gang.workers
    return workers is not None and (_unmade(workers) > 0 or any(_awaiting(workers)))


def awaited(gang: Gang, share: Share) -> bool:
    """Whether a worker that a share has places for may be between two."""
    groups, workers = {group.name for group in share.groups}, gang.workers
    return workers is not None and (
        _unmade(workers) > 0 or any(worker_group_of(pod) in groups for pod in _awaiting(workers))
    )


def _starting(gang: Gang, workers: Gathered) -> list[tuple[Raw, datetime | None]]:
    """Those that were never ready, each with when its time begins; None: it did not yet."""
    passed = gang.draining | gang.silent.keys()
    found: list[tuple[Raw, datetime | None]] = []
    for pod in _placed(workers):
        copy = workers.copies.get(key_of(pod))
        if has_working_ray_node(pod) or _cluster(pod) in passed:
            continue
        if copy is None and not is_dispatched(pod):
            found.append((pod, None))
        elif copy and not (deleting(copy) or over(copy) or started(copy)):
            found.append((pod, _since(copy, workers.head_since)))
    return found


def started(copy: Raw) -> bool:
    """Whether a copy was ready once: its kubelet says since when it is not."""
    ready, begun = condition(copy, "Ready"), parse_time((copy.get("status") or {}).get("startTime"))
    since = parse_time(ready.get("lastTransitionTime"))
    return ready.get("status") == "True" or bool(since and begun and since > begun + _AT_ONCE)


def _since(copy: Raw, head_since: datetime | None) -> datetime | None:
    made = parse_time(meta(copy).get("creationTimestamp"))
    return max(made, head_since) if made and head_since else None


def _late(gang: Gang, starting: Sequence[tuple[Raw, datetime | None]], now: datetime) -> list[Raw]:
    """Those whose time is over, by name. Once one of a group is late in a cluster, so are the others of it there that had half
    of their time: they were made a little later, and shall not go in one more round each."""
    timed = sorted(((pod, since) for pod, since in starting if since), key=lambda one: key_of(one[0]))
    stuck = {(_cluster(pod), worker_group_of(pod)) for pod, since in timed if now >= since + gang.start_timeout}
    return [
        pod
        for pod, since in timed
        if (_cluster(pod), worker_group_of(pod)) in stuck and now >= since + gang.start_timeout / 2
    ]


def _short(
    workers: Gathered, current: Placement, closed: Collection[str], late: Iterable[Raw]
) -> dict[ShareKey, Counter[str]]:
    off = {key_of(pod) for pod in late}
    stay = Counter((slot_share(pod), worker_group_of(pod)) for pod in _placed(workers) if key_of(pod) not in off)
    shares = [(current.share_key(share), share) for share in current.active_shares if share.cluster in closed]
    return {key: +Counter({g.name: g.count - stay[key, g.name] for g in share.groups}) for key, share in shares}


def _leaving(gang: Gang, workers: Gathered, bad: Unstarted, now: datetime) -> Iterator[Raw]:
    """Who has a place elsewhere that nobody else is on the way to; and who has a node, on which he did not start in twice the
    time, and no place elsewhere: on another node he may."""
    free = drain_order.free_places(workers, bad.closed | gang.draining)
    free.subtract(map(worker_group_of, _awaiting(workers)))
    unmade = _unmade(workers)
    for pod in bad.late:
        if free[worker_group_of(pod)] > unmade:
            free[worker_group_of(pod)] -= 1
            yield pod
        elif _wedged(workers, pod, now - 2 * gang.start_timeout):
            yield pod


def _wedged(workers: Gathered, pod: Raw, before: datetime) -> bool:
    """Whether it has a node on which it comes no further. One whose init container runs does: it may load data for hours."""
    copy = workers.copies[key_of(pod)]
    since = _since(copy, workers.head_since)
    starting = (copy.get("status") or {}).get("initContainerStatuses") or ()
    busy = any("running" in (one.get("state") or {}) for one in starting if not one.get("started"))
    return bool((copy.get("spec") or {}).get("nodeName")) and not busy and since is not None and since <= before


def _end(gang: Gang, pod: Raw, workers: Gathered) -> PatchStatus:
    why = _stuck_at(workers.copies.get(key_of(pod)))
    text = f"The pod in worker cluster {_cluster(pod)} did not start {_in_time(gang)}: {why}"
    told = {"phase": "Failed", "reason": names.NOT_STARTED, "message": truncate(text, MAX_ITEM_LENGTH)}
    return PatchStatus(pod, {"metadata": {"uid": uid_of(pod)}, "status": told})


def _stuck_at(copy: Raw | None) -> str:
    """What a copy that did not start waits for, in its cluster's words; without its name, since its siblings have it too."""
    status = (copy or {}).get("status") or {}
    scheduled = condition(copy or {}, "PodScheduled")
    if scheduled.get("status") != "True":
        return f"no node took it, {scheduled.get('message') or 'and nobody there says why'}"
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waits_for = ((one.get("state") or {}).get("waiting") or {}).get("reason")
        if waits_for and waits_for != "PodInitializing":  # which says only that another container is not done
            return f"its container {one.get('name')} waits, {waits_for}"
    return "it has a node, and did not join the head"


def _in_time(gang: Gang) -> str:
    return f"within {gang.start_timeout.total_seconds():.0f}s"


def _cluster(pod: Raw) -> str:
    return slot_cluster(pod)


def _living(workers: Gathered) -> list[Raw]:
    return [pod for pod in workers.pods if not (deleting(pod) or over(pod))]


def _placed(workers: Gathered) -> list[Raw]:
    return [pod for pod in _living(workers) if slot_of(pod)]


def _unmade(workers: Gathered) -> int:
    """How many pods KubeRay has yet to make; those of an elastic job for which the manager has no quota need no place."""
    desired = min(workers.desired, workers.place.wanted_workers) if workers.place.job else workers.desired
    return max(desired - sum(not waits_for_quota(pod) for pod in _living(workers)), 0)


def _awaiting(workers: Gathered) -> list[Raw]:
    """Those that wait for a slot, and have the manager's quota."""
    return [pod for pod in _living(workers) if not (slot_of(pod) or waits_for_quota(pod))]
