"""What is kubectl told that it asks for before it comes to the point: which kinds there are, and what the pod is like?

Made up here, of as little as kubectl needs: the containers of the pod and their ports, as the manager's pod has them. Nothing of it
comes from a worker cluster.
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
    """The answer to one of the questions about kinds."""
    return _DISCOVERY[resource]


def visible_pod(pod: Raw) -> dict[str, Any]:
    """A pod of the manager, as kubectl is to see it."""
    namespace, name = key_of(pod)
    default = annotation(pod, names.DEFAULT_CONTAINER_ANNOTATION)
    about = {"annotations": {names.DEFAULT_CONTAINER_ANNOTATION: default}} if default else {}
    spec = {kind: [*_visible_containers(pod, kind)] for kind in ("initContainers", "containers")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": uid_of(pod), **about},
        "spec": {kind: found for kind, found in spec.items() if found},
        "status": {"phase": (pod.get("status") or {}).get("phase") or "Unknown"},
    }


def _visible_containers(pod: Raw, kind: str) -> Iterator[dict[str, Any]]:
    for one in (pod.get("spec") or {}).get(kind) or ():
        yield {key: one[key] for key in ("name", "ports") if key in one}
