"""Labels and annotations by which software of a cluster gives a pod an identity, a network, a device or a queue.

They name objects of one cluster, and that software asks no one whether the pod's namespace may have them. So they are
not carried over; an administrator sets them in `spec.pods` of a WorkerCluster.
"""

from typing import Final

# Domains, with all that are beneath them.
CLUSTER_DOMAINS: Final = (
    "iam.amazonaws.com",  # kube2iam and kiam: a role of the cloud
    "k8s.v1.cni.cncf.io", "v1.multus-cni.io",  # Multus: networks, also those of other namespaces
    "cni.projectcalico.org", "ovn.kubernetes.io", "k8s.ovn.org",  # pools, addresses and subnets
    "ipam.cilium.io", "ipam.antrea.io", "ipam.spidernet.io", "networking.gke.io",  # the same
    "devices.gke.io",  # devices of the node
    "cdi.k8s.io",  # devices without a request, by the container runtime
    "runai", "run.ai",  # queues of Run:ai; KubeRay writes runai/queue for KAI
)  # fmt: skip
CLUSTER_KEYS: Final = frozenset({"aadpodidbinding", "io.kubernetes.cri-o.Devices"})  # Azure's pod identity; CRI-O


def is_cluster_key(key: str) -> bool:
    return key in CLUSTER_KEYS or is_in_domains(key, CLUSTER_DOMAINS)


def is_in_domains(key: str, domains: tuple[str, ...]) -> bool:
    """Whether a key has the prefix of a domain, or of one beneath it."""
    prefix = key.partition("/")[0] if "/" in key else ""
    return any(prefix == domain or prefix.endswith(f".{domain}") for domain in domains)
