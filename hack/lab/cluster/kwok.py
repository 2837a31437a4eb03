"""Adds hundreds of fake nodes to a cluster: kwok plays them and their pods, and never touches the real node.

Nothing runs on a fake node: a pod there is Running because kwok says so, and after its deletion it leaves after a
moment, as a real one does. Fake nodes are tainted, so only pods that tolerate that land there.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hack.lab.base.lab import Cluster
from hack.lab.build import tools
from hack.lab.cluster import api, certificates, isolation, processes

NAME = "kwok"
KEY = "kwok.x-k8s.io/node"  # the annotation by which kwok knows its nodes, and the taint that keeps others away
LEAVES_WITHIN = (
    "pod-leave.stage.kwok.x-k8s.io/jitter-delay"  # a pod's annotation: the longest that it takes to leave, as "5s"
)
_VALUE = "fake"
_STAGES = (  # as its module publishes them: node comes up and stays up, pod gets ready, completes
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
)
# A pod that is deleted with a grace period runs on for part of it. If it vanished at once, a premature release of its
# capacity would stay unseen: a successor is made and admitted within a few tenths of a second, and samples are two
# tenths apart. So it takes a second, the least in which both are seen together, and up to a half more, so that the pods
# of one gang do not all go at one instant. A pod's annotation may set a longer delay, for trials of premature releases.
# A forced deletion needs no stage: the API server itself removes the pod. The comparison is jq's, in which an absent
# field is less than any number; kwok itself compares no numbers.
_LEAVING = f"""
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-leave
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionGracePeriodSeconds > 0'
      operator: 'In'
      values:
      - 'true'
  delay:
    durationMilliseconds: 1000
    jitterDurationMilliseconds: 1500
    jitterDurationFrom:
      expressionFrom: '.metadata.annotations["{LEAVES_WITHIN}"]'
  next:
    delete: true
"""
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_CAPACITY = {"cpu": "32", "memory": "256Gi", "pods": "256", "nvidia.com/gpu": "8"}  # a usual GPU machine


def ensure(cluster: Cluster, nodes: int) -> None:
    """Run kwok and make so many nodes; with none asked for, do nothing."""
    if nodes == 0:
        return
    stages = cluster.directory / "stages.yaml"
    if not stages.exists():
        stages.write_text("\n---\n".join(_stages()), encoding="utf-8")
    if not processes.alive(cluster, NAME):
        _release_leases(cluster, nodes)
    processes.ensure(cluster, NAME, [tools.path(NAME), *_flags(cluster, stages)], inside=isolation.node(cluster))
    there = {found["metadata"]["name"] for found in api.get(cluster, "/api/v1/nodes")["items"]}
    for name in _node_names(cluster, nodes):
        if name not in there:
            api.call(cluster, "POST", "/api/v1/nodes", _node(name))


def _release_leases(cluster: Cluster, nodes: int) -> None:
    """Delete the Leases of the fake nodes, which a kwok that ended holds.

    Each kwok has an identity of its own (kwok:pkg/kwok/controllers/controller.go), so a new one waits for the end of
    these Leases: up to 50 s, after which the nodes are lost, and kwok makes no pod ready again.
    """
    with suppress(OSError, api.Refused):  # the API server may still start, and on a new cluster there are none
        leases = {lease["metadata"]["name"] for lease in api.get(cluster, _LEASES)["items"]}
        for name in leases.intersection(_node_names(cluster, nodes)):
            api.call(cluster, "DELETE", f"{_LEASES}/{name}")


def _node_names(cluster: Cluster, nodes: int) -> list[str]:
    return [f"{cluster.name}-fake-{number}" for number in range(nodes)]


def _flags(cluster: Cluster, stages: Path) -> list[str]:
    return [
        f"--kubeconfig={certificates.kubeconfig(cluster, 'admin')}",
        f"--config={stages}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={KEY}={_VALUE}",
        f"--node-ip={cluster.node_address}",
        f"--cidr={cluster.fake_pods}",
        "--v=WARN",  # else it logs every Lease, which hundreds of nodes renew all the time
        "--node-lease-duration-seconds=40",  # kubelet's; without a lease a node is lost after that time
    ]


def _stages() -> Iterator[str]:
    place = tools.module_dir(NAME) / "kustomize" / "stage"
    for stage in _STAGES:
        yield (place / stage).read_text(encoding="utf-8")
    yield _LEAVING


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
