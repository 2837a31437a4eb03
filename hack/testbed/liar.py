"""A hostile worker cluster: a small HTTP server that speaks enough of the Kubernetes API to be followed, and lies.

It replaces no real part, and what it grants proves nothing. The lies are defined in lies.py; here they are dealt, sent
and counted. Without a lie it answers truly, from a small world of its own, so that an engine goes on to meet the next
lie. It records logins and followed redirects.
"""

import asyncio
import base64
import itertools
import json
import random
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from hack.lab.base import commands
from hack.lab.base.progress import LabError
from hack.testbed import lies
from hack.testbed.lies import Lie
from hack.testbed.said import CHUNKED, LAST_CHUNK, Answer, Asked, Said, chunk
from hack.testbed.world import World

TOKEN = "a-token-of-the-liar"
# All else depends on the probe and the identity request, so few of their answers are lies.
_SELDOM = 0.08
_HELD_SECONDS = 0.5  # how long a watch that tells the truth stays open
_LONGEST_BODY = 8 * 2**20
_PATIENCE = 20.0  # seconds to begin and to end


class Liar:
    """One lying API server on 127.0.0.1, in the caller's loop; `beside` runs it in a thread."""

    def __init__(self, world: World, certificate: tuple[Path, Path] | None = None) -> None:
        """`certificate`: the files of it and of its key; without, it speaks plain HTTP."""
        self.world = world
        self.told: Counter[str] = Counter()  # sent lies, by their sort
        self.asked: Counter[str] = Counter()  # requests, by their method
        self.logins: set[str] = set()  # all values of Authorization and Cookie
        self.strayed: list[bytes] = []  # requests that arrived where only redirects lead
        self.url = self.elsewhere = ""
        self._news = asyncio.Event()
        self._certificate = certificate
        self._dealt: Iterator[Lie] = iter(())
        self._share, self._draw = 0.0, random.Random(1)
        self._servers: list[asyncio.Server] = []
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    def deal(self, some: Sequence[Lie], share: float) -> None:
        """Send these lies from now on, one after the other in a cycle, to this share of the requests."""
        self._share, self._dealt = share, itertools.cycle(some)

    @property
    def lies(self) -> int:
        """How many were told."""
        return sum(self.told.values())

    async def until(self, lies: int) -> None:
        """Wait until so many lies were sent; for callers in its loop."""
        while self.lies < lies:
            self._news.clear()
            await self._news.wait()

    def kubeconfig(self) -> str:
        """A kubeconfig for this server."""
        cluster: dict[str, Any] = {"server": self.url}
        if self._certificate:
            cluster["certificate-authority-data"] = base64.b64encode(self._certificate[0].read_bytes()).decode()
        return yaml.safe_dump({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "liar",
            "contexts": [{"name": "liar", "context": {"cluster": "liar", "user": "liar"}}],
            "clusters": [{"name": "liar", "cluster": cluster}],
            "users": [{"name": "liar", "user": {"token": TOKEN}}],
        })  # fmt: skip

    async def __aenter__(self) -> "Liar":
        context = None
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
        quickly = 1.0 if context else None  # a client that hangs up is not waited for
        there = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context, ssl_shutdown_timeout=quickly)
        other = await asyncio.start_server(self._stray, "127.0.0.1", 0)
        self._servers = [there, other]
        self.url = f"http{'s' if context else ''}://127.0.0.1:{_port(there)}"
        self.elsewhere = f"http://127.0.0.1:{_port(other)}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        there = dict(self._serving)
        for writer, task in there.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*there.values(), return_exceptions=True)

    async def _stray(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            self.strayed.append(await reader.read(1000))
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until a lie ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._serving[writer] = task
        try:
            while await self._answer(reader, writer):
                pass
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # it hung up, as it may, or the test is over
        finally:
            del self._serving[writer]
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether the connection goes on."""
        asked, headers = _request((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
        said = await reader.readexactly(min(int(headers.get("content-length", 0)), _LONGEST_BODY))
        self.asked[asked.method] += 1
        self.logins |= {headers[name] for name in ("authorization", "cookie", "proxy-authorization") if name in headers}
        status, true = self.world.answer(asked, json.loads(said) if said else None)
        if (token := asked.query.get("continue", "")).startswith(lies.ENDLESS):
            await self._tell("endless pages", lies.page(token, asked), reader, writer)
            return False
        if lie := self._drawn(asked):
            await self._tell(lie.sort, lies.answer(lie, asked, true, self.elsewhere), reader, writer)
            return False
        await self._say(_truth(asked, status, true), reader, writer)
        return True

    def _drawn(self, asked: Asked) -> Lie | None:
        """The lie to tell now, if it is time for one."""
        few = asked.path in ("/readyz", "/version") or "kube-system" in str(asked)
        share = min(self._share, _SELDOM) if few else self._share
        return next(self._dealt, None) if self._draw.random() < share else None

    async def _tell(self, sort: str, said: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say it, and count each lie as it goes out."""
        for part in said:
            self.told[sort] += part.lies
            self._news.set()
            await self._say((part,), reader, writer)

    async def _say(self, said: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in said:
            for _ in range(part.times):
                await asyncio.sleep(part.pause)
                if reader.at_eof():
                    raise ConnectionResetError
                writer.write(part.what)
                await writer.drain()


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


def _request(head: str) -> tuple[Asked, Mapping[str, str]]:
    """A request's line and its headers, by names in lower case."""
    line, *rest = head.split("\r\n")
    method, target, _ = line.split(" ", 2)
    url = urlsplit(target)
    headers = (one.partition(":") for one in rest if one)
    named = {name.strip().lower(): value.strip() for name, _, value in headers}
    return Asked(method, url.path, dict(parse_qsl(url.query))), named


def _truth(asked: Asked, status: int, true: Mapping[str, Any]) -> Answer:
    """The true answer, after which the connection goes on; a watch stays open for a while and sends a bookmark."""
    if asked.watch:
        metadata = {"resourceVersion": true["metadata"]["resourceVersion"]}
        bookmark = json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode() + b"\n"
        begun = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + CHUNKED.encode() + b"\r\n\r\n"
        return (Said(begun + chunk(bookmark)), Said(LAST_CHUNK, pause=_HELD_SECONDS))
    kind, body = ("text/plain", b"ok") if asked.path == "/readyz" else ("application/json", json.dumps(true).encode())
    head = f"HTTP/1.1 {status} Fine\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (Said(head.encode() + body),)


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, which is its own authority, and its key."""
    certificate, key = folder / "liar.crt", folder / "liar.key"
    extensions = ("subjectAltName=IP:127.0.0.1", "keyUsage=critical,keyCertSign,digitalSignature")
    more = [word for one in extensions for word in ("-addext", one)]
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=liar", *more]
    commands.run([*words, "-keyout", key, "-out", certificate])
    return certificate, key


@contextmanager
def beside(liar: Liar) -> Iterator[Liar]:
    """Run it in a thread of its own."""
    begun, ends = threading.Event(), threading.Event()
    broken: list[BaseException] = []

    async def live() -> None:
        async with liar:
            begun.set()
            await asyncio.to_thread(ends.wait)

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:  # an exception in a thread would be lost otherwise
            broken.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        if not begun.wait(_PATIENCE) or broken:
            raise LabError(f"The liar did not begin: {broken}.")
        yield liar
    finally:
        ends.set()
        thread.join(_PATIENCE)
    if broken:
        raise LabError(f"The liar died: {broken[0]!r}.")
