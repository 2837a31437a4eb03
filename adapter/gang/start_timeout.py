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
from adapter.actions import Action, PatchPodStatus
from adapter.gang import drain_order
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import current_exclusions, start_timeout_exclusion
from adapter.objects.placement import Exclusion, Placement, Share, ShareKey
from adapter.objects.reason import clause
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
_ROUNDING = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class StartTimeouts:
    """What is to be known of a gang of which workers did not start in time; of any other, it is empty."""

    late_pods: tuple[Raw, ...] = ()  # their pods in the manager
    exclusions: tuple[Exclusion, ...] = ()  # the clusters that are closed from now on
    message: str = ""  # a sentence on all of them
    # Share -> group -> slots that are no place: its cluster is closed, and nobody is on them who started, or still may.
    unusable_slots: Mapping[ShareKey, Counter[str]] = field(default_factory=dict)
    closed_clusters: frozenset[str] = frozenset()
    recheck_at: datetime | None = None  # when to look again, because another one may be late

    def usable_slots(self, share: Share, key: ShareKey) -> int:
        """For how many workers a share, with its cluster and round, is a place."""
        return share.workers - sum(self.unusable_slots.get(key, Counter()).values())


def find_late_workers(gang: Gang, current: Placement, now: datetime) -> StartTimeouts:
    """Which workers did not start in time, and what follows for their clusters."""
    if gang.pods.workers is None:
        return StartTimeouts()
    starting = _starting_pods(gang, gang.pods.workers)
    late = _late_pods(gang, starting, now)
    if gang.policy.same_cluster and len(late) < len(_pods_with_slot(gang.pods.workers)):
        late = []  # they may not be apart, and what runs is not stopped for them
    keys = {key_of(pod) for pod in late}
    due = min(
        ((since or now) + gang.policy.start_timeout for pod, since in starting if key_of(pod) not in keys), default=None
    )
    return _build_timeouts(gang, gang.pods.workers, current, late, due, now) if late else StartTimeouts(recheck_at=due)


def _build_timeouts(
    gang: Gang,
    workers: GangWorkers,
    current: Placement,
    late_pods: list[Raw],
    recheck_at: datetime | None,
    now: datetime,
) -> StartTimeouts:
    where = Counter(map(_slot_cluster, late_pods))
    first = {_slot_cluster(pod): _stuck_reason(workers.remote_pods.get(key_of(pod))) for pod in reversed(late_pods)}
    told = "; ".join(f"{count} in {cluster}: {clause(first[cluster])}" for cluster, count in where.items())
    live = {one.cluster for one in current_exclusions(current, now, gang.policy.start_timeout)}
    until, reason = (
        now + start_timeout_exclusion(gang.policy.start_timeout, current),
        f"workers did not start there {_timeout_text(gang)}",
    )
    closed = frozenset(where) | live
    return StartTimeouts(
        late_pods=tuple(late_pods),
        exclusions=tuple(
            Exclusion(cluster, until, f"{reason}: {first[cluster]}") for cluster in where if cluster not in live
        ),
        message=f"Workers did not start {_timeout_text(gang)}, {told}.",
        unusable_slots=_unusable_slots(workers, current, closed, late_pods),
        closed_clusters=closed,
        recheck_at=recheck_at,
    )


def fail_late_pods(gang: Gang, start_timeouts: StartTimeouts, now: datetime) -> list[Action]:
    """End those who did not start and may leave now: KubeRay makes another pod for each, which takes the place that there is."""
    return (
        [_fail_pod(gang, pod, gang.pods.workers) for pod in _pods_to_fail(gang, gang.pods.workers, start_timeouts, now)]
        if gang.pods.workers
        else []
    )


def has_worker_in_transit(gang: Gang) -> bool:
    """Whether a worker is between two places: KubeRay has yet to make its pod, or that has no slot."""
    workers = gang.pods.workers
    return workers is not None and (_uncreated_pods(workers) > 0 or any(_pods_awaiting_slot(workers)))


def may_receive_worker(gang: Gang, share: Share) -> bool:
    """Whether a worker that a share has places for may be between two."""
    groups, workers = {group.name for group in share.groups}, gang.pods.workers
    return workers is not None and (
        _uncreated_pods(workers) > 0 or any(worker_group_of(pod) in groups for pod in _pods_awaiting_slot(workers))
    )


def _starting_pods(gang: Gang, workers: GangWorkers) -> list[tuple[Raw, datetime | None]]:
    """Those that were never ready, each with when its time begins; None: it did not yet."""
    passed = gang.clusters.draining | gang.clusters.unreachable.keys()
    found: list[tuple[Raw, datetime | None]] = []
    for pod in _pods_with_slot(workers):
        copy = workers.remote_pods.get(key_of(pod))
        if has_working_ray_node(pod) or _slot_cluster(pod) in passed:
            continue
        if copy is None and not is_dispatched(pod):
            found.append((pod, None))
        elif copy and not (deleting(copy) or over(copy) or has_started(copy)):
            found.append((pod, _starting_since(copy, workers.head_ready_since)))
    return found


def has_started(remote_pod: Raw) -> bool:
    """Whether a copy was ready once: its kubelet says since when it is not."""
    ready, begun = condition(remote_pod, "Ready"), parse_time((remote_pod.get("status") or {}).get("startTime"))
    since = parse_time(ready.get("lastTransitionTime"))
    return ready.get("status") == "True" or bool(since and begun and since > begun + _ROUNDING)


def _starting_since(remote_pod: Raw, head_since: datetime | None) -> datetime | None:
    made = parse_time(meta(remote_pod).get("creationTimestamp"))
    return max(made, head_since) if made and head_since else None


def _late_pods(gang: Gang, starting: Sequence[tuple[Raw, datetime | None]], now: datetime) -> list[Raw]:
    """Those whose time is over, by name. Once one of a group is late in a cluster, so are the others of it there that had half
    of their time: they were made a little later, and shall not go in one more round each."""
    timed = sorted(((pod, since) for pod, since in starting if since), key=lambda one: key_of(one[0]))
    stuck = {
        (_slot_cluster(pod), worker_group_of(pod)) for pod, since in timed if now >= since + gang.policy.start_timeout
    }
    return [
        pod
        for pod, since in timed
        if (_slot_cluster(pod), worker_group_of(pod)) in stuck and now >= since + gang.policy.start_timeout / 2
    ]


def _unusable_slots(
    workers: GangWorkers, current: Placement, closed_clusters: Collection[str], late_pods: Iterable[Raw]
) -> dict[ShareKey, Counter[str]]:
    off = {key_of(pod) for pod in late_pods}
    stay = Counter(
        (slot_share(pod), worker_group_of(pod)) for pod in _pods_with_slot(workers) if key_of(pod) not in off
    )
    shares = [(current.share_key(share), share) for share in current.active_shares if share.cluster in closed_clusters]
    return {key: +Counter({g.name: g.count - stay[key, g.name] for g in share.groups}) for key, share in shares}


def _pods_to_fail(gang: Gang, workers: GangWorkers, start_timeouts: StartTimeouts, now: datetime) -> Iterator[Raw]:
    """Who has a place elsewhere that nobody else is on the way to; and who has a node, on which he did not start in twice the
    time, and no place elsewhere: on another node he may."""
    free = drain_order.free_slots(workers, start_timeouts.closed_clusters | gang.clusters.draining)
    free.subtract(map(worker_group_of, _pods_awaiting_slot(workers)))
    unmade = _uncreated_pods(workers)
    for pod in start_timeouts.late_pods:
        if free[worker_group_of(pod)] > unmade:
            free[worker_group_of(pod)] -= 1
            yield pod
        elif _is_stuck(workers, pod, now - 2 * gang.policy.start_timeout):
            yield pod


def _is_stuck(workers: GangWorkers, pod: Raw, before: datetime) -> bool:
    """Whether it has a node on which it comes no further. One whose init container runs does: it may load data for hours."""
    copy = workers.remote_pods[key_of(pod)]
    since = _starting_since(copy, workers.head_ready_since)
    starting = (copy.get("status") or {}).get("initContainerStatuses") or ()
    busy = any("running" in (one.get("state") or {}) for one in starting if not one.get("started"))
    return bool((copy.get("spec") or {}).get("nodeName")) and not busy and since is not None and since <= before


def _fail_pod(gang: Gang, pod: Raw, workers: GangWorkers) -> PatchPodStatus:
    why = _stuck_reason(workers.remote_pods.get(key_of(pod)))
    text = f"The pod in worker cluster {_slot_cluster(pod)} did not start {_timeout_text(gang)}: {why}"
    told = {"phase": "Failed", "reason": names.REMOTE_POD_NOT_STARTED, "message": truncate(text, MAX_ITEM_LENGTH)}
    return PatchPodStatus(pod, {"metadata": {"uid": uid_of(pod)}, "status": told})


def _stuck_reason(remote_pod: Raw | None) -> str:
    """What a copy that did not start waits for, in its cluster's words; without its name, since its siblings have it too."""
    status = (remote_pod or {}).get("status") or {}
    scheduled = condition(remote_pod or {}, "PodScheduled")
    if scheduled.get("status") != "True":
        return f"no node took it, {scheduled.get('message') or 'and nobody there says why'}"
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waits_for = ((one.get("state") or {}).get("waiting") or {}).get("reason")
        if waits_for and waits_for != "PodInitializing":  # which says only that another container is not done
            return f"its container {one.get('name')} waits, {waits_for}"
    return "it has a node, and did not join the head"


def _timeout_text(gang: Gang) -> str:
    return f"within {gang.policy.start_timeout.total_seconds():.0f}s"


def _slot_cluster(pod: Raw) -> str:
    return slot_cluster(pod)


def _live_pods(workers: GangWorkers) -> list[Raw]:
    return [pod for pod in workers.pods if not (deleting(pod) or over(pod))]


def _pods_with_slot(workers: GangWorkers) -> list[Raw]:
    return [pod for pod in _live_pods(workers) if slot_of(pod)]


def _uncreated_pods(workers: GangWorkers) -> int:
    """How many pods KubeRay has yet to make; those of an elastic job for which the manager has no quota need no place."""
    desired = (
        min(workers.desired_workers, workers.placement.wanted_workers)
        if workers.placement.job
        else workers.desired_workers
    )
    return max(desired - sum(not waits_for_quota(pod) for pod in _live_pods(workers)), 0)


def _pods_awaiting_slot(workers: GangWorkers) -> list[Raw]:
    """Those that wait for a slot, and have the manager's quota."""
    return [pod for pod in _live_pods(workers) if not (slot_of(pod) or waits_for_quota(pod))]
