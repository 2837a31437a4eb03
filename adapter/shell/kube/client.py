"""How do we talk to one API server: verbs and raw dicts over one pool of connections?

Who we are to it, the official client says (kubeconfig.py), which takes long to import; the user's own kubeconfig is read without it where that
suffices (user_kubeconfig.py).

Typed models drop fields that they do not know and cost several times the CPU, and a rewriter must keep what newer
servers send; so bodies are plain dicts. Nothing here retries, caches or interprets: a caller learns of every failure.
Whoever answers may be anybody: all that is read of it is bounded, in bytes and in time, and no redirect or cookie is taken.
A client may be fenced: then a write is sent only while whoever made the client says so, asked when the connection stands.
So it is while whoever knows the cluster has something against it (`guard`).
Requests are counted as their answers come, a watch when it opens.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection

from adapter import __version__
from adapter.membership import ApiServerAddress
from adapter.objects import api_messages
from adapter.objects.unstructured import MAX_ITEM_LENGTH, MAX_TEXT_LENGTH, key_of, printable, uid_of
from adapter.shell.kube import encoding, response_limits, user_kubeconfig
from adapter.shell.kube.credentials import BadLogin, Credentials
from adapter.shell.kube.resources import NAMESPACES, kind_of

Body = dict[str, Any]
MayWrite = Callable[[], bool]
# A request that takes longer will not be answered in time to be of use: reads come from watches, writes are small.
TIMEOUT_SECONDS = 10.0
NO_API_SERVER = "what answers there is no Kubernetes API server"
FENCED = "it is not sent, because this process does not lead"
# A stream is asked for by who asks the server to end it sooner; one that goes on says nothing, byte by byte, to seem alive.
LONGEST_STREAM_SECONDS = 300.0
# Requests in flight to one cluster. An API server answers in milliseconds; more only queue up in it.
PARALLEL_REQUESTS = 32


_RECONNECTING = "it is connected anew"
_NO_ANSWER = "none"  # instead of HTTP's status
_CODES = frozenset(HTTPStatus)  # all others are one: whoever answers decides which they are
_OWN_NAMESPACE = "kube-system"  # every API server makes it, and it goes with its etcd alone
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}

_TracedRequest = aiohttp.TraceRequestEndParams | aiohttp.TraceRequestExceptionParams


class ApiError(Exception):
    """The API server answered, but not with success."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status, self.reason, self.message = (
            status,
            printable(reason, MAX_ITEM_LENGTH),
            printable(message, MAX_TEXT_LENGTH),
        )
        super().__init__(f"{status} {self.reason}: {self.message}")

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def already_exists(self) -> bool:
        """There is an object of that name. A quota that others book at the same moment answers 409 as well."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_transient(self) -> bool:
        """The API server, or what it asks, is in trouble or busy: nothing was said of the object."""
        return self.status == 429 or self.status >= 500

    @property
    def is_conflict(self) -> bool:
        """Something else is true by now: read again (stale version, other uid, name taken)."""
        return self.status == 409 or (self.status == 422 and api_messages.is_uid_conflict(self.message))


CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError, response_limits.UnreadableResponse)
# When aiohttp's own timer for a whole exchange runs out before the headers come, it takes back two cancellations, for it stands in two
# blocks. Who is cancelled from outside in that moment would never hear of it, and go on for ever. asyncio's takes back its own.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)


class Unreachable(Exception):
    """No answer: refused, timed out, TLS failed, the link is cut, or it was not sent because the client is fenced."""


def _never_fenced() -> str:
    """Nobody has anything against a write."""
    return ""


class UnusableCluster(Unreachable):
    """It answers, and is not ours to use: it is another cluster, or somebody else's. `reason` says so in a word, for a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ResponseTooLarge(Unreachable):
    """It answers with more than what was asked for can be."""


class Client:
    """One API server and one connection pool, so that a server that hangs costs only its own callers."""

    def __init__(
        self, login: Credentials, cluster: str = "", may_write: MayWrite = lambda: True, *, counted: bool = True
    ) -> None:
        """`cluster` is what metrics call it: a worker cluster, empty for the manager. `counted`: somebody may ask for these."""
        self._login, self._cluster, self._counted = login, cluster, counted
        self.may_write = may_write
        self.write_guard: Callable[[], str] = _never_fenced  # why nothing may be written to this cluster now
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=login.tls, limit=0),
            headers={
                "User-Agent": f"rayspan/{__version__}",
                "Accept": "application/json",
                "Accept-Encoding": "gzip",
            },
            request_class=_fenced_request_class(self.fence_reason),
            auto_decompress=False,  # response_limits.py counts what it unpacks
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[counting_trace(cluster, login.address.server) if counted else no_redirect_trace()],
        )
        self._request_slots, self._large_answers_lock = (
            asyncio.Semaphore(PARALLEL_REQUESTS),
            asyncio.Lock(),
        )  # large answers come one by one
        self._probe_error = ""  # why the last probe had no answer; empty when it had one, and while nobody probes
        # A redirect leads to somebody's login page, never to an API server.
        self._request_options: dict[str, Any] = {
            "allow_redirects": False,
            "proxy": login.address.proxy_url or None,
            "server_hostname": login.address.tls_server_name or None,
        }

    @classmethod
    async def in_cluster(cls, may_write: MayWrite = lambda: True) -> "Client":
        """Log in as the pod's service account, or by $KUBECONFIG outside a cluster."""
        from adapter.shell.kube import kubeconfig

        return cls(await kubeconfig.login_of_pod(), may_write=may_write)

    @classmethod
    async def for_user(cls, file: str, context: str) -> "Client":
        """Log in as kubectl does, by a kubeconfig file and a context (empty: kubectl's own choice); raises BadLogin."""
        if found := user_kubeconfig.load_credentials(file, context):
            return cls(found, counted=False)
        from adapter.shell.kube import kubeconfig

        return cls(await kubeconfig.login_of_user(file, context), counted=False)

    @classmethod
    async def from_kubeconfig(cls, text: str, cluster: str = "", may_write: MayWrite = lambda: True) -> "Client":
        """Log in by the text of a kubeconfig to what metrics call `cluster`; raises BadLogin."""
        from adapter.shell.kube import kubeconfig

        login = await kubeconfig.login_of_text(text)
        if not all(value.isprintable() for value in (await login.headers()).values()):
            await login.close()
            raise BadLogin("its token holds a line break or another control character")
        return cls(login, cluster, may_write)

    async def close(self) -> None:
        await self._session.close()
        await self._login.close()

    async def probe(self) -> None:
        """Return if the API server gives a sign of life: that it is ready, or that it knows us well enough to refuse.

        It waits behind no other request. As long as it gets no answer, all others that are not on their way yet fail at once.
        """
        try:
            await self._send_request("GET", "/readyz", text=True)
        except Unreachable as silence:
            self._probe_error = str(silence)
            raise
        except ApiError as refusal:
            self._probe_error = ""
            if refusal.status != 403:
                raise
        else:
            self._probe_error = ""

    async def cluster_uid(self) -> str:
        """Who the cluster is: the uid of its namespace kube-system, empty where it shows none. It waits behind no other request."""
        only = {"fieldSelector": f"metadata.name={_OWN_NAMESPACE}"}
        found = (await self._send_request("GET", NAMESPACES.path(), params=only)).get("items")
        named = (one for one in (found if isinstance(found, list) else ()) if isinstance(one, dict))
        return next((uid_of(one) for one in named if key_of(one)[1] == _OWN_NAMESPACE), "")

    def fence_reason(self) -> str:
        """Why no write may be sent now, empty when it may."""
        return self.write_guard() if self.may_write() else FENCED

    @property
    def address(self) -> ApiServerAddress:
        """How this API server is reached, for who hands that on."""
        return self._login.address

    @property
    def cluster(self) -> str:
        """A worker cluster, empty for the manager."""
        return self._cluster

    async def get(self, path: str, most_bytes: int = response_limits.OBJECT_BYTES, /, **params: str) -> Body:
        """Read an object, or so many bytes of objects; raises TooLarge when there are more. `pagination.py` reads a whole list."""
        return await self._send_in_turn("GET", path, params=params, most_bytes=most_bytes)

    async def find(self, path: str) -> Body | None:
        """Read an object; None where there is none."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def create(self, path: str, body: Mapping[str, Any]) -> Body:
        return await self._send_in_turn("POST", path, body=body)

    async def dry_run_create(self, path: str, body: Mapping[str, Any]) -> Body:
        """Have everything done that a create does but the last step: the answer is the object as it would stand."""
        return await self._send_in_turn("POST", path, params={"dryRun": "All"}, body=body)

    async def replace(self, path: str, body: Mapping[str, Any]) -> Body:
        """Put another object in the place of the one that stands, whatever that holds."""
        return await self._send_in_turn("PUT", path, body=body)

    async def merge_patch(self, path: str, body: Mapping[str, Any]) -> Body:
        """Send a JSON merge patch; metadata.uid and metadata.resourceVersion in it are preconditions."""
        return await self._send_in_turn("PATCH", path, body=body, kind="application/merge-patch+json")

    async def apply(self, path: str, body: Mapping[str, Any], manager: str) -> Body:
        """Send a server-side apply that takes over the fields it names."""
        params = {"fieldManager": manager, "force": "true"}
        return await self._send_in_turn("PATCH", path, params=params, body=body, kind="application/apply-patch+yaml")

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]], manager: str) -> Body:
        """Send a JSON patch: all of it is done, or nothing where one of its tests fails (422)."""
        params = {"fieldManager": manager}
        return await self._send_in_turn(
            "PATCH", path, params=params, body=operations, kind="application/json-patch+json"
        )

    async def delete(self, path: str, uid: str) -> bool:
        """Delete this very object, and what it owns in the background; one that is gone already is a success, and False."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._send_in_turn("DELETE", path, body=body)
        except ApiError as error:
            if error.not_found or error.is_conflict:  # a conflict says that the name belongs to another object by now
                return False
            raise
        return True

    async def _send_in_turn(self, method: str, path: str, **rest: Any) -> Body:
        """An exchange in its turn, and none while the cluster is silent."""
        async with self._request_slots:
            if self._probe_error or self._session.closed:  # those who waited shall not find it out one after the other
                raise Unreachable(self._probe_error or _RECONNECTING)
            return await self._send_request(method, path, **rest)

    async def _send_request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        kind: str = "application/json",
        text: bool = False,
        most_bytes: int = response_limits.OBJECT_BYTES,
    ) -> Body:
        headers = {**await self._login.headers(), "Content-Type": kind}
        data = None if body is None else encoding.to_json(body)
        how: dict[str, Any] = {
            "params": params,
            "data": data,
            "headers": headers,
            "timeout": _NO_TIMEOUT,
            **self._request_options,
        }
        try:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                self._session.request(method, self._url(path), **how) as answer,
            ):
                return await _read_body(answer, most_bytes, self._large_answers_lock, text=text)
        except CONNECTION_ERRORS as error:
            raise Unreachable(error_message(error)) from None
        except asyncio.CancelledError:
            # aiohttp's connector cancels the lookup of a name when it is closed, and so would end whoever waits for it without a word.
            task = asyncio.current_task()
            if self._session.closed and task and not task.cancelling():
                raise Unreachable(_RECONNECTING) from None
            raise

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str], silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream; its lines end when the server ends it or when nothing has come for `silence` seconds."""
        timeout = aiohttp.ClientTimeout(total=LONGEST_STREAM_SECONDS, sock_connect=TIMEOUT_SECONDS, sock_read=silence)
        headers = {
            **await self._login.headers(),
            "Accept-Encoding": "identity",
        }  # a packed line comes when the next one fills its block
        url = self._url(path)
        try:
            async with asyncio.timeout(silence):  # for the headers as a whole, which may come byte by byte
                answer = await self._session.get(
                    url, params=params, headers=headers, timeout=timeout, **self._request_options
                )
            async with answer:
                if answer.status != 200 or answer.content_type != "application/json":
                    await _read_body(answer, response_limits.OBJECT_BYTES, self._large_answers_lock)
                    raise Unreachable(NO_API_SERVER)
                if answer.headers.get("Content-Encoding", "identity") != "identity":
                    raise response_limits.UnreadableResponse(
                        "packs what it tells as it happens, which was not asked for"
                    )
                with self._count_watch(path):
                    yield response_limits.read_lines(answer)
        except response_limits.LimitExceeded as error:
            raise ResponseTooLarge(f"it {error}") from None
        except CONNECTION_ERRORS as error:
            raise Unreachable(error_message(error)) from None

    def _count_watch(self, path: str) -> AbstractContextManager[object]:
        """It is counted while it is open."""
        if not self._counted:
            return nullcontext()
        from adapter.shell import metrics  # it brings Prometheus's library, which no verb needs

        return metrics.WATCHES.labels(self._cluster, kind_of(path)[0]).track_inprogress()

    async def raw_request_parts(self, path: str) -> tuple[aiohttp.ClientSession, str, dict[str, Any]]:
        """For who passes on what is no object (`streams.py`): the session, a path's URL, and what each request of it is to have."""
        headers = {**await self._login.headers(), "Accept": "*/*", "Accept-Encoding": "identity"}
        return self._session, self._url(path), {"headers": headers, **self._request_options}

    def _url(self, path: str) -> str:
        return f"{self._login.address.server}{path}"


def _fenced_request_class(fence: Callable[[], str]) -> type[aiohttp.ClientRequest]:
    """A request that asks as late as it can: with its connection, for which it may have waited long, and at each retry; and once more
    where it is written, for with a body that is another task's turn, before which the process may be stopped for minutes. What a socket
    does not take at once of a large body is sent later, unasked."""

    class Fenced(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if closed := self._closed():
                raise Unreachable(closed)
            return await super().send(conn)

        async def write_bytes(
            self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
        ) -> None:
            if (closed := self._closed()) and conn.protocol is not None:
                # For who waits for the answer, and closes the connection then.
                conn.protocol.set_exception(Unreachable(closed))
            else:
                await super().write_bytes(writer, conn, content_length)

        def _closed(self) -> str:
            return "" if self.method == "GET" else fence()

    return Fenced


async def _read_body(
    answer: aiohttp.ClientResponse, most_bytes: int, large_answers_lock: asyncio.Lock, *, text: bool = False
) -> Body:
    """The answer's body; what is no JSON object did not come from an API server, whatever its status says."""
    if answer.status >= 300:
        raise await read_api_error(answer)
    try:
        said = await response_limits.read_body(
            answer, response_limits.STATUS_BYTES if text else most_bytes, large_answers_lock
        )
    except response_limits.LimitExceeded as error:
        raise ResponseTooLarge(f"it {error}") from None
    body = _parse_object(said) if answer.content_type == "application/json" else {}
    if not body and not (text and said.strip() == b"ok"):
        raise Unreachable(NO_API_SERVER)
    return body


async def read_api_error(answer: aiohttp.ClientResponse) -> ApiError:
    """What it says beside its status, as far as that can be read."""
    try:
        body = _parse_object(await response_limits.read_body(answer, response_limits.STATUS_BYTES))
    except response_limits.UnreadableResponse:
        body = {}
    return ApiError(answer.status, str(body.get("reason") or answer.reason), str(body.get("message") or ""))


def _parse_object(data: bytearray) -> Body:
    try:
        content: object = orjson.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def error_message(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, response_limits.UnreadableResponse):
        return f"it {error}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    # The texts of these hold the URL, and that of a proxy may hold a password.
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy before it answers {error.status}"
    if isinstance(error, aiohttp.ClientResponseError):
        return NO_API_SERVER
    if isinstance(error, aiohttp.InvalidURL):
        return "its URL or its proxy's cannot be used; see server and proxy-url in the kubeconfig"
    return printable(str(error) or type(error).__name__, MAX_ITEM_LENGTH)


def counting_trace(cluster: str, server: str) -> aiohttp.TraceConfig:
    """What an aiohttp session is to call to have its requests to a cluster counted; `server` is the kubeconfig's URL."""
    from adapter.shell import metrics  # as above

    base = urlsplit(server).path.rstrip("/")  # some servers are behind a path of somebody else's

    def count(asked: _TracedRequest, code: str) -> None:
        kind, named = kind_of(asked.url.path.removeprefix(base))
        reads = "watch" if "watch" in asked.url.query else "get" if named else "list"
        metrics.REQUESTS.labels(cluster, _VERBS.get(asked.method, reads), kind, code).inc()

    async def answered(_: aiohttp.ClientSession, __: SimpleNamespace, asked: aiohttp.TraceRequestEndParams) -> None:
        code = asked.response.status
        count(asked, str(code) if code in _CODES else metrics.OTHER)

    async def broke(_: aiohttp.ClientSession, __: SimpleNamespace, asked: aiohttp.TraceRequestExceptionParams) -> None:
        count(asked, _NO_ANSWER)

    trace = no_redirect_trace()
    trace.on_request_end.append(answered)
    trace.on_request_exception.append(broke)
    return trace


def no_redirect_trace() -> aiohttp.TraceConfig:
    """What an aiohttp session is to call to go nowhere else."""

    async def redirected(*_: object) -> None:
        raise Unreachable(NO_API_SERVER)  # where aiohttp would follow, and there is no option: when it upgrades

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(redirected)
    return trace
