"""kind's configuration as text, and the routes by which pods of the clusters reach each other.

Each cluster has one node, so all its pods are behind that node's address in Docker's network. It starts nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from hack.lab.base import versions

Command = list[str]

PODS = "10.64.0.0/14"
"""Pods of all clusters. What goes there keeps its sender's address: workers and heads know each other by it."""

NODE_IMAGE = f"kindest/node:{versions.KUBERNETES}"
PREFIX = "rayspan-"  # of a cluster's name, so that kind's list shows that it is ours
MANAGER = "mgr"


@dataclass(frozen=True)
class Cluster:
    """One cluster, by the name that it has as a worker cluster."""

    name: str
    index: int

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
        """The container of its only node."""
        return f"{self.kind}-control-plane"


CLUSTERS = tuple(Cluster(name, index) for index, name in enumerate((MANAGER, "east", "west")))


def configuration(cluster: Cluster, image: str) -> str:
    """The configuration for `kind create cluster --config`; `image` is the node's."""
    return yaml.safe_dump(
        {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "name": cluster.kind,
            "networking": {"podSubnet": cluster.pods, "serviceSubnet": cluster.services},
            "nodes": [{"role": "control-plane", "image": image}],
        },
        sort_keys=False,
    )


def routes(addresses: Mapping[str, str]) -> Iterator[Command]:
    """The commands that lead each node to the pods of the others; `addresses` are the nodes', by the cluster's name."""
    for here in CLUSTERS:
        for there in CLUSTERS:
            if here != there:
                way = ["ip", "route", "replace", there.pods, "via", addresses[there.name]]
                yield ["docker", "exec", here.node, *way]


def login(text: str, cluster: Cluster, address: str) -> str:
    """kind's kubeconfig for clients in Docker's network, by the node's address: it serves this machine and pods
    alike."""
    return text.replace(f"https://{cluster.node}:6443", f"https://{address}:6443")


def unmasked(kubeconfig: str) -> Command:
    """The command that lets kind's network plugin send pods' packets to all of PODS under their own addresses."""
    change = ["set", "env", "daemonset/kindnet", f"POD_SUBNET={PODS}"]
    return ["kubectl", f"--kubeconfig={kubeconfig}", "--namespace=kube-system", *change]
