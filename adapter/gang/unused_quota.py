"""A running gang whose shares hold quota, although it has no remote pod on any of them.

The manager's quota may refuse its pods, its head may have no address, or a remote pod may never be allowed. No other
timeout begins then: start_timeout.py counts from the creation of a remote pod. After the same timeout the gang queues
again, and its shares are deleted. uncreated_workers.py handles a gang that has a single remote pod.
"""

from collections.abc import Collection
from datetime import datetime

from adapter import names
from adapter.actions import Action, RequeueAfter
from adapter.gang import carry_over, messages
from adapter.gang.gang_facts import Gang
from adapter.gang.start_timeout import stuck_reason
from adapter.objects.placement import Placement
from adapter.objects.reason import clause
from adapter.objects.unstructured import Raw, is_condition_true, uid_of
from adapter.objects.worker_pod import slot_share
from adapter.objects.workload import Workload

NO_MANAGER_PODS = (
    "the manager cluster has no manager pod of them. KubeRay's events on the RayCluster say why it creates none; a "
    "ResourceQuota of the namespace, for example, must allow the pods of all workers"
)
_HEAD_NOT_READY = "it has a node, but its readiness probe fails"


def has_unused_quota(gang: Gang) -> bool:
    """Whether an admitted gang wants workers, has admitted shares and no remote pod, and can be observed everywhere.

    A remote pod of an earlier time counts while its manager pod lives. A job that may compute on its head alone keeps
    it, and gives back only its shares (uncreated_workers.py): an elastic one, and one that ran with all workers.
    """
    placement = gang.current_placement
    if placement is None or not are_checks_ready(gang) or gang.pods.shares_with_remote_pods:
        return False
    shares = placement.active_shares
    workers = gang.pods.workers  # None also while the gang has no manager pod
    if not (workers.desired_workers if workers else sum(gang.workers_to_place.values())):
        return False
    if workers is None and placement.job:
        return False
    if workers and workers.head_ready_since and (placement.job or workers.was_complete):
        return False
    if any(share.cluster in gang.clusters.unreachable for share in shares):
        return False
    return any(reservation and reservation.admitted for reservation in gang.reservations_of(placement, shares).values())


def are_checks_ready(gang: Gang) -> bool:
    """Whether all admission checks are Ready. Before that Kueue keeps the job suspended, however long one takes."""
    checks = gang.workload.checks.values() if gang.workload else ()
    return gang.is_running and all(check.state == names.CHECK_READY for check in checks)


def is_overdue(gang: Gang, now: datetime) -> bool:
    since = gang.pods.quota_unused_since
    return since is not None and now >= since + gang.policy.start_timeout


def recheck(gang: Gang, now: datetime) -> list[Action]:
    since = gang.pods.quota_unused_since
    return [RequeueAfter(since + gang.policy.start_timeout - now)] if since else []


def queue_again(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    text = (
        f"No worker of the job was created in a worker cluster {messages.timeout_text(gang.policy.start_timeout)} "
        f"({messages.describe_placement(placement)}): {clause(unused_reason(gang))}. The job gives its capacity back "
        "and queues again."
    )
    record = carry_over.record_late_clusters(gang, workload, placement, clusters_without_pods(gang), now)
    return messages.queue_again(gang, workload, names.EventReason.START_TIMEOUT, text, past_exclusions=record)


def clusters_without_pods(gang: Gang, uids: Collection[str] | None = None) -> list[str]:
    """The clusters in which manager pods with a slot have no remote pod; none is to blame if no head is ready.

    `uids`: of the pods that count; None: all.
    """
    workers = gang.pods.workers
    if workers is None or workers.head_ready_since is None:
        return []
    uncreated = [
        pod for pod in workers.pods_with_slot if not workers.is_created(pod) and (uids is None or uid_of(pod) in uids)
    ]
    clusters = (share.cluster for pod in uncreated if (share := slot_share(pod)) in workers.admitted_shares and share)
    return [cluster for cluster in clusters if cluster not in gang.clusters.closed]


def unused_reason(gang: Gang) -> str:
    workers = gang.pods.workers
    if workers is None or not workers.living_pods:
        return NO_MANAGER_PODS
    if workers.head is None:
        return "the manager cluster has no head pod of the job. KubeRay's events on the RayCluster say why"
    if not is_condition_true(workers.head, "Ready"):
        return f"the head pod {_name(workers.head)} is not ready: {stuck_reason(workers.head, _HEAD_NOT_READY)}"
    return "the events of the job with reason WorkerFailing say why its remote pods are not created"


def _name(pod: Raw) -> str:
    return str((pod.get("metadata") or {}).get("name"))
