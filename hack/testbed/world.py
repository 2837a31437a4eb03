"""The true state of the hostile cluster (liar.py): a few objects by name, to list, read, make, change and delete.

It is no API server and proves nothing: it validates nothing, and has no Kueue and no kubelet. Lies are derived from it,
and an engine reads it to go on to the next lie.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw
from hack.testbed.said import Asked
from hack.testbed.stage import FAKE_NODE, QUEUE, local_queue

Place = tuple[str, str, str]  # plural, namespace, name
UID = "11111111-2222-3333-4444-555555555555"  # of its kube-system: the cluster identity
_SINCE = "2026-01-01T00:00:00Z"
_FIRST_VERSION = 1000


class World:
    """Objects by their places."""

    def __init__(self) -> None:
        self._objects: dict[Place, dict[str, Any]] = {}
        self._versions = itertools.count(_FIRST_VERSION)
        self._newest = next(self._versions)
        self.add("namespaces", "", {"metadata": {"name": "kube-system", "uid": UID}})
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": _SINCE}]
        room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        node = {
            "metadata": {"name": "node", "labels": FAKE_NODE},
            "spec": {},
            "status": {"allocatable": room, "conditions": ready},
        }
        self.add("nodes", "", node)

    def furnish(self, stage: str, cpu: int) -> None:
        """Let it have a stage's namespace and queues, with so much quota."""
        active = {
            "conditions": [
                {"type": names.ACTIVE, "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": _SINCE}
            ]
        }
        quota = {"name": stage, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}
        self.add("namespaces", "", {"metadata": {"name": stage}})
        self.add("resourceflavors", "", {"metadata": {"name": stage}, "spec": {}})
        self.add("clusterqueues", "", {"metadata": {"name": stage}, "spec": spec, "status": active})
        self.add("localqueues", stage, {**local_queue(QUEUE, stage, stage), "status": active})

    def add(self, plural: str, namespace: str, raw: Raw) -> dict[str, Any]:
        """Put an object there, under a version of its own."""
        self._newest = next(self._versions)
        metadata = {"uid": f"liar-{self._newest}", "creationTimestamp": _SINCE, **raw["metadata"]}
        metadata |= {"resourceVersion": str(self._newest), **({"namespace": namespace} if namespace else {})}
        made = {**raw, "metadata": metadata}
        self._objects[plural, namespace, metadata["name"]] = made
        return made

    def answer(self, asked: Asked, body: Any) -> tuple[int, Raw]:
        """The true answer: HTTP's status, and an object, a list or a Status."""
        plural, namespace, name = place(asked.path)
        found = self._objects.get((plural, namespace, name))
        if asked.method == "POST":
            return self._make(plural, namespace, body)
        if not name:
            return 200, self._listed(plural, namespace, asked.query)
        if found is None:
            return 404, _status(404, "NotFound")
        if asked.method in ("PATCH", "PUT"):
            return 200, self._change(plural, namespace, found, body)
        if asked.method == "DELETE":
            del self._objects[plural, namespace, name]
            self._newest = next(self._versions)
        return 200, found

    def _make(self, plural: str, namespace: str, body: Any) -> tuple[int, Raw]:
        if "metadata" not in body:  # a question, such as a review
            return 201, body
        if (plural, namespace, body["metadata"].get("name", "")) in self._objects:
            return 409, _status(409, "AlreadyExists")
        return 201, self.add(plural, namespace, body)

    def _change(self, plural: str, namespace: str, found: Raw, body: Any) -> Raw:
        """Its metadata stays what it was; of a JSON patch nothing is done."""
        more = {key: value for key, value in body.items() if key != "metadata"} if isinstance(body, dict) else {}
        return self.add(plural, namespace, {**found, **more})

    def _listed(self, plural: str, namespace: str, query: Mapping[str, str]) -> Raw:
        wanted = dict(_pairs(query.get("labelSelector", "")))
        named = dict(_pairs(query.get("fieldSelector", ""))).get("metadata.name")
        items = [
            raw
            for (kind, where, name), raw in self._objects.items()
            if kind == plural
            and namespace in ("", where)
            and named in (None, name)
            and wanted.items() <= (raw["metadata"].get("labels") or {}).items()
        ]
        return {"kind": "List", "metadata": {"resourceVersion": str(self._newest)}, "items": items}


def place(path: str) -> Place:
    """The objects of a path; without a name, all of a kind."""
    root, *parts = path.strip("/").split("/")
    parts = parts[1 if root == "api" else 2 :]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, *_ = [*parts, "", ""]
    return plural, namespace, name


def _pairs(selector: str) -> Iterable[tuple[str, str]]:
    """The equality terms of a selector."""
    return ((key, value) for key, _, value in (one.partition("=") for one in selector.split(",") if one))


def _status(code: int, reason: str) -> Raw:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}
