"""Does a RayCluster that encrypts with its user's certificates span the clusters?

As in KubeRay's sample ray-cluster.tls.yaml: a Secret holds the CA, a ConfigMap the script, and each pod makes a certificate for
its own address before Ray starts. The CA is of this test alone.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter import names
from e2e.job import NAMESPACE, Job
from hack.apireader import Raw
from hack.lab import commands

NAME = "e2e-tls"  # of the Secret and of the ConfigMap
SCRIPT = """
set -e
cd /etc/ray/tls
openssl req -newkey rsa:2048 -nodes -keyout tls.key -subj /CN=ray -out ray.csr
echo "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:$POD_IP" > ray.ext
openssl x509 -req -in ray.csr -CA /etc/ca/tls/ca.crt -CAkey /etc/ca/tls/ca.key -set_serial "0x$(openssl rand -hex 8)" \\
  -days 2 -extfile ray.ext -out tls.crt
"""
FILES = {"RAY_TLS_SERVER_CERT": "/etc/ray/tls/tls.crt", "RAY_TLS_SERVER_KEY": "/etc/ray/tls/tls.key"}
ENV = [
    {"name": name, "value": value}
    for name, value in {"RAY_USE_TLS": "1", "RAY_TLS_CA_CERT": "/etc/ca/tls/ca.crt", **FILES}.items()
]
MOUNTS = [
    {"name": "ca-tls", "mountPath": "/etc/ca/tls", "readOnly": True},
    {"name": "ray-tls", "mountPath": "/etc/ray/tls"},
]
VOLUMES = [
    {"name": "ca-tls", "secret": {"secretName": NAME}},
    {"name": "ray-tls", "emptyDir": {}},
    {"name": "make-tls", "configMap": {"name": NAME}},
]


@pytest.fixture
def authority(job: Job, tmp_path: Path) -> Iterator[None]:
    """A CA as the user would have it in the manager, and the script that makes certificates; both go with the test."""
    key, certificate = tmp_path / "ca.key", tmp_path / "ca.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ray-ca"]
    commands.run([*command, "-keyout", key, "-out", certificate])
    data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in (key, certificate)}
    for body in ({"kind": "Secret", "data": data}, {"kind": "ConfigMap", "data": {"make.sh": SCRIPT}}):
        whole = {"apiVersion": "v1", "metadata": {"name": NAME, "namespace": NAMESPACE}, **body}
        job.manager.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(whole))
    yield
    for kind in ("secret", "configmap"):
        job.manager.delete(kind, NAME)


@pytest.mark.usefixtures("authority")
def test_workers_elsewhere_speak_tls_with_the_users_certificates(job: Job) -> None:
    """The head takes nobody who has no certificate of that CA, and every worker is taken."""
    job.submit(change=_encrypt)
    job.wait_for_workers()
    for name, cluster in job.fleet.workers.items():
        copies = [
            one for kind in ("secrets", "configmaps") for one in cluster.items(kind, NAMESPACE, names.MANAGER_LABEL)
        ]
        origins = {one["metadata"].get("annotations", {}).get(names.COPY_OF_ANNOTATION) for one in copies}
        assert origins == {f"Secret {NAME}", f"ConfigMap {NAME}", None}, name  # and the anchor
    assert "Verification: OK" in _asked_by(
        job, "-cert", FILES["RAY_TLS_SERVER_CERT"], "-key", FILES["RAY_TLS_SERVER_KEY"]
    )
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    assert {node["cluster"] for node in job.result()["nodes"]} == {"manager", "east", "west"}


def _encrypt(spec: Raw) -> None:
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        container = pod["containers"][0]
        container["env"] = ENV
        container["volumeMounts"] = [*container.get("volumeMounts", []), *MOUNTS]
        pod["volumes"] = [*pod.get("volumes", []), *VOLUMES]
        address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        pod["initContainers"] = [
            {
                "name": "make-tls",
                "image": container["image"],
                "command": ["sh", "/etc/make/make.sh"],
                "env": [address],
                "volumeMounts": [*MOUNTS, {"name": "make-tls", "mountPath": "/etc/make"}],
            }
        ]


def _asked_by(job: Job, *certificate: str) -> str:
    """What the head's GCS answers to a client in the head's own pod."""
    which = f"{names.RAY_GCS_CLUSTER_LABEL}={job.status()['rayClusterName']},{names.RAY_NODE_TYPE_LABEL}={names.HEAD}"
    (head,) = job.manager.items("pods", NAMESPACE, which)
    ask = ("openssl", "s_client", "-brief", "-connect", "127.0.0.1:6379", "-CAfile", "/etc/ca/tls/ca.crt", *certificate)
    shell = f"{' '.join(ask)} </dev/null 2>&1 || true"  # a gRPC server ends such a talk in a way that s_client calls an error
    return job.manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "sh", "-c", shell)
