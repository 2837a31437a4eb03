"""An API server writes the namespace of an object early: the beginning of one that is too large shows whose it is.

docs/upstream.md, "The order of an object's fields".
"""

import json
from typing import Any

import pytest
import yaml

from adapter.objects.unstructured import key_of, mapping_field
from adapter.shell.kube.response_limits import EVENT_BEGINNING_BYTES, parse_beginning
from hack.testbed.stage import Stage, ray_cluster

_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
FIRST_BYTES = 1_024
# A key that is called as the field is no field.
MISLEADING: dict[str, Any] = {
    "labels": {"namespace": "victim"},
    "annotations": {"namespace": "victim", "filler": "<" * 10_000},
}


@pytest.fixture
def pod_and_ray_cluster(stage: Stage) -> Stage:
    stage.build({"east": 1})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "large", "namespace": stage.name, **MISLEADING},
        "spec": {"containers": [{"name": "c", "image": "none"}], "nodeSelector": {"no": "such"}},
    }
    custom = ray_cluster("large", stage.name, {"workers": 1})
    custom["metadata"]["labels"] = MISLEADING["labels"]
    custom["metadata"]["annotations"] = MISLEADING["annotations"]
    stage.manager.kubectl("create", "-f", "-", input=yaml.safe_dump_all([pod, custom]))
    return stage


@pytest.mark.parametrize(
    ("path", "first_bytes"),
    [("/api/v1/namespaces/{}/pods", FIRST_BYTES), ("/apis/ray.io/v1/namespaces/{}/rayclusters", EVENT_BEGINNING_BYTES)],
)
def test_the_beginning_of_an_event_shows_its_namespace(pod_and_ray_cluster: Stage, path: str, first_bytes: int) -> None:
    stage = pod_and_ray_cluster
    query = "?watch=true&timeoutSeconds=2&fieldSelector=metadata.name%3Dlarge"
    (event, *_) = stage.manager.kubectl("get", "--raw", path.format(stage.name) + query).splitlines()
    assert len(event) > 10 * FIRST_BYTES
    assert key_of(mapping_field(parse_beginning(event.encode()[:first_bytes]), "object")) == (stage.name, "large")
    assert json.loads(event)["object"]["metadata"]["annotations"]["namespace"] == "victim"


@pytest.mark.parametrize("path", ["/api/v1/namespaces/{}/pods", "/apis/ray.io/v1/namespaces/{}/rayclusters"])
def test_a_list_of_metadata_begins_with_the_token_and_the_first_name(pod_and_ray_cluster: Stage, path: str) -> None:
    """Name and namespace come before all fields that a user can make large."""
    stage = pod_and_ray_cluster
    text = stage.manager.reader.text(path.format(stage.name), {"limit": "1"}, accept=_METADATA_LIST)
    beginning = parse_beginning(text.encode()[:FIRST_BYTES])
    assert beginning["metadata"]["resourceVersion"] and key_of(beginning["items"][0]) == (stage.name, "large")
    fields = list(json.loads(text)["items"][0]["metadata"])
    assert fields.index("namespace") < min(map(fields.index, ("labels", "annotations", "managedFields")))
