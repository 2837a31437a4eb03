"""Tests that workers with sidecars, GPUs, a start command of their own and other images span the clusters.

One RayCluster without a job has two groups with different images. East finds the head by its address, west by a
mirror: the two ways that need no DNS of an administrator. The GPUs are only declared (`hack.lab.cluster.node`), so Ray
counts them and nothing computes on them. The second image is the first one under a name that only
`spec.pods.imageRegistries` of the worker clusters maps to an existing image.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.cluster.node import GPU
from hack.testbed import quotas
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import found_by, mapped
from hack.testbed.workerkinds import NAME, OTHER_IMAGES, PROGRAM, raycluster

# Their remote pods: the golden pods of tests/unit/rewrite. What a cluster adds: tests/integration/test_pods.py.
pytestmark = pytest.mark.long

PATIENCE = 180  # seconds; five Ray nodes take 40 on two idle cores
ADDRESSES = {"east": "PodIP", "west": "ServiceMirror"}  # how each cluster finds the head
EVERYWHERE = [(zone, group) for zone in ADDRESSES for group in ("gpu", "plain")]


@pytest.fixture
def furnished(fleet: Clusters) -> Iterator[Clusters]:
    """Worker clusters with an address kind, capacity for one worker of each group, and mapped image names."""
    with ExitStack() as stack:
        stack.enter_context(quotas.given(fleet.manager, {GPU: "2"}))
        for worker in fleet.workers.values():
            # 500m: one of each group, and not two of `plain`.
            stack.enter_context(quotas.given(worker, {"cpu": "500m", GPU: "1"}))
        registries = {"imageRegistries": {OTHER_IMAGES: "docker.io/rayproject"}}
        stack.enter_context(mapped(fleet, dict.fromkeys(fleet.workers, registries)))
        stack.enter_context(
            found_by(fleet, {name: {"address": address_kind} for name, address_kind in ADDRESSES.items()})
        )
        yield fleet


@pytest.fixture
def cluster(furnished: Clusters) -> Iterator[Clusters]:
    """A RayCluster of two groups with two workers each, removed afterwards."""
    furnished.manager.apply(yaml.safe_dump(raycluster()))
    try:
        yield furnished
    finally:
        furnished.manager.delete("raycluster", NAME, wait=False)
        wait(lambda: not _leftovers(furnished), 60, "the RayCluster is removed", lambda: str(_leftovers(furnished)))


def test_every_kind_of_worker_spans_the_clusters(cluster: Clusters) -> None:
    wait(lambda: len(_ready(cluster, "worker")) == 4 and _ready(cluster, names.HEAD), PATIENCE,
         "all run", lambda: cluster.manager.kubectl("get", "pods,placements", "-o", "wide"))  # fmt: skip
    workers = _ready(cluster, "worker")
    assert sorted(_cluster_and_group(pod) for pod in workers) == EVERYWHERE
    (head,) = _ready(cluster, names.HEAD)
    dialled = {"PodIP": head["status"]["podIP"], "ServiceMirror": f"{NAME}-head-svc.{NAMESPACE}.svc.cluster.local"}
    for name, address_kind in ADDRESSES.items():
        _check_pods(cluster.workers[name].items("pods", NAMESPACE, names.MANAGER_LABEL), name, dialled[address_kind])
    _check_ray_nodes(workers, _run_program(cluster, head))
    table = cluster.manager.kubectl("get", "pods", "-L", names.CLUSTER_LABEL, "--no-headers", "-l", _selector("worker"))
    assert sorted(line.split()[-1] for line in table.splitlines()) == ["east", "east", "west", "west"], table


def _check_pods(remotes: list[Raw], name: str, dialled: str) -> None:
    """Check one worker cluster: both sidecars run, each group has its image, and workers dial the head at `dialled`."""
    kinds = {pod["metadata"]["labels"][names.REMOTE_RAY_GROUP_LABEL]: pod for pod in remotes}
    assert sorted(kinds) == ["gpu", "plain"] and len(remotes) == 2, name
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
    for pod in remotes:
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert env["RAY_ADDRESS"] == f"{dialled}:6379", name


def _check_ray_nodes(workers: list[Raw], report: dict[str, Any]) -> None:
    """Check that Ray's nodes are `workers`, each in its zone, and that tasks ran where they were pinned."""
    zone_and_group_by_address = {pod["status"]["podIP"]: _cluster_and_group(pod) for pod in workers}
    nodes = [node for node in report["nodes"] if "node:__internal_head__" not in node["Resources"]]
    assert {node["NodeManagerAddress"] for node in nodes} == set(zone_and_group_by_address)
    at = {node["NodeID"]: zone_and_group_by_address[node["NodeManagerAddress"]] for node in nodes}
    for node in nodes:
        zone, group = at[node["NodeID"]]
        assert (node["Labels"][names.RAY_ZONE_LABEL], node["Labels"][names.CLUSTER_LABEL]) == (zone, zone)
        assert [key for key in node["Resources"] if key.startswith("zone:")] == [f"zone:{zone}"]
        resources = {key: node["Resources"].get(key) for key in ("GPU", "own-start")}
        assert resources == ({"GPU": 1, "own-start": None} if group == "gpu" else {"GPU": None, "own-start": 1})
    ran = {task: at[node] for task, node in report["ran"].items()}
    for zone in ("east", "west"):
        assert ran[f"label {zone}"][0] == ran[f"resource {zone}"][0] == zone, ran
        assert ran[f"bundle {zone}"] == (zone, "gpu"), ran
    assert (ran["gpu"][1], ran["own start"][1]) == ("gpu", "plain"), ran


def _run_program(fleet: Clusters, head: Raw) -> dict[str, Any]:
    words = ("exec", head["metadata"]["name"], "-c", "ray-head", "--", "python", "-c", PROGRAM)
    lines = fleet.manager.kubectl(*words).splitlines()  # Ray prints lines of its own between and after
    report: dict[str, Any] = json.loads([line for line in lines if line.startswith("{")][-1])
    return report


def _cluster_and_group(pod: Raw) -> tuple[str, str]:
    """The cluster and the group of a worker pod in the manager."""
    labels = pod["metadata"]["labels"]
    return labels[names.CLUSTER_LABEL], labels[names.RAY_GCS_GROUP_LABEL]


def _selector(kind: str) -> str:
    return f"{names.RAY_NODE_TYPE_LABEL}={kind},{names.RAY_GCS_CLUSTER_LABEL}={NAME}"


def _ready(fleet: Clusters, kind: str) -> list[Raw]:
    pods = fleet.manager.items("pods", NAMESPACE, _selector(kind))
    return [pod for pod in pods if condition(pod, "Ready").get("status") == "True"]


def _leftovers(fleet: Clusters) -> list[str]:
    leftovers = [
        pod["metadata"]["name"]
        for kind in ("worker", names.HEAD)
        for pod in fleet.manager.items("pods", NAMESPACE, _selector(kind))
    ]
    for name, worker in fleet.workers.items():
        for kind in ("pods", "workloads", "configmaps", "services", "endpointslices"):
            leftovers += [
                f"{name}: {kind} {item['metadata']['name']}"
                for item in worker.items(kind, NAMESPACE, names.MANAGER_LABEL)
            ]
    return leftovers
