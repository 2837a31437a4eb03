"""Which nodes could hold a pod, how many such pods, and the reason if none can."""

from typing import Any

import pytest

from adapter.objects.selectors import matches_expressions
from adapter.objects.unstructured import Raw
from adapter.quota import node_capacity
from adapter.quota.resource_flavor import Flavor

GPU = {"nvidia.com/gpu": 1, "pods": 1}
READY = [{"type": "Ready", "status": "True"}]
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def node(
    name: str = "n",
    *,
    gpus: str | None = "2",
    ready: bool = True,
    cordoned: bool = False,
    taints: Any = (),
    **labels: str,
) -> Raw:
    devices = {"nvidia.com/gpu": gpus} if gpus is not None else {}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": cordoned, "taints": list(taints)},
        "status": {
            "allocatable": {"cpu": "4", "pods": "110", **devices},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def affinity(key: str, operator: str, *values: str) -> Raw:
    return required([[{"key": key, "operator": operator, "values": list(values)}]])


def required(of: list[list[Raw]]) -> Raw:
    terms = [{"matchExpressions": expressions} for expressions in of]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


@pytest.mark.parametrize(
    ("objects", "spec", "flavors", "want", "why"),
    [
        pytest.param([node(), node()], {}, [], 4, "its nodes can hold 4", id="all nodes together"),
        pytest.param([], {}, [], 0, "it has no ready node", id="no nodes"),
        pytest.param([node(ready=False)], {}, [], 0, "it has no ready node", id="a node that is not ready"),
        pytest.param(
            [node(cordoned=True)], {}, [], 0,
            "its only ready node is cordoned; see `kubectl get nodes` there, and uncordon what may take workers",
            id="a cordoned node",
        ),
        pytest.param(
            [node(cordoned=True), node(cordoned=True), node(cordoned=True, ready=False)], {}, [], 0,
            "all of its 2 ready nodes are cordoned; see `kubectl get nodes` there, and uncordon what may take workers",
            id="cordoned nodes",
        ),
        pytest.param(
            [node(), node(cordoned=True), node(cordoned=True)], {}, [], 2,
            "its nodes can hold 2, and 2 more are cordoned", id="cordoned nodes beside others",
        ),
        pytest.param([node(gpus="many")], {}, [], 0, "it has no ready node", id="an unreadable node"),
        pytest.param(
            [node(gpus="0"), node(gpus=None)], {}, [], 0,
            "no node there has allocatable nvidia.com/gpu: is its device plugin ready?", id="no node has the device",
        ),
        pytest.param([node(zone="a"), node(zone="b")], {"nodeSelector": {"zone": "b"}}, [], 2, "its nodes can hold 2",
            id="a node selector"),
        pytest.param(
            [node()], {"nodeSelector": {"zone": "b"}}, [], 0,
            "none of its 1 ready nodes matches the worker's node selector, affinity and tolerations",
            id="no node has the label",
        ),
        pytest.param([node(zone="a"), node(zone="b")], affinity("zone", "NotIn", "a"), [], 2, "its nodes can hold 2",
            id="affinity"),
        pytest.param([node(taints=[TAINT]), node()], {}, [], 2, "its nodes can hold 2",
            id="a taint that is not tolerated"),
        pytest.param([node(taints=[TAINT])], {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, [], 2,
            "its nodes can hold 2", id="a taint that the pod tolerates"),
        pytest.param([node(taints=[TAINT])], {}, [Flavor("f", tolerations=[{"operator": "Exists"}])], 2,
            "its nodes can hold 2", id="a taint that the flavor tolerates"),
        pytest.param([node(taints=[{**TAINT, "effect": "PreferNoSchedule"}])], {}, [], 2, "its nodes can hold 2",
            id="a soft taint"),
        pytest.param([node(pool="x"), node()], {}, [Flavor("f", {"pool": "x"})], 2, "its nodes can hold 2",
            id="the labels of the flavor"),
    ],
)  # fmt: skip
def test_pods_that_fit(objects: list[Raw], spec: Raw, flavors: list[Flavor], want: int, why: str) -> None:
    assert node_capacity.pods_that_fit(node_capacity.parse_nodes(objects), spec, GPU, flavors, 9) == (want, why)


def test_more_pods_may_fit_than_are_wanted() -> None:
    assert node_capacity.pods_that_fit(node_capacity.parse_nodes([node(), node(), node()]), {}, GPU, [], 3) == (6, "")


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like", None])
@pytest.mark.parametrize("values", [(), ("a",), ("5",), ("a", "7"), ("-1",), ("x",)])
def test_a_requirement_is_met_by_the_nodes_with_matching_labels(operator: str | None, values: tuple[str, ...]) -> None:
    """Matching all nodes at once and matching one node's labels give the same result."""
    found: list[Raw] = [
        {},
        {"k": "a"},
        {"k": "5"},
        {"k": "7"},
        {"k": "07"},
        {"k": "-3"},
        {"other": "a"},
        {"k": "a", "other": "7"},
    ]
    for key in ("k", "other", "nowhere"):
        one: Raw = {"key": key, "operator": operator, "values": list(values)}
        for terms in list[list[Raw]](([one], [one, {"key": "k", "operator": "Exists"}])):
            spec = required([terms])
            want = sum(matches_expressions(terms, labels) for labels in found)
            assert (
                node_capacity.pods_that_fit(
                    node_capacity.parse_nodes(node(**labels) for labels in found), spec, {"pods": 110}, [], 0
                )[0]
                == want
            )


def test_one_of_several_terms_is_enough() -> None:
    found = node_capacity.parse_nodes([node(zone="a", disk="ssd"), node(zone="b"), node(zone="b", disk="ssd"), node()])
    zone, disk = ({"key": key, "operator": "In", "values": [value]} for key, value in (("zone", "a"), ("disk", "ssd")))
    assert node_capacity.pods_that_fit(found, required([[zone], [disk]]), {"pods": 110}, [], 9)[0] == 2
    assert node_capacity.pods_that_fit(found, required([[zone, disk], []]), {"pods": 110}, [], 9)[0] == 4, (
        "an empty one asks for nothing"
    )


def test_machines_of_several_kinds_are_counted_separately() -> None:
    found = node_capacity.parse_nodes(
        [node(gpus="2", pool="x"), node(gpus="8", pool="x"), node(gpus="8", pool="x"), node(gpus="8")]
    )
    assert node_capacity.pods_that_fit(found, {"nodeSelector": {"pool": "x"}}, {"nvidia.com/gpu": 3}, [], 9) == (
        4,
        "its nodes can hold 4",
    )


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"status": {"allocatable": ["x"], "conditions": READY}}, id="allocatable is a list"),
        pytest.param({"status": {"allocatable": {"cpu": {}}, "conditions": READY}}, id="an amount is an object"),
        pytest.param({"status": {"conditions": ["Ready"]}}, id="conditions of strings"),
        pytest.param({"status": ["x"]}, id="status is a list"),
        pytest.param({"spec": "x"}, id="spec is text"),
        pytest.param({"spec": {"taints": ["gpu"]}}, id="taints of strings"),
        pytest.param({"spec": {"taints": [{"effect": "NoSchedule", "key": {}}]}}, id="a taint of an object"),
        pytest.param({"metadata": {"labels": ["a"]}}, id="labels are a list"),
        pytest.param({"metadata": {"labels": {"a": ["b"]}}}, id="a label is a list"),
    ],
)
def test_a_node_with_wrong_types_is_left_out(odd: Raw) -> None:
    found = node_capacity.parse_nodes([{**node(), **odd}, node()])
    assert node_capacity.pods_that_fit(found, {"nodeSelector": {"a": "b"}}, GPU, [], 2)[0] == 0
    assert node_capacity.pods_that_fit(found, {}, GPU, [], 2) == (2, "")


def test_a_machine_that_is_too_small_is_reported_with_what_it_lacks() -> None:
    held = node_capacity.pods_that_fit(node_capacity.parse_nodes([node()]), {}, {"cpu": 8000}, [], 1)
    assert held == (0, "no node there is large enough: cpu 4 at most, one worker needs 8")
