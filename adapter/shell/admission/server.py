"""How does the API server's question come in, and the answer go out: over TLS, in a bounded time and space?

It stands in for kopf's own server, which takes one MiB at most and reads on while others wait. kopf copies each object that it is given, and
compares the two of an update: for one of 3 MB that takes seconds. So it gets of each question what tells the handler, and the object goes
around it (`OBJECT`). What comes in is anybody's text: whoever reaches the port may send
it. The gate goes first: warnings get at most half of the loop's time, and whoever would come too late with them gets none. They never
deny: whatever goes wrong is an error to the API server, which goes on without (failurePolicy Ignore). Of the gate an error means that the pod
is refused (Fail), so that none slips through.
"""

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from adapter import names
from adapter.objects.raw import UNREADABLE, Raw
from adapter.shell import guard
from adapter.shell.uploads import Uploads

log = logging.getLogger(__name__)

# What is stored is no larger than 1.5 MiB. A pod that is created comes once, and of an update both objects do; what is larger is refused later.
GATE_BYTES, WARNING_BYTES = 2 * 2**20, 4 * 2**20
# All that may be on its way at once, 64 MiB and 32: a pod's question takes some 60 KB and a millisecond. One that is read takes up to 25
# times its size: only one is at a time, and one more whose plan is asked for.
MOST_UPLOADS, MOST_WAITING = 32, 8
UPLOAD_SECONDS = 1.5
# The API server waits for two, and the answer has to reach it.
WARNING_SECONDS = 1.5
LINGER_SECONDS = 1.0
REREAD_SECONDS = 60.0  # a kubelet takes as long to write a Secret that changed

# What the question is about, for the handler that kopf calls.
OBJECT: ContextVar[Raw] = ContextVar("object")
Review = dict[str, Any]
Answer = Callable[..., Awaitable[Any]]  # kopf's: the question, and which handler is to answer it


class Server:
    """kopf's protocol for a server (`settings.admission.server`): called with who answers, it serves until it is closed."""

    def __init__(self, port: int, certificate: Path, key: Path, *, reread: float = REREAD_SECONDS) -> None:
        """`reread`: after how many seconds the files are looked at again."""
        self._port, self._certificate, self._key, self._reread = port, certificate, key, reread
        self.listens = False

    async def __call__(self, answer: Answer) -> AsyncIterator[Any]:
        desk = _Desk(answer)
        app = web.Application(client_max_size=WARNING_BYTES)
        app.add_routes([web.post(names.GATE_PATH, desk.gate), web.post(names.WARNINGS_PATH, desk.warnings)])
        # What is packed stays so, and is no JSON: a few KiB could become more than there is memory for.
        runner = web.AppRunner(app, access_log=None, auto_decompress=False, lingering_time=LINGER_SECONDS)
        await runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._certificate, self._key)
            await web.TCPSite(runner, port=self._port, ssl_context=context).start()
            self.listens = True
            log.info("webhooks are served on port %d", self._port)
            yield {}
            await self._renew(context)
        finally:
            self.listens = False
            await runner.cleanup()

    async def _renew(self, context: ssl.SSLContext) -> None:
        """Read the files again whenever they have changed, for connections from then on; until cancelled."""
        seen = self._digest()
        while True:
            await asyncio.sleep(self._reread)
            now = self._digest()
            if now == seen:
                continue
            try:
                context.load_cert_chain(self._certificate, self._key)
            except ssl.SSLError as error:  # one of them is newer than the other: the next look has both
                log.warning("the certificate cannot be read anew: %s", error.reason)
            else:
                seen = now
                log.info("the certificate was read anew")

    def _digest(self) -> str:
        return hashlib.sha256(self._certificate.read_bytes() + self._key.read_bytes()).hexdigest()


class _Desk:
    """Who is answered when."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._of_gate, self._of_warnings = (Uploads(most, UPLOAD_SECONDS) for most in (MOST_UPLOADS, MOST_WAITING))
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._rested = 0.0  # when the next warnings may be looked for

    async def gate(self, request: web.Request) -> web.Response:
        """The gate, for a pod: at once."""
        if not 0 < (request.content_length or 0) <= GATE_BYTES:
            return _refused(413)
        try:
            text = await self._of_gate.read(request)
        except TimeoutError:
            return _refused(408)
        return await self._answered(_review(text), names.GATE_PATH, _of_pod)

    async def warnings(self, request: web.Request) -> web.Response:
        """Warnings, in turn; none where that takes too long."""
        if self._waiting >= MOST_WAITING:
            return _refused(429)
        self._waiting += 1
        try:
            async with asyncio.timeout(WARNING_SECONDS):
                review = await self._in_turn(await self._of_warnings.read(request))
                return await self._answered(review, names.WARNINGS_PATH, _of_any)
        except TimeoutError:
            return _refused(503)
        finally:
            self._waiting -= 1

    async def _in_turn(self, text: bytes) -> Review | None:
        """Reading it is what takes long; what is said of it afterwards has bounds of its own."""
        async with self._turn:
            started = max(self._rested, time.monotonic())
            await asyncio.sleep(started - time.monotonic())
            review = _review(text)
            ended = time.monotonic()
            self._rested = ended + ended - started
            return review

    async def _answered(self, review: Review | None, path: str, shown: Callable[[Raw], Raw]) -> web.Response:
        if review is None:
            return _refused(400)
        try:
            question = _question(review, shown)
        except (*UNREADABLE, RecursionError):
            return _refused(400)
        OBJECT.set(review["request"]["object"])
        try:
            said = await self._answer(question, webhook=path.strip("/"))
        except Exception as error:  # a kind that kopf has no handler for, or a fault of ours
            guard.failed(f"the webhook {path}", error)
            return _refused(500)
        if not said["response"]["allowed"]:  # nobody here denies: a handler broke
            return _refused(500)
        return web.Response(body=orjson.dumps(said), content_type="application/json")


def _refused(status: int) -> web.Response:
    """Nothing more comes on this connection, which is said: what was sent may be on its way yet, and the next question could be the gate's."""
    answer = web.Response(status=status)
    answer.force_close()
    return answer


def _review(text: bytes) -> Review | None:
    """What was sent, None where it is no object."""
    try:
        found = orjson.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _question(review: Review, shown: Callable[[Raw], Raw]) -> Review:
    """What kopf gets of it, as if it were of a create: of an update it would remember each object for good, to know it when it is deleted."""
    request = review["request"]
    asked = {"uid": request["uid"], "resource": request["resource"], "operation": "CREATE", "userInfo": {}}
    whole = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
    return {**whole, "request": {**asked, "object": shown(request["object"])}}


def _of_pod(pod: Raw) -> Raw:
    """What the gate changes, in its place: the patch is the difference."""
    gates = pod["spec"].get("schedulingGates")
    return {"metadata": {}, "spec": {} if gates is None else {"schedulingGates": gates}}


def _of_any(raw: Raw) -> Raw:
    return {"kind": raw["kind"], "metadata": {}}
