"""The certificates of a cluster: one CA and one certificate per role, made once by openssl and then kept.

Addresses of a cluster change only with the lab's network, so its certificates survive `down`. They protect nothing of
value: the lab is closed, and root on the machine can read its keys anyway.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from hack.lab.base.commands import run
from hack.lab.base.lab import API_SERVICE, Cluster

_DAYS = "3650"  # longer than any lab is kept: no test may fail by a date
# Written last, so that an interrupted run starts over; it holds the addresses that only an island has.
_DONE = "complete"


@dataclass(frozen=True)
class _Role:
    name: str
    subject: str
    names: str = ""
    """Subject alternative names, where the role serves TLS."""


def _roles(cluster: Cluster) -> tuple[_Role, ...]:
    own = f"IP:{cluster.address},IP:127.0.0.1,DNS:localhost{_island_names(cluster)}"
    service = f"IP:{API_SERVICE},DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    return (
        _Role("apiserver", "/CN=kube-apiserver", f"{own},{service},DNS:kubernetes.default.svc.cluster.local"),
        _Role("apiserver-kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client"),
        _Role("front-proxy", "/CN=front-proxy-client"),
        _Role("admin", f"/O=system:masters/CN=lab-admin-{cluster.name}"),
        _Role("controller-manager", "/CN=system:kube-controller-manager"),
        _Role("scheduler", "/CN=system:kube-scheduler"),
        _Role("proxy", "/CN=system:kube-proxy"),
        _Role("kubelet", f"/O=system:nodes/CN=system:node:{cluster.name}", f"{own},DNS:{cluster.name}"),
    )


def _island_names(cluster: Cluster) -> str:
    """The node's own address, where it is not the one on the WAN."""
    return f",IP:{cluster.node_address}" if cluster.island else ""


def directory(cluster: Cluster) -> Path:
    return cluster.directory / "pki"


def ensure(cluster: Cluster) -> None:
    """Make the cluster's certificates, if they are not there, and one kubeconfig per client."""
    place = directory(cluster)
    place.mkdir(parents=True, exist_ok=True)
    done = place / _DONE
    if not done.exists() or done.read_text(encoding="utf-8") != _island_names(cluster):
        done.unlink(missing_ok=True)
        _authority(place)
        for role in _roles(cluster):
            _certificate(place, role)
        done.write_text(_island_names(cluster), encoding="utf-8")
    for client in ("admin", "controller-manager", "scheduler", "proxy", "kubelet"):
        _kubeconfig(cluster, client)
    _write(cluster.kubeconfig, (place / "admin.kubeconfig").read_text(encoding="utf-8"))


def kubeconfig(cluster: Cluster, client: str) -> Path:
    return directory(cluster) / f"{client}.kubeconfig"


def _authority(place: Path) -> None:
    _key(place / "ca.key")
    _key(place / "service-accounts.key")
    usage = ["-addext", "keyUsage=critical,keyCertSign,digitalSignature"]
    run(["openssl", "req", "-x509", "-new", "-key", place / "ca.key", "-subj", "/CN=rayspan-lab", "-days", _DAYS,
         *usage, "-out", place / "ca.crt"])  # fmt: skip


def _certificate(place: Path, role: _Role) -> None:
    _key(place / f"{role.name}.key")
    request = run(["openssl", "req", "-new", "-key", place / f"{role.name}.key", "-subj", role.subject])
    extensions = place / f"{role.name}.ext"
    usage = "extendedKeyUsage=clientAuth,serverAuth"
    extensions.write_text(f"{usage}\nsubjectAltName={role.names}\n" if role.names else f"{usage}\n", encoding="utf-8")
    run(["openssl", "x509", "-req", "-CA", place / "ca.crt", "-CAkey", place / "ca.key", "-days", _DAYS,
         "-extfile", extensions, "-out", place / f"{role.name}.crt"], input=request)  # fmt: skip


def _key(path: Path) -> None:
    """An elliptic curve: made at once, where an RSA key takes a noticeable part of a second."""
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path])


def _kubeconfig(cluster: Cluster, client: str) -> None:
    place = directory(cluster)
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster.name,
        "contexts": [{"name": cluster.name, "context": {"cluster": cluster.name, "user": client}}],
        "clusters": [
            {
                "name": cluster.name,
                "cluster": {"server": cluster.server, "certificate-authority-data": _data(place / "ca.crt")},
            }
        ],
        "users": [
            {
                "name": client,
                "user": {
                    "client-certificate-data": _data(place / f"{client}.crt"),
                    "client-key-data": _data(place / f"{client}.key"),
                },
            }
        ],
    }
    _write(kubeconfig(cluster, client), json.dumps(said, indent=2) + "\n")  # JSON is YAML too, and needs no library


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
