"""Since when can a worker cluster not be seen, when do its workers count as lost, and does Ray still hear from them?

The first loss stands in the WorkerCluster's status, so a restart of ours, or a link that comes and goes, does not start the
clock anew. Ray's own word counts for more than our link, and nobody is given up before Ray was asked. What is done when the
time is over is decided in report.py for a worker, and in gang/running.py for a share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from adapter import names
from adapter.names import ReasonCode
from adapter.objects.reason import Reason
from adapter.objects.unstructured import Raw, is_condition_true, parse_time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ClusterLoss:
    """A worker cluster that cannot be seen, as it concerns all that runs there, or one pod."""

    reason: str
    lost_since: datetime | None  # first loss; None: not known yet
    given_up_at: datetime | None  # when its workers count as lost; None: never
    ray_node_alive: bool | None = (
        None  # what the head's GCS says of the pod's Ray node; None: it cannot be asked, or does not know
    )
    head_problem: str = ""  # the head will not be asked before somebody puts something right: a sentence that says what


def loss_of_cluster(cluster: Raw | None, reason: Reason | None, *, timeout: timedelta) -> ClusterLoss | None:
    """What is to be thought of a cluster; None while it can be seen.

    `cluster` is its WorkerCluster, None when there is none; `reason` says why it cannot be seen, None when it can; after
    `timeout` without it its workers count as lost.
    """
    if cluster is None:
        return ClusterLoss("is not registered any more", None, _EPOCH)
    if reason is None:
        return None
    since = parse_time((cluster.get("status") or {}).get("lostSince"))
    # It may be well again since this process began to read it; or this loss is not told yet, and what is there is of another one.
    syncing = reason.code is ReasonCode.CLUSTER_SYNCING
    if since is None or syncing or is_condition_true(cluster, names.CONNECTED):
        return ClusterLoss("cannot be seen", None, None)
    return ClusterLoss(f"cannot be seen since {since:%H:%M:%S} UTC", since, since + timeout)


def loss_of_pod(
    loss: ClusterLoss | None, pod: Raw, nodes: Mapping[str, bool] | None, head_problem: str = ""
) -> ClusterLoss | None:
    """The same for a pod of the manager with a slot there.

    `nodes` says by address which nodes the head of its RayCluster hears from; None before anybody asked the head. `late` is
    why nobody can, where that is for somebody to put right.
    """
    if loss is None:
        return None
    if loss.lost_since and nodes is None:
        return replace(loss, given_up_at=None)
    return replace(loss, ray_node_alive=(nodes or {}).get(ray_node_address(pod)), head_problem=head_problem)


def ray_node_address(pod: Raw) -> str:
    """The address by which Ray's head knows a worker's node, empty while it has none."""
    return str((pod.get("status") or {}).get("podIP") or "")


def given_up_clusters(losses: Mapping[str, ClusterLoss | None], now: datetime) -> dict[str, str]:
    """Those of the clusters whose workers count as lost now, unless Ray still hears from them, each with the reason."""
    late = {name: one.reason for name, one in losses.items() if one and one.given_up_at and now >= one.given_up_at}
    return {name: f"the worker cluster {why}" for name, why in late.items()}
