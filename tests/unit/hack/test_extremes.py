"""Jobs of a hostile tenant: reproducible by seed, extreme in every way, in the queue, and harmless for the lab."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from hack.testbed import extremes, sentence
from hack.testbed.stage import FAKE_NODE, QUEUE, TOLERATION
from tests.unit.rayschema import SCHEMAS, TEMPLATE

wide = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def drawn() -> list[Raw]:
    """Many jobs of one seed; a fixture, so that collecting the tests does not wait for them."""
    return extremes.drawn(SCHEMAS, 7, 300)


def scalars(found: Any) -> Iterator[Any]:
    if isinstance(found, dict):
        for key, value in found.items():
            yield key
            yield from scalars(value)
    elif isinstance(found, list):
        for value in found[:50]:
            yield from scalars(value)
    else:
        yield found


def lists(found: Any) -> Iterator[list[Any] | Raw]:
    if isinstance(found, list | dict):
        yield found
        for value in found.values() if isinstance(found, dict) else found[:50]:
            yield from lists(value)


def depth(found: Any) -> int:
    inner = found.values() if isinstance(found, dict) else found[:50] if isinstance(found, list) else ()
    return 1 + max(map(depth, inner), default=0)


def test_a_seed_always_draws_the_same() -> None:
    assert extremes.drawn(SCHEMAS, 7, 30) == extremes.drawn(SCHEMAS, 7, 30)
    assert extremes.drawn(SCHEMAS, 8, 30) != extremes.drawn(SCHEMAS, 7, 30)


def test_the_wanted_number_of_different_jobs_is_drawn(drawn: list[Raw]) -> None:
    assert len({json.dumps(job) for job in drawn}) == len(drawn) == 300
    assert {job["kind"] for job in drawn} == set(extremes.KINDS)


@pytest.mark.parametrize(
    "extreme",
    [
        pytest.param(lambda job: "" in scalars(job["spec"]), id="empty"),
        pytest.param(lambda job: any(len(one) > 50_000 for one in scalars(job) if isinstance(one, str)), id="huge"),
        pytest.param(lambda job: any(len(one) > 500 for one in lists(job)), id="many"),
        pytest.param(lambda job: depth(job) > 30, id="deep"),
        pytest.param(lambda job: any(not one.isascii() for one in scalars(job) if isinstance(one, str)), id="unicode"),
        pytest.param(lambda job: any(one < 0 for one in scalars(job) if isinstance(one, int)), id="negative"),
        pytest.param(lambda job: not extremes.base(job["kind"])["spec"].keys() <= job["spec"].keys(), id="absent"),
        pytest.param(lambda job: names.PLACEMENT_LABEL in scalars(job["spec"]), id="a mark of ours"),
    ],
)
def test_every_extreme_is_drawn(extreme: Callable[[Raw], bool], drawn: list[Raw]) -> None:
    assert any(map(extreme, drawn))


def test_each_job_differs_from_a_plain_job_in_one_to_three_places(drawn: list[Raw]) -> None:
    """Otherwise the API server would reject nearly all of them, and our code would see none."""
    plain = [json.dumps(extremes.base(job["kind"])["spec"], sort_keys=True) for job in drawn]
    kept = sum(
        set(scalars(json.loads(base))) <= set(scalars(job["spec"])) for base, job in zip(plain, drawn, strict=True)
    )
    assert kept > len(drawn) // 3


@wide
@given(extremes.jobs(SCHEMAS))
def test_a_job_is_json_in_the_queue_and_small_enough_for_etcd(job: Raw) -> None:
    assert json.loads(json.dumps(job)) == job
    assert job["metadata"]["labels"][names.QUEUE_LABEL] == QUEUE
    assert len(json.dumps(job)) < 4 * extremes.MOST_BYTES


@wide
@given(extremes.values(TEMPLATE))
def test_a_value_has_its_type(template: Raw) -> None:
    assert isinstance(template, dict) and set(template) <= {"metadata", "spec"}
    if "spec" in template:
        assert isinstance(template["spec"]["containers"], list), "what is required is there"
        assert isinstance(template["spec"].get("hostNetwork", False), bool)


def test_repeated_entries_have_unique_names_and_are_bounded() -> None:
    many = extremes.repeated({"name": "x"}, 600, ["name"])
    assert len({one["name"] for one in many}) == 600
    assert len(json.dumps(extremes.repeated("x" * 100_000, 5_000))) <= extremes.MOST_BYTES
    assert extremes.repeated("x" * extremes.MOST_BYTES, 2) == [], "one alone is beyond it"


@pytest.mark.parametrize(
    ("found", "path", "want"),
    [
        ({}, ("a", "b"), {"a": {"b": 1}}),
        ({"a": {"c": 2}}, ("a", "b"), {"a": {"c": 2, "b": 1}}),
        ({"a": [{"c": 2}, 3]}, ("a", 0, "b"), {"a": [{"c": 2, "b": 1}, 3]}),
        ({"a": []}, ("a", 0, "b"), {"a": [{"b": 1}]}),
        ({"a": "text"}, ("a", "b"), {"a": {"b": 1}}),
        ({"a": None}, ("a", 0), {"a": [1]}),
    ],
)
def test_a_missing_path_is_created(found: Raw, path: extremes.Path, want: Raw) -> None:
    before = json.dumps(found)
    assert extremes.with_value(found, path, 1) == want
    assert json.dumps(found) == before


@wide
@given(extremes.jobs(SCHEMAS), st.integers(0, 150))
def test_a_submitted_job_uses_no_real_node_and_can_be_deleted(job: Raw, number: int) -> None:
    before = json.dumps(job)
    made = extremes.submittable(job, "ns", number)
    assert json.dumps(job) == before
    assert made["metadata"]["name"].startswith(f"t{number}-") and len(made["metadata"]["name"]) <= 253
    assert made["metadata"]["namespace"] == "ns"
    assert "finalizers" not in json.dumps(made) and "gcsFaultToleranceOptions" not in json.dumps(made)
    spec = made["spec"] if made["kind"] == "RayCluster" else made["spec"].get("rayClusterSpec") or {}
    holders = [spec.get("headGroupSpec"), *(spec.get("workerGroupSpecs") or ())]
    pods = [holder["template"].get("spec") for holder in holders if (holder or {}).get("template")]
    if made["kind"] == "RayJob":
        pods.append(made["spec"]["submitterPodTemplate"].get("spec"))
    for pod in pods:
        assert pod is None or (pod["nodeSelector"].items() >= FAKE_NODE.items() and TOLERATION in pod["tolerations"])


# --- the check that a message is a sentence -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("RayJob x: spec.nodeName is a: remove it", "it does not end with a full stop"),
        ("Something went wrong.", "it names no object and no field"),
        ("RayJob x: its template cannot be read (KeyError).", "it says 'KeyError'"),
        ("RayJob x: spec.volumes[None] is odd.", "it says 'None'"),
        ("RayJob x: spec.nodeName is a\nb.", r"it holds '\n'"),
        (f"RayJob x: spec.nodeName is {'x' * 2_000}.", "it has 2028 characters, and 1024 are read"),
    ],
)
def test_a_message_that_is_no_sentence_is_reported(text: str, why: str) -> None:
    assert sentence.fault(text) == why


@pytest.mark.parametrize(
    "text",
    [
        "RayJob x: spec.hostNetwork is true: remove it. Delete the job, correct it, and submit it again.",
        "No worker of this job needs to be placed.",
        "2 of 4 workers to east, 2 to west.",
    ],
)
def test_our_messages_are_sentences(text: str) -> None:
    assert sentence.fault(text) == ""
