"""What does kubectl see of a pod before it comes to the point?"""

from typing import Any

from adapter import names
from adapter.access import access_request, discovery


def test_a_pod_is_shown_with_what_kubectl_needs_and_no_more() -> None:
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


def test_kubectl_learns_of_pods_and_of_no_other_kind() -> None:
    assert discovery.discovery_document(access_request.VERSIONS)["versions"] == ["v1"]
    assert discovery.discovery_document(access_request.GROUPS)["groups"] == []
    assert [one["name"] for one in discovery.discovery_document(access_request.RESOURCES)["resources"]] == ["pods"]
