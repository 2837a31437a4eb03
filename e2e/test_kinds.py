"""Do the kinds of workers that people write span the clusters: with sidecars, with GPUs, with a start command of their own, and of
two groups with different images, in a RayCluster without a job?

Seen from inside Ray, and each kind in both ways in which a head is found without anybody's help: by its address in one worker
cluster, by a mirror in the other. The GPUs are pretended (`hack.lab.cluster.node`), so Ray counts them and nothing computes on them. The
second image is the first one under a name that only the worker clusters' `spec.pods.imageRegistries` lead to what is there.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.cluster.node import GPU
from hack.testbed import quotas
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import found_by
from hack.testbed.workerkinds import NAME, OTHER_IMAGES, PROGRAM, raycluster

# What such pods become elsewhere: the golden pods of tests/unit/rewrite. What a cluster gives its pods: tests/integration/test_pods.py.
pytestmark = pytest.mark.long

PATIENCE = 180  # seconds; five Ray nodes take 40 on two idle cores
WAYS = {"east": "PodIP", "west": "ServiceMirror"}  # how each finds the head
EVERYWHERE = [(zone, group) for zone in WAYS for group in ("gpu", "plain")]


@pytest.fixture
def furnished(fleet: Clusters) -> Iterator[Clusters]:
    """Each worker cluster finds the head in its way, has room for one worker of each group, and images of another name."""
    with ExitStack() as stack:
        stack.enter_context(quotas.given(fleet.manager, {GPU: "2"}))
        for name, worker in fleet.workers.items():
            # 500m: one of each group, and not two of `plain`.
            stack.enter_context(quotas.given(worker, {"cpu": "500m", GPU: "1"}))
            stack.enter_context(_image_registries(fleet.manager, name))
        stack.enter_context(found_by(fleet, {name: {"address": way} for name, way in WAYS.items()}))
        yield fleet


@pytest.fixture
def cluster(furnished: Clusters) -> Iterator[Clusters]:
    """A RayCluster of two groups with two workers each, and with nothing of it left afterwards."""
    furnished.manager.apply(yaml.safe_dump(raycluster()))
    try:
        yield furnished
    finally:
        furnished.manager.delete("raycluster", NAME, wait=False)
        wait(lambda: not _left(furnished), 60, "nothing of it is left", lambda: str(_left(furnished)))


def test_every_kind_of_worker_spans_the_clusters(cluster: Clusters) -> None:
    wait(lambda: len(_ready(cluster, "worker")) == 4 and _ready(cluster, names.HEAD), PATIENCE,
         "all run", lambda: cluster.manager.kubectl("get", "pods,placements", "-o", "wide"))  # fmt: skip
    workers = _ready(cluster, "worker")
    assert sorted(_place(pod) for pod in workers) == EVERYWHERE
    (head,) = _ready(cluster, names.HEAD)
    dialled = {"PodIP": head["status"]["podIP"], "ServiceMirror": f"{NAME}-head-svc.{NAMESPACE}.svc.cluster.local"}
    for name, way in WAYS.items():
        _ran_as_written(cluster.workers[name].items("pods", NAMESPACE, names.MANAGER_LABEL), name, dialled[way])
    _placed_by_ray(workers, _inside(cluster, head))
    table = cluster.manager.kubectl("get", "pods", "-L", names.CLUSTER_LABEL, "--no-headers", "-l", _of("worker"))
    assert sorted(line.split()[-1] for line in table.splitlines()) == ["east", "east", "west", "west"], table


def _ran_as_written(copies: list[Raw], name: str, dialled: str) -> None:
    """In one worker cluster: both sidecars run, each group has its image, and the head is called as its cluster says."""
    kinds = {pod["metadata"]["labels"][names.REMOTE_RAY_GROUP_LABEL]: pod for pod in copies}
    assert sorted(kinds) == ["gpu", "plain"] and len(copies) == 2, name
    sidecars = {
        each["name"]: each["ready"]
        for kind in ("initContainerStatuses", "containerStatuses")
        for each in kinds["plain"]["status"][kind]
        if each["name"].endswith("sidecar")
    }
    assert sidecars == {"native-sidecar": True, "sidecar": True}, name
    images = {group: pod["spec"]["containers"][0]["image"] for group, pod in kinds.items()}
    assert images["gpu"] == f"docker.io/{images['plain']}", name
    assert kinds["gpu"]["spec"]["containers"][0]["resources"]["limits"][GPU] == "1", name
    for pod in copies:
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert env["RAY_ADDRESS"] == f"{dialled}:6379", name


def _placed_by_ray(workers: list[Raw], seen: dict[str, Any]) -> None:
    """Ray's nodes are these pods, each in its zone, and what asked for a place ran there."""
    place = {pod["status"]["podIP"]: _place(pod) for pod in workers}
    nodes = [node for node in seen["nodes"] if "node:__internal_head__" not in node["Resources"]]
    assert {node["NodeManagerAddress"] for node in nodes} == set(place)
    at = {node["NodeID"]: place[node["NodeManagerAddress"]] for node in nodes}
    for node in nodes:
        zone, group = at[node["NodeID"]]
        assert (node["Labels"][names.RAY_ZONE_LABEL], node["Labels"][names.CLUSTER_LABEL]) == (zone, zone)
        assert [key for key in node["Resources"] if key.startswith("zone:")] == [f"zone:{zone}"]
        found = {key: node["Resources"].get(key) for key in ("GPU", "own-start")}
        assert found == ({"GPU": 1, "own-start": None} if group == "gpu" else {"GPU": None, "own-start": 1})
    ran = {what: at[node] for what, node in seen["ran"].items()}
    for zone in ("east", "west"):
        assert ran[f"label {zone}"][0] == ran[f"resource {zone}"][0] == zone, ran
        assert ran[f"bundle {zone}"] == (zone, "gpu"), ran
    assert (ran["gpu"][1], ran["own start"][1]) == ("gpu", "plain"), ran


def _inside(fleet: Clusters, head: Raw) -> dict[str, Any]:
    words = ("exec", head["metadata"]["name"], "-c", "ray-head", "--", "python", "-c", PROGRAM)
    said = fleet.manager.kubectl(*words).splitlines()  # Ray's own lines come between, and after
    found: dict[str, Any] = json.loads([line for line in said if line.startswith("{")][-1])
    return found


@contextmanager
def _image_registries(manager: Cluster, name: str) -> Iterator[None]:
    """Let the images of the registry that nobody has be those of the sample's, in one worker cluster."""
    before = manager.get("workerclusters", name)["spec"].get("pods", {})
    try:
        mapped = {**before, "imageRegistries": {OTHER_IMAGES: "docker.io/rayproject"}}
        _replace(manager, "workercluster", name, "/spec/pods", mapped)
        yield
    finally:
        _replace(manager, "workercluster", name, "/spec/pods", before)


def _replace(cluster: Cluster, kind: str, name: str, path: str, value: object) -> None:
    patch = json.dumps([{"op": "add", "path": path, "value": value}])  # adding replaces what is there
    cluster.kubectl("patch", kind, name, "--type=json", "-p", patch)


def _place(pod: Raw) -> tuple[str, str]:
    """The cluster and the group of a worker pod in the manager."""
    labels = pod["metadata"]["labels"]
    return labels[names.CLUSTER_LABEL], labels[names.RAY_GCS_GROUP_LABEL]


def _of(kind: str) -> str:
    return f"{names.RAY_NODE_TYPE_LABEL}={kind},{names.RAY_GCS_CLUSTER_LABEL}={NAME}"


def _ready(fleet: Clusters, kind: str) -> list[Raw]:
    pods = fleet.manager.items("pods", NAMESPACE, _of(kind))
    return [pod for pod in pods if condition(pod, "Ready").get("status") == "True"]


def _left(fleet: Clusters) -> list[str]:
    found = [
        pod["metadata"]["name"]
        for kind in ("worker", names.HEAD)
        for pod in fleet.manager.items("pods", NAMESPACE, _of(kind))
    ]
    for name, worker in fleet.workers.items():
        for kind in ("pods", "workloads", "configmaps", "services", "endpointslices"):
            found += [
                f"{name}: {kind} {one['metadata']['name']}"
                for one in worker.items(kind, NAMESPACE, names.MANAGER_LABEL)
            ]
    return found
