"""Requests go straight to remote workers where an admin allowed it, and nowhere else. Stock API servers, without Ray.

The Service belongs to a RayCluster, made here as KubeRay makes it: KubeRay makes a RayService's only when Serve runs.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Cluster, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, added

pytestmark = [pytest.mark.alone, pytest.mark.long]  # a role comes and goes

CONTROLLER = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.CONTROLLER_ACCOUNT}"
JOB, SERVICE = "chat", "chat-serve-svc"
SLICE = f"{SERVICE}-rayspan-ipv4"


@pytest.fixture
def served(stage: Stage, running: Controller) -> Iterator[Stage]:
    """A RayCluster with a worker in each worker cluster, and its Service; nobody has the right to its endpoints yet."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster(JOB, workers=2)
    wait(lambda: stage.running(2), 90, "both workers run", running.tail)
    assert {name: len(pods) for name, pods in stage.remote().items()} == {"east": 1, "west": 1}
    stage.manager.apply(yaml.safe_dump(_service(stage)))
    yield stage


def test_requests_go_straight_while_the_right_is_there(served: Stage, running: Controller) -> None:
    manager = served.manager
    assert _slices(served) == []
    with added(manager, names.SERVING_POLICY.removeprefix("rayspan-")):
        wait(lambda: _addresses(served) == _mirrored(served), 60, "a slice with both workers", running.tail)
        (found,) = _slices(served)
        assert found["ports"] == [{"name": "serve", "protocol": "TCP", "port": 8000}]
        for one in found["endpoints"]:
            assert one["conditions"] == {"ready": True, "serving": True, "terminating": False}
            assert set(one) == {"addresses", "conditions", "targetRef"}

        # Somebody else's hand in it is taken out again, and then it stands still.
        path = json.dumps({"ports": [], "metadata": {"labels": {"of": "somebody"}}})
        manager.kubectl("-n", served.name, "patch", "endpointslice", SLICE, "--type=merge", "-p", path)
        wait(lambda: _slices(served)[0].get("ports") == found["ports"], 30, "it is put right", running.tail)
        stands = _slices(served)[0]["metadata"]["resourceVersion"]
        manager.kubectl("-n", served.name, "annotate", "service", SERVICE, "touched=1")
        _bounds_hold(manager, _slices(served)[0])
        assert _slices(served)[0]["metadata"]["resourceVersion"] == stands

        # One whose copy goes is no endpoint before its address can be somebody else's.
        (gone,) = served.remote()["east"]
        served.fleet.workers["east"].delete("pod", gone["metadata"]["name"], served.name, wait=False)
        wait(lambda: gone["status"]["podIP"] not in _ready(served), 30, "it gets no request", running.tail)
        wait(lambda: len(_ready(served)) == 2, 90, "KubeRay's next one does", running.tail)

        manager.delete("service", SERVICE, served.name)
        wait(lambda: _slices(served) == [], 60, "the slice goes with its Service", running.tail)


def _bounds_hold(manager: Cluster, found: Raw) -> None:
    """The account may create such a slice again under the same name, and no other; each attempt is a dry run."""
    meant = {**found, "apiVersion": names.DISCOVERY_API_VERSION, "kind": "EndpointSlice"}
    meant["metadata"] = {key: found["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
    another = {**meant["metadata"], "name": "other-rayspan-ipv4"}
    another["labels"] = {**another["labels"], names.SERVICE_NAME_LABEL: "other"}
    another["ownerReferences"] = [{**another["ownerReferences"][0], "name": "other"}]
    meant["metadata"] = another
    _create(manager, meant)
    oddities: tuple[tuple[str, tuple[str | int, ...], object], ...] = (
        ("managed-by", ("metadata", "labels", names.SLICE_MANAGED_BY_LABEL), "somebody"),
        ("must be the name of its Service", ("metadata", "name"), "other"),
        ("must be the name of its Service", ("metadata", "labels", names.SERVICE_NAME_LABEL), "kubernetes"),
        ("must be owned by its Service", ("metadata", "ownerReferences"), []),
        ("must be a Pod of the same namespace", ("endpoints", 0, "targetRef", "namespace"), "default"),
        ("must be a Pod of the same namespace", ("endpoints", 0, "targetRef", "kind"), "Node"),
        ("must be a Pod of the same namespace", ("endpoints", 0, "nodeName"), "node"),
    )
    for words, path, value in oddities:
        odd = copy.deepcopy(meant)
        holder: Any = odd
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value
        with pytest.raises(LabError, match=words):
            _create(manager, odd)
    namespace = found["metadata"]["namespace"]
    for theirs in manager.items(
        "endpointslices", namespace, f"{names.SLICE_MANAGED_BY_LABEL}!={names.SERVING_SLICES_MANAGER}"
    ):
        name = theirs["metadata"]["name"]
        raw = f"/apis/{names.DISCOVERY_API_VERSION}/namespaces/{namespace}/endpointslices/{name}?dryRun=All"
        with pytest.raises(LabError, match="Rayspan may not change it"):
            manager.kubectl("delete", "--raw", raw, f"--as={CONTROLLER}")


def _create(manager: Cluster, body: Raw) -> None:
    words = ("create", "-f", "-", "--dry-run=server", f"--as={CONTROLLER}")
    manager.kubectl(*words, input=yaml.safe_dump(body))


def _service(stage: Stage) -> Raw:
    ray_cluster = stage.manager.get("rayclusters", JOB, stage.name)
    owner = {"apiVersion": names.RAY_API_VERSION, "kind": "RayCluster", "name": JOB, "controller": True}
    labels = {names.RAY_SERVE_LABEL: f"{JOB}-serve"}
    owners = [{**owner, "uid": ray_cluster["metadata"]["uid"]}]
    metadata = {"name": SERVICE, "namespace": stage.name, "labels": labels, "ownerReferences": owners}
    ports = [{"name": "serve", "port": 8000}]
    spec = {"selector": {names.RAY_GCS_CLUSTER_LABEL: JOB}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _slices(stage: Stage) -> list[Raw]:
    """Those of ours in the manager."""
    ours = f"{names.SLICE_MANAGED_BY_LABEL}={names.SERVING_SLICES_MANAGER}"
    return stage.manager.items("endpointslices", stage.name, ours)


def _addresses(stage: Stage) -> set[str]:
    return {address for one in _slices(stage) for each in one["endpoints"] or () for address in each["addresses"]}


def _ready(stage: Stage) -> set[str]:
    every = (each for one in _slices(stage) for each in one["endpoints"] or ())
    return {address for each in every if each["conditions"]["ready"] for address in each["addresses"]}


def _mirrored(stage: Stage) -> set[str]:
    return {pod["status"].get("podIP", "") for pod in stage.workers()}
