"""Makes and removes the many objects of a stage through the API, without a process for each.

kubectl costs a fifth of a second of processor time per call, and stages are built and cleared hundreds of times. A
user's actions in a test still go through kubectl.
"""

import json

from hack.testbed.reader import NotThere, Raw, Reader

_LAST = "kubectl.kubernetes.io/last-applied-configuration"
_APPLY = {"fieldManager": "rayspan-testbed", "force": "true"}
_JSON = {"Accept": "application/json"}
_PATCH = {**_JSON, "Content-Type": "application/apply-patch+yaml"}


class Writer:
    """One API server, written to with the rights of its reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def apply(self, made: Raw) -> None:
        """Server-side apply, which `kubectl apply` can continue. Raises Refused with the server's complaint, or
        Unreachable.
        """
        annotations = {**(made["metadata"].get("annotations") or {}), _LAST: json.dumps(made)}
        made = {**made, "metadata": {**made["metadata"], "annotations": annotations}}
        group, meta = made["apiVersion"].rpartition("/")[0], made["metadata"]
        kind = ".".join(filter(None, (made["kind"], group)))
        self._reader.ask("PATCH", self._reader.path(kind, meta["name"], meta.get("namespace")), _APPLY, _PATCH, made)

    def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Ask for an object's deletion, and wait for nothing. It is fine if there is nothing to delete."""
        try:
            self._reader.ask("DELETE", self._reader.path(kind, name, namespace), {}, _JSON)
        except NotThere:
            return
