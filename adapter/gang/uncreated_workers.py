"""Workers of a running gang whose slots hold quota, but whose remote pods are not created.

The manager cluster may deny a manager pod, or no remote pod may be created for it: it requests more than its share
holds, a Secret is missing, its worker cluster denies it. Such workers have `workerStartTimeout`, too. After it a gang
of which all workers must start, and which never ran with all of them, queues again. Any other gang keeps what computes:
only its shares without a remote pod are deleted, and plans leave out their clusters for a while. If another cluster
cannot help, did not help before, or manager pods are missing, plans leave out these workers instead, and all clusters
stay open to the others (withheld_workers.py). unused_quota.py handles a gang without any remote pod, start_timeout.py
the remote pods.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, RequeueAfter, WithheldWorkers
from adapter.gang import carry_over, drain_order, messages, unused_quota
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.gang.incomplete_gang import is_incomplete
from adapter.gang.start_timeout import pods_awaiting_slot, uncreated_pods
from adapter.gang.timeouts import start_timeout_exclusion
from adapter.gang.withheld_workers import workers_to_withhold
from adapter.objects.placement import Exclusion, Placement, Share, ShareKey, describe_shares
from adapter.objects.reason import clause
from adapter.objects.unstructured import Raw, uid_of
from adapter.objects.worker_pod import slot_of, slot_share, waits_for_quota, worker_group_of
from adapter.objects.workload import Workload

# Stands for all workers without a manager pod, beside the uids of manager pods.
NO_MANAGER_POD = ""
# Stands for the gang while any of its workers is not created, whichever pods these are: KubeRay replaces failed pods.
ANY_WORKER = "*"


@dataclass(frozen=True, slots=True)
class UnusableShares:
    """Shares to delete, because none of their workers is created in time."""

    shares: tuple[Share, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    message: str = ""
    withheld: WithheldWorkers | None = None  # None: another cluster may create them
    withheld_for: timedelta = timedelta(0)


NO_UNUSABLE_SHARES = UnusableShares()


def uncreated_workers(gang: Gang) -> list[str]:
    """The manager pods (uids) without a remote pod whose slots hold quota, and `NO_MANAGER_POD` if pods are missing."""
    workers = gang.pods.workers
    if workers is None or not unused_quota.are_checks_ready(gang):
        return []
    closed = gang.clusters.closed
    free = drain_order.free_slots(workers, closed)
    pods = [pod for pod in workers.living_pods if not workers.is_created(pod) and not waits_for_quota(pod)]
    uids = [uid_of(pod) for pod in pods if _has_quota(workers, closed, pod) or _may_take_slot(pod, free)]
    are_missing = uncreated_pods(workers) > 0 and _count_open_slots(workers, closed) > len(pods_awaiting_slot(workers))
    return [*uids, NO_MANAGER_POD] if are_missing else uids


def creation_waiters(gang: Gang) -> list[str]:
    """The uncreated workers, and `ANY_WORKER` if there are some: those of a moment later may be other pods."""
    workers = uncreated_workers(gang) or ([NO_MANAGER_POD] if _has_lost_all_pods(gang) else [])
    return [*workers, ANY_WORKER, *_empty_shares(gang)] if workers else []


def _empty_shares(gang: Gang) -> list[str]:
    """The names of the admitted shares without a remote pod: each has its own time, whichever pods are missing."""
    workers, used = gang.pods.workers, gang.pods.shares_with_remote_pods
    return [name_of_share(key) for key in workers.admitted_shares if key not in used] if workers else []


def name_of_share(key: ShareKey) -> str:
    """A share among the waiters; no uid has a slash."""
    return f"{key.cluster}/{key.round}"


def _has_lost_all_pods(gang: Gang) -> bool:
    """Whether a gang without any manager pod has an admitted share: KubeRay replaces the hosts of a replica at once."""
    placement = gang.current_placement
    if placement is None or placement.job or gang.pods.workers or not unused_quota.are_checks_ready(gang):
        return False
    if gang.pods.shares_with_live_manager_pods or gang.pods.has_unplaced_workers:
        return False
    reservations = gang.reservations_of(placement, placement.active_shares).values()
    return any(reservation and reservation.admitted for reservation in reservations)


def _count_open_slots(workers: GangWorkers, closed_clusters: frozenset[str]) -> int:
    """Count the slots on admitted shares without a living worker; also those in the block of a replica that has some.

    A replica that lacks a host holds the quota of all of its hosts.
    """
    shares = {
        key: share.workers
        for share in workers.placement.active_shares
        if (key := workers.placement.share_key(share)) in workers.admitted_shares
        and share.cluster not in closed_clusters
    }
    return sum(shares.values()) - sum(slot_share(pod) in shares for pod in workers.pods_with_slot)


def _has_quota(workers: GangWorkers, closed_clusters: frozenset[str], pod: Raw) -> bool:
    share = slot_share(pod)
    return share is not None and share in workers.admitted_shares and share.cluster not in closed_clusters


def _may_take_slot(pod: Raw, free: Counter[str]) -> bool:
    return slot_of(pod) is None and free[worker_group_of(pod)] > 0


def recheck(gang: Gang, now: datetime) -> list[Action]:
    ends = (since + gang.policy.start_timeout for since in gang.pods.uncreated_since.values())
    delays = [end - now for end in ends if end > now]
    return [RequeueAfter(min(delays))] if delays else []


def _overdue_workers(gang: Gang, now: datetime) -> frozenset[str]:
    timeout = gang.policy.start_timeout
    return frozenset(
        worker for worker, since in gang.pods.uncreated_since.items() if now >= since + timeout and "/" not in worker
    )


def _is_long_empty(gang: Gang, share: ShareKey, now: datetime) -> bool:
    since = gang.pods.uncreated_since.get(name_of_share(share))
    return since is not None and now >= since + gang.policy.start_timeout


def _blocking_workers(gang: Gang, now: datetime) -> frozenset[str]:
    """The overdue workers; all that are not created now if those of each moment were other pods."""
    overdue = _overdue_workers(gang, now) - {ANY_WORKER}
    return overdue or frozenset(uncreated_workers(gang))


def must_queue_again(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> bool:
    """Whether a gang of which all workers must start lacks some for too long, and never ran with all of them."""
    return is_incomplete(gang, workload, placement) and bool(_overdue_workers(gang, now))


def queue_again(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    text = (
        f"{_describe_shortage(gang, now)} ({messages.describe_placement(placement)}): {_shortage_reason(gang, now)}. "
        "The job needs all of its workers, so it gives its capacity back and queues again."
    )
    clusters = unused_quota.clusters_without_pods(gang, _blocking_workers(gang, now))
    record = carry_over.record_late_clusters(gang, workload, placement, clusters, now)
    return messages.queue_again(gang, workload, names.EventReason.START_TIMEOUT, text, past_exclusions=record)


def find_unusable_shares(gang: Gang, placement: Placement, shares: Sequence[Share], now: datetime) -> UnusableShares:
    """Those of the admitted shares that have no remote pod, and no worker that may still get one."""
    overdue, workers = _overdue_workers(gang, now) - {ANY_WORKER}, gang.pods.workers
    if not overdue or workers is None or not gang.policy.clusters:
        return NO_UNUSABLE_SHARES
    closed, used = gang.clusters.closed, gang.pods.shares_with_remote_pods
    admitted = (share for share in shares if placement.share_key(share) in workers.admitted_shares)
    unused = [share for share in admitted if share.cluster not in closed and placement.share_key(share) not in used]
    unused = [share for share in unused if _is_long_empty(gang, placement.share_key(share), now)]
    waiting = _workers_by_share(workers)
    unusable = [share for share in unused if waiting.get(placement.share_key(share), {NO_MANAGER_POD}) <= overdue]
    if not unusable:
        return NO_UNUSABLE_SHARES
    may_help = _may_another_cluster_help(gang, placement, unusable, now)
    return (_exclude_clusters if may_help else _withhold_workers)(gang, placement, unusable, now)


def _may_another_cluster_help(gang: Gang, placement: Placement, shares: Sequence[Share], now: datetime) -> bool:
    """Whether to leave out the clusters of these shares: not if the manager cluster is the cause.

    Nor if another cluster did not help before, or the policy has no other. One that is cordoned, unreachable or
    excluded now may be open before the workers could be created here.
    """
    if placement.start_timeouts or NO_MANAGER_POD in _overdue_workers(gang, now):
        return False
    return not {share.cluster for share in shares}.issuperset(gang.policy.clusters)


def _exclude_clusters(gang: Gang, placement: Placement, shares: Sequence[Share], now: datetime) -> UnusableShares:
    reason = _shortage_reason(gang, now)
    until = now + start_timeout_exclusion(gang.policy.start_timeout, placement)
    clusters = dict.fromkeys(share.cluster for share in shares)
    return UnusableShares(
        tuple(shares),
        tuple(Exclusion(cluster, until, f"workers were not created: {reason}") for cluster in clusters),
        _release_message(gang, shares, now),
    )


def _withhold_workers(gang: Gang, placement: Placement, shares: Sequence[Share], now: datetime) -> UnusableShares:
    assert gang.pods.workers is not None
    duration = start_timeout_exclusion(gang.policy.start_timeout, placement)
    text = (
        f"{_release_message(gang, shares, now)} Capacity is reserved for them again in "
        f"{duration.total_seconds():.0f}s, or once KubeRay has created other manager pods for them."
    )
    withheld = workers_to_withhold(gang.pods.workers, shares)
    return UnusableShares(tuple(shares), message=text, withheld=withheld, withheld_for=duration)


def _release_message(gang: Gang, shares: Sequence[Share], now: datetime) -> str:
    shortage, reason = _describe_shortage(gang, now), _shortage_reason(gang, now)
    return f"{shortage}, so their capacity was given back ({describe_shares(shares)}): {reason}."


def _workers_by_share(workers: GangWorkers) -> dict[ShareKey, set[str]]:
    """The manager pods (uids) with a slot."""
    by_share: dict[ShareKey, set[str]] = {}
    for pod in workers.pods_with_slot:
        if share := slot_share(pod):
            by_share.setdefault(share, set()).add(uid_of(pod))
    return by_share


def _describe_shortage(gang: Gang, now: datetime) -> str:
    overdue, workers = _blocking_workers(gang, now), gang.pods.workers
    count = len(overdue - {NO_MANAGER_POD})
    count += uncreated_pods(workers) if workers and NO_MANAGER_POD in overdue else 0
    noun = "worker of the job was" if count == 1 else "workers of the job were"
    return f"{count} {noun} not created in a worker cluster {messages.timeout_text(gang.policy.start_timeout)}"


def _shortage_reason(gang: Gang, now: datetime) -> str:
    workers = gang.pods.workers
    if workers is None or NO_MANAGER_POD not in _blocking_workers(gang, now):
        return clause(unused_quota.unused_reason(gang))
    if workers.creation_failure:
        return f"KubeRay could not create manager pods: {clause(workers.creation_failure)}"
    return unused_quota.NO_MANAGER_PODS
