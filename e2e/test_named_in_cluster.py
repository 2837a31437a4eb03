"""Tests what a WorkerCluster names on real nodes: a service account, claims of data and host paths, with real Ray.

What is rewritten, refused and moved: tests/integration/test_named_in_cluster.py, on fake nodes. A kubelet mounts the
volumes here, and the API server of each worker cluster says whose token a worker has.
"""

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import yaml

from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.rayjob import NAMESPACE, SAMPLE, Job
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import mapped

pytestmark = pytest.mark.long

ACCOUNT, THERE = "raydata", "ray-ksa"  # in the manager, and in worker clusters
# Claims are `models` and `results` in the job; each worker cluster has names and volumes of its own.
VOLUMES = {"models": True, "results": False}  # claim -> read only
PREFIX = "/tmp/rayspan-e2e-named"  # on the nodes; clusters of the lab share the machine's files
SECONDS = 120  # for a pod on a busy node
PROGRAM = """
import json, os, ssl, urllib.request
import ray

@ray.remote(num_cpus=1)
def look():
    return {"models": open("/models/weights").read(), "results": written("/results/out"), "node": written("/node/out"),
            "models_written": written("/models/out"), "account": account()}

def written(path):
    try:
        with open(path, "w") as file:
            file.write("written by a worker")
        return 0
    except OSError as error:
        return error.errno

def account():
    folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
    server = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
    headers = {"Authorization": "Bearer " + open(folder + "token").read(), "Content-Type": "application/json"}
    review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
    request = urllib.request.Request(server + "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, headers)
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder + "ca.crt")) as answer:
        return json.load(answer)["status"]["userInfo"]["username"]

ray.init(logging_level="ERROR")
looks = {zone: look.options(label_selector={"ray.io/availability-zone": zone}).remote() for zone in ("east", "west")}
print("LOOKED " + json.dumps({zone: ray.get(task, timeout=240) for zone, task in looks.items()}), flush=True)
"""


@pytest.fixture
def furnished(fleet: Clusters) -> Iterator[Clusters]:
    """The account in all clusters; in each worker cluster its own volumes with a file, and the names of all of it."""
    with ExitStack() as stack:
        stack.enter_context(_account(fleet.manager, ACCOUNT))
        for worker in fleet.workers.values():
            stack.enter_context(_account(worker, THERE))
            stack.enter_context(_folders(worker))
            for claim in VOLUMES:
                stack.enter_context(_claim(worker, claim))
        stack.enter_context(mapped(fleet, {name: _names(name) for name in fleet.workers}))
        yield fleet


def test_workers_use_the_account_the_claims_and_the_host_path_of_their_cluster(furnished: Clusters, pair: Job) -> None:
    pair.submit(PROGRAM, _use_names)
    looked = pair.said("LOOKED")
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    assert looked == {name: _expected(name) for name in furnished.workers}
    for worker in furnished.workers.values():
        assert _on_node(worker, f"cat {_folder(worker, 'results')}/out") == "written by a worker"


def _expected(name: str) -> dict[str, Any]:
    return {
        "models": f"weights of {name}",
        "models_written": errno.EROFS,
        "results": 0,
        "node": errno.EROFS,
        "account": f"system:serviceaccount:{NAMESPACE}:{THERE}",
    }


def _use_names(cluster: Raw) -> None:
    """Let workers run as the account, with both claims and a path of the node, which asks for no read-only mount."""
    spec = cluster["workerGroupSpecs"][0]["template"]["spec"]
    spec["serviceAccountName"] = ACCOUNT
    spec["volumes"] = [
        *({"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in VOLUMES),
        {"name": "node", "hostPath": {"path": f"{PREFIX}/data", "type": "Directory"}},
    ]
    spec["containers"][0]["volumeMounts"] = [
        {"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in spec["volumes"]
    ]


def _folder(cluster: Cluster, claim: str) -> str:
    return f"{PREFIX}/{cluster.name}/{claim}"


@contextmanager
def _folders(worker: Cluster) -> Iterator[None]:
    """The folders of volumes on the node of a worker cluster, which any user may write to."""
    folders = " ".join([f"{PREFIX}/data", *(_folder(worker, claim) for claim in VOLUMES)])
    try:
        _on_node(worker, f"mkdir -p {folders} && chmod 777 {folders}")
        _on_node(worker, f"printf 'weights of {worker.name}' >{_folder(worker, 'models')}/weights")
        yield
    finally:
        _on_node(worker, f"rm -rf {PREFIX}")


def _on_node(worker: Cluster, command: str) -> str:
    """The output of a shell command on the node of a worker cluster, in a pod with the node's /tmp."""
    name = "rayspan-e2e-node"
    image = next(yaml.safe_load_all(SAMPLE.read_text()))["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    container = {
        "name": "shell",
        "image": image["containers"][0]["image"],
        "command": ["sh", "-c", command],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    volumes = [{"name": "tmp", "hostPath": {"path": "/tmp"}}]
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    metadata = {"name": name, "namespace": NAMESPACE}
    worker.delete("pod", name, NAMESPACE)
    worker.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    try:
        ended = ("Succeeded", "Failed")
        worker.wait(lambda: worker.get("pods", name)["status"].get("phase") in ended, SECONDS, f"`{command}` ended")
        output = worker.log(name)
        assert worker.get("pods", name)["status"]["phase"] == "Succeeded", output
        return output
    finally:
        worker.delete("pod", name, NAMESPACE, wait=False)


@contextmanager
def _account(cluster: Cluster, name: str) -> Iterator[None]:
    metadata = {"name": name, "namespace": NAMESPACE}
    cluster.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
    try:
        yield
    finally:
        cluster.delete("serviceaccount", name, NAMESPACE)


@contextmanager
def _claim(worker: Cluster, claim: str) -> Iterator[None]:
    """A claim that is bound to a folder of the node, under the name that it has in this cluster."""
    name, volume = f"{worker.name}-{claim}", f"rayspan-e2e-{claim}"
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    source = {"path": _folder(worker, claim), "type": "Directory"}
    spec = {"capacity": size, "accessModes": modes, "storageClassName": "", "hostPath": source}
    request = {"accessModes": modes, "storageClassName": "", "volumeName": volume, "resources": {"requests": size}}
    about = {"name": name, "namespace": NAMESPACE}
    objects = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": request},
    ]
    try:
        worker.apply(yaml.safe_dump_all(objects))
        worker.wait(lambda: _phase(worker, name) == "Bound", SECONDS, f"the claim {name} is bound")
        yield
    finally:
        worker.delete("persistentvolumeclaim", name, NAMESPACE)
        worker.delete("persistentvolume", volume)


def _phase(worker: Cluster, claim: str) -> str:
    return str((worker.get("persistentvolumeclaims", claim).get("status") or {}).get("phase"))


def _names(name: str) -> Raw:
    """What a WorkerCluster names: the account, the claims, and a prefix of host paths, read-only by default."""
    scope = {"namespaces": [NAMESPACE]}
    claims = [
        {"name": claim, "as": f"{name}-{claim}", "readOnly": read_only, **scope} for claim, read_only in VOLUMES.items()
    ]
    return {
        "serviceAccounts": [{"name": ACCOUNT, "as": THERE, **scope}],
        "persistentVolumeClaims": claims,
        "hostPaths": [{"prefix": PREFIX, **scope}],
    }
