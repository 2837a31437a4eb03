"""Runs a cluster's one real node: kubelet and kube-proxy as usual, except for what three on one machine require.

The node reports all of the machine's processors and memory; every cluster does, and nothing here divides them.
"""

import json
from typing import Any

from hack.lab.base.lab import DNS_SERVICE, GPUS, Cluster
from hack.lab.build import tools
from hack.lab.cluster import api, certificates, cgroups, containerd, isolation, processes

NAMES = ("kubelet", "kube-proxy")
GPU = "nvidia.com/gpu"
_PATIENCE = 60.0  # seconds; Ready after about five
# For pods that ask for the node's resolver: there is none, and they learn so at once.
_CLOSED = "nameserver 127.0.0.1\n"


def ensure(cluster: Cluster) -> None:
    home = cluster.directory
    (home / "resolv.conf").write_text(_CLOSED, encoding="utf-8")
    (home / "kubelet.json").write_text(json.dumps(_kubelet_config(cluster), indent=2), encoding="utf-8")
    for name, flags in zip(NAMES, (_kubelet(cluster), _kube_proxy(cluster)), strict=True):
        processes.ensure(
            cluster, name, [tools.path(f"{name}@{cluster.runs.kubernetes}"), *flags], inside=isolation.node(cluster)
        )


def await_ready(cluster: Cluster) -> None:
    log = processes.log(cluster, "kubelet")
    api.wait(f"The node of {cluster.name}", lambda: ready(cluster), seconds=_PATIENCE, advice=f"see {log}")


def ready(cluster: Cluster) -> bool:
    for name in NAMES:
        processes.check(cluster, name)
    conditions = _get(cluster)["status"].get("conditions", [])
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def give_gpus(cluster: Cluster) -> None:
    """Pretend that the node has GPUs; no device stands behind them.

    The kubelet counts them as its own from then on, though a restarted one may forget them
    (k8s:pkg/kubelet/kubelet_node_status.go, reconcileExtendedResource).
    """
    if _get(cluster)["status"].get("capacity", {}).get(GPU) != str(GPUS):
        patch = [{"op": "add", "path": f"/status/capacity/{GPU.replace('/', '~1')}", "value": str(GPUS)}]
        api.call(cluster, "PATCH", f"/api/v1/nodes/{cluster.name}/status", patch, content=api.JSON_PATCH)


def _get(cluster: Cluster) -> Any:
    return api.get(cluster, f"/api/v1/nodes/{cluster.name}")


def _kubelet(cluster: Cluster) -> list[str]:
    return [
        f"--config={cluster.directory / 'kubelet.json'}",
        f"--kubeconfig={certificates.kubeconfig(cluster, 'kubelet')}",
        f"--root-dir={cluster.directory / 'kubelet'}",
        f"--hostname-override={cluster.name}",
        f"--node-ip={cluster.node_address}",
    ]


def _kubelet_config(cluster: Cluster) -> dict[str, object]:
    pki = certificates.directory(cluster)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{containerd.SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.path(cluster),
        "enforceNodeAllocatable": [],  # it would limit all pods together, in a cgroup that several kubelets claim
        # All waits here are for KubeRay, with a tenth of a core, and its `wait-gcs-ready` in each Ray worker, with a
        # fifth. Such limits suit a busy node, and make three clusters on one machine wait beside idle cores.
        "cpuCFSQuota": False,
        "failCgroupV1": False,  # a machine may still have version 1
        "failSwapOn": False,  # and swap: both are the machine's, not ours to change
        # A full disk is not what the lab tests by accident: evict late, and never collect images, which no registry
        # has.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": str(cluster.directory / "pods"),  # kubelets that share one delete each other's logs
        "volumePluginDir": str(cluster.directory / "plugins"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE],
        "resolvConf": str(cluster.directory / "resolv.conf"),
        # Kueue makes its own certificate and waits until the Secret shows in its volume, which is synced this often.
        "syncFrequency": "5s",
    }


def _kube_proxy(cluster: Cluster) -> list[str]:
    return [
        f"--kubeconfig={certificates.kubeconfig(cluster, 'proxy')}",
        f"--hostname-override={cluster.name}",
        f"--bind-address={cluster.node_address}",
        f"--cluster-cidr={cluster.pods}",
        "--proxy-mode=iptables",
        "--conntrack-max-per-core=0",  # the limit belongs to the machine, and a namespace may not set it
    ]
