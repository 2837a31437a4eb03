"""The three kind clusters: kind's configuration as text, and the routes between their pods. It starts nothing.

Each cluster has one node, so all its pods are behind that node's address in Docker's network.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

PODS = "10.64.0.0/14"
"""Pods of all clusters. Packets to them keep their sender's address: workers and heads know each other by it."""

PREFIX = "rayspan-"  # of a cluster's name, so that kind's list shows that it is ours
MANAGER = "mgr"
# A control plane of one node has no other to elect, and a busy machine makes it lose its lease, which ends it. kubeadm
# takes this list in place of kind's own, which is for volumes on the node alone.
_NO_ELECTION = {"extraArgs": [{"name": "leader-elect", "value": "false"}]}


@dataclass(frozen=True)
class KindCluster:
    """One cluster, by the name that it has as a worker cluster."""

    name: str
    index: int

    @property
    def is_manager(self) -> bool:
        return self.name == MANAGER

    @property
    def pods(self) -> str:
        return f"10.{64 + self.index}.0.0/16"

    @property
    def services(self) -> str:
        """A block of its own: an address of one cluster's Service means nothing in another, and must not seem to."""
        return f"10.{96 + self.index}.0.0/16"

    @property
    def kind(self) -> str:
        return f"{PREFIX}{self.name}"

    @property
    def node(self) -> str:
        """The container of its only node. Docker's DNS resolves its name in the pods of all clusters."""
        return f"{self.kind}-control-plane"

    @property
    def server(self) -> str:
        """The API server's address in Docker's network; kind's certificate names it."""
        return f"https://{self.node}:6443"


CLUSTERS = tuple(KindCluster(name, index) for index, name in enumerate((MANAGER, "east", "west")))


def configuration(cluster: KindCluster, image: str) -> str:
    """The configuration for `kind create cluster --config`; `image` is the node's.

    kind gives its `podSubnet` to its network plugin, which masks the senders of packets to all other addresses. So it
    is the block of all clusters; kubeadm's is the cluster's own.
    """
    kubeadm = {
        "kind": "ClusterConfiguration",
        "networking": {"podSubnet": cluster.pods},
        "controllerManager": _NO_ELECTION,
        "scheduler": _NO_ELECTION,
    }
    return yaml.safe_dump(
        {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "name": cluster.kind,
            "networking": {"podSubnet": PODS, "serviceSubnet": cluster.services},
            "kubeadmConfigPatches": [yaml.safe_dump(kubeadm, sort_keys=False)],
            "nodes": [{"role": "control-plane", "image": image}],
        },
        sort_keys=False,
    )


def routes(addresses: Mapping[str, str]) -> Iterator[list[str]]:
    """The words of docker that lead each node to the pods of the others; `addresses` are the nodes', by cluster."""
    for here in CLUSTERS:
        for there in CLUSTERS:
            if here != there:
                way = ["ip", "route", "replace", there.pods, "via", addresses[there.name]]
                yield ["exec", here.node, *way]
