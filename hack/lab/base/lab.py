"""The lab's definition: its clusters, their names, addresses and files, and the checkout that defined it.

It is arithmetic and one JSON file: it starts nothing and reads no cluster.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hack.lab.base.paths import NUMBER, REPO, STATE
from hack.lab.base.progress import LabError
from hack.lab.base.versions import TODAY, Runs

_BLOCK = f"10.{240 + 2 * NUMBER}"
_FAKE_BLOCK = f"10.{241 + 2 * NUMBER}"
SUBNET = (
    f"{_BLOCK}.0.0/16"  # everything routable: one private block, so one check shows whether the machine uses it already
)
WAN = f"{_BLOCK}.0.0/24"
SITE = f"{_BLOCK}.1.0/24"  # of an island's nodes and its gateway; the same on every island
GATEWAY = f"{_BLOCK}.1.1"
_SITE_NODE = f"{_BLOCK}.1.2"
HOST = f"{_BLOCK}.0.1"  # the root namespace's own address on the WAN, where tests come from
# Equal in all clusters, as in real fleets: a service address copied between clusters must fail.
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
GPUS = 4  # fake ones on each worker cluster's real node: enough for two jobs of two

NAMESPACES = f"rayspan{NUMBER or ''}-"  # what the names of the lab's network namespaces begin with

NETWORKS: Mapping[str, str] = {
    "flat": "pods reach all pods of all clusters (default)",
    "isolated": "pods reach no other cluster's pods, only its API server",
    "islands": "all clusters have the same pod CIDR, each behind NAT; one port of mgr is open to all of them",
}
ISLANDS = "islands"
API_PORT = 6443
OPEN_PORT = 30443  # of mgr, for all islands: a NodePort

MANAGER = "mgr"
_WORKERS = ("east", "west", "north", "south")  # then w5, w6, …
_FIRST_ADDRESS = 10  # .1 is the host; the lower ones stay free for what a test adds to the WAN
MOST_WORKERS = 14  # with mgr 15 clusters: as many /20 blocks as a /16 of fake pod addresses has, less one

_DEFINITION = STATE / "lab.json"
_SHAPE = (  # a change in one of these changes the clusters, so a lab made by an older text cannot be shared
    "base/lab.py", "base/versions.py", "cluster/addons.py", "cluster/certificates.py", "cluster/cgroups.py",
    "cluster/containerd.py", "cluster/control_plane.py", "cluster/coredns.yaml", "cluster/gateway.py",
    "cluster/isolation.py", "cluster/kwok.py",
    "cluster/network.py", "cluster/node.py", "cluster/processes.py",
)  # fmt: skip


@dataclass(frozen=True)
class Cluster:
    """One cluster: a network namespace with a control plane and one real node."""

    name: str
    index: int
    runs: Runs = TODAY
    island: bool = False
    """Behind a NAT gateway, with the addresses that every island has."""

    @property
    def is_manager(self) -> bool:
        return self.name == MANAGER

    @property
    def namespace(self) -> str:
        """The network namespace, as `ip netns` and `nsenter --net=/run/netns/…` know it."""
        return f"{NAMESPACES}{self.name}"

    @property
    def gateway(self) -> str:
        """An island's other network namespace, between the node and the WAN."""
        return f"{self.namespace}-gate"

    @property
    def address(self) -> str:
        """Where the others find it on the WAN: its node, or its gateway, which forwards to the API server."""
        return f"{_BLOCK}.0.{_FIRST_ADDRESS + self.index}"

    @property
    def server(self) -> str:
        return f"https://{self.address}:{API_PORT}"

    @property
    def node_address(self) -> str:
        """The node's own address."""
        return _SITE_NODE if self.island else self.address

    @property
    def pods(self) -> str:
        return f"{_BLOCK}.{_FIRST_ADDRESS + self._block}.0/24"

    @property
    def fake_pods(self) -> str:
        """Addresses that kwok gives to pods on fake nodes. Nothing answers there."""
        return f"{_FAKE_BLOCK}.{16 * self._block}.0/20"

    @property
    def _block(self) -> int:
        """Which of the blocks of pod addresses it has."""
        return 0 if self.island else self.index

    @property
    def directory(self) -> Path:
        return STATE / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"


@dataclass(frozen=True)
class Lab:
    """The definition that was asked for. Two checkouts share a lab only if these are equal."""

    workers: int = 2
    fake_nodes: int = 0
    network: str = "flat"
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Cluster → component → version, where it is not today's."""
    shape: str = field(default_factory=lambda: _fingerprint())
    """A digest of the files that say how a cluster is made."""

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        names = (MANAGER, *(worker_name(number) for number in range(1, self.workers + 1)))
        return tuple(
            Cluster(name, index, TODAY._replace(**self.versions.get(name, {})), self.network == ISLANDS)
            for index, name in enumerate(names)
        )

    @property
    def manager(self) -> Cluster:
        return self.clusters[0]

    @property
    def worker_clusters(self) -> tuple[Cluster, ...]:
        return self.clusters[1:]

    def cluster(self, name: str) -> Cluster:
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        known = ", ".join(cluster.name for cluster in self.clusters)
        raise LabError(f"The lab has no cluster called {name}; it has {known}.")

    def others(self, cluster: Cluster) -> tuple[Cluster, ...]:
        return tuple(other for other in self.clusters if other != cluster)


def worker_name(number: int) -> str:
    """The first worker cluster is number 1."""
    return _WORKERS[number - 1] if number <= len(_WORKERS) else f"w{number}"


def load() -> Lab:
    """The lab on this machine, as it was last asked for."""
    lab = find()
    if lab is None:
        raise LabError("There is no lab on this machine: run `python -m hack.lab up`.")
    return lab


def find() -> Lab | None:
    """As load(), or None where there is no lab."""
    try:
        said = json.loads(_DEFINITION.read_text(encoding="utf-8"))
        return Lab(**said["lab"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Lab(workers=MOST_WORKERS, shape="unreadable")  # as large as a lab can be, so that `down` finds all of it


def owner() -> str:
    """The checkout that made the lab."""
    try:
        return str(json.loads(_DEFINITION.read_text(encoding="utf-8"))["checkout"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "an unknown checkout"


def save(lab: Lab) -> None:
    """Write down what is being started, before it is started, so that `down` knows it after any interruption."""
    STATE.mkdir(parents=True, exist_ok=True)
    fresh = _DEFINITION.with_suffix(".new")
    fresh.write_text(json.dumps({"lab": asdict(lab), "checkout": str(REPO)}, indent=2) + "\n", encoding="utf-8")
    fresh.rename(_DEFINITION)


def forget() -> None:
    _DEFINITION.unlink(missing_ok=True)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for name in _SHAPE:
        digest.update((Path(__file__).parents[1] / name).read_bytes())
    return digest.hexdigest()[:16]
