"""Workers that did not start in time, and which of them move to a slot in another cluster.

A worker has started once its remote pod was ready or its Ray node joined the head. Its time begins when the remote pod
is created, but not before the head is ready; both by the manager cluster's clock. A worker whose remote pod is
unstartable (unstartable_pods.py) is late sooner, whatever the head does. A worker that was ready before, or whose
cluster is unreachable or drained, is left alone.

A late worker stays until it has a slot in another cluster; a new pod in the same one would only queue for the same
node. A late worker closes its cluster: plans exclude the cluster for a while, and its free slots are taken last. A
share cannot shrink, so it is deleted when its last worker has left.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, PatchPodStatus, fail_pod
from adapter.gang import drain_order, messages
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import UNSTARTABLE_TIMEOUT, current_exclusions, start_timeout_exclusion
from adapter.gang.unstartable_pods import is_uncreatable
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.placement import Exclusion, Placement, Share, ShareKey
from adapter.objects.reason import clause
from adapter.objects.replica import replica_key
from adapter.objects.unstructured import (
    MAX_ITEM_LENGTH,
    Key,
    Raw,
    condition,
    key_of,
    meta,
    parse_time,
    truncate,
    uid_of,
)
from adapter.objects.worker_pod import has_ended as over
from adapter.objects.worker_pod import (
    has_template_slot,
    has_working_ray_node,
    is_dispatched,
    slot_cluster,
    slot_of,
    slot_share,
    waits_for_quota,
    worker_group_of,
)
from adapter.objects.worker_pod import is_deleting as deleting

# How far apart these times of a pod that was never ready may be: a kubelet writes Ready False and the start time at
# once (k8s:pkg/kubelet/status/status_manager.go), and rounds them.
_ROUNDING = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class _StartTimer:
    """How long a worker may take to start; an unstartable one has two timers."""

    pod: Raw
    since: datetime | None  # None: it has not begun
    timeout: timedelta

    @property
    def group(self) -> tuple[str, str, timedelta]:
        return slot_cluster(self.pod), worker_group_of(self.pod), self.timeout

    def has_run_for(self, duration: timedelta, now: datetime) -> bool:
        return self.since is not None and now >= self.since + duration


@dataclass(frozen=True, slots=True)
class StartTimeouts:
    late_pods: tuple[Raw, ...] = ()  # manager pods
    timeouts: Mapping[Key, timedelta] = field(default_factory=dict)  # of each late pod
    exclusions: tuple[Exclusion, ...] = ()  # of newly closed clusters
    message: str = ""
    # Share in a closed cluster -> group -> its slots without a worker that has started or still may start.
    unusable_slots: Mapping[ShareKey, Counter[str]] = field(default_factory=dict)
    closed_clusters: frozenset[str] = frozenset()
    recheck_at: datetime | None = None  # when the next worker may be late


def find_late_workers(gang: Gang, current: Placement, now: datetime) -> StartTimeouts:
    if gang.pods.workers is None:
        return StartTimeouts()
    timers = _start_timers(gang, gang.pods.workers)
    late_timers = _late_timers(timers, now)
    if gang.policy.same_cluster and len(late_timers) < len(gang.pods.workers.pods_with_slot):
        # The gang may not be divided, and its running workers are not stopped.
        late_timers = []
    keys = {key_of(timer.pod) for timer in late_timers}
    ends = ((timer.since or now) + timer.timeout for timer in timers if key_of(timer.pod) not in keys)
    recheck_at = min((end for end in ends if end > now), default=None)
    return (
        _build_timeouts(gang, gang.pods.workers, current, late_timers, recheck_at, now)
        if late_timers
        else StartTimeouts(recheck_at=recheck_at)
    )


def _build_timeouts(
    gang: Gang,
    workers: GangWorkers,
    current: Placement,
    late_timers: list[_StartTimer],
    recheck_at: datetime | None,
    now: datetime,
) -> StartTimeouts:
    late_pods = [timer.pod for timer in late_timers]
    counts = Counter(map(slot_cluster, late_pods))
    reasons = {slot_cluster(timer.pod): _late_reason(workers, timer) for timer in reversed(late_timers)}
    details = "; ".join(f"{count} in {cluster} {clause(reasons[cluster])}" for cluster, count in counts.items())
    excluded = {exclusion.cluster for exclusion in lasting_exclusions(gang, current, late_pods, now)}
    until = now + start_timeout_exclusion(gang.policy.start_timeout, current)
    closed_clusters = frozenset(counts) | excluded
    return StartTimeouts(
        late_pods=tuple(late_pods),
        timeouts={key_of(timer.pod): timer.timeout for timer in late_timers},
        exclusions=tuple(
            Exclusion(cluster, until, f"workers did not start there {reasons[cluster]}", now)
            for cluster in counts
            if cluster not in excluded
        ),
        message=f"Workers did not start in time, {details}.",
        unusable_slots=_unusable_slots(workers, current, closed_clusters, late_pods),
        closed_clusters=closed_clusters,
        recheck_at=recheck_at,
    )


def _late_reason(workers: GangWorkers, timer: _StartTimer) -> str:
    return f"{messages.timeout_text(timer.timeout)}: {stuck_reason(workers.remote_pods.get(key_of(timer.pod)))}"


def lasting_exclusions(
    gang: Gang, current: Placement, late_pods: Iterable[Raw], now: datetime
) -> tuple[Exclusion, ...]:
    """The current exclusions, without those of clusters that start the gang's workers again.

    That is a cluster in which no worker is late, and one became ready after others were found not to start.
    """
    exclusions = current_exclusions(current, now, gang.policy.start_timeout)
    if gang.pods.workers is None or not any(exclusion.not_started_at for exclusion in exclusions):
        return exclusions
    late_clusters = set(map(slot_cluster, late_pods))
    ready_at = _last_ready(gang, gang.pods.workers)
    return tuple(
        exclusion
        for exclusion in exclusions
        if exclusion.not_started_at is None
        or exclusion.cluster in late_clusters
        or ready_at.get(exclusion.cluster, exclusion.not_started_at) <= exclusion.not_started_at
    )


def _last_ready(gang: Gang, workers: GangWorkers) -> dict[str, datetime]:
    """When the last worker of each cluster became ready, by the manager cluster's clock; without those that ended."""
    latest: dict[str, datetime] = {}
    for pod in workers.pods_with_slot:
        cluster, ready = slot_cluster(pod), condition(workers.remote_pods.get(key_of(pod)) or {}, "Ready")
        since = parse_time(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None
        if since:
            since = gang.clusters.clocks.manager_time(cluster, since)
            latest[cluster] = max(since, latest.get(cluster, since))
    return latest


def stuck_pods(gang: Gang, current: Placement, now: datetime) -> list[Raw]:
    """The manager pods that did not start within the policy's whole timeout, and for which no cluster has capacity.

    The last plan excluded their clusters and found too few slots. A gang in one cluster of which a worker has started
    is not planned elsewhere at all. A pod whose own init container runs may load data for hours.
    """
    workers, timeout = gang.pods.workers, gang.policy.start_timeout
    if workers is None:
        return []
    timers = _start_timers(gang, workers)
    late_pods = [timer.pod for timer in timers if timer.timeout == timeout and timer.has_run_for(timeout, now)]
    pods = [pod for pod in late_pods if not loads_data(workers.remote_pods.get(key_of(pod)))]
    excluded = {exclusion.cluster for exclusion in current_exclusions(current, now, timeout)}
    stuck = list({uid_of(pod): pod for pod in pods}.values())
    is_divided_never = gang.policy.same_cluster and len(stuck) < len(workers.pods_with_slot)
    has_no_room = current.waiting_since is not None and excluded.issuperset(map(slot_cluster, stuck))
    return stuck if is_divided_never or (has_no_room and not _may_move(gang, workers, current, stuck, excluded)) else []


def unplaced_pods(gang: Gang, current: Placement, now: datetime) -> list[Raw]:
    """The manager pods that have had no slot for the policy's whole timeout, and for which no cluster has capacity."""
    workers, since = gang.pods.workers, current.waiting_since
    if workers is None or since is None or now < since + gang.policy.start_timeout:
        return []
    return [] if _awaits_admission(workers, current) else pods_awaiting_slot(workers)


def loads_data(remote_pod: Raw | None) -> bool:
    """Whether an init container of the template runs; KubeRay's own waits for the head, which is no progress."""
    return any(name != names.GCS_WAITER for name in _running_init_containers(remote_pod or {}))


def _running_init_containers(remote_pod: Raw) -> list[object]:
    """The names of those that run; a started one is a sidecar."""
    statuses = (remote_pod.get("status") or {}).get("initContainerStatuses") or ()
    return [
        status.get("name")
        for status in statuses
        if "running" in (status.get("state") or {}) and not status.get("started")
    ]


def _awaits_admission(workers: GangWorkers, current: Placement) -> bool:
    return any(current.share_key(share) not in workers.admitted_shares for share in current.active_shares)


def _may_move(
    gang: Gang, workers: GangWorkers, current: Placement, pods: Iterable[Raw], closed_clusters: Collection[str]
) -> bool:
    """Whether a share for these pods waits for its admission, or has a free slot."""
    if _awaits_admission(workers, current):
        return True
    free = drain_order.free_slots(workers, {*closed_clusters, *gang.clusters.draining})
    return any(free[worker_group_of(pod)] > 0 for pod in pods)


def reason_of(gang: Gang, pod: Raw) -> str:
    """Why a manager pod's remote pod does not start."""
    return stuck_reason(gang.pods.workers.remote_pods.get(key_of(pod)) if gang.pods.workers else None)


def fail_late_pods(gang: Gang, start_timeouts: StartTimeouts, now: datetime) -> list[Action]:
    """Fail the late pods that may move now. KubeRay replaces each, on a free slot."""
    return (
        [
            _fail_pod(pod, gang.pods.workers, start_timeouts.timeouts[key_of(pod)])
            for pod in _pods_to_fail(gang, gang.pods.workers, start_timeouts, now)
        ]
        if gang.pods.workers
        else []
    )


def may_receive_worker(gang: Gang, share: Share, now: datetime) -> bool:
    """Whether a worker between two slots may take a slot on this share."""
    groups, workers = {group.name for group in share.groups}, gang.pods.workers
    return workers is not None and (
        uncreated_pods(workers) > 0 or any(worker_group_of(pod) in groups for pod in pods_choosing_slot(workers, now))
    )


def _start_timers(gang: Gang, workers: GangWorkers) -> list[_StartTimer]:
    """The timers of the pods that were never ready."""
    ignored_clusters = gang.clusters.closed
    timeout, timers = gang.policy.start_timeout, list[_StartTimer]()
    for pod in workers.pods_with_slot:
        remote_pod = workers.remote_pods.get(key_of(pod))
        if has_working_ray_node(pod) or slot_cluster(pod) in ignored_clusters:
            continue
        if remote_pod is None and not is_dispatched(pod):
            timers.append(_StartTimer(pod, None, timeout))
        elif remote_pod and not (deleting(remote_pod) or over(remote_pod) or has_started(remote_pod)):
            since = _starting_since(pod, remote_pod, workers.head_ready_since, gang.clusters.clocks)
            timers.append(_StartTimer(pod, since, timeout))
            if unstartable_since := gang.pods.unstartable_since.get(uid_of(pod)):
                timers.append(_StartTimer(pod, unstartable_since, min(UNSTARTABLE_TIMEOUT, timeout)))
    return timers


def has_started(remote_pod: Raw) -> bool:
    """Whether a remote pod was ever ready: its kubelet records since when it is not."""
    ready, started = condition(remote_pod, "Ready"), parse_time((remote_pod.get("status") or {}).get("startTime"))
    since = parse_time(ready.get("lastTransitionTime"))
    return ready.get("status") == "True" or bool(since and started and since > started + _ROUNDING)


def _starting_since(pod: Raw, remote_pod: Raw, head_since: datetime | None, clocks: ClockOffsets) -> datetime | None:
    created = parse_time(meta(remote_pod).get("creationTimestamp"))
    return max(clocks.manager_time(slot_cluster(pod), created), head_since) if created and head_since else None


def _late_timers(timers: Sequence[_StartTimer], now: datetime) -> list[_StartTimer]:
    """One timer of each late pod, its shortest that is over, sorted by the pod's name.

    A late pod halves the same timeout of its group in that cluster: the group's other pods were created a little later,
    and must not cost a further round each.
    """
    over_in = {timer.group for timer in timers if timer.has_run_for(timer.timeout, now)}
    late_timers = [timer for timer in timers if timer.group in over_in and timer.has_run_for(timer.timeout / 2, now)]
    by_pod = {key_of(timer.pod): timer for timer in sorted(late_timers, key=lambda timer: timer.timeout, reverse=True)}
    return [by_pod[key] for key in sorted(by_pod)]


def _unusable_slots(
    workers: GangWorkers, current: Placement, closed_clusters: Collection[str], late_pods: Iterable[Raw]
) -> dict[ShareKey, Counter[str]]:
    late_replicas = set(map(replica_key, late_pods))
    occupied = Counter(
        (slot_share(pod), worker_group_of(pod))
        for pod in workers.pods_with_slot
        if replica_key(pod) not in late_replicas
    )
    shares = [(current.share_key(share), share) for share in current.active_shares if share.cluster in closed_clusters]
    return {
        key: +Counter({group.name: group.count - occupied[key, group.name] for group in share.groups})
        for key, share in shares
    }


def _pods_to_fail(gang: Gang, workers: GangWorkers, start_timeouts: StartTimeouts, now: datetime) -> Iterator[Raw]:
    """The late pods with a free slot elsewhere, and those stuck on a node for twice the timeout.

    Another node may start a stuck pod's replacement. Slots that another worker is about to take do not count. KubeRay
    replaces all hosts of a replica with a late pod, so all of them need a slot.
    """
    free = drain_order.free_slots(workers, start_timeouts.closed_clusters | gang.clusters.draining)
    free.subtract(map(worker_group_of, pods_choosing_slot(workers, now)))
    uncreated, moving = uncreated_pods(workers), set[tuple[str, str, str]]()
    hosts = Counter(map(replica_key, workers.pods_with_slot))
    for pod in start_timeouts.late_pods:
        key, group = replica_key(pod), worker_group_of(pod)
        if key in moving:
            yield pod
        elif free[group] - hosts[key] >= uncreated:
            free[group] -= hosts[key]
            moving.add(key)
            yield pod
        elif _is_stuck(gang, workers, pod, now - 2 * gang.policy.start_timeout):
            yield pod


def _is_stuck(gang: Gang, workers: GangWorkers, pod: Raw, before: datetime) -> bool:
    """Whether a pod has a node, but has made no progress since `before`.

    A running init container is progress: it may load data for hours.
    """
    remote_pod = workers.remote_pods[key_of(pod)]
    since = _starting_since(pod, remote_pod, workers.head_ready_since, gang.clusters.clocks)
    return (
        bool((remote_pod.get("spec") or {}).get("nodeName"))
        and not _running_init_containers(remote_pod)
        and since is not None
        and since <= before
    )


def _fail_pod(pod: Raw, workers: GangWorkers, timeout: timedelta) -> PatchPodStatus:
    reason = stuck_reason(workers.remote_pods.get(key_of(pod)))
    text = f"The pod in worker cluster {slot_cluster(pod)} did not start {messages.timeout_text(timeout)}: {reason}"
    return fail_pod(pod, names.REMOTE_POD_NOT_STARTED, text)


def stuck_reason(pod: Raw | None, otherwise: str = "it has a node, but did not join the head") -> str:
    """Why a pod does not start, in the cluster's words; without the pod's name, so that siblings' texts are equal."""
    status = (pod or {}).get("status") or {}
    scheduled = condition(pod or {}, "PodScheduled")
    if scheduled.get("status") != "True":
        return f"it was not scheduled, {scheduled.get('message') or 'and the scheduler gave no reason'}"
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason"), waiting.get("message")
        if reason and reason != "PodInitializing":  # another container is not done
            # The message of a container that restarts has the pod's name.
            words = f": {truncate(str(message), MAX_ITEM_LENGTH)}" if message and is_uncreatable(reason) else ""
            return f"its container {container.get('name')} waits, {reason}{clause(words)}"
    return otherwise


def uncreated_pods(workers: GangWorkers) -> int:
    """How many pods that need a slot KubeRay has yet to create; pods that wait for the manager's quota need none."""
    desired = (
        min(workers.desired_workers, workers.placement.wanted_workers)
        if workers.placement.job
        else workers.desired_workers
    )
    return max(desired - sum(not waits_for_quota(pod) for pod in workers.living_pods), 0)


def pods_awaiting_slot(workers: GangWorkers) -> list[Raw]:
    return [pod for pod in workers.living_pods if not (slot_of(pod) or waits_for_quota(pod))]


def pods_choosing_slot(workers: GangWorkers, now: datetime) -> list[Raw]:
    """The pods without a slot, and those that leave their template slot for a free one (worker/dispatch.py).

    KubeRay's replacement of a late pod may have the late pod's own template slot, in the cluster that is excluded now.
    """
    excluded = workers.placement.excluded_clusters(now)
    leaving = [
        pod
        for pod in workers.living_pods
        if has_template_slot(pod) and slot_cluster(pod) in excluded and not workers.is_created(pod)
    ]
    return [*pods_awaiting_slot(workers), *leaving]
