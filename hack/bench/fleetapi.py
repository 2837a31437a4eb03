"""The API servers of a fleet, which keep their objects in memory: one HTTP server, each cluster under its own path.

It implements what a controller uses: paged and compressed lists, watches with a history, merge patches with
preconditions, and deletes with a grace period for pods. It validates nothing and runs no controllers; those that play
Kueue, KubeRay or a kubelet listen (`Cluster.listen`). It is for benches that count and time requests. It says nothing
about how a real API server behaves.
"""

import asyncio
import itertools
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

from adapter.objects.unstructured import Key, Raw, format_time, key_of
from adapter.shell.kube.resources import Resource
from hack.bench.memoryapi import merged

GRACE_SECONDS = 0.5  # of a pod on a node, from its delete until it is gone
_PACKED = 128 * 1024  # bytes from which an answer is compressed, as API servers do
_REMEMBERED = 50_000  # changes of a kind from which a watch can resume

Heard = Callable[["Cluster", Raw], None]  # cluster, and the object as it is now


@dataclass(frozen=True, slots=True)
class _Kept:
    raw: Raw
    said: bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Watch:
    """A watcher of one kind."""

    asked: Mapping[str, str]
    namespace: str
    told: "asyncio.Queue[bytes]" = field(default_factory=asyncio.Queue)

    def wants(self, raw: Raw) -> bool:
        return _selected(raw, self.namespace, self.asked)


class _Kind:
    """The objects of one kind in one cluster."""

    def __init__(self) -> None:
        self.objects: dict[Key, _Kept] = {}
        self.watches: set[_Watch] = set()
        self.past: deque[tuple[int, Raw, bytes]] = deque(maxlen=_REMEMBERED)

    def tell(self, at: int, what: bytes, kept: _Kept) -> None:
        event = b'{"type":"%s","object":%s}\n' % (what, kept.said)
        self.past.append((at, kept.raw, event))
        for watch in self.watches:
            if watch.wants(kept.raw):
                watch.told.put_nowait(event)


class Cluster:
    """One API server."""

    def __init__(self, name: str) -> None:
        self.name, self.silent = name, False
        self.delay = 0.0  # seconds before each answer and before each watch event
        self._kinds: defaultdict[str, _Kind] = defaultdict(_Kind)  # by the path of the whole collection
        self._at = 1_000
        self._made: list[tuple[str, Heard]] = []
        self._changed: list[tuple[str, Heard]] = []
        self._admitted: dict[str, Callable[[Raw], Raw]] = {}
        self._pages: dict[str, Iterator[list[_Kept]]] = {}

    def listen(self, resource: Resource, heard: Heard) -> None:
        """Be told of each object of a kind that somebody creates over the network."""
        self._made.append((resource.path(), heard))

    def admit(self, resource: Resource, change: Callable[[Raw], Raw]) -> None:
        """Have `change` applied to each object of a kind that is created over the network."""
        self._admitted[resource.path()] = change

    def follow(self, resource: Resource, heard: Heard) -> None:
        """Be told of each object of a kind whenever it comes or changes."""
        self._changed.append((resource.path(), heard))

    def all(self, resource: Resource) -> list[Raw]:
        """The objects of a kind."""
        return [kept.raw for kept in self._kinds[resource.path()].objects.values()]

    def put(self, resource: Resource, raw: Raw) -> Raw:
        """Have an object stand as it is given, but for its version."""
        return self._put(resource.path(), raw).raw

    def remove(self, resource: Resource, key: Key) -> None:
        """Have an object gone, at once."""
        self._remove(resource.path(), key)

    def _put(self, kind: str, raw: Raw) -> _Kept:
        self._at += 1
        known = self._kinds[kind]
        made = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self._at)}}
        kept, key = _Kept(made, orjson.dumps(made)), key_of(made)
        what = b"MODIFIED" if key in known.objects else b"ADDED"
        known.objects[key] = kept
        known.tell(self._at, what, kept)
        self._tell(self._changed, kind, kept)
        return kept

    def _tell(self, whom: list[tuple[str, Heard]], kind: str, kept: _Kept) -> None:
        for wanted, heard in whom:
            if wanted == kind:
                heard(self, kept.raw)

    def _remove(self, kind: str, key: Key) -> None:
        known = self._kinds[kind]
        if gone := known.objects.pop(key, None):
            self._at += 1
            last = {**gone.raw, "metadata": {**gone.raw["metadata"], "resourceVersion": str(self._at)}}
            known.tell(self._at, b"DELETED", _Kept(last, orjson.dumps(last)))

    async def answer(self, request: web.Request, path: str) -> web.StreamResponse:
        """Do what a request asks."""
        if self.delay:
            await asyncio.sleep(self.delay)
        if path == "/readyz":
            return web.Response(text="ok")
        kind, namespace, name = _place(path)
        if request.method == "GET":
            return await self._read(request, kind, namespace, name)
        body = orjson.loads(await request.read() or b"{}")
        if request.method == "POST" and "dryRun" in request.query:
            return _said(orjson.dumps(body), 201)
        if request.method == "POST":
            return self._create(kind, namespace, body)
        known = self._kinds[kind].objects.get((namespace, name))
        if known is None:
            return _refused(404, "NotFound", name)
        if request.method == "DELETE":
            return self._delete(kind, known, body)
        return self._patch(kind, known, body)

    async def _read(self, request: web.Request, kind: str, namespace: str, name: str) -> web.StreamResponse:
        if name:
            known = self._kinds[kind].objects.get((namespace, name))
            return _said(known.said) if known else _refused(404, "NotFound", name)
        if "watch" in request.query:
            return await self._watched(request, self._kinds[kind], namespace)
        return self._listed(request, self._kinds[kind], namespace)

    def _listed(self, request: web.Request, kind: _Kind, namespace: str) -> web.Response:
        size, token = int(request.query.get("limit", "0")) or 10**9, request.query.get("continue", "")
        pages = self._pages.pop(token, None) if token else _paged(kind, namespace, dict(request.query), size)
        page = next(pages, []) if pages else []
        more = f"{self.name}-{next(_tokens)}" if len(page) == size else ""
        if more and pages:
            self._pages[more] = pages
        metadata = orjson.dumps({"resourceVersion": str(self._at), **({"continue": more} if more else {})})
        body = b'{"kind":"List","metadata":%s,"items":[%s]}' % (metadata, b",".join(one.said for one in page))
        return _said(body)

    async def _watched(self, request: web.Request, kind: _Kind, namespace: str) -> web.StreamResponse:
        watch = _Watch(dict(request.query), namespace)
        since = int(request.query["resourceVersion"])
        for at, raw, event in list(kind.past) if kind.past and kind.past[-1][0] > since else ():
            if at > since and watch.wants(raw):
                watch.told.put_nowait(event)
        kind.watches.add(watch)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        try:
            while not self.silent:
                told = await _next(watch.told)
                await asyncio.sleep(self.delay)
                await answer.write(told)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            kind.watches.discard(watch)
        return answer

    def _create(self, kind: str, namespace: str, body: dict[str, Any]) -> web.Response:
        name = body["metadata"].get("name", "")
        if (namespace, name) in self._kinds[kind].objects:
            return _refused(409, "AlreadyExists", name)
        told = {"uid": f"{self.name}-{self._at}", "creationTimestamp": format_time(datetime.now(UTC))}
        made = {**body, "metadata": {**body["metadata"], **told}}
        change = self._admitted.get(kind)
        kept = self._put(kind, change(made) if change else made)
        self._tell(self._made, kind, kept)
        return _said(kept.said, 201)

    def _patch(self, kind: str, known: _Kept, body: dict[str, Any]) -> web.Response:
        had, told = known.raw["metadata"], body.get("metadata") or {}
        for field_, status in (("uid", 422), ("resourceVersion", 409)):
            if told.get(field_, had[field_]) != had[field_]:
                return _refused(status, "Conflict", f"metadata.{field_}")
        after = merged(known.raw, body)
        return _said(known.said if after == known.raw else self._put(kind, after).said)

    def _delete(self, kind: str, known: _Kept, body: Raw) -> web.Response:
        wanted, metadata = (body.get("preconditions") or {}).get("uid"), known.raw["metadata"]
        if wanted not in (None, metadata["uid"]):
            return _refused(409, "Conflict", "metadata.uid")
        if kind == "/api/v1/pods" and known.raw["spec"].get("nodeName"):
            if "deletionTimestamp" not in metadata:
                ends = {"deletionTimestamp": format_time(datetime.now(UTC)), "deletionGracePeriodSeconds": 30}
                known = self._put(kind, {**known.raw, "metadata": {**metadata, **ends}})
                asyncio.get_running_loop().call_later(GRACE_SECONDS, self._remove, kind, key_of(known.raw))
        else:
            self._remove(kind, key_of(known.raw))
        return _said(known.said)


class Servers:
    """All API servers of a fleet, behind one port."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        self._clusters, self.url = clusters, ""
        self._runner = web.AppRunner(self._app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{cluster}/{path:.*}", self._handle)
        return app

    async def __aenter__(self) -> "Servers":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        cluster = self._clusters[request.match_info["cluster"]]
        if cluster.silent:
            if request.transport:
                request.transport.abort()
            return web.Response(status=503)
        return await cluster.answer(request, "/" + request.match_info["path"])


_tokens = itertools.count()


def _paged(kind: _Kind, namespace: str, asked: Mapping[str, str], size: int) -> Iterator[list[_Kept]]:
    found = [kept for kept in kind.objects.values() if _selected(kept.raw, namespace, asked)]
    for start in range(0, max(len(found), 1), size):
        yield found[start : start + size]


async def _next(told: "asyncio.Queue[bytes]") -> bytes:
    """The pending events, as many as there are."""
    found = [await told.get()]
    while not told.empty():
        found.append(told.get_nowait())
    return b"".join(found)


def _place(path: str) -> tuple[str, str, str]:
    """The path of a whole collection, the namespace and the name that a path is about; a subresource is its object."""
    parts = path.strip("/").split("/")
    root, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return "/".join(["", *root, rest[0]]), namespace, rest[1] if len(rest) > 1 else ""


def _selected(raw: Raw, namespace: str, asked: Mapping[str, str]) -> bool:
    metadata = raw["metadata"]
    if namespace and metadata.get("namespace") != namespace:
        return False
    if (fields := asked.get("fieldSelector")) and metadata["name"] != fields.removeprefix("metadata.name="):
        return False
    labels = metadata.get("labels") or {}
    pairs = (term.partition("=") for term in asked.get("labelSelector", "").split(",") if term)
    return all(labels.get(key) == value if equals else key in labels for key, equals, value in pairs)


def _said(body: bytes, status: int = 200) -> web.Response:
    headers = {"Content-Type": "application/json"}
    if len(body) > _PACKED:
        packer = zlib.compressobj(1, wbits=31)
        body, headers["Content-Encoding"] = packer.compress(body) + packer.flush(), "gzip"
    return web.Response(body=body, status=status, headers=headers)


def _refused(status: int, reason: str, about: str) -> web.Response:
    told = {"kind": "Status", "code": status, "reason": reason, "message": f"{reason}: {about}"}
    return _said(orjson.dumps(told), status)
