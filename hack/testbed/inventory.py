"""Finds the clusters with the cluster inventory API's CRD, and writes ClusterProfiles as a cluster manager would.

No cluster manager runs there. A test writes a profile, and in its status where the cluster is. Its token can be revoked
by itself, as a renewal does.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import yaml

from adapter import names
from hack.lab.build import tools
from hack.testbed import install
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw

KIND = "clusterprofiles.multicluster.x-k8s.io"
_CRD = "config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml"


@contextmanager
def known(cluster: Cluster) -> Iterator[None]:
    """Within, the cluster knows ClusterProfiles; they go with it."""
    path = tools.module_dir("cluster-inventory") / _CRD
    cluster.kubectl("apply", "--server-side", "-f", path)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{KIND}", "--timeout=30s")
    try:
        yield
    finally:
        cluster.kubectl("delete", "-f", path)


def put(cluster: Cluster, name: str, namespace: str, providers: Mapping[str, Raw] | None = None) -> None:
    """Write a ClusterProfile; `providers`: each access provider's `cluster`, None: nothing is said of it yet."""
    body = {
        "apiVersion": names.INVENTORY_API_VERSION,
        "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterManager": {"name": "rayspan-tests"}},
    }
    cluster.apply(yaml.safe_dump(body))
    if providers is not None:
        listed = [{"name": provider, "cluster": each} for provider, each in providers.items()]
        status = json.dumps({"status": {"accessProviders": listed}})
        which = ("-n", namespace, "patch", KIND, name, "--subresource=status", "--type=merge", "-p", status)
        cluster.kubectl(*which)


def address(manager: Cluster, name: str, *, secret: str = "") -> Raw:
    """Where a worker cluster is, as an access provider says it; `secret`: whose token it asks for."""
    (entry,) = yaml.safe_load(install.worker_kubeconfig(manager, name))["clusters"]
    told = [{"name": names.EXEC_EXTENSION, "extension": {"clusterName": secret}}] if secret else []
    return {**entry["cluster"], **({"extensions": told} if told else {})}


def token(worker: Cluster, bound: str) -> str:
    """A token of the account that the manager speaks for, which ends with the Secret of that name there."""
    worker.delete("secret", bound, names.SYSTEM_NAMESPACE)
    worker.kubectl("-n", names.SYSTEM_NAMESPACE, "create", "secret", "generic", bound)
    to = ("--bound-object-kind=Secret", f"--bound-object-name={bound}")
    return worker.kubectl("-n", names.SYSTEM_NAMESPACE, "create", "token", names.WORKER_ACCOUNT, *to).strip()


def put_token(manager: Cluster, name: str, namespace: str, text: str) -> None:
    """Write the Secret that holds a token for a profile's cluster."""
    data = {names.TOKEN_KEY: base64.b64encode(text.encode()).decode()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}
    manager.apply(yaml.safe_dump(body))
