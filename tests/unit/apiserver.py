"""A small API server on 127.0.0.1, over real sockets: it gives the answers that a test sets, and records the
requests."""

import asyncio
import functools
import json
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec

import yaml
from aiohttp import web

from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.kube.client import Client

P = ParamSpec("P")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
SPEED = 5.0
SLOWNESS = 5.0
PATIENCE = 100.0  # seconds after which an expected event counts as missing; a fifth of it on a hurried loop
TOKEN = "swordfish"
PAGE = "<html><body>Please sign in.</body></html>\n"


class _ScaledSelector(selectors.DefaultSelector):
    """Waits for a loop's timeouts times `factor`."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else timeout * self._factor)


class Hurried(asyncio.SelectorEventLoop):
    """A loop whose clock runs faster: sockets are as they are, and a back-off is over five times as soon."""

    def __init__(self) -> None:
        super().__init__(_ScaledSelector(1 / SPEED))

    def time(self) -> float:
        return super().time() * SPEED


def hurried(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on that loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=Hurried) as runner:
            runner.run(test(*args, **kwargs))

    return run


class Jumping(asyncio.SelectorEventLoop):
    """A loop for a process that can be stopped: nothing in it runs meanwhile, and its clock goes on.

    Its clock is slow otherwise, so that a busy machine, which stops the process for seconds, lets no Lease run out.
    """

    ahead = 0.0

    def __init__(self) -> None:
        super().__init__(_ScaledSelector(SLOWNESS))

    def time(self) -> float:
        return super().time() / SLOWNESS + self.ahead


def stop_for(seconds: float) -> None:
    """Stop the process for so long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Jumping)
    loop.ahead += seconds


def stoppable(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on that loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=Jumping) as runner:
            runner.run(test(*args, **kwargs))

    return run


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    when: float  # by the loop's clock

    @property
    def watch(self) -> bool:
        return "watch" in self.query


@dataclass
class Server:
    """Lists and watches are answered from their own scripts, all other requests like lists. After a script's end there
    is no answer.

    A request for one object reads the newest version and is answered with `newest`; one for the namespace kube-system
    reads the cluster identity and is answered with `uid`. Neither is in a script.
    """

    lists: list[Answer] = field(default_factory=list)
    watches: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    newest: int = 10**9
    ready: bool = False  # probes are answered, and are in no script
    repeats: bool = False  # the last list is repeated: by a hurried clock a busy machine may be too late with it
    compared: int = 0  # requests for the newest version
    uid: str = "uid-of-kube-system"
    proved: int = 0  # requests for the cluster identity
    silent: asyncio.Event = field(default_factory=asyncio.Event)  # a request came after the end of its script
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("limit") == "1":
            self.compared += 1
            return await lists(self.newest)(request)
        if request.query.get("fieldSelector") == "metadata.name=kube-system":
            self.proved += 1
            return await says(named(self.uid))(request)
        if request.path == "/readyz" and self.ready:
            return await text("ok", kind="text/plain")(request)
        said = await request.text()
        asked = Asked(
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            json.loads(said) if said else None,
            asyncio.get_running_loop().time(),
        )
        self.asked.append(asked)
        self.news.set()
        return await self._answer(asked)(request)

    def _answer(self, asked: Asked) -> Answer:
        if self.repeats and not asked.watch and len(self.lists) == 1:
            return self.lists[0]
        script = self.watches if asked.watch else self.lists
        if script:
            return script.pop(0)
        self.silent.set()
        return silence(self)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for a state that comes with a notification."""
        async with asyncio.timeout(PATIENCE):
            while not happened():
                self.news.clear()
                await self.news.wait()

    def of(self, *, watch: bool) -> list[Asked]:
        return [asked for asked in self.asked if asked.watch is watch]


@asynccontextmanager
async def serving(server: Server | None = None) -> AsyncIterator[Server]:
    server = server or Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=PATIENCE)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.closing.set()
        await runner.cleanup()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    client = await Client.from_kubeconfig(yaml.safe_dump(kubeconfig(url)))
    try:
        yield client
    finally:
        await client.close()


def kubeconfig(url: str, *, user: Raw | None = None, cluster: Raw | None = None) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "there",
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "us"}}],
        "clusters": [{"name": "there", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "us", "user": {"token": TOKEN} if user is None else user}],
    }


# --- answers ---------------------------------------------------------------------------------------------------------


def says(body: object, status: int = 200) -> Answer:
    """A JSON answer."""
    return text(json.dumps(body), status, kind="application/json")


def text(body: str, status: int = 200, *, kind: str = "text/html", **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body, content_type=kind, headers=headers)

    return answer


def refuses(status: int, reason: str = "Forbidden", message: str = "no") -> Answer:
    """A Status object with an error, as an API server sends it."""
    return says({"kind": "Status", "reason": reason, "message": message, "code": status}, status)


def streams(*lines: str, then: Callable[[web.Request], Awaitable[None]] | None = None) -> Answer:
    """A watch of these lines; it ends afterwards, or after `then`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for line in lines:
            await response.write(line.encode())
        if then:
            await then(request)
        return response

    return answer


def silence(server: Server) -> Answer:
    """A watch that sends nothing until the test ends."""
    return holds(server)


def holds(server: Server, *lines: str) -> Answer:
    """A watch of these lines that stays open until the test ends."""

    async def then(_: web.Request) -> None:
        await server.closing.wait()

    return streams(*lines, then=then)


async def cut(request: web.Request) -> None:
    """Cut the connection in the middle of an answer."""
    assert request.transport
    request.transport.abort()


def lists(version: int, objects: Iterable[Raw] = (), following: str = "") -> Answer:
    metadata = {"resourceVersion": str(version)} | ({"continue": following} if following else {})
    return says({"kind": "List", "metadata": metadata, "items": list(objects)})


def named(uid: str) -> Raw:
    """The kube-system namespace of a cluster with this uid."""
    return {"kind": "List", "metadata": {}, "items": [{"metadata": {"name": "kube-system", "uid": uid}}] if uid else []}


def event(kind: str, body: Raw) -> str:
    return json.dumps({"type": kind, "object": body}) + "\n"


def bookmark(version: int) -> str:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def gone() -> str:
    return event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
