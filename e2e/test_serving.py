"""Does a RayService answer from several worker clusters, and go on while its next release gets a gang of its own, or does not?

Its RayClusters are the jobs: Kueue's integration of RayServices is out, and KubeRay is held by kustomize/components/rayservice. All
requests come in by the Service of the RayService in the manager, and through the head's proxy.
"""

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest

from adapter import names
from hack.testbed import quotas, rayservice
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.rayservice import SECONDS, RayService

# What KubeRay and Kueue do with its RayClusters, without Ray: tests/integration/test_serving.py.
pytestmark = pytest.mark.long

EVERYWHERE = {"east", "west"}
_ROOM_FOR_ONE = {"cpu": "200m"}  # worker of the sample


@pytest.fixture(scope="module")
def service(fleet: Clusters) -> Iterator[RayService]:
    """The sample with a replica in each worker cluster, for all tests: to start Serve takes a minute."""
    with rayservice.dispatched(fleet):
        made = RayService(fleet, "e2e-serving")
        try:
            made.apply("one")
            made.wait_until_ready()
            yield made
        finally:
            made.delete()


def test_it_answers_from_every_worker_cluster(service: RayService) -> None:
    with rayservice.asked(service) as asker:
        asker.wait("both replicas answer", lambda said: {one.get("zone") for one in said[-20:]} >= EVERYWHERE)
        assert not [one for one in asker.answers() if one.get("zone") == "manager"], "the head has no replica"
    (cluster,) = service.ray_clusters()
    assert cluster["spec"]["suspend"] is False
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert names.PLACEMENT_LABEL in group["template"]["metadata"]["labels"], "KubeRay has left what Kueue wrote"
    placed = [text for reason, text in service.events() if reason == "Placed"]
    assert placed and cluster["metadata"]["name"] in placed[0], "the RayService says where its workers are"


def test_the_same_manifest_again_changes_nothing(service: RayService) -> None:
    before = _standing(service)
    service.apply("one")
    with rayservice.asked(service) as asker:
        asker.wait("it answers for ten seconds", lambda said: len(said) >= 50)
        assert not asker.failed()
    assert _standing(service) == before


def _standing(service: RayService) -> list[tuple[str, int]]:
    """Who is there, by uid, and how often its spec was written: RayClusters, and their pods in the manager. (The RayService's own spec
    kubectl does write: KubeRay puts in defaults, which the manifest has not.)"""
    pods = service.fleet.manager.items("pods", NAMESPACE, names.RAY_NODE_TYPE_LABEL)
    there = (one["metadata"] for one in [*service.ray_clusters(), *pods])
    return sorted((one["uid"], one.get("generation", 0)) for one in there)


def test_requests_go_straight_to_the_workers_without_the_head(service: RayService) -> None:
    """Without the slices the Service would have nobody left."""
    with rayservice.led_straight(service.fleet.manager), rayservice.asked(service) as asker:
        wait(lambda: len(service.led("==")) == 2, 90, "both workers are endpoints", service.dump)
        try:
            _head_serves(service, False)
            wait(lambda: not service.led("!="), 90, "the head is none any more", service.dump)
            count = len(asker.answers())
            asker.wait("it answers for ten seconds more", lambda said: len(said) >= count + 50)
            assert not [one for one in asker.answers()[count:] if one["code"] != 200]
            assert {one.get("zone") for one in asker.answers()[count:]} >= EVERYWHERE
        finally:
            _head_serves(service, True)
            wait(lambda: service.led("!="), 90, "the head serves again", service.dump)


def _head_serves(service: RayService, serves: bool) -> None:
    patch = json.dumps({"spec": {"excludeHeadPodFromServeSvc": not serves}})
    service.fleet.manager.kubectl("patch", "rayservice", service.name, "--type=merge", "-p", patch)


def test_an_upgrade_is_a_second_gang_that_waits_for_quota_and_costs_no_request(service: RayService) -> None:
    west, old = service.fleet.workers["west"], service.ray_clusters()[-1]["metadata"]["name"]
    with rayservice.asked(service) as asker:
        asker.wait("it answers", lambda said: len(said) > 5)
        with quotas.given(west, _ROOM_FOR_ONE):
            service.apply("two")
            wait(lambda: len(service.ray_clusters()) == 2, SECONDS, "there is a second RayCluster", service.dump)
            waiting = service.ray_clusters()[-1]["metadata"]["name"]
            wait(lambda: _says(service, "Waiting", waiting, "west"), 120, "the service says why", service.dump)
            count = len(asker.answers())
            asker.wait("it answers for ten seconds more", lambda said: len(said) >= count + 50)
            assert {one.get("release") for one in asker.answers()} == {"one"}
            assert service.ray_clusters()[-1]["spec"]["suspend"] is True, "KubeRay does not start what waits"
        asker.wait("with room the new release answers", lambda said: said[-1].get("release") == "two")
        wait(lambda: len(service.ray_clusters()) == 1, SECONDS, "the old one is gone", service.dump)
        asker.wait("both new replicas answer", lambda said: {one.get("zone") for one in said[-20:]} >= EVERYWHERE, 60)
        assert not asker.failed()
        releases = [one["release"] for one in asker.answers()]
        assert sum(one != other for one, other in pairwise(releases)) == 1, "no request went back to the old one"
    assert service.ray_clusters()[0]["metadata"]["name"] != old


def _says(service: RayService, reason: str, *parts: str) -> bool:
    return any(found == reason and all(part in text for part in parts) for found, text in service.events())
