"""How is a Ray head asked which nodes it still hears from?

A head is a user's own pod: its answer may be endless, never come, lead elsewhere or be nonsense. So it is asked by its pod's IP
alone, within a deadline, and no more is read than a large RayCluster needs, nor of more heads at once than fit into memory. Its
token is read for each question and not kept.
"""

import asyncio
import ipaddress
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import orjson

from adapter.objects.unstructured import Raw, key_of
from adapter.rewrite import copied_objects
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError
from adapter.worker import ray_nodes, ray_token

DEADLINE_SECONDS = 5.0  # for all of an answer, and for its token
# In the manager's pod network a connection takes milliseconds, or a second where its first packet was lost; what is dropped by
# a policy shall not hold a place for longer than that.
CONNECT_SECONDS = 2.0
# Bytes of an answer: a thousand nodes take 600 KB, and Ray remembers a thousand dead ones.
LARGEST_BYTES = 2 << 20
# Bytes of an answer that is read at once, in 2 ms at most: a hundred nodes, which is what most RayClusters have. Larger ones, of
# which the worst take 75 ms of the loop in which everything else runs, wait for each other, and after each one the next waits nine
# times as long as it took: all of them never take more than a tenth of it.
SMALL_BYTES = 64 << 10
REST_FACTOR = 9
# Answers larger than that which are held at the same time; the others wait, as TCP lets whoever sends them wait. With what all
# others may send meanwhile, 48 times SMALL and what a socket's reader has read ahead (128 KB), it is 20 MiB at most, and the
# parsed form of one. One of a namespace, so that a tenant whose heads drip holds up its own: an honest one is there in milliseconds.
LARGE_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class HeadAnswer:
    """What came of a question."""

    nodes: Mapping[str, bool] | None = None  # as `raynodes.alive` says it; None: no answer that can be used
    problem: str = ""  # why none will come before somebody puts something right: a sentence for the job's user


class _TokenUnavailable(Exception):
    """A head's token cannot be had; the text is a fragment that says why."""


class HeadClient:
    """Asks heads; `opened` makes one."""

    def __init__(self, manager: ManagerCache, session: aiohttp.ClientSession) -> None:
        self._manager, self._session = manager, session
        self._parse_lock, self._rest_until = asyncio.Lock(), 0.0  # when the next large answer may be read
        self._large_slots = asyncio.Semaphore(LARGE_AT_ONCE)
        self._large_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by namespace

    async def poll_nodes(self, head: Raw) -> HeadAnswer:
        """Ask a head; raises whatever its answer, or the way to it, leads to."""
        where = ray_token.token_source(head)
        async with AsyncExitStack() as place:  # of a large answer, until it is read
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    headers = await self._auth_headers(head, where)
                    status, body = await self._get_body(head, headers, place)
            except _TokenUnavailable as why:
                return HeadAnswer(problem=ray_token.head_not_asked_message(head, str(why)))
            if status in (401, 403):
                return HeadAnswer(
                    problem=ray_token.head_not_asked_message(head, ray_token.unauthorized_message(where, status))
                )
            return (
                HeadAnswer(ray_nodes.parse_node_states(await self._parse_body(body))) if status == 200 else HeadAnswer()
            )

    async def _auth_headers(self, head: Raw, source: ray_token.TokenSource | None) -> Mapping[str, str]:
        """The headers that show a head its own token, none when it has none; raises _Unshown."""
        if source is None:
            return {}
        try:
            return ray_token.auth_headers(await self._read_token(key_of(head)[0], source))
        except ValueError:
            raise _TokenUnavailable(ray_token.invalid_token_message(source)) from None

    async def _read_token(self, namespace: str, source: ray_token.TokenSource) -> str:
        if source.secret is None or copied_objects.invalid_name_reason(source.secret):
            return source.value
        try:
            found = await self._manager.client.get(resources.SECRETS.path(namespace, source.secret.name))
        except ApiError as error:
            if error.not_found:
                raise _TokenUnavailable(ray_token.missing_secret_message(source, namespace)) from None
            if error.status == 403:
                raise _TokenUnavailable(ray_token.forbidden_message(source, namespace)) from None
            raise
        return ray_token.decode_token(found, source.key)

    async def _get_body(
        self, head: Raw, headers: Mapping[str, str], large_answer_slot: AsyncExitStack
    ) -> tuple[int, bytearray]:
        """Status and body of what answers at the head's own address, and nowhere else; a large one takes its place."""
        address = ipaddress.ip_address(head["status"]["podIP"])  # a name would lead wherever somebody likes
        host = f"[{address}]" if address.version == 6 else str(address)
        url = f"http://{host}:{ray_nodes.dashboard_port(head)}{ray_nodes.NODES_PATH}"
        # Nothing is unpacked: a few packed bytes may stand for more than fits into memory.
        sent = {**headers, "Accept-Encoding": "identity"}
        async with self._session.get(url, params={"limit": "10000"}, headers=sent, allow_redirects=False) as answer:
            if answer.status != 200:
                return answer.status, bytearray()
            body = bytearray()
            if await _read_beyond(answer, body, SMALL_BYTES):
                await large_answer_slot.enter_async_context(self._large_locks[key_of(head)[0]])
                await large_answer_slot.enter_async_context(self._large_slots)
                if await _read_beyond(answer, body, LARGEST_BYTES):
                    raise ValueError("too large")
            return answer.status, body

    async def _parse_body(self, body: bytearray) -> object:
        """An answer as JSON; a large one in its turn."""
        if len(body) <= SMALL_BYTES:
            return orjson.loads(body)
        async with self._parse_lock:
            await asyncio.sleep(self._rest_until - time.monotonic())
            started = time.monotonic()
            try:
                return orjson.loads(body)
            finally:
                ended = time.monotonic()
                self._rest_until = ended + REST_FACTOR * (ended - started)


@asynccontextmanager
async def open_client(manager: ManagerCache) -> AsyncIterator[HeadClient]:
    """A client for the heads of a manager cluster. It keeps no connection and no cookie: the next pod of that address is another."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        auto_decompress=False,
    ) as session:
        yield HeadClient(manager, session)


async def _read_beyond(answer: aiohttp.ClientResponse, body: bytearray, most_bytes: int) -> bool:
    """Read on until the end of a body, or until there is more of it than `most`, which is told."""
    async for part in answer.content.iter_any():
        body += part
        if len(body) > most_bytes:
            return True
    return len(body) > most_bytes
