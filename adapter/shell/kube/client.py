"""Talks to one API server: verbs and plain dicts over one pool of connections.

A rewriter must keep fields of newer servers, so bodies are plain dicts; typed models also cost several times the CPU.
Nothing is retried, cached or interpreted. The server is untrusted: responses are bounded in bytes and time, and
redirects and cookies are not followed. `may_write` and `write_guard` fence writes once the connection stands. Each
successful response sets `clock`.
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
from adapter.shell.kube.server_clock import ServerClock

Body = dict[str, Any]
MayWrite = Callable[[], bool]
# The longest wait for a response. A slower one is of no use: reads come from watches, and writes are small.
TIMEOUT_SECONDS = 10.0
NO_API_SERVER = "what answers there is no Kubernetes API server"
FENCED = "it is not sent, because this process does not lead"
# After this time a stream is ended. Every caller asks the server for a shorter stream, so a longer one only seems
# alive, byte by byte.
LONGEST_STREAM_SECONDS = 300.0
# The most requests in flight to one cluster. An API server answers in milliseconds; more requests would only queue up
# there.
PARALLEL_REQUESTS = 32

_RECONNECTING = "connecting again"
_NO_ANSWER = "none"
_CODES = frozenset(HTTPStatus)  # all other codes are counted together: an untrusted server may send any number
_OWN_NAMESPACE = "kube-system"  # every API server creates this namespace, and it lasts as long as the etcd
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}

_TracedRequest = aiohttp.TraceRequestEndParams | aiohttp.TraceRequestExceptionParams

_JSON = "application/json"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


class ApiError(Exception):
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
        """Whether the name is taken; status 409 alone may come from a ResourceQuota that others book just then."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_transient(self) -> bool:
        """Whether the API server, or a server behind it, failed or was busy."""
        return self.status == 429 or self.status >= 500

    @property
    def is_conflict(self) -> bool:
        """Whether the object must be read again: stale version, other uid, or name taken."""
        return self.status == 409 or (self.status == 422 and api_messages.is_uid_conflict(self.message))


CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError, response_limits.UnreadableResponse)
# Turns off aiohttp's timer for a whole exchange. If that timer expires before the headers arrive, it takes back two
# cancellations, because it stands in two blocks. A task cancelled from outside at that moment would run for ever.
# asyncio's timer, used instead, takes back only its own cancellation.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)


class Unreachable(Exception):
    """The request got no response, or was not sent because the client is fenced."""


def _never_fenced() -> str:
    return ""


class UnusableCluster(Unreachable):
    """The cluster is another one or belongs to another manager. `reason` is for a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ResponseTooLarge(Unreachable):
    """The response is larger than any valid one."""


class Client:
    """One API server with its own connection pool: a hanging server delays only its own callers."""

    def __init__(
        self, login: Credentials, cluster: str = "", may_write: MayWrite = lambda: True, *, counted: bool = True
    ) -> None:
        """`cluster` is the label of metrics, empty for the manager. `counted`: whether metrics are kept."""
        self._login, self._cluster, self._counted = login, cluster, counted
        self.may_write = may_write
        self.clock = ServerClock()
        # Returns why nothing may be written now, or an empty text.
        self.write_guard: Callable[[], str] = _never_fenced
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=login.tls, limit=0),
            headers={
                "User-Agent": f"rayspan/{__version__}",
                "Accept": _JSON,
                "Accept-Encoding": "gzip",
            },
            request_class=_fenced_request_class(self.fence_reason),
            auto_decompress=False,  # response_limits.py counts unpacked bytes
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[counting_trace(cluster, login.address.server) if counted else no_redirect_trace()],
        )
        self._request_slots, self._large_answers_lock = asyncio.Semaphore(PARALLEL_REQUESTS), asyncio.Lock()
        # Why the last probe had no response, or empty.
        self._probe_error = ""
        # Redirects are not followed: they lead to a login page.
        self._request_options: dict[str, Any] = {
            "allow_redirects": False,
            "proxy": login.address.proxy_url or None,
            "server_hostname": login.address.tls_server_name or None,
        }

    @classmethod
    async def in_cluster(cls, may_write: MayWrite = lambda: True) -> "Client":
        """Log in as the pod's service account, or by $KUBECONFIG."""
        from adapter.shell.kube import kubeconfig

        return cls(await kubeconfig.login_of_pod(), may_write=may_write)

    @classmethod
    async def for_user(cls, file: str, context: str) -> "Client":
        """Log in as kubectl does; an empty context is kubectl's choice. Raises BadLogin."""
        if credentials := user_kubeconfig.load_credentials(file, context):
            return cls(credentials, counted=False)
        from adapter.shell.kube import kubeconfig

        return cls(await kubeconfig.login_of_user(file, context), counted=False)

    @classmethod
    async def from_kubeconfig(cls, text: str, cluster: str = "", may_write: MayWrite = lambda: True) -> "Client":
        """Log in by a kubeconfig's text; raises BadLogin."""
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
        """Return if the API server is ready, or knows us well enough to forbid the request (403); raise otherwise.

        Takes no request slot. While probes get no response, requests not yet sent fail at once.
        """
        try:
            await self._send_request("GET", "/readyz", text=True)
        except Unreachable as error:
            self._probe_error = str(error)
            raise
        except ApiError as refusal:
            self._probe_error = ""
            if refusal.status != 403:
                raise
        else:
            self._probe_error = ""

    async def cluster_uid(self) -> str:
        """The uid of namespace kube-system, or empty. Takes no request slot."""
        selector = {"fieldSelector": f"metadata.name={_OWN_NAMESPACE}"}
        items = (await self._send_request("GET", NAMESPACES.path(), params=selector)).get("items")
        namespaces = (item for item in (items if isinstance(items, list) else ()) if isinstance(item, dict))
        return next((uid_of(namespace) for namespace in namespaces if key_of(namespace)[1] == _OWN_NAMESPACE), "")

    def fence_reason(self) -> str:
        return self.write_guard() if self.may_write() else FENCED

    @property
    def address(self) -> ApiServerAddress:
        return self._login.address

    @property
    def cluster(self) -> str:
        return self._cluster

    async def get(self, path: str, most_bytes: int = response_limits.OBJECT_BYTES, /, **params: str) -> Body:
        """Read up to `most_bytes` of objects; raises ResponseTooLarge. `pagination.py` reads whole lists."""
        return await self._send_in_turn("GET", path, params=params, most_bytes=most_bytes)

    async def begin_metadata(self, path: str, /, **params: str) -> Body:
        """Read the beginning of a list of metadata: the list's own, and the first fields of the first objects'.

        The other fields of an object may be as large as etcd takes, and six times as large when they are escaped. What
        does not fit into BEGINNING_BYTES is left out.
        """
        return await self._send_in_turn("GET", path, params=params, accept=_METADATA_LIST, beginning_only=True)

    async def find(self, path: str) -> Body | None:
        try:
            return await self.get(path)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def create(self, path: str, body: Mapping[str, Any]) -> Body:
        return await self._send_in_turn("POST", path, body=body)

    async def dry_run_create(self, path: str, body: Mapping[str, Any]) -> Body:
        """Dry run of a create; returns the object as it would be stored."""
        return await self._send_in_turn("POST", path, params={"dryRun": "All"}, body=body)

    async def replace(self, path: str, body: Mapping[str, Any]) -> Body:
        return await self._send_in_turn("PUT", path, body=body)

    async def merge_patch(self, path: str, body: Mapping[str, Any]) -> Body:
        """Send a JSON merge patch; its metadata.uid and metadata.resourceVersion are preconditions."""
        return await self._send_in_turn("PATCH", path, body=body, kind="application/merge-patch+json")

    async def apply(self, path: str, body: Mapping[str, Any], manager: str, *, is_dry_run: bool = False) -> Body:
        """Send a server-side apply that takes over the fields it names; a dry run stores nothing."""
        params = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if is_dry_run else {})}
        return await self._send_in_turn("PATCH", path, params=params, body=body, kind="application/apply-patch+yaml")

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]], manager: str) -> Body:
        """Send a JSON patch; it has no effect if one of its tests fails (422)."""
        params = {"fieldManager": manager}
        return await self._send_in_turn(
            "PATCH", path, params=params, body=operations, kind="application/json-patch+json"
        )

    async def delete(self, path: str, uid: str, version: str = "") -> bool:
        """Delete the object with this uid, and its dependents in the background; False if it no longer existed.

        With `version`, a resourceVersion, also False if the object has changed since.
        """
        preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        body = {"preconditions": preconditions, "propagationPolicy": "Background"}
        try:
            await self._send_in_turn("DELETE", path, body=body)
        except ApiError as error:
            if error.not_found or error.is_conflict:  # another object has the name by now
                return False
            raise
        return True

    async def _send_in_turn(self, method: str, path: str, **rest: Any) -> Body:
        """Send a request once fewer than PARALLEL_REQUESTS are in flight; raises Unreachable while probes fail."""
        async with self._request_slots:
            # Requests that waited must not time out one by one.
            if self._probe_error or self._session.closed:
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
        accept: str = _JSON,
        text: bool = False,
        beginning_only: bool = False,
        most_bytes: int = response_limits.OBJECT_BYTES,
    ) -> Body:
        headers = {**await self._login.headers(), "Content-Type": kind, "Accept": accept}
        data = None if body is None else encoding.to_json(body)
        options: dict[str, Any] = {
            "params": params,
            "data": data,
            "headers": headers,
            "timeout": _NO_TIMEOUT,
            **self._request_options,
        }
        sent = self.clock.start_request()
        try:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                self._session.request(method, self._url(path), **options) as answer,
            ):
                self.clock.note_answer(answer.status, answer.headers.get("Date"), sent)
                if beginning_only and answer.status < 300:
                    return _parse_beginning(await response_limits.read_beginning(answer))
                return await _read_body(answer, most_bytes, self._large_answers_lock, text=text)
        except CONNECTION_ERRORS as error:
            raise Unreachable(error_message(error)) from None
        except asyncio.CancelledError:
            # Closing aiohttp's connector cancels name lookups, and with them the tasks that wait for them.
            task = asyncio.current_task()
            if self._session.closed and task and not task.cancelling():
                raise Unreachable(_RECONNECTING) from None
            raise

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str], silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream of lines, as of `response_limits.read_lines`; ends after `silence` seconds without data."""
        timeout = aiohttp.ClientTimeout(total=LONGEST_STREAM_SECONDS, sock_connect=TIMEOUT_SECONDS, sock_read=silence)
        # Of a compressed stream, a line would arrive only once the next line fills its block.
        headers = {**await self._login.headers(), "Accept-Encoding": "identity"}
        url, sent = self._url(path), self.clock.start_request()
        try:
            # Bounds the wait for all headers together, which may arrive byte by byte.
            async with asyncio.timeout(silence):
                answer = await self._session.get(
                    url, params=params, headers=headers, timeout=timeout, **self._request_options
                )
            async with answer:
                self.clock.note_answer(answer.status, answer.headers.get("Date"), sent)
                if answer.status != 200 or answer.content_type != "application/json":
                    await _read_body(answer, response_limits.OBJECT_BYTES, self._large_answers_lock)
                    raise Unreachable(NO_API_SERVER)
                if answer.headers.get("Content-Encoding", "identity") != "identity":
                    raise response_limits.UnreadableResponse("compresses a watch, which was not requested")
                with self._count_watch(path):
                    yield response_limits.read_lines(answer)
        except response_limits.LimitExceeded as error:
            raise ResponseTooLarge(f"it {error}") from None
        except CONNECTION_ERRORS as error:
            raise Unreachable(error_message(error)) from None

    def _count_watch(self, path: str) -> AbstractContextManager[object]:
        if not self._counted:
            return nullcontext()
        from adapter.shell import metrics  # imports Prometheus's library, which no subcommand needs

        return metrics.WATCHES.labels(self._cluster, kind_of(path)[0]).track_inprogress()

    async def raw_request_parts(self, path: str) -> tuple[aiohttp.ClientSession, str, dict[str, Any]]:
        """Session, URL and request options, for `streams.py`."""
        headers = {**await self._login.headers(), "Accept": "*/*", "Accept-Encoding": "identity"}
        return self._session, self._url(path), {"headers": headers, **self._request_options}

    def _url(self, path: str) -> str:
        return f"{self._login.address.server}{path}"


def _fenced_request_class(fence: Callable[[], str]) -> type[aiohttp.ClientRequest]:
    """A request class that calls the fence as late as possible.

    At each try the fence is called once the connection stands, and again before the bytes are written. Another task
    writes the body, and the process may be stopped for minutes before that. If a socket does not take a large body at
    once, the rest is sent later without a call.
    """

    class Fenced(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if reason := self._closed():
                raise Unreachable(reason)
            return await super().send(conn)

        async def write_bytes(
            self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
        ) -> None:
            if (reason := self._closed()) and conn.protocol is not None:
                # The task that waits for the response gets this exception and closes the connection.
                conn.protocol.set_exception(Unreachable(reason))
            else:
                await super().write_bytes(writer, conn, content_length)

        def _closed(self) -> str:
            return "" if self.method == "GET" else fence()

    return Fenced


async def _read_body(
    answer: aiohttp.ClientResponse, most_bytes: int, large_answers_lock: asyncio.Lock, *, text: bool = False
) -> Body:
    """The body as a JSON object; raises ApiError from status 300 on, and Unreachable for any other body."""
    if answer.status >= 300:
        raise await read_api_error(answer)
    try:
        data = await response_limits.read_body(
            answer, response_limits.STATUS_BYTES if text else most_bytes, large_answers_lock
        )
    except response_limits.LimitExceeded as error:
        raise ResponseTooLarge(f"it {error}") from None
    body = _parse_object(data) if answer.content_type == "application/json" else {}
    if not body and not (text and data.strip() == b"ok"):
        raise Unreachable(NO_API_SERVER)
    return body


async def read_api_error(answer: aiohttp.ClientResponse) -> ApiError:
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


def _parse_beginning(data: bytearray) -> Body:
    if not (content := response_limits.parse_beginning(data)):
        raise Unreachable(NO_API_SERVER)
    return content


def error_message(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, response_limits.UnreadableResponse):
        return f"it {error}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    # These errors' texts are not shown: they hold the URL, and a proxy's URL may hold a password.
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy before it answers {error.status}"
    if isinstance(error, aiohttp.ClientResponseError):
        return NO_API_SERVER
    if isinstance(error, aiohttp.InvalidURL):
        return "its URL or its proxy's cannot be used; see server and proxy-url in the kubeconfig"
    return printable(str(error) or type(error).__name__, MAX_ITEM_LENGTH)


def counting_trace(cluster: str, server: str) -> aiohttp.TraceConfig:
    """A trace that counts requests; `server` is the kubeconfig's URL."""
    from adapter.shell import metrics  # as in `_count_watch`

    base = urlsplit(server).path.rstrip("/")  # some servers are below a path of a proxy

    def count(request: _TracedRequest, code: str) -> None:
        kind, has_name = kind_of(request.url.path.removeprefix(base))
        reads = "watch" if "watch" in request.url.query else "get" if has_name else "list"
        metrics.REQUESTS.labels(cluster, _VERBS.get(request.method, reads), kind, code).inc()

    async def count_response(
        _: aiohttp.ClientSession, __: SimpleNamespace, request: aiohttp.TraceRequestEndParams
    ) -> None:
        code = request.response.status
        count(request, str(code) if code in _CODES else metrics.OTHER)

    async def count_failure(
        _: aiohttp.ClientSession, __: SimpleNamespace, request: aiohttp.TraceRequestExceptionParams
    ) -> None:
        count(request, _NO_ANSWER)

    trace = no_redirect_trace()
    trace.on_request_end.append(count_response)
    trace.on_request_exception.append(count_failure)
    return trace


def no_redirect_trace() -> aiohttp.TraceConfig:
    async def forbid_redirect(*_: object) -> None:
        raise Unreachable(NO_API_SERVER)  # aiohttp has no option against redirects for a WebSocket

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(forbid_redirect)
    return trace
