"""Tests that a RayService grows from no worker by its requests, through an upgrade, and gives all quota back."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import quotas, rayservice
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import NAMESPACE, QUEUE
from hack.testbed.rayservice import SECONDS, RayService
from hack.testbed.reader import Raw

pytestmark = pytest.mark.long

NAME = "rayservice-elastic"
SAMPLE = REPO / "manifests" / "samples" / f"{NAME}.yaml"
_HEAD_AND_TWO_WORKERS = {"cpu": "700m"}  # of the sample: 300m with the autoscaler, and 200m each


@pytest.fixture(scope="module")
def dispatched(fleet: Clusters) -> Iterator[Clusters]:
    with rayservice.dispatched(fleet):
        yield fleet


@pytest.fixture
def service(dispatched: Clusters) -> Iterator[RayService]:
    elastic_sample = RayService(dispatched, NAME)
    try:
        dispatched.manager.apply(SAMPLE.read_text())
        elastic_sample.wait_until_ready()
        yield elastic_sample
    finally:
        elastic_sample.delete()


def test_a_service_grows_by_its_requests_and_back_to_no_worker(service: RayService) -> None:
    (cluster,) = service.ray_clusters()
    assert _workers(service) == [], "no request, no worker"
    with rayservice.loaded(service, "one", 1) as load:
        load.wait("the first worker answers", lambda answers: len(_pods(answers)) == 1)
    with rayservice.loaded(service, "load", 6) as load:
        load.wait("two workers answer", lambda answers: len(_pods(answers)) == 2)
        assert len(_workers(service)) == 2
        assert _slots(service.fleet) == 2, "each worker has quota of its own in a worker cluster"
        assert not load.failed()
    _wait_until_idle(service)
    assert [same["metadata"]["uid"] for same in service.ray_clusters()] == [cluster["metadata"]["uid"]]


@pytest.mark.timeout(5 * SECONDS)
def test_a_service_that_is_upgraded_while_it_grows_loses_no_request_and_no_quota(service: RayService) -> None:
    """The older RayCluster grows while the next one waits for quota, which then grows beside it; the older one goes."""
    (old,) = _names(service)
    idle = _reserved(service.fleet)
    with rayservice.loaded(service, "load", 3) as load:
        with quotas.given(service.fleet.manager, _HEAD_AND_TWO_WORKERS):
            load.wait("the first worker answers", lambda answers: bool(_pods(answers)))
            _upgrade(service)
            wait(lambda: len(_names(service)) == 2, SECONDS, "there is a second RayCluster", service.dump)
            new = _names(service)[-1]
            load.wait("two workers of the old release answer", lambda answers: _answering(answers, old) == 2)
            assert service.ray_clusters()[-1]["spec"]["suspend"] is True, "its head has no quota"
        load.wait("two workers of the new one answer", lambda answers: _answering(answers, new) == 2, 2 * SECONDS)
        wait(lambda: _names(service) == [new], SECONDS, "the old RayCluster is deleted", service.dump)
        wait(lambda: _slots(service.fleet) == 2, 120, "the quota of its workers is given back", service.dump)
        count = len(load.answers())
        load.wait("it answers on", lambda answers: len(answers) > count + 10)
        assert _answering(load.answers()[count:], old) == 0
        assert not load.failed()
    _wait_until_idle(service)
    wait(lambda: _reserved(service.fleet) == idle, 60, "the manager counts one head as before", service.dump)


def _upgrade(service: RayService) -> None:
    """`kubectl apply` the sample with another environment, which makes a second RayCluster."""
    raw, code = yaml.safe_load_all(SAMPLE.read_text())
    raw["spec"]["rayClusterDeletionDelaySeconds"] = 20  # sooner than the default minute
    cluster = raw["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        group["template"]["spec"]["containers"][0]["env"].append({"name": "RELEASE", "value": "two"})
    service.fleet.manager.apply(yaml.safe_dump_all([code, raw]))


def _wait_until_idle(service: RayService) -> None:
    wait(lambda: not _workers(service), SECONDS, "no worker is left", service.dump)
    wait(lambda: _slots(service.fleet) == 0, 60, "all quota is given back", service.dump)


def _names(service: RayService) -> list[str]:
    return [cluster["metadata"]["name"] for cluster in service.ray_clusters()]


def _workers(service: RayService) -> list[Raw]:
    return service.fleet.manager.items("pods", NAMESPACE, f"{names.RAY_NODE_TYPE_LABEL}=worker")


def _pods(answers: list[dict[str, Any]]) -> set[str]:
    return {answer["pod"] for answer in answers if "pod" in answer}


def _answering(answers: list[dict[str, Any]], ray_cluster: str) -> int:
    """The number of workers of a RayCluster that answered."""
    return len([pod for pod in _pods(answers) if pod.startswith(f"{ray_cluster}-")])


def _slots(fleet: Clusters) -> int:
    """The number of workers with quota in the worker clusters."""
    of_ours = names.MANAGER_LABEL
    shares = [share for cluster in fleet.workers.values() for share in cluster.items("workloads", NAMESPACE, of_ours)]
    return sum(podset["count"] for share in shares for podset in share["spec"]["podSets"])


def _reserved(fleet: Clusters) -> dict[str, str]:
    """What the manager's queue has reserved of each resource."""
    (flavor,) = fleet.manager.get("clusterqueues", QUEUE)["status"]["flavorsReservation"]
    return {each["name"]: each["total"] for each in flavor["resources"]}
