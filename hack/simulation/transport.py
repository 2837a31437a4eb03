"""An in-process transport in place of sockets: stands in for aiohttp's sessions, as far as the controller uses them.

A request takes time on its way, and so does its answer. Between a process and a host stands a link, which faults make
silent, slow or lossy. What is under way when a link is cut is lost.
"""

import asyncio
import random
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from functools import cache, lru_cache
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp

from hack.simulation import virtualtime
from hack.simulation.link import PROCESS, Answer, Host, Link, Process, Request

_NEVER = 1e9  # seconds
_APART = 1e-5  # seconds: of two timers of one time either may be first
_FIRST_RETRY, _LAST_RETRY = 0.3, 60.0  # seconds until a segment is sent again


class Network:
    """All hosts and links."""

    def __init__(self, loop: asyncio.AbstractEventLoop, draw: random.Random) -> None:
        self.loop, self.draw = loop, draw
        self.hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._pairs: dict[tuple[str, str], tuple[Link, Link]] = {}
        self.requests = 0
        self.on_write: Callable[[Process, str, Request], None] = lambda *_: None  # called with each write that is sent

    def link(self, host: str, process: str = "") -> Link:
        """The link of all processes to a host, or of one."""
        return self._links.setdefault((process, host), Link())

    def _pair(self, host: str, process: str) -> tuple[Link, Link]:
        found = self._pairs.get((host, process))
        if found is None:
            found = self._pairs[host, process] = self.link(host), self.link(host, process)
        return found

    def cut(self, host: str, process: str) -> str:
        """How the way is cut, or empty."""
        common, own = self._pair(host, process)
        return common.cut or own.cut

    def delay(self, host: str, process: str) -> float:
        """Seconds of one way, by the slower link."""
        common, own = self._pair(host, process)
        least, most = max(common.latency, own.latency)
        return least + (most - least) * self.draw.random()

    def lag(self, host: str, process: str) -> float:
        """Seconds of a watch event, by the slower link."""
        common, own = self._pair(host, process)
        least, most = max(common.lag, own.lag)
        return least + (most - least) * self.draw.random()

    def chance(self, host: str, process: str, what: str) -> bool:
        common, own = self._pair(host, process)
        share: float = max(getattr(common, what), getattr(own, what))
        return share > 0 and self.draw.random() < share

    def generation(self, host: str, process: str) -> int:
        common, own = self._pair(host, process)
        return common.opened + own.opened

    def install(self) -> None:
        """Have all new sessions of this process use this network."""
        network = self

        class Session(_Session):
            def __init__(self, **options: Any) -> None:
                super().__init__(network, options)

        vars(aiohttp).update(ClientSession=Session, TCPConnector=lambda **_: None)
        vars(ssl).update(create_default_context=cache(ssl.create_default_context))  # nothing is encrypted here

    async def send(self, process: Process, host: str, request: Request, connect: float | None) -> "_Answer":
        """Send a request, and wait for its answer, if need be for ever."""
        if process.is_dead or host not in self.hosts or self.cut(host, process.name) == "refused":
            await asyncio.sleep(self.delay(host, process.name) if not process.is_dead else 0)
            raise aiohttp.ClientConnectionError("the connection is refused")
        if connect is not None and self.cut(host, process.name):
            await asyncio.sleep(connect)
            raise TimeoutError
        if request.method != "GET":
            process.writes += 1
            self.on_write(process, host, request)
            if process.on_write:
                process.on_write(host, request)
        self.requests += 1
        answered = self.loop.create_future()
        late = process.late if request.method != "GET" else 0.0
        self._later(late + self.delay(host, process.name), self._arrive, process, host, request, answered)
        answer: _Answer = await answered
        return answer

    def _later(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        """Call something that is on no machine, and so goes on while one stands still."""
        self.loop.call_later(seconds, call, *args, context=virtualtime.MODELS)

    def _arrive(self, process: Process, host: str, request: Request, answered: "asyncio.Future[Any]") -> None:
        if self.cut(host, process.name) or host not in self.hosts:
            return
        answer = self.hosts[host].handle(request)
        if request.method != "GET" and self.chance(host, process.name, "answers_lost"):
            if self.draw.random() < 0.5:
                self._later(self.delay(host, process.name), _fail, answered)
            return
        self._later(self.delay(host, process.name), self._return, process, host, answer, answered)

    def _return(self, process: Process, host: str, answer: Answer, answered: "asyncio.Future[Any]") -> None:
        if not self.cut(host, process.name) and not answered.done():
            answered.set_result(_Answer(self, process, host, answer))


def _fail(answered: "asyncio.Future[Any]") -> None:
    if not answered.done():
        answered.set_exception(aiohttp.ServerDisconnectedError())


class _Answer:
    """An answer, as far as aiohttp's is used."""

    connection = None

    def __init__(self, network: Network, process: Process, host: str, answer: Answer) -> None:
        self.status, self.headers = answer.status, answer.headers
        self.content_type = answer.headers.get("Content-Type", "application/json")
        self.content: _Body | _Stream = _Body(answer.body)
        self.read_timeout: float = _NEVER
        if answer.watch:
            self.content = _Stream(network, process, host, self)
            self.content.open(answer.watch)

    @property
    def reason(self) -> str:
        return HTTPStatus(self.status).phrase

    async def __aenter__(self) -> "_Answer":
        return self

    async def __aexit__(self, *_: object) -> None:
        if isinstance(self.content, _Stream):
            self.content.close()


class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def iter_any(self) -> AsyncIterator[bytes]:
        if self._data:
            yield self._data


class _Stream:
    """The events of a watch; they come in order, each after its lag, and after a cut either late or not at all."""

    def __init__(self, network: Network, process: Process, host: str, answer: _Answer) -> None:
        self._network, self._process, self._host, self._answer = network, process, host, answer
        self._chunks: deque[bytes] = deque()
        self._held: deque[bytes] = deque()  # under way
        self._last, self._ended = 0.0, False
        self._waiter: asyncio.Future[Any] | None = None
        self._generation = network.generation(host, process.name)
        self._stop: Callable[[], None] = lambda: None

    def open(self, watch: Callable[[Callable[[bytes], None], Callable[[], None]], Callable[[], None]]) -> None:
        self._stop = watch(self._send, self._end)

    def close(self) -> None:
        self._stop()

    def _send(self, chunk: bytes) -> None:
        network = self._network
        times = 2 if network.chance(self._host, self._process.name, "repeats") else 1
        self._last = max(self._last + _APART, network.loop.time() + network.lag(self._host, self._process.name))
        network.loop.call_at(self._last, self._arrive, chunk * times, context=virtualtime.MODELS)

    def _end(self) -> None:
        self._last = max(self._last + _APART, self._network.loop.time() + 0.001)
        self._network.loop.call_at(self._last, self._arrive, b"", context=virtualtime.MODELS)

    def _arrive(self, chunk: bytes) -> None:
        self._held.append(chunk)
        if len(self._held) == 1:
            self._deliver(_FIRST_RETRY)

    def _deliver(self, retry: float) -> None:
        """Deliver what is under way; over a cut link it is sent again, as TCP does, later each time."""
        if self._network.cut(self._host, self._process.name):
            self._network.loop.call_later(retry, self._deliver, min(retry * 2, _LAST_RETRY))
            return
        broken = self._network.generation(self._host, self._process.name) != self._generation
        while self._held:
            chunk = self._held.popleft()
            if not chunk or broken:
                self._ended = True
                self._stop()
            elif not self._ended:
                self._chunks.append(chunk)
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def iter_any(self) -> AsyncIterator[bytes]:
        while True:
            while self._chunks:
                yield self._chunks.popleft()
            if self._ended:
                return
            self._waiter = self._network.loop.create_future()
            async with asyncio.timeout(self._answer.read_timeout):
                await self._waiter


class _Exchange:
    """What `session.request` returns: to be awaited, or entered."""

    def __init__(self, send: Callable[[], Any]) -> None:
        self._send = send
        self._answer: _Answer | None = None

    def __await__(self) -> Generator[Any, None, _Answer]:
        found: Generator[Any, None, _Answer] = self._send().__await__()
        return found

    async def __aenter__(self) -> _Answer:
        self._answer = await self._send()
        return self._answer

    async def __aexit__(self, *_: object) -> None:
        if self._answer:
            await self._answer.__aexit__()


class _Session:
    """Stands in for aiohttp.ClientSession."""

    def __init__(self, network: Network, options: Mapping[str, Any]) -> None:
        self._network, self._process, self.closed = network, PROCESS.get(), False
        request_class, self._timeout = options.get("request_class"), options.get("timeout")
        self._is_closed = getattr(request_class, "_closed", None)

    async def __aenter__(self) -> "_Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.closed = True

    def get(self, url: str, **options: Any) -> _Exchange:
        return self.request("GET", url, **options)

    def request(self, method: str, url: str, **options: Any) -> _Exchange:
        return _Exchange(lambda: self._request(method, url, options))

    async def _request(self, method: str, url: str, options: Mapping[str, Any]) -> _Answer:
        from adapter.shell.kube.client import Unreachable

        if self._is_closed and (reason := self._is_closed(SimpleNamespace(method=method))):
            raise Unreachable(reason)
        host, path, own = _parts(url)
        query = {**own, **(options.get("params") or {})}
        kind = (options.get("headers") or {}).get("Content-Type", "")
        request = Request(method, path, query, (options.get("data") or "").encode(), kind)
        timeout = options.get("timeout") or self._timeout
        connect = timeout.sock_connect if timeout and "watch" not in query else None
        answer = await self._network.send(self._process, host, request, connect)
        if timeout and timeout.sock_read:
            answer.read_timeout = timeout.sock_read
        return answer


@lru_cache(maxsize=1024)
def _parts(url: str) -> tuple[str, str, Mapping[str, str]]:
    """The host, the path and the query of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.path, dict(parse_qsl(parts.query))
