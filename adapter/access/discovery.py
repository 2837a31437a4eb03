"""Answers the requests that kubectl sends before its actual request: the API discovery, and a reduced pod.

The answers have only the fields that kubectl needs: the containers of the manager pod and their ports. Nothing comes
from a worker cluster.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from adapter import names
from adapter.access import access_request
from adapter.objects.unstructured import Raw, annotation, key_of, uid_of

_DISCOVERY: Mapping[str, Mapping[str, Any]] = {
    access_request.VERSIONS: {"kind": "APIVersions", "versions": ["v1"]},
    access_request.GROUPS: {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    access_request.RESOURCES: {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": ["get"],
                "shortNames": ["po"],
            }
        ],
    },
}


def discovery_document(resource: str) -> Mapping[str, Any]:
    """The answer to a discovery request."""
    return _DISCOVERY[resource]


def visible_pod(pod: Raw) -> dict[str, Any]:
    """The reduced manager pod for kubectl."""
    namespace, name = key_of(pod)
    default = annotation(pod, names.DEFAULT_CONTAINER_ANNOTATION)
    annotations = {"annotations": {names.DEFAULT_CONTAINER_ANNOTATION: default}} if default else {}
    spec = {kind: [*_visible_containers(pod, kind)] for kind in ("initContainers", "containers")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": uid_of(pod), **annotations},
        "spec": {kind: containers for kind, containers in spec.items() if containers},
        "status": {"phase": (pod.get("status") or {}).get("phase") or "Unknown"},
    }


def _visible_containers(pod: Raw, kind: str) -> Iterator[dict[str, Any]]:
    for container in (pod.get("spec") or {}).get(kind) or ():
        yield {key: container[key] for key in ("name", "ports") if key in container}
