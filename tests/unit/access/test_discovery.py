"""The discovery and the pod that kubectl reads before its request."""

from typing import Any

from adapter import names
from adapter.access import access_request, discovery


def test_a_pod_has_only_the_fields_that_kubectl_needs() -> None:
    container = {"name": "ray", "image": "i", "env": [{"name": "TOKEN", "value": "s"}], "ports": [{"containerPort": 1}]}
    about: dict[str, Any] = {"namespace": "default", "name": "a", "uid": "u", "labels": {"x": "y"}}
    about["annotations"] = {names.DEFAULT_CONTAINER_ANNOTATION: "ray", "x": "y"}
    found = discovery.visible_pod(
        {"metadata": about, "spec": {"containers": [container]}, "status": {"phase": "Running"}}
    )
    assert found["spec"] == {"containers": [{"name": "ray", "ports": [{"containerPort": 1}]}]}
    assert found["metadata"] == {
        "namespace": "default",
        "name": "a",
        "uid": "u",
        "annotations": {names.DEFAULT_CONTAINER_ANNOTATION: "ray"},
    }
    assert found["status"] == {"phase": "Running"}


def test_discovery_lists_pods_alone() -> None:
    assert discovery.discovery_document(access_request.VERSIONS)["versions"] == ["v1"]
    assert discovery.discovery_document(access_request.GROUPS)["groups"] == []
    assert [one["name"] for one in discovery.discovery_document(access_request.RESOURCES)["resources"]] == ["pods"]
