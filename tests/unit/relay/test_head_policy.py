"""The policy on heads has the words of `relay_pod.head_spec`.

That it makes the same: tests/integration/test_relay_head.py.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.relay import relay_pod
from adapter.relay.relay_network import RelayNetwork
from hack.lab.base.paths import REPO
from hack.release import overlays

NETWORK = RelayNetwork("abcde01234", "team-a")
IMAGE = "example.com/relay:1"
OBJECTS = list(yaml.safe_load_all((REPO / "kustomize/components/relay/head-policy.yaml").read_text()))
POLICY = next(raw for raw in OBJECTS if raw["kind"] == "MutatingAdmissionPolicy")
TEXT = yaml.safe_dump(POLICY, width=10000)


def _leaves(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (leaf for key, value in part.items() for leaf in (key, *_leaves(value)))
    elif isinstance(part, list):
        yield from (leaf for each in part for leaf in _leaves(each))
    elif isinstance(part, str):
        yield part


WORDS = sorted(
    word
    for word in {*_leaves(relay_pod.head_spec({"containers": [{"name": "ray"}]}, NETWORK, IMAGE))}
    if NETWORK.identity not in word and word not in (IMAGE, "ray", "containers", "true")
)


@pytest.mark.parametrize("word", WORDS)
def test_the_policy_has_each_word_of_the_code(word: str) -> None:
    assert f"'{word}'" in TEXT.replace("''", "'") or f"/{word}'" in TEXT.replace("''", "'")


def test_the_policies_select_heads_with_the_label() -> None:
    policies = [raw for raw in OBJECTS if raw["kind"].endswith("AdmissionPolicy")]
    assert [raw["metadata"]["name"] for raw in policies] == [names.RELAY_HEAD_POLICY] * 2
    for raw in policies:
        label, node_type = raw["spec"]["matchConstraints"]["objectSelector"]["matchExpressions"]
        assert label == {"key": names.RELAY_LABEL, "operator": "Exists"}
        assert node_type == {"key": "ray.io/node-type", "operator": "In", "values": ["head"]}
        (rule,) = raw["spec"]["matchConstraints"]["resourceRules"]
        assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
        assert raw["spec"]["failurePolicy"] == "Fail"


def test_a_release_replaces_the_image_in_the_policy() -> None:
    image = "registry.example/own/rayspan:v1"
    released = yaml.safe_dump(overlays.objects(overlays.RELAY, image), width=10000)
    assert overlays.RELAY_DEVELOPED in TEXT and overlays.RELAY_DEVELOPED not in released
    (policy,) = (raw for raw in overlays.objects(overlays.RELAY, image) if raw["kind"] == POLICY["kind"])
    variable = policy["spec"]["variables"][0]
    assert variable == {
        "name": "image",
        "expression": f"'{overlays.relay_repository('registry.example/own/rayspan')}:v1'",
    }
