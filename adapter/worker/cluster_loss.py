"""How long a worker cluster has been unreachable, when its workers count as lost, and what Ray knows of them.

The first loss is recorded in the WorkerCluster's status. So a restart of the controller, or a link that comes and goes,
does not restart the timeout. What Ray's head reports counts for more than our link: no worker is given up before the
head was asked. report.py acts for a worker when the time is over, gang/running.py for a share.
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
    """The loss of an unreachable worker cluster, for the whole cluster or for one pod."""

    reason: str
    lost_since: datetime | None  # first loss; None: not known yet
    given_up_at: datetime | None  # when its workers count as lost; None: never
    # What the head's GCS reports of the pod's Ray node. None: the head cannot be asked, or does not know the node.
    ray_node_alive: bool | None = None
    # A sentence on what a user must fix before the head can be asked; empty if nothing.
    head_problem: str = ""


def loss_of_cluster(cluster: Raw | None, reason: Reason | None, *, timeout: timedelta) -> ClusterLoss | None:
    """The loss of a worker cluster; None while it is reachable.

    `cluster` is its WorkerCluster, None if there is none. `reason` says why it is unreachable, None if it is not. Its
    workers count as lost when it was unreachable for `timeout`.
    """
    if cluster is None:
        return ClusterLoss("is not registered any more", None, _EPOCH)
    if reason is None:
        return None
    lost_since = parse_time((cluster.get("status") or {}).get("lostSince"))
    # The cluster may be reachable again since this process began to read it. Or this loss is not recorded yet, and the
    # recorded time is of an earlier loss.
    syncing = reason.code is ReasonCode.CLUSTER_SYNCING
    if lost_since is None or syncing or is_condition_true(cluster, names.CONNECTED):
        return ClusterLoss("cannot be seen", None, None)
    return ClusterLoss(f"cannot be seen since {lost_since:%H:%M:%S} UTC", lost_since, lost_since + timeout)


def loss_of_pod(
    loss: ClusterLoss | None, pod: Raw, nodes: Mapping[str, bool] | None, head_problem: str = ""
) -> ClusterLoss | None:
    """The cluster's loss for a manager pod with a slot there.

    `nodes` maps addresses to whether the head of the pod's RayCluster has that node alive; None if the head was not
    asked yet. `head_problem` says why the head cannot be asked, if a user must fix that.
    """
    if loss is None:
        return None
    if loss.lost_since and nodes is None:
        return replace(loss, given_up_at=None)
    return replace(loss, ray_node_alive=(nodes or {}).get(ray_node_address(pod)), head_problem=head_problem)


def ray_node_address(pod: Raw) -> str:
    """The address by which Ray's head knows the worker's node; empty if it has none."""
    return str((pod.get("status") or {}).get("podIP") or "")


def given_up_clusters(losses: Mapping[str, ClusterLoss | None], now: datetime) -> dict[str, str]:
    """The clusters whose workers count as lost now unless Ray has their nodes alive, each with the reason."""
    lost = {key: loss.reason for key, loss in losses.items() if loss and loss.given_up_at and now >= loss.given_up_at}
    return {name: f"the worker cluster {reason}" for name, reason in lost.items()}
