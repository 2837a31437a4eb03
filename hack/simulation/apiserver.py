"""A model of an API server: objects in memory with versions, watches with a past, preconditions, and owners.

It validates nothing. The models of Kueue, KubeRay and kubelets write to it directly and follow each change.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from typing import Any

import orjson

from adapter.objects.unstructured import Key, Raw, format_time, key_of, meta
from adapter.shell.kube import resources
from adapter.shell.kube.resources import Resource
from hack.bench.memoryapi import merged
from hack.simulation import virtualtime
from hack.simulation.link import Answer, Request
from hack.simulation.selection import is_selected, place

_PAST = 500  # changes of a kind from which a watch can resume
_MOST_EVENTS = 200  # of kind Event; old ones are dropped
_PODS, _EVENTS = "/api/v1/pods", "/api/v1/events"
_OWNED = tuple(resource.path() for resource in (resources.PODS, resources.WORKLOADS, resources.PLACEMENTS))
_BOOKMARK_SECONDS, _WATCH_SECONDS = 60.0, 240.0
_HAVE_STATUS = frozenset(
    {"pods", "workloads", "rayclusters", "placements", "workerclusters", "dispatchpolicies", "admissionchecks",
     "clusterqueues"}
)  # fmt: skip

Changed = Callable[[str, Raw | None, Raw | None], None]  # path of the kind, the object before and after


@dataclass(eq=False, slots=True)
class _Watch:
    query: Mapping[str, str]
    namespace: str
    send: Callable[[bytes], None]
    end: Callable[[], None]
    since: int  # no change of this version or an earlier one is sent, also when versions go back


@dataclass(slots=True)
class _Kind:
    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    past: deque[tuple[int, str, Raw]] = field(default_factory=lambda: deque(maxlen=_PAST))
    oldest: int = 0  # a watch from an earlier version is expired
    watches: dict[int, _Watch] = field(default_factory=dict)


class ApiServer:
    """One cluster's objects."""

    def __init__(self, name: str, loop: virtualtime.Loop, draw: random.Random, trace: Callable[..., None]) -> None:
        self.name, self.skew = name, 0.0  # seconds by which its clock is wrong
        self.writer = ""  # of the change that followers see
        self.errors = 0.0  # share of requests that are answered 500, 429 or 409
        self.admit: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda _, raw: raw
        self._loop, self._draw, self._trace = loop, draw, trace
        self._kinds: defaultdict[str, _Kind] = defaultdict(_Kind)
        self._version, self._watches, self._uids = 1_000, 0, 0
        self._followers: list[Changed] = []
        self._living: set[str] = set()  # uids

    # --- for the models --------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The time by this cluster's clock."""
        return datetime.fromtimestamp(virtualtime.EPOCH + self._loop.time() - virtualtime.START + self.skew, UTC)

    def stamp(self) -> str:
        return format_time(self.now())

    def follow(self, changed: Changed) -> None:
        """Be told of each change at once."""
        self._followers.append(changed)

    def all(self, resource: Resource) -> list[dict[str, Any]]:
        return list(self._kinds[resource.path()].objects.values())

    def find(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        return self._kinds[resource.path()].objects.get((namespace, name))

    def put(self, resource: Resource, raw: Raw, who: str = "model") -> dict[str, Any]:
        """Create or replace an object."""
        return self._store(resource.path(), raw, who)

    def patch(self, resource: Resource, raw: Raw, change: Raw, who: str = "model") -> dict[str, Any] | None:
        """Merge a change into the present state of an object; None if it is gone."""
        known = self._kinds[resource.path()].objects.get(key_of(raw))
        if known is None or meta(known).get("uid") != meta(raw).get("uid"):
            return None
        return self._store(resource.path(), merged(known, change), who)

    def delete(self, resource: Resource, raw: Raw, who: str = "model") -> None:
        """Delete an object as a client does: a pod on a node ends first."""
        known = self._kinds[resource.path()].objects.get(key_of(raw))
        if known is not None and meta(known).get("uid") == meta(raw).get("uid"):
            self._delete(resource.path(), known, who)

    def remove(self, resource: Resource, raw: Raw, who: str = "model") -> None:
        """Have an object gone at once, as a kubelet does at the end of a pod."""
        known = self._kinds[resource.path()].objects.get(key_of(raw))
        if known is not None and meta(known).get("uid") == meta(raw).get("uid"):
            self._remove(resource.path(), known, who)

    def forget_past(self) -> None:
        """Compact: no watch can resume."""
        for kind in self._kinds.values():
            kind.oldest = self._version
            kind.past.clear()

    @property
    def newest(self) -> int:
        """The version of the last change."""
        return self._version

    def backup(self) -> tuple[int, dict[str, dict[Key, Raw]]]:
        """The version and all objects, as they are now."""
        return self._version, {path: dict(kind.objects) for path, kind in self._kinds.items()}

    def restore(self, objects: Mapping[str, Mapping[Key, Raw]], version: int, who: str) -> None:
        """Have the objects of a backup again, and go on from a version. All watches end and none sees it."""
        for kind in self._kinds.values():
            for watch in list(kind.watches.values()):
                watch.end()
            kind.watches.clear()
        self._version = version
        for path, kind in self._kinds.items():
            before, kind.objects = kind.objects, dict(objects.get(path) or {})  # type: ignore[arg-type]
            kind.oldest = version
            for key in [*before, *(key for key in kind.objects if key not in before)]:
                if before.get(key) is not kind.objects.get(key):
                    self._tell(path, kind, before.get(key), kind.objects.get(key), who)
            kind.past.clear()
        self._living = {meta(raw)["uid"] for kind in self._kinds.values() for raw in kind.objects.values()}
        self._loop.call_later(self._draw.uniform(0.1, 1.5), self._collect)

    # --- objects ---------------------------------------------------------------------------------------------------

    def _store(self, path: str, raw: Raw, who: str) -> dict[str, Any]:
        kind, key = self._kinds[path], key_of(raw)
        before = kind.objects.get(key)
        self._version += 1
        about = {**meta(raw), "resourceVersion": str(self._version)}
        if before is None:
            self._uids += 1
            about = {"uid": f"{self.name}-{self._uids}", "creationTimestamp": self.stamp(), "generation": 1} | about
        elif before.get("spec") != raw.get("spec"):
            about["generation"] = int(about.get("generation") or 1) + 1
        after = {**raw, "metadata": about}
        kind.objects[key] = after
        self._living.add(after["metadata"]["uid"])
        if before is None and path in _OWNED and about.get("ownerReferences"):
            self._loop.call_later(self._draw.uniform(0.1, 1.5), self._collect)  # its owner may be gone before it came
        if path == _EVENTS and len(kind.objects) > _MOST_EVENTS:
            del kind.objects[next(iter(kind.objects))]
        self._tell(path, kind, before, after, who)
        return after

    def _remove(self, path: str, known: dict[str, Any], who: str) -> None:
        kind = self._kinds[path]
        del kind.objects[key_of(known)]
        self._version += 1
        last = {**known, "metadata": {**known["metadata"], "resourceVersion": str(self._version)}}
        self._tell(path, kind, last, None, who)
        self._living.discard(meta(known)["uid"])
        self._loop.call_later(self._draw.uniform(0.1, 1.5), self._collect)

    def _collect(self) -> None:
        """Delete what has owners of which none is there, also what was created when they were gone."""
        for path in _OWNED:
            for raw in list(self._kinds[path].objects.values()):
                owners = {one.get("uid") for one in meta(raw).get("ownerReferences") or ()}
                if owners and not owners & self._living:
                    self._delete(path, raw, "gc")

    def _delete(self, path: str, known: dict[str, Any], who: str) -> None:
        if path != _PODS or not known["spec"].get("nodeName") or known.get("status", {}).get("phase") in _ENDED:
            self._remove(path, known, who)
        elif "deletionTimestamp" not in known["metadata"]:
            grace = int(known["spec"].get("terminationGracePeriodSeconds", 30))
            ends = datetime.fromtimestamp(self.now().timestamp() + grace, UTC)
            about = {"deletionTimestamp": format_time(ends), "deletionGracePeriodSeconds": grace}
            self._store(path, {**known, "metadata": {**known["metadata"], **about}}, who)

    def _tell(self, path: str, kind: _Kind, before: Raw | None, after: Raw | None, who: str) -> None:
        raw = after or before or {}
        self.writer = who
        what = "DELETED" if after is None else "MODIFIED" if before is not None else "ADDED"
        self._trace(self.name, who, what, path, raw)
        kind.past.append((self._version, what, raw))
        for watch in list(kind.watches.values()):
            if self._version > watch.since:
                _send_change(watch, what, raw)
        for follow in self._followers:
            follow(path, before, after)

    # --- for clients -----------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer:
        if self.errors and self._draw.random() < self.errors:
            status, reason = self._draw.choice(((500, "InternalError"), (429, "TooManyRequests"), (503, "Unavailable")))
            return self._refused(status, reason, "drawn")
        if request.path == "/readyz":
            return Answer(200, b"ok", {**self._headers(), "Content-Type": "text/plain"})
        path, namespace, name, sub = place(request.path)
        if request.method == "GET":
            return self._read(request, path, namespace, name)
        if request.method == "POST":
            return self._create(request, path, namespace)
        known = self._kinds[path].objects.get((namespace, name))
        if known is None:
            return self._refused(404, "NotFound", f"{name} is not found")
        body = orjson.loads(request.body or b"{}")
        if self.errors and self._draw.random() < self.errors:
            return self._refused(409, "Conflict", "drawn")
        if request.method == "DELETE":
            return self._delete_by_client(path, known, body)
        return self._change(request, path, known, body, sub)

    def _headers(self) -> dict[str, str]:
        return _headers_at(int(virtualtime.EPOCH + self._loop.time() - virtualtime.START + self.skew))

    def _said(self, raw: Any, status: int = 200) -> Answer:
        return Answer(status, orjson.dumps(raw), self._headers())

    def _refused(self, status: int, reason: str, message: str) -> Answer:
        return self._said({"kind": "Status", "code": status, "reason": reason, "message": message}, status)

    def _read(self, request: Request, path: str, namespace: str, name: str) -> Answer:
        kind = self._kinds[path]
        if name:
            known = kind.objects.get((namespace, name))
            return self._said(known) if known else self._refused(404, "NotFound", f"{name} is not found")
        if "watch" in request.query:
            return self._watch(request, kind, namespace)
        found = [raw for raw in kind.objects.values() if is_selected(raw, namespace, request.query)]
        most = int(request.query.get("limit") or 0)
        items = found[:1] if most == 1 else found  # other pages are larger than any list here
        return self._said({"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": items})

    def _watch(self, request: Request, kind: _Kind, namespace: str) -> Answer:
        since = int(request.query["resourceVersion"])
        if since < kind.oldest or (len(kind.past) == _PAST and since < kind.past[0][0] - 1):
            return self._refused(410, "Expired", "too old resource version")

        def begin(send: Callable[[bytes], None], end: Callable[[], None]) -> Callable[[], None]:
            self._watches += 1
            number, watch = self._watches, _Watch(dict(request.query), namespace, send, end, since)
            for at, what, raw in kind.past:
                if at > since:
                    _send_change(watch, what, raw)
            kind.watches[number] = watch
            bookmark = self._loop.call_later(_BOOKMARK_SECONDS, self._bookmark, kind, number)
            expiry = self._loop.call_later(_WATCH_SECONDS, end)

            def stop() -> None:
                kind.watches.pop(number, None)
                bookmark.cancel()
                expiry.cancel()

            return stop

        return Answer(200, b"", self._headers(), watch=begin)

    def _bookmark(self, kind: _Kind, number: int) -> None:
        if watch := kind.watches.get(number):
            raw = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}}
            if self._version >= watch.since:
                watch.send(orjson.dumps(raw) + b"\n")
            self._loop.call_later(_BOOKMARK_SECONDS, self._bookmark, kind, number)

    def _create(self, request: Request, path: str, namespace: str) -> Answer:
        raw = orjson.loads(request.body)
        if path == resources.ACCESS_REVIEWS.path():
            return self._said({**raw, "status": {"allowed": True}}, 201)  # every account has every right here
        about = {**raw["metadata"], **({"namespace": namespace} if namespace else {})}
        if not about.get("name"):
            about["name"] = f"{about.get('generateName', '')}{self._version:x}"
        raw = self.admit(path, {**raw, "metadata": about})
        if (namespace, about["name"]) in self._kinds[path].objects:
            return self._refused(409, "AlreadyExists", f"{about['name']} exists")
        if "dryRun" in request.query:
            return self._said(raw, 201)
        return self._said(self._store(path, raw, "client"), 201)

    def _change(self, request: Request, path: str, known: Raw, body: Any, sub: str) -> Answer:
        if "json-patch" in request.kind:
            return self._refused(422, "Invalid", "json patches are not modelled")
        about = body.get("metadata") or {}
        for name, status in (("uid", 422), ("resourceVersion", 409)):
            if about.get(name) not in (None, known["metadata"][name]):
                message = "metadata.uid: Invalid value: field is immutable" if name == "uid" else "modified"
                return self._refused(status, "Invalid" if status == 422 else "Conflict", message)
        after = {**body} if request.method == "PUT" else _patched(known, body, "apply" in request.kind)
        if path.rpartition("/")[2] in _HAVE_STATUS:
            after = _kept(known, after, sub)
        after = {**after, "metadata": {**known["metadata"], **after["metadata"]}} if request.method == "PUT" else after
        return self._said(known if after == known else self._store(path, after, "client"))

    def _delete_by_client(self, path: str, known: dict[str, Any], body: Raw) -> Answer:
        wanted = body.get("preconditions") or {}
        if any(wanted.get(key) not in (None, known["metadata"][key]) for key in ("uid", "resourceVersion")):
            return self._refused(409, "Conflict", "the precondition fails")
        self._delete(path, known, "client")
        return self._said(known)


_ENDED = ("Failed", "Succeeded")


@lru_cache(maxsize=64)
def _headers_at(second: int) -> dict[str, str]:
    """The headers of all answers of a second since 1970."""
    return {"Content-Type": "application/json", "Date": formatdate(second, usegmt=True)}


def _patched(known: Raw, body: Raw, apply: bool) -> dict[str, Any]:
    """An object after a merge patch, or after an apply of the one list that is merged by name."""
    checks = (body.get("status") or {}).get("admissionChecks")
    if not apply or checks is None:
        return dict(merged(known, body))
    own = {one["name"] for one in checks}
    others = [one for one in (known.get("status") or {}).get("admissionChecks") or () if one["name"] not in own]
    return {**known, "status": {**(known.get("status") or {}), "admissionChecks": [*others, *checks]}}


def _kept(known: Raw, after: dict[str, Any], sub: str) -> dict[str, Any]:
    """The object with the part that this path does not change."""
    field_ = "spec" if sub == "status" else "status"
    rest = {key: value for key, value in after.items() if key != field_}
    return {**rest, **({field_: known[field_]} if field_ in known else {})}


def _send_change(watch: _Watch, what: str, raw: Raw) -> None:
    if is_selected(raw, watch.namespace, watch.query):
        watch.send(orjson.dumps({"type": what, "object": raw}) + b"\n")
