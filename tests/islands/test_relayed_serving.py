"""Tests that a RayService over islands answers from every worker cluster, by the head's proxy alone."""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed import rayservice, rayspec
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayservice import RayService

pytestmark = pytest.mark.long  # in a network with routes: e2e/test_serving.py

EVERYWHERE = {"east", "west"}


@pytest.fixture(scope="module")
def service(relayed: Clusters) -> Iterator[RayService]:
    def apply(sample: RayService) -> None:
        sample.apply("one", rayspec.beside_sidecars)

    with rayservice.started(relayed, "relayed-serving", apply) as relayed_sample:
        yield relayed_sample


def test_a_rayservice_answers_from_every_island(service: RayService) -> None:
    with rayservice.asked(service) as asker:
        asker.wait("both replicas answer", lambda answers: {each.get("zone") for each in answers[-20:]} >= EVERYWHERE)


def test_no_request_is_led_to_an_address_of_a_relayed_worker(service: RayService) -> None:
    """That address may be another pod's in the manager. The head's proxy goes on."""
    with rayservice.led_straight(service.fleet.manager), rayservice.asked(service) as asker:
        wait(lambda: _omission(service), 90, "the service says that workers are left out", service.dump)
        assert "leads no requests straight to workers in east, west, which" in _omission(service)
        assert not service.led("=="), "we lead no requests"
        count = len(asker.answers())
        asker.wait("it answers for ten seconds more", lambda answers: len(answers) >= count + 50)
        assert not [answer for answer in asker.answers()[count:] if answer["code"] != 200]


def _omission(service: RayService) -> str:
    return dict(service.events()).get(names.EventReason.REQUESTS_VIA_HEAD, "")
