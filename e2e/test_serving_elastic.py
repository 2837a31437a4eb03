"""Test that a RayService grows from no worker by its requests, over worker clusters, and gives all quota back."""

import json
from collections.abc import Iterator

import pytest

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import rayservice
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.rayservice import SECONDS, RayService
from hack.testbed.reader import Raw

pytestmark = pytest.mark.long

NAME = "rayservice-elastic"
SAMPLE = REPO / "manifests" / "samples" / f"{NAME}.yaml"
# Several requests at a time, which wait for a worker; one line for each answer.
_LOAD = """
import json, os, sys, threading, time, urllib.request
def tell(line):
    os.write(1, (line + "\\n").encode())  # in one write, as there are several threads
def ask():
    while True:
        try:
            with urllib.request.urlopen(sys.argv[1], timeout=300) as answer:
                tell(json.dumps(json.load(answer)))
        except Exception as error:
            tell("failed: " + repr(error))
            time.sleep(1)
threads = [threading.Thread(target=ask) for _ in range(int(sys.argv[2]))]
[thread.start() for thread in threads]
"""


@pytest.fixture
def service(fleet: Clusters) -> Iterator[RayService]:
    with rayservice.dispatched(fleet):
        elastic_sample = RayService(fleet, NAME)
        try:
            fleet.manager.apply(SAMPLE.read_text())
            elastic_sample.wait_until_ready()
            yield elastic_sample
        finally:
            elastic_sample.delete()


def test_a_service_grows_by_its_requests_and_back_to_no_worker(service: RayService) -> None:
    (cluster,) = service.ray_clusters()
    assert _workers(service) == [], "no request, no worker"
    with rayservice.running(service, "one", _LOAD, "1") as load:
        wait(lambda: len(_pods_that_answer(service, load)) == 1, SECONDS, "the first worker answers", service.dump)
    with rayservice.running(service, "load", _LOAD, "6") as load:
        wait(lambda: len(_pods_that_answer(service, load)) == 2, SECONDS, "two workers answer", service.dump)
        assert len(_workers(service)) == 2
        assert _slots(service.fleet) == 2, "each worker has quota of its own in a worker cluster"
        assert "failed" not in service.fleet.manager.log(load)
    wait(lambda: not _workers(service), SECONDS, "no worker is left", service.dump)
    wait(lambda: _slots(service.fleet) == 0, 60, "all quota is given back", service.dump)
    assert [same["metadata"]["uid"] for same in service.ray_clusters()] == [cluster["metadata"]["uid"]]


def _workers(service: RayService) -> list[Raw]:
    return service.fleet.manager.items("pods", NAMESPACE, f"{names.RAY_NODE_TYPE_LABEL}=worker")


def _pods_that_answer(service: RayService, load: str) -> set[str]:
    lines = service.fleet.manager.log(load).splitlines()
    return {json.loads(line)["pod"] for line in lines if line.startswith("{")}


def _slots(fleet: Clusters) -> int:
    """The number of workers with quota in the worker clusters."""
    of_ours = names.MANAGER_LABEL
    shares = [share for cluster in fleet.workers.values() for share in cluster.items("workloads", NAMESPACE, of_ours)]
    return sum(podset["count"] for share in shares for podset in share["spec"]["podSets"])
