"""Workers that did not start in time, and which of them move to a slot in another cluster.

A worker has started when its remote pod was ready once, or when its Ray node has joined the head. Its time begins when
the remote pod is created, but not before the head is ready. A worker that was ready and is not any more is left alone.
So is one whose cluster is unreachable or is being drained.

A worker that did not start stays until it has a slot in another cluster. Without such a slot, a new pod would only
queue again for the same node. The first worker that does not start in a cluster closes it: plans exclude it for a
while, and its free slots are taken last. A share cannot shrink in its cluster, so it is deleted when no worker is on it
any more.
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

# A kubelet begins with Ready False and the start time in one write (k8s:pkg/kubelet/status/status_manager.go). The two
# times differ by a second or so of rounding.
_ROUNDING = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class StartTimeouts:
    """The workers of a gang that did not start in time, and what follows; empty if all started."""

    late_pods: tuple[Raw, ...] = ()  # their manager pods
    exclusions: tuple[Exclusion, ...] = ()  # of the clusters that are closed from now on
    message: str = ""  # a sentence on all of them
    # Share -> group -> slots that do not count: the cluster is closed, and no worker on them has started or still may.
    unusable_slots: Mapping[ShareKey, Counter[str]] = field(default_factory=dict)
    closed_clusters: frozenset[str] = frozenset()
    recheck_at: datetime | None = None  # when the next worker may be late

    def usable_slots(self, share: Share, key: ShareKey) -> int:
        """Number of slots on a share that count; `key` is the share's key."""
        return share.workers - sum(self.unusable_slots.get(key, Counter()).values())


def find_late_workers(gang: Gang, current: Placement, now: datetime) -> StartTimeouts:
    """The workers that did not start in time, and what follows for their clusters."""
    if gang.pods.workers is None:
        return StartTimeouts()
    starting = _starting_pods(gang, gang.pods.workers)
    late_pods = _late_pods(gang, starting, now)
    if gang.policy.same_cluster and len(late_pods) < len(_pods_with_slot(gang.pods.workers)):
        # The gang may not be divided, and its running workers are not stopped.
        late_pods = []
    keys = {key_of(pod) for pod in late_pods}
    recheck_at = min(
        ((since or now) + gang.policy.start_timeout for pod, since in starting if key_of(pod) not in keys), default=None
    )
    return (
        _build_timeouts(gang, gang.pods.workers, current, late_pods, recheck_at, now)
        if late_pods
        else StartTimeouts(recheck_at=recheck_at)
    )


def _build_timeouts(
    gang: Gang,
    workers: GangWorkers,
    current: Placement,
    late_pods: list[Raw],
    recheck_at: datetime | None,
    now: datetime,
) -> StartTimeouts:
    counts = Counter(map(_slot_cluster, late_pods))
    reasons = {_slot_cluster(pod): _stuck_reason(workers.remote_pods.get(key_of(pod))) for pod in reversed(late_pods)}
    details = "; ".join(f"{count} in {cluster}: {clause(reasons[cluster])}" for cluster, count in counts.items())
    excluded = {exclusion.cluster for exclusion in current_exclusions(current, now, gang.policy.start_timeout)}
    until, reason = (
        now + start_timeout_exclusion(gang.policy.start_timeout, current),
        f"workers did not start there {_timeout_text(gang)}",
    )
    closed_clusters = frozenset(counts) | excluded
    return StartTimeouts(
        late_pods=tuple(late_pods),
        exclusions=tuple(
            Exclusion(cluster, until, f"{reason}: {reasons[cluster]}") for cluster in counts if cluster not in excluded
        ),
        message=f"Workers did not start {_timeout_text(gang)}, {details}.",
        unusable_slots=_unusable_slots(workers, current, closed_clusters, late_pods),
        closed_clusters=closed_clusters,
        recheck_at=recheck_at,
    )


def fail_late_pods(gang: Gang, start_timeouts: StartTimeouts, now: datetime) -> list[Action]:
    """Fail the late pods that may move now. KubeRay creates another pod for each, which takes a free slot."""
    return (
        [_fail_pod(gang, pod, gang.pods.workers) for pod in _pods_to_fail(gang, gang.pods.workers, start_timeouts, now)]
        if gang.pods.workers
        else []
    )


def has_worker_in_transit(gang: Gang) -> bool:
    """Whether a worker is between two slots: KubeRay has yet to create its pod, or the pod has no slot."""
    workers = gang.pods.workers
    return workers is not None and (_uncreated_pods(workers) > 0 or any(_pods_awaiting_slot(workers)))


def may_receive_worker(gang: Gang, share: Share) -> bool:
    """Whether a worker between two slots may take a slot on this share."""
    groups, workers = {group.name for group in share.groups}, gang.pods.workers
    return workers is not None and (
        _uncreated_pods(workers) > 0 or any(worker_group_of(pod) in groups for pod in _pods_awaiting_slot(workers))
    )


def _starting_pods(gang: Gang, workers: GangWorkers) -> list[tuple[Raw, datetime | None]]:
    """The pods that were never ready, each with the time when its timeout begins; None before that."""
    ignored_clusters = gang.clusters.draining | gang.clusters.unreachable.keys()
    starting: list[tuple[Raw, datetime | None]] = []
    for pod in _pods_with_slot(workers):
        remote_pod = workers.remote_pods.get(key_of(pod))
        if has_working_ray_node(pod) or _slot_cluster(pod) in ignored_clusters:
            continue
        if remote_pod is None and not is_dispatched(pod):
            starting.append((pod, None))
        elif remote_pod and not (deleting(remote_pod) or over(remote_pod) or has_started(remote_pod)):
            starting.append((pod, _starting_since(remote_pod, workers.head_ready_since)))
    return starting


def has_started(remote_pod: Raw) -> bool:
    """Whether a remote pod was ready once: its kubelet records since when it is not ready."""
    ready, started = condition(remote_pod, "Ready"), parse_time((remote_pod.get("status") or {}).get("startTime"))
    since = parse_time(ready.get("lastTransitionTime"))
    return ready.get("status") == "True" or bool(since and started and since > started + _ROUNDING)


def _starting_since(remote_pod: Raw, head_since: datetime | None) -> datetime | None:
    created = parse_time(meta(remote_pod).get("creationTimestamp"))
    return max(created, head_since) if created and head_since else None


def _late_pods(gang: Gang, starting: Sequence[tuple[Raw, datetime | None]], now: datetime) -> list[Raw]:
    """The pods whose time is over, by name.

    Once a pod of a group is late in a cluster, the group's other pods there are late after half of the time. They were
    created a little later, and must not cost a further round each.
    """
    timed = sorted(((pod, since) for pod, since in starting if since), key=lambda pair: key_of(pair[0]))
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
    late_keys = {key_of(pod) for pod in late_pods}
    occupied = Counter(
        (slot_share(pod), worker_group_of(pod)) for pod in _pods_with_slot(workers) if key_of(pod) not in late_keys
    )
    shares = [(current.share_key(share), share) for share in current.active_shares if share.cluster in closed_clusters]
    return {
        key: +Counter({group.name: group.count - occupied[key, group.name] for group in share.groups})
        for key, share in shares
    }


def _pods_to_fail(gang: Gang, workers: GangWorkers, start_timeouts: StartTimeouts, now: datetime) -> Iterator[Raw]:
    """The late pods for which a slot elsewhere is free, and pods without one that are stuck on a node for twice the
    timeout.

    A slot that another worker is about to take does not count. A stuck pod may start on another node.
    """
    free = drain_order.free_slots(workers, start_timeouts.closed_clusters | gang.clusters.draining)
    free.subtract(map(worker_group_of, _pods_awaiting_slot(workers)))
    uncreated = _uncreated_pods(workers)
    for pod in start_timeouts.late_pods:
        if free[worker_group_of(pod)] > uncreated:
            free[worker_group_of(pod)] -= 1
            yield pod
        elif _is_stuck(workers, pod, now - 2 * gang.policy.start_timeout):
            yield pod


def _is_stuck(workers: GangWorkers, pod: Raw, before: datetime) -> bool:
    """Whether the pod has a node and does not advance. A running init container is progress: it may load data for
    hours."""
    remote_pod = workers.remote_pods[key_of(pod)]
    since = _starting_since(remote_pod, workers.head_ready_since)
    init_statuses = (remote_pod.get("status") or {}).get("initContainerStatuses") or ()
    is_initializing = any(
        "running" in (status.get("state") or {}) for status in init_statuses if not status.get("started")
    )
    return (
        bool((remote_pod.get("spec") or {}).get("nodeName"))
        and not is_initializing
        and since is not None
        and since <= before
    )


def _fail_pod(gang: Gang, pod: Raw, workers: GangWorkers) -> PatchPodStatus:
    reason = _stuck_reason(workers.remote_pods.get(key_of(pod)))
    text = f"The pod in worker cluster {_slot_cluster(pod)} did not start {_timeout_text(gang)}: {reason}"
    status = {"phase": "Failed", "reason": names.REMOTE_POD_NOT_STARTED, "message": truncate(text, MAX_ITEM_LENGTH)}
    return PatchPodStatus(pod, {"metadata": {"uid": uid_of(pod)}, "status": status})


def _stuck_reason(remote_pod: Raw | None) -> str:
    """What a pod that did not start waits for, in its cluster's words; without its name, so that it is equal for its
    siblings."""
    status = (remote_pod or {}).get("status") or {}
    scheduled = condition(remote_pod or {}, "PodScheduled")
    if scheduled.get("status") != "True":
        return f"no node took it, {scheduled.get('message') or 'and nobody there says why'}"
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        wait_reason = ((container.get("state") or {}).get("waiting") or {}).get("reason")
        if wait_reason and wait_reason != "PodInitializing":  # which only means that another container is not done
            return f"its container {container.get('name')} waits, {wait_reason}"
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
    """How many pods KubeRay has yet to create. Pods of an elastic job without quota in the manager cluster need no
    slot."""
    desired = (
        min(workers.desired_workers, workers.placement.wanted_workers)
        if workers.placement.job
        else workers.desired_workers
    )
    return max(desired - sum(not waits_for_quota(pod) for pod in _live_pods(workers)), 0)


def _pods_awaiting_slot(workers: GangWorkers) -> list[Raw]:
    """The pods that have quota in the manager cluster and no slot."""
    return [pod for pod in _live_pods(workers) if not (slot_of(pod) or waits_for_quota(pod))]
