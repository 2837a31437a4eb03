"""How long a worker cluster has been unreachable, when its workers count as lost, and what Ray knows of them.

The first loss is recorded in the WorkerCluster's status, so a restart or an unstable link does not restart the timeout.
Ray's head counts for more than our link: no worker is given up before the head was asked. report.py acts on workers,
gang/running.py on shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from adapter import names
from adapter.names import ReasonCode
from adapter.objects.reason import Reason
from adapter.objects.unstructured import Raw, is_condition_true, key_of, parse_time
from adapter.objects.worker_pod import slot_cluster
from adapter.relay.relay_network import RelayNetwork
from adapter.worker.ray_nodes import unknown_address

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ClusterLoss:
    """The loss of a worker cluster, for all of it or for one pod."""

    reason: str
    lost_since: datetime | None  # None: not known yet
    given_up_at: datetime | None  # when its workers count as lost; None: never
    # Whether the head's GCS reports the node alive. None: the head cannot be asked, or does not know the node.
    ray_node_alive: bool | None = None
    # What a user must fix before the head can be asked.
    head_problem: str = ""

    def is_given_up(self, now: datetime) -> bool:
        """Whether its workers count as lost; those of a cluster that is not registered always do."""
        return self.given_up_at is not None and now >= self.given_up_at


def loss_of_cluster(cluster: Raw | None, reason: Reason | None, *, timeout: timedelta) -> ClusterLoss | None:
    """The loss of a worker cluster, None while it is reachable. Its workers count as lost after `timeout`.

    `cluster`: its WorkerCluster, if any. `reason`: why it is unreachable, if it is.
    """
    if cluster is None:
        return ClusterLoss("is not registered any more", None, _EPOCH)
    if reason is None:
        return None
    lost_since = parse_time((cluster.get("status") or {}).get("lostSince"))
    # While the cluster syncs, it may be reachable again. While it is recorded as connected, `lostSince` is of an
    # earlier loss.
    syncing = reason.code is ReasonCode.CLUSTER_SYNCING
    if lost_since is None or syncing or is_condition_true(cluster, names.CONNECTED):
        return ClusterLoss("is unreachable", None, None)
    return ClusterLoss(f"is unreachable since {lost_since:%H:%M:%S} UTC", lost_since, lost_since + timeout)


def loss_of_pod(
    loss: ClusterLoss | None, pod: Raw, nodes: Mapping[str, bool] | None, head_problem: str = ""
) -> ClusterLoss | None:
    """The cluster's loss, for a manager pod with a slot there.

    `nodes`: pod name -> whether the head has that pod's node alive, as `ray_nodes.states_of_pods` gives it; None if the
    head was not asked yet.
    """
    if loss is None:
        return None
    if loss.lost_since and nodes is None:
        return replace(loss, given_up_at=None)
    return replace(loss, ray_node_alive=(nodes or {}).get(key_of(pod)[1]), head_problem=head_problem)


def ray_node_address(pod: Raw, network: RelayNetwork | None) -> str:
    """By what the head knows a pod's node: its name in a relayed network, else its IP."""
    if network:
        return network.node_of_pod(pod)
    return str((pod.get("status") or {}).get("podIP") or unknown_address(slot_cluster(pod)))


def given_up_clusters(losses: Mapping[str, ClusterLoss | None], now: datetime) -> dict[str, str]:
    """The clusters whose workers count as lost unless Ray has their nodes alive, with the reason."""
    lost = {key: loss.reason for key, loss in losses.items() if loss and loss.is_given_up(now)}
    return {name: f"the worker cluster {reason}" for name, reason in lost.items()}
