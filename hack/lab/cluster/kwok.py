"""How does a cluster get hundreds of nodes? kwok plays them, and their pods, beside the real one, which it never touches.

Nothing runs on a fake node: a pod there is Running because kwok says so. They are tainted, so only who tolerates it lands there.
"""

from collections.abc import Iterator
from pathlib import Path

from hack.lab.base.lab import Cluster
from hack.lab.build import tools
from hack.lab.cluster import api, certificates, isolation, processes

NAME = "kwok"
KEY = "kwok.x-k8s.io/node"  # the annotation by which kwok knows its nodes, and the taint that keeps others away
_VALUE = "fake"
_STAGES = (  # as its module publishes them: node comes up and stays up, pod gets ready, completes, goes
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
_CAPACITY = {"cpu": "32", "memory": "256Gi", "pods": "256", "nvidia.com/gpu": "8"}  # a usual GPU machine


def ensure(cluster: Cluster, nodes: int) -> None:
    """Run kwok and make so many nodes; with none asked for, do nothing."""
    if nodes == 0:
        return
    stages = cluster.directory / "stages.yaml"
    if not stages.exists():
        stages.write_text("\n---\n".join(_stages()), encoding="utf-8")
    processes.ensure(cluster, NAME, [tools.path(NAME), *_flags(cluster, stages)], inside=isolation.node(cluster))
    there = {found["metadata"]["name"] for found in api.get(cluster, "/api/v1/nodes")["items"]}
    for number in range(nodes):
        name = f"{cluster.name}-fake-{number}"
        if name not in there:
            api.call(cluster, "POST", "/api/v1/nodes", _node(name))


def _flags(cluster: Cluster, stages: Path) -> list[str]:
    return [
        f"--kubeconfig={certificates.kubeconfig(cluster, 'admin')}",
        f"--config={stages}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={KEY}={_VALUE}",
        f"--node-ip={cluster.address}",
        f"--cidr={cluster.fake_pods}",
        "--v=WARN",  # else it tells of every lease, which hundreds of nodes renew all the time
        "--node-lease-duration-seconds=40",  # kubelet's; without a lease a node is lost after that time
    ]


def _stages() -> Iterator[str]:
    place = tools.module_dir(NAME) / "kustomize" / "stage"
    for stage in _STAGES:
        yield (place / stage).read_text(encoding="utf-8")


def _node(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {KEY: _VALUE},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
        },
        "spec": {"taints": [{"key": KEY, "value": _VALUE, "effect": "NoSchedule"}]},
        "status": {"capacity": _CAPACITY, "allocatable": _CAPACITY},
    }
