"""An API server in memory, as far as a controller's writers use one while it plans."""

import itertools
from collections.abc import Mapping
from typing import Any

from adapter.objects.unstructured import Raw
from adapter.shell.kube.server_clock import ServerClock

_versions = itertools.count(1_000)


def versioned(raw: Raw) -> dict[str, Any]:
    """The object as one that was written just now."""
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(next(_versions))}}


class MemoryApi:
    """Stands in for a client. Objects are found by path; it knows no preconditions, since there is no other writer."""

    def __init__(self) -> None:
        self.writes, self.clock = 0, ServerClock()
        self._objects: dict[str, dict[str, Any]] = {}

    def hold(self, path: str, raw: Raw) -> None:
        """Have an object at a path."""
        self._objects[path] = dict(raw)

    async def create(self, path: str, body: Raw) -> Raw:
        """Make an object."""
        self.writes += 1
        name = body["metadata"]["name"]
        made = versioned({**body, "metadata": {**body["metadata"], "uid": f"uid-of-{name}-{self.writes}"}})
        self._objects[f"{path}/{name}"] = made
        return made

    async def merge_patch(self, path: str, body: Raw) -> Raw:
        """Change an object, or its status, by a merge patch."""
        self.writes += 1
        at = path.removesuffix("/status")
        self._objects[at] = versioned(merged(self._objects[at], body))
        return self._objects[at]

    async def apply(self, path: str, body: Raw, _: str) -> Raw:
        """The same; lists that are merged by a key have one entry each here."""
        return await self.merge_patch(path, body)

    async def get(self, _: str, **__: str) -> Raw:
        """An empty list."""
        return {"items": []}


def merged(before: Any, patch: Any) -> Any:
    """A merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(before) if isinstance(before, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
