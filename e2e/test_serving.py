"""Tests that a RayService answers from several worker clusters, and through upgrades with a gang of their own.

Its RayClusters are the jobs: Kueue's RayService integration is off, and kustomize/components/rayservice makes KubeRay
wait. All requests use the Service of the RayService in the manager, and the head's proxy.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from adapter import names
from hack.testbed import quotas, rayservice
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.rayservice import SECONDS, RayService

# Its RayClusters in KubeRay and Kueue, without Ray: tests/integration/test_serving.py.
pytestmark = pytest.mark.long

EVERYWHERE = {"east", "west"}
_ONE_WORKER_QUOTA = {"cpu": "200m"}  # of the sample


@pytest.fixture(scope="module")
def service(fleet: Clusters) -> Iterator[RayService]:
    """The sample with a replica in each worker cluster. All tests share it, as starting Serve takes a minute."""
    with rayservice.started(fleet, "e2e-serving", lambda sample: sample.apply("one")) as rayservice_sample:
        yield rayservice_sample


def test_a_rayservice_answers_from_every_worker_cluster(service: RayService) -> None:
    with rayservice.asked(service) as asker:
        asker.wait("both replicas answer", lambda answers: _zones(answers[-20:]) >= EVERYWHERE)
        assert not [answer for answer in asker.answers() if answer.get("zone") == "manager"], "the head has no replica"
    (cluster,) = service.ray_clusters()
    assert cluster["spec"]["suspend"] is False
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert names.PLACEMENT_LABEL in group["template"]["metadata"]["labels"], (
            "KubeRay removed the label that Kueue set"
        )
    placed = [text for reason, text in service.events() if reason == "Placed"]
    assert placed and cluster["metadata"]["name"] in placed[0], "the RayService says where its workers are"


def test_applying_an_unchanged_manifest_changes_nothing(service: RayService) -> None:
    before = _generations(service)
    service.apply("one")
    with rayservice.asked(service) as asker:
        asker.wait("it answers for ten seconds", lambda answers: len(answers) >= 50)
        assert not asker.failed()
    assert _generations(service) == before


def _generations(service: RayService) -> list[tuple[str, int]]:
    """Uid and generation of the RayClusters and their pods in the manager.

    kubectl does change the RayService's spec: KubeRay adds defaults that the manifest lacks.
    """
    pods = service.fleet.manager.items("pods", NAMESPACE, names.RAY_NODE_TYPE_LABEL)
    objects = (item["metadata"] for item in [*service.ray_clusters(), *pods])
    return sorted((meta["uid"], meta.get("generation", 0)) for meta in objects)


def test_requests_reach_the_workers_without_the_head(service: RayService) -> None:
    """Without the EndpointSlices of the workers the Service would have no endpoint."""
    with rayservice.led_straight(service.fleet.manager), rayservice.asked(service) as asker:
        wait(lambda: len(service.led("==")) == 2, 90, "both workers are endpoints", service.dump)
        try:
            _let_head_serve(service, False)
            wait(lambda: not service.led("!="), 90, "the head is no endpoint any more", service.dump)
            count = len(asker.answers())
            asker.wait("it answers for ten seconds more", lambda answers: len(answers) >= count + 50)
            assert not [answer for answer in asker.answers()[count:] if answer["code"] != 200]
            assert _zones(asker.answers()[count:]) >= EVERYWHERE
        finally:
            _let_head_serve(service, True)
            wait(lambda: service.led("!="), 90, "the head serves again", service.dump)


def _zones(answers: list[dict[str, Any]]) -> set[str | None]:
    return {answer.get("zone") for answer in answers}


def _let_head_serve(service: RayService, serves: bool) -> None:
    patch = json.dumps({"spec": {"excludeHeadPodFromServeSvc": not serves}})
    service.fleet.manager.kubectl("patch", "rayservice", service.name, "--type=merge", "-p", patch)


def test_an_upgrade_is_a_second_gang_that_waits_for_quota_and_costs_no_request(service: RayService) -> None:
    west, old = service.fleet.workers["west"], service.ray_clusters()[-1]["metadata"]["name"]
    with rayservice.asked(service) as asker:
        asker.wait("it answers", lambda answers: len(answers) > 5)
        with quotas.given(west, _ONE_WORKER_QUOTA):
            service.apply("two")
            wait(lambda: len(service.ray_clusters()) == 2, SECONDS, "there is a second RayCluster", service.dump)
            waiting = service.ray_clusters()[-1]["metadata"]["name"]
            wait(lambda: _has_event(service, "Waiting", waiting, "west"), 120, "the service says why", service.dump)
            count = len(asker.answers())
            asker.wait("it answers for ten seconds more", lambda answers: len(answers) >= count + 50)
            assert {answer.get("release") for answer in asker.answers()} == {"one"}
            assert service.ray_clusters()[-1]["spec"]["suspend"] is True, "KubeRay does not start a waiting RayCluster"
        asker.wait("with capacity the new release answers", lambda answers: answers[-1].get("release") == "two")
        wait(lambda: len(service.ray_clusters()) == 1, SECONDS, "the old RayCluster is deleted", service.dump)
        asker.wait("both new replicas answer", lambda answers: _zones(answers[-20:]) >= EVERYWHERE, 60)
        assert not asker.failed()
        releases = [answer["release"] for answer in asker.answers()]
        assert sum(earlier != later for earlier, later in pairwise(releases)) == 1, (
            "a request went back to the old release"
        )
    assert service.ray_clusters()[0]["metadata"]["name"] != old


def _has_event(service: RayService, reason: str, *parts: str) -> bool:
    return any(code == reason and all(part in text for part in parts) for code, text in service.events())
