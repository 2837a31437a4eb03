"""Makes a RayCluster encrypt with its user's certificates.

As in KubeRay's sample ray-cluster.tls.yaml, a Secret holds the CA, a ConfigMap the script, and each pod makes a
certificate for its own address before Ray starts. The head's also names its Service, which KubeRay gives its init
containers: a worker that calls the head by that name accepts no other certificate. The CA is of one test alone.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.lab.base import commands
from hack.testbed.clusters import Cluster
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.reader import Raw

NAME = "e2e-tls"  # of the Secret and of the ConfigMap
_SCRIPT = """
set -e
cd /etc/ray/tls
names="DNS:localhost,IP:127.0.0.1,IP:$POD_IP"
[ "$1" != head ] || names="$names,DNS:$FQ_RAY_IP"
openssl req -newkey rsa:2048 -nodes -keyout tls.key -subj /CN=ray -out ray.csr
echo "subjectAltName=$names" > ray.ext
openssl x509 -req -in ray.csr -CA /etc/ca/tls/ca.crt -CAkey /etc/ca/tls/ca.key -set_serial "0x$(openssl rand -hex 8)" \\
  -days 2 -extfile ray.ext -out tls.crt
"""
FILES = {"RAY_TLS_SERVER_CERT": "/etc/ray/tls/tls.crt", "RAY_TLS_SERVER_KEY": "/etc/ray/tls/tls.key"}
CA = "/etc/ca/tls/ca.crt"
_ENV = [{"name": name, "value": value} for name, value in {"RAY_USE_TLS": "1", "RAY_TLS_CA_CERT": CA, **FILES}.items()]
_MOUNTS = [
    {"name": "ca-tls", "mountPath": "/etc/ca/tls", "readOnly": True},
    {"name": "ray-tls", "mountPath": "/etc/ray/tls"},
]
_VOLUMES = [
    {"name": "ca-tls", "secret": {"secretName": NAME}},
    {"name": "ray-tls", "emptyDir": {}},
    {"name": "make-tls", "configMap": {"name": NAME}},
]


@contextmanager
def authority(manager: Cluster, folder: Path) -> Iterator[None]:
    """A CA as the user would have it in the manager, and the script that makes certificates; both go in the end."""
    key, certificate = folder / "ca.key", folder / "ca.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ray-ca"]
    commands.run([*command, "-keyout", key, "-out", certificate])
    data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in (key, certificate)}
    for body in ({"kind": "Secret", "data": data}, {"kind": "ConfigMap", "data": {"make.sh": _SCRIPT}}):
        whole = {"apiVersion": "v1", "metadata": {"name": NAME, "namespace": NAMESPACE}, **body}
        manager.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(whole))
    try:
        yield
    finally:
        for kind in ("secret", "configmap"):
            manager.delete(kind, NAME)


def encrypt(spec: Raw) -> None:
    """Change a RayCluster's spec: every Ray node has a certificate, and accepts only peers with one of that CA."""
    _certify(spec["headGroupSpec"], "head")
    for group in spec["workerGroupSpecs"]:
        _certify(group, "worker")


def _certify(group: Raw, kind: str) -> None:
    pod = group["template"]["spec"]
    container = pod["containers"][0]
    container["env"] = _ENV
    container["volumeMounts"] = [*container.get("volumeMounts", []), *_MOUNTS]
    pod["volumes"] = [*pod.get("volumes", []), *_VOLUMES]
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    pod["initContainers"] = [
        {
            "name": "make-tls",
            "image": container["image"],
            "command": ["sh", "/etc/make/make.sh", kind],
            "env": [address],
            "volumeMounts": [*_MOUNTS, {"name": "make-tls", "mountPath": "/etc/make"}],
        }
    ]
