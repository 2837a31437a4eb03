"""What a worker group requests of the topology of worker clusters."""

import pytest

from adapter import names
from adapter.objects.topology_request import (
    TopologyRequest,
    manager_topology_warning,
    podset_topology_request,
    read_topology_request,
    topology_problem,
    with_topology_request,
)
from adapter.objects.unstructured import Raw

REQUIRED, PREFERRED = names.REQUIRED_TOPOLOGY_ANNOTATION, names.PREFERRED_TOPOLOGY_ANNOTATION
UNCONSTRAINED = names.UNCONSTRAINED_TOPOLOGY_ANNOTATION
RACK = "example.com/rack"


def template(**annotations: object) -> Raw:
    return {"metadata": {"annotations": annotations}, "spec": {}}


@pytest.mark.parametrize(
    ("annotations", "podset", "pod"),
    [
        pytest.param({}, None, None, id="none"),
        pytest.param({REQUIRED: RACK}, {"required": RACK}, {names.KUEUE_REQUIRED_TOPOLOGY: RACK}, id="required"),
        pytest.param({PREFERRED: RACK}, {"preferred": RACK}, {names.KUEUE_PREFERRED_TOPOLOGY: RACK}, id="preferred"),
        pytest.param({UNCONSTRAINED: "true"}, {"unconstrained": True}, {names.KUEUE_UNCONSTRAINED_TOPOLOGY: "true"},
            id="unconstrained"),
        pytest.param({UNCONSTRAINED: "false"}, None, None, id="unconstrained is false"),
        pytest.param({names.KUEUE_REQUIRED_TOPOLOGY: RACK}, None, None, id="Kueue's annotation"),
        pytest.param({names.KUEUE_REQUIRED_TOPOLOGY: "zone", PREFERRED: RACK}, {"preferred": RACK},
            {names.KUEUE_PREFERRED_TOPOLOGY: RACK}, id="an annotation of ours beside Kueue's"),
        pytest.param({REQUIRED: 7, PREFERRED: ["x"]}, None, None, id="no texts"),
    ],
)  # fmt: skip
def test_a_request_becomes_that_of_kueue(annotations: Raw, podset: Raw | None, pod: Raw | None) -> None:
    request = read_topology_request(template(**annotations))
    assert (request and request.podset_field, request and request.pod_annotation) == (podset, pod)


@pytest.mark.parametrize(
    "request_",
    [TopologyRequest("required", RACK), TopologyRequest("preferred", RACK), TopologyRequest("unconstrained", "true")],
    ids=lambda request: request.mode,
)
def test_a_podset_is_read_as_it_was_written(request_: TopologyRequest) -> None:
    assert podset_topology_request({"topologyRequest": request_.podset_field}) == request_
    assert read_topology_request(with_topology_request(template(**{REQUIRED: "other"}), request_)) == request_


@pytest.mark.parametrize("field", [None, 7, {}, {"required": 7}, {"unconstrained": "true"}, {"required": ""}])
def test_a_podset_without_a_readable_request_has_none(field: object) -> None:
    assert podset_topology_request({"topologyRequest": field}) is None


def test_a_template_without_metadata_requests_nothing() -> None:
    assert read_topology_request({}) is read_topology_request({"metadata": {"annotations": "x"}}) is None


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({REQUIRED: RACK}, "", id="a key with a prefix"),
        pytest.param({PREFERRED: "rack"}, "", id="a key without a prefix"),
        pytest.param({UNCONSTRAINED: "true"}, "", id="unconstrained"),
        pytest.param({UNCONSTRAINED: "yes"}, f"{UNCONSTRAINED} is yes; set true", id="a word that is no boolean"),
        pytest.param({REQUIRED: RACK, PREFERRED: RACK}, f"has {REQUIRED} and {PREFERRED}; keep one of them", id="two"),
        pytest.param({REQUIRED: "a rack"}, f"{REQUIRED} is a rack, which is no key", id="no label key"),
        pytest.param({REQUIRED: "x" * 64}, "with at most 63 characters", id="longer than Kueue's field"),
        pytest.param({REQUIRED: "x" * 1_000_000}, "with at most 63 characters", id="a huge text"),
        pytest.param({names.KUEUE_REQUIRED_TOPOLOGY: "a/b/c"}, "", id="Kueue's annotation, which is dropped"),
    ],
)  # fmt: skip
def test_an_invalid_request_is_a_problem(annotations: Raw, problem: str) -> None:
    found = topology_problem(template(**annotations))
    assert problem in found and bool(problem) == bool(found) and len(found) < 400


def test_kueues_own_annotation_has_a_warning() -> None:
    assert f"write {PREFERRED} in its place" in manager_topology_warning(
        template(**{names.KUEUE_PREFERRED_TOPOLOGY: RACK})
    )
    assert manager_topology_warning(template(**{PREFERRED: RACK})) == ""


def test_a_request_is_hashable() -> None:
    assert len({TopologyRequest("required", RACK), TopologyRequest("preferred", RACK)}) == 2
