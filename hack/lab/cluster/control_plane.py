"""Runs a cluster's control plane: etcd, API server, controller manager and scheduler, with stock defaults.

All clusters use one set of ports: each has its network namespace to itself. Only durability is given up for speed (etcd
without fsync); in all else a cluster behaves like a real one. A clone of a cluster, made from a copy of its data, has
its own servers in that namespace, on other ports.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from hack.lab.base.lab import SERVICES, Cluster
from hack.lab.build import tools
from hack.lab.cluster import api, certificates, isolation, processes

SERVERS = ("etcd", "kube-apiserver")
CLIENTS = ("kube-controller-manager", "kube-scheduler")
_PATIENCE = 90.0  # seconds; ready in 4 to 10, but machines differ and so does what else they do
# With Go's default it spends a sixth of its time on garbage collection, and a third of that with this value. There is
# no GOMEMLIMIT: the ten thousand pods of a bench exceed any useful one, and then it would only collect.
_COLLECTS = {"kube-apiserver": ("/usr/bin/env", "GOGC=300")}
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],  # one line per request, so that lines count requests
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class Seat:
    """Where etcd and the API server sit: `prefix` goes before the names of their processes and files."""

    prefix: str
    etcd: int
    peers: int
    serves: int

    @property
    def processes(self) -> tuple[str, ...]:
        return tuple(f"{self.prefix}{name}" for name in SERVERS)

    def data(self, cluster: Cluster) -> Path:
        """The directory of etcd's data."""
        return cluster.directory / f"{self.prefix}etcd"

    def audit_log(self, cluster: Cluster) -> Path:
        return cluster.audit_log.with_name(f"{self.prefix}{cluster.audit_log.name}")

    @property
    def url(self) -> str:
        """How clients of etcd reach it."""
        return f"http://127.0.0.1:{self.etcd}"


FIRST = Seat("", 2379, 2380, 6443)
CLONE = Seat("clone-", 12379, 12380, 16443)


def ensure_servers(cluster: Cluster, seat: Seat = FIRST) -> None:
    (cluster.directory / "audit-policy.json").write_text(json.dumps(_AUDIT), encoding="utf-8")
    for name, process, flags in zip(
        SERVERS, seat.processes, (_etcd(cluster, seat), _apiserver(cluster, seat)), strict=True
    ):
        command = [*_COLLECTS.get(name, ()), _program(cluster, name), *flags]
        processes.ensure(cluster, process, command, inside=isolation.node(cluster))


def ensure_clients(cluster: Cluster) -> None:
    """Wait for the API server, then start these: they end at once where their roles are not there yet."""
    log = processes.log(cluster, "kube-apiserver")
    api.wait(f"The API server of {cluster.name}", lambda: serving(cluster), seconds=_PATIENCE, advice=f"see {log}")
    for name, flags in zip(CLIENTS, (_controller_manager(cluster), _scheduler(cluster)), strict=True):
        processes.ensure(cluster, name, [_program(cluster, name), *flags], inside=isolation.node(cluster))


def serving(cluster: Cluster) -> bool:
    for name in SERVERS:
        processes.check(cluster, name)
    return bool(api.get(cluster, "/readyz") == "ok")


def check(cluster: Cluster) -> None:
    """Refuse to wait for a control plane of which a part has ended."""
    for name in (*SERVERS, *CLIENTS):
        processes.check(cluster, name)


def _program(cluster: Cluster, name: str) -> Path:
    """etcd is today's for every version of Kubernetes: each of them accepts it."""
    return tools.path(name if name == "etcd" else f"{name}@{cluster.runs.kubernetes}")


def _etcd(cluster: Cluster, seat: Seat) -> list[str]:
    return [
        f"--name={cluster.name}",
        f"--data-dir={seat.data(cluster)}",
        "--unsafe-no-fsync",  # a lab is thrown away, and three clusters share one disk
        f"--listen-client-urls={seat.url}",
        f"--advertise-client-urls={seat.url}",
        f"--listen-peer-urls=http://127.0.0.1:{seat.peers}",
        "--log-level=warn",
    ]


def _apiserver(cluster: Cluster, seat: Seat) -> list[str]:
    pki = certificates.directory(cluster)
    return [
        f"--etcd-servers={seat.url}",
        f"--secure-port={seat.serves}",
        f"--advertise-address={cluster.node_address}",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-accounts.key'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",  # else `kubectl logs` looks the node's name up in a DNS we lack
        # The aggregation layer, for Kueue's visibility API: without it, namespaces hang in Terminating.
        f"--requestheader-client-ca-file={pki / 'ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy.key'}",
        f"--audit-policy-file={cluster.directory / 'audit-policy.json'}",
        f"--audit-log-path={seat.audit_log(cluster)}",
        "--audit-log-maxsize=500",  # megabytes: about a million requests before the first line is lost
        "--audit-log-maxbackup=1",
    ]


def _controller_manager(cluster: Cluster) -> list[str]:
    pki = certificates.directory(cluster)
    return [
        *_client(cluster, "controller-manager"),
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--service-account-private-key-file={pki / 'service-accounts.key'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        f"--flex-volume-plugin-dir={cluster.directory / 'plugins'}",  # the default would be created outside of the lab
        "--use-service-account-credentials=true",
    ]


def _scheduler(cluster: Cluster) -> list[str]:
    return _client(cluster, "scheduler")


def _client(cluster: Cluster, role: str) -> list[str]:
    config = certificates.kubeconfig(cluster, role)
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",  # there is one of each, and waiting for a lease costs seconds at every start
    ]
