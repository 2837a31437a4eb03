"""A worker of a gang with a relayed network is created as a node of it."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.actions import Action, CreatePod, EmitEvent
from adapter.objects.specs import NetworkSpec
from adapter.objects.unstructured import RawDict as Raw
from adapter.relay.frp_config import RelayAddress
from adapter.relay.relay_network import RelayNetwork, identity_of
from adapter.worker.dispatch import decide
from adapter.worker.worker_facts import HeadFacts, Worker
from tests.unit.builders import NAMESPACE, START
from tests.unit.worker.test_dispatch import HEAD, SLOTTED, target, worker

IDENTITY = identity_of("uid-of-rayjob-train")
NETWORK = RelayNetwork(IDENTITY, NAMESPACE)
RELAYED = NetworkSpec(mode="Relay", address="relay.example.com:30443", image="registry.east/relay:1")
PREPARED = {"status": {"initContainerStatuses": [{"name": names.RELAY_SERVER}]}}


def _worker(network: NetworkSpec = RELAYED, head: Raw = PREPARED, relay: str = IDENTITY) -> Worker:
    plain = worker(SLOTTED, targets={"east": replace(target("east"), network=network)})
    owner = replace(plain.owner, relay=relay, relay_image="registry/relay:1")
    pod: Any = {"metadata": {"name": "train-head"}, **head}
    return replace(plain, owner=owner, head=HeadFacts(plain.head.address, pod, {}))


def _decide(facts: Worker) -> list[Action]:
    return list(decide(facts, START))


def _creation(facts: Worker) -> CreatePod:
    (creation,) = (action for action in _decide(facts) if isinstance(action, CreatePod))
    return creation


def test_a_worker_of_a_relayed_cluster_dials_the_routers() -> None:
    creation = _creation(_worker())
    assert creation.relay and creation.relay.address == RelayAddress("relay.example.com", 30443)
    assert (creation.relay.network, creation.relay.head_ip) == (NETWORK, HEAD)
    sidecar = creation.body["spec"]["initContainers"][0]
    assert (sidecar["name"], sidecar["image"]) == (names.RELAY_CLIENT, "registry.east/relay:1")
    assert creation.body["metadata"]["labels"][names.RELAY_LABEL] == IDENTITY
    annotations = creation.body["metadata"]["annotations"]
    assert names.HEAD_IP_ANNOTATION not in annotations, "its head's name stays"
    assert annotations[names.RELAY_ADDRESS_ANNOTATION] == "relay.example.com:30443"


def test_a_worker_of_a_flat_cluster_dials_the_head_and_is_replaced_when_the_head_moves() -> None:
    creation = _creation(_worker(NetworkSpec()))
    assert creation.relay and creation.relay.address == RelayAddress(HEAD, names.RELAY_SERVER_PORT)
    assert creation.body["spec"]["initContainers"][0]["image"] == "registry/relay:1"
    assert creation.body["metadata"]["annotations"][names.HEAD_IP_ANNOTATION] == HEAD


def test_no_worker_is_created_for_a_head_that_no_policy_prepared() -> None:
    (event,) = _decide(_worker(head={"status": {}}))
    assert isinstance(event, EmitEvent) and event.reason == names.EventReason.WORKER_FAILING
    assert f"has no container {names.RELAY_SERVER}" in event.message


def test_no_worker_is_created_for_a_head_of_another_key() -> None:
    facts = _worker()
    owner = replace(facts.owner, relay_key="aa", relay_key_problem="the key has changed; start the job again")
    (event,) = _decide(replace(facts, owner=owner))
    assert isinstance(event, EmitEvent) and event.reason == names.EventReason.RELAY_KEY_CHANGED
    assert event.message == "A worker for east is not created: the key has changed; start the job again."


def test_a_flat_cluster_has_an_image_of_its_own() -> None:
    """Its nodes may pull from another registry than those of the policy's relayed cluster."""
    creation = _creation(_worker(NetworkSpec(image="registry.west/relay:1")))
    assert creation.body["spec"]["initContainers"][0]["image"] == "registry.west/relay:1"


@pytest.mark.parametrize("network", [RELAYED, NetworkSpec()], ids=["relayed", "flat"])
def test_a_gang_without_a_relayed_network_gets_no_sidecar(network: NetworkSpec) -> None:
    creation = _creation(_worker(network, relay=""))
    assert creation.relay is None and "initContainers" not in creation.body["spec"]
