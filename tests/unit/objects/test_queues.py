"""Queues and flavors are read into records. Malformed fields count as empty."""

import pytest

from adapter.objects.queues import (
    ClusterQueue,
    QueueFlavors,
    ResourceFlavor,
    read_cluster_queue,
    read_flavor,
    read_local_queue,
)
from adapter.objects.unstructured import Raw


def test_a_cluster_queue_is_read() -> None:
    strategy = {"admissionChecks": [{"name": "rayspan", "onFlavors": ["remote"]}]}
    raw = {
        "metadata": {"name": "ray"},
        "spec": {
            "cohortName": "all",
            "queueingStrategy": "StrictFIFO",
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "local"}, {"name": "remote"}]}],
            "admissionChecksStrategy": strategy,
        },
        "status": {
            "pendingWorkloads": 2,
            "flavorsReservation": [{"resources": [{"borrowed": "0"}, {"borrowed": "1"}]}],
        },
    }
    queue = read_cluster_queue(raw)
    groups = (QueueFlavors(("cpu",), ("local", "remote")),)
    assert queue == ClusterQueue("ray", "all", "StrictFIFO", groups, {"rayspan": ("remote",)}, 2, borrows=True)
    assert queue.flavors == {"local", "remote"}
    assert queue.is_strict


def test_a_local_queue_is_read() -> None:
    raw = {"metadata": {"namespace": "team", "name": "ray"}, "spec": {"clusterQueue": "all"}}
    queue = read_local_queue(raw)
    assert (queue.key, queue.cluster_queue, queue.pool) == (("team", "ray"), "all", "")


TAINT = {"key": "pool", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"nodeLabels": {"a": "b", "c": 1}}, ResourceFlavor("f", {"a": "b"}), id="labels"),
        pytest.param({"topologyName": "racks"}, ResourceFlavor("f", topology="racks"), id="a topology"),
        pytest.param({"nodeTaints": [TAINT]}, ResourceFlavor("f", keeps_out=True), id="a taint"),
        pytest.param({"nodeTaints": [{**TAINT, "effect": "PreferNoSchedule"}]}, ResourceFlavor("f"), id="a soft taint"),
        pytest.param({"nodeTaints": [TAINT], "tolerations": [{"key": "pool"}]}, ResourceFlavor("f"), id="tolerated"),
        pytest.param({"nodeTaints": [TAINT], "tolerations": [{}]}, ResourceFlavor("f"), id="everything is tolerated"),
    ],
)
def test_a_flavor_is_read(spec: Raw, want: ResourceFlavor) -> None:
    assert read_flavor({"metadata": {"name": "f"}, "spec": spec}) == want


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "text",
        {"resourceGroups": "x", "admissionChecksStrategy": 1, "nodeLabels": [], "clusterQueue": {}},
        {"resourceGroups": [1, {"flavors": [None, {}]}], "admissionChecksStrategy": {"admissionChecks": [[], {}]}},
    ],
)
def test_malformed_objects_never_raise(spec: object) -> None:
    raw = {"metadata": {"name": "x"}, "spec": spec, "status": spec}
    assert read_cluster_queue(raw).name == read_flavor(raw).name == "x"
    assert read_local_queue(raw).cluster_queue == ""
    assert read_local_queue({}).key == ("", "")
