"""Asks a Ray head which Ray nodes it is still connected to.

A head is a user's pod and untrusted: its answer may be endless, never come, redirect or be nonsense. So requests go to
its pod's IP only and have a deadline, and answers are bounded in size and number. The token is not kept.
"""

import asyncio
import ipaddress
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import orjson

from adapter.objects.unstructured import Raw, key_of
from adapter.rewrite import copied_objects
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError
from adapter.worker import ray_nodes, ray_token

DEADLINE_SECONDS = 5.0  # for the token and the whole answer
# The time to connect. It takes milliseconds, or a second if the first packet was lost; a connection that a policy drops
# must not take longer.
CONNECT_SECONDS = 2.0
# The largest answer: a thousand nodes take 600 KB, and Ray remembers a thousand dead ones.
LARGEST_BYTES = 2 << 20
# The largest answer that is parsed without a pause, in 2 ms at most: a hundred nodes, enough for most RayClusters.
# Larger answers take up to 75 ms of the event loop each; with pauses nine times as long, they never take more than a
# tenth of it.
SMALL_BYTES = 64 << 10
REST_FACTOR = 9
# The most larger answers in memory at once; TCP makes the other senders wait. All answers together take 20 MiB at most,
# and one parsed answer. That includes 48 times SMALL_BYTES for other answers, and what their sockets' readers have read
# ahead (128 KB each). A namespace may have one larger answer, so that a tenant with slow heads delays only its own.
LARGE_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class HeadAnswer:
    nodes: Mapping[str, bool] | None = None  # None: no usable answer
    clusters: Mapping[str, str] = field(default_factory=dict)  # the worker cluster at each address
    problem: str = ""  # a sentence, if a user must correct something


class _TokenUnavailable(Exception):
    """A token cannot be read; the text is the reason, a fragment."""


class HeadClient:
    def __init__(self, manager: ManagerCache, session: aiohttp.ClientSession) -> None:
        self._manager, self._session = manager, session
        self._parse_lock, self._rest_until = asyncio.Lock(), 0.0  # when the next large answer may be parsed
        self._large_slots = asyncio.Semaphore(LARGE_AT_ONCE)
        self._large_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by namespace

    async def poll_nodes(self, head: Raw) -> HeadAnswer:
        """Poll a head for its nodes; raises any exception of connection or answer."""
        source = ray_token.token_source(head)
        async with AsyncExitStack() as large_answer_slot:  # until a large answer is parsed
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    headers = await self._auth_headers(head, source)
                    status, body = await self._get_body(head, headers, large_answer_slot)
            except _TokenUnavailable as error:
                return HeadAnswer(problem=ray_token.head_not_asked_message(head, str(error)))
            if status in (401, 403):
                return HeadAnswer(
                    problem=ray_token.head_not_asked_message(head, ray_token.unauthorized_message(source, status))
                )
            if status != 200:
                return HeadAnswer()
            answer = await self._parse_body(body)
            return HeadAnswer(ray_nodes.parse_node_states(answer), ray_nodes.parse_node_clusters(answer))

    async def _auth_headers(self, head: Raw, source: ray_token.TokenSource | None) -> Mapping[str, str]:
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
            secret = await self._manager.client.get(resources.SECRETS.path(namespace, source.secret.name))
        except ApiError as error:
            if error.not_found:
                raise _TokenUnavailable(ray_token.missing_secret_message(source, namespace)) from None
            if error.status == 403:
                raise _TokenUnavailable(ray_token.forbidden_message(source, namespace)) from None
            raise
        return ray_token.decode_token(secret, source.key)

    async def _get_body(
        self, head: Raw, headers: Mapping[str, str], large_answer_slot: AsyncExitStack
    ) -> tuple[int, bytearray]:
        address = ipaddress.ip_address(
            head["status"]["podIP"]
        )  # rejects a host name, which could resolve to any target
        host = f"[{address}]" if address.version == 6 else str(address)
        url = f"http://{host}:{ray_nodes.dashboard_port(head)}{ray_nodes.NODES_PATH}"
        # Nothing packed: a few packed bytes may stand for more than fits into memory.
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
    """A client that keeps no connections and cookies, because the next pod at an address is another pod."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        auto_decompress=False,
    ) as session:
        yield HeadClient(manager, session)


async def _read_beyond(answer: aiohttp.ClientResponse, body: bytearray, most_bytes: int) -> bool:
    async for part in answer.content.iter_any():
        body += part
        if len(body) > most_bytes:
            return True
    return len(body) > most_bytes
