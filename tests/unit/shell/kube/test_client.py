"""An answer is an object, an ApiError or Unreachable, and a probe waits for no other request; over real sockets."""

import asyncio
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from adapter.shell.kube.client import FENCED, PARALLEL_REQUESTS, TIMEOUT_SECONDS, ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import PODS
from tests.unit import apiserver
from tests.unit.apiserver import (
    PAGE,
    TOKEN,
    Server,
    kubeconfig,
    refuses,
    says,
    stop_for,
    stoppable,
    streams,
    text,
)

PATH = "/api/v1/pods"
THING = {"metadata": {"name": "a", "uid": "u1"}}
EDIT = [{"op": "test", "path": "/metadata/uid", "value": "u1"}]


@pytest.fixture(autouse=True)
def _real_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests end as in the product."""
    monkeypatch.setattr("adapter.shell.kube.client.TIMEOUT_SECONDS", TIMEOUT_SECONDS)


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_an_object_is_read_with_the_login(server: Server, client: Client) -> None:
    server.lists = [says(THING)]
    assert await client.get(PATH, limit="5") == THING
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.query) == ("GET", PATH, {"limit": "5"})
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["User-Agent"].startswith("rayspan/")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(PAGE, id="a page"),
        pytest.param("", id="nothing"),
        pytest.param("ok", id="a word"),
        pytest.param('"ok"', id="a JSON text"),
        pytest.param("[1]", id="a JSON list"),
        pytest.param("null", id="a JSON null"),
        pytest.param("{}", id="an empty object"),
        pytest.param('{"kind": "Pod"', id="half an object"),
    ],
)
async def test_a_success_without_an_object_is_from_no_api_server(server: Server, client: Client, body: str) -> None:
    """A proxy's login page says 200 as well; to read it as an empty list would delete everything."""
    server.lists = [text(body), text(body)]
    with pytest.raises(Unreachable, match="no Kubernetes API server"):
        await client.get(PATH)
    with pytest.raises(Unreachable, match="no Kubernetes API server"):
        await client.create(PATH, THING)


@pytest.mark.parametrize(
    ("status", "reason", "missing", "conflict"),
    [
        (400, "BadRequest", False, False),
        (403, "Forbidden", False, False),
        (404, "NotFound", True, False),
        (409, "AlreadyExists", False, True),
        (410, "Expired", False, False),
        (503, "Unavailable", False, False),
    ],
)
async def test_an_error_has_the_servers_message(
    server: Server, client: Client, status: int, reason: str, missing: bool, conflict: bool
) -> None:
    server.lists = [refuses(status, reason, "because")]
    with pytest.raises(ApiError) as found:
        await client.get(PATH)
    error = found.value
    assert (error.status, error.reason, error.message) == (status, reason, "because")
    assert (error.not_found, error.is_conflict) == (missing, conflict)


@pytest.mark.parametrize(("message", "conflict"), [("metadata.uid: Invalid value", True), ("spec: Required", False)])
async def test_another_uid_is_a_conflict(server: Server, client: Client, message: str, conflict: bool) -> None:
    server.lists = [refuses(422, "Invalid", message)]
    with pytest.raises(ApiError) as found:
        await client.merge_patch(PATH, THING)
    assert found.value.is_conflict is conflict


async def test_an_error_page_is_reported_without_its_text(server: Server, client: Client) -> None:
    server.lists = [text(PAGE, 502)]
    with pytest.raises(ApiError) as found:
        await client.get(PATH)
    assert str(found.value) == "502 Bad Gateway: "


async def test_a_redirect_is_not_followed(server: Server, client: Client) -> None:
    """It leads to a login page, and our token must not go there."""
    server.lists = [text(PAGE, 302, Location=f"{server.url}/login"), text(PAGE, 302, Location=f"{server.url}/login")]
    with pytest.raises(ApiError) as found:
        await client.get(PATH)
    assert found.value.status == 302
    with pytest.raises(ApiError):
        await client.probe()
    assert "/login" not in [asked.path for asked in server.asked]


async def test_a_missing_server_is_unreachable() -> None:
    async with apiserver.serving() as server:
        url = server.url
    async with apiserver.connected(url) as client:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            await client.get(PATH)
        with pytest.raises(Unreachable):
            await client.probe()
        with pytest.raises(Unreachable):
            async with client.stream(PATH, {}, 1.0):
                pass


async def test_a_cut_connection_is_unreachable(server: Server, client: Client) -> None:
    server.lists = [streams('{"items": [', then=apiserver.cut)]
    with pytest.raises(Unreachable):
        await client.get(PATH)


@pytest.mark.parametrize("asked", [0, 1], ids=["before it has a connection", "before its body is written"])
async def test_a_write_is_not_sent_once_its_fence_closes(server: Server, client: Client, asked: int) -> None:
    """At any time until it is written; what comes after it has a connection of its own."""
    open_for = iter([True] * asked)
    client.may_write = lambda: next(open_for, False)
    with pytest.raises(Unreachable, match=FENCED):
        await client.create(PATH, THING)
    client.may_write = lambda: True
    server.lists = [says(THING)]
    assert await client.create(PATH, THING) == THING
    assert len(server.asked) == 1


@stoppable
async def test_the_probe_fails_requests_to_a_hanging_server() -> None:
    """The probe waits behind none of a thousand writes, and its failure ends them all."""
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        writes = [asyncio.create_task(client.create(PATH, {})) for _ in range(1000)]
        await server.until(lambda: len(server.asked) == PARALLEL_REQUESTS)
        probe = asyncio.create_task(client.probe())
        await server.until(lambda: len(server.asked) == PARALLEL_REQUESTS + 1)
        stop_for(TIMEOUT_SECONDS + 1)  # aiohttp rounds up
        with pytest.raises(Unreachable):
            await probe
        stop_for(TIMEOUT_SECONDS + 1)  # for those who took the places of the first, before the probe told
        async with asyncio.timeout(apiserver.PATIENCE):
            told = await asyncio.gather(*writes, return_exceptions=True)
        assert {type(one) for one in told} == {Unreachable}
        assert len(server.asked) <= 2 * PARALLEL_REQUESTS + 1
        server.lists = [text("ok", kind="text/plain"), says({"kind": "Pod"})]
        await client.probe()
        assert await client.get(PATH) == {"kind": "Pod"}


@pytest.mark.parametrize("after", [0.0, TIMEOUT_SECONDS])
@stoppable
async def test_a_cancellation_at_the_timeout_is_a_cancellation(after: float) -> None:
    """A busy loop may find both due. Without this, a cancelled reflector would run for ever."""
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:

        async def mute(_: web.Request) -> web.Response:
            await server.closing.wait()
            return web.Response()

        server.lists = [mute]
        asking = asyncio.create_task(client.get(PATH))
        await server.until(lambda: bool(server.asked))
        asyncio.get_running_loop().call_later(after + 0.01, asking.cancel)
        stop_for(TIMEOUT_SECONDS + 1)  # aiohttp rounds up
        await asyncio.wait([asking], timeout=apiserver.PATIENCE)
        assert asking.cancelled()


async def test_a_proxys_password_is_not_logged(server: Server) -> None:
    url = f"http://us:swordfish@127.0.0.1:{URL(server.url).port}"
    content = yaml.safe_dump(kubeconfig("https://10.0.0.1:6443", cluster={"proxy-url": url}))
    client = await Client.from_kubeconfig(content)
    try:
        with pytest.raises(Unreachable) as found:
            await client.probe()
        assert "proxy" in str(found.value) and "swordfish" not in str(found.value)
    finally:
        await client.close()


@pytest.mark.parametrize(("status", "alive"), [(200, True), (403, True), (401, False), (302, False), (500, False)])
async def test_a_probe_accepts_a_sign_of_life(server: Server, client: Client, status: int, alive: bool) -> None:
    """A 403 shows that the server knows the account, which proves that it is alive."""
    server.lists = [text("ok", status, kind="text/plain")]
    if alive:
        await client.probe()
    else:
        with pytest.raises(ApiError):
            await client.probe()
    assert server.asked[0].path == "/readyz"


@pytest.mark.parametrize("closed", [True, False])
async def test_a_name_lookup_on_a_closed_client_is_unreachable(closed: bool) -> None:
    """A kubeconfig may be replaced because its name cannot be resolved: a waiting task must go on, unless cancelled."""
    asked = asyncio.Event()

    class Hangs(AbstractResolver):
        async def resolve(self, *_: object, **__: object) -> list[ResolveResult]:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        async def close(self) -> None:
            """It holds nothing."""

    async with apiserver.connected("http://slow.example:1") as client:
        connector: Any = client._session.connector
        connector._resolver = Hangs()
        waiting = asyncio.create_task(client.get(PATH))
        await asyncio.wait_for(asked.wait(), apiserver.PATIENCE)
        if closed:
            await client.close()
            with pytest.raises(Unreachable, match="connecting again"):
                await waiting
        else:
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting


# --- writes ----------------------------------------------------------------------------------------------------------


async def test_a_write_sends_its_content_type(server: Server, client: Client) -> None:
    server.lists = [says(THING)] * 4
    await client.create(PATH, THING)
    await client.merge_patch(f"{PATH}/a", THING)
    await client.apply(f"{PATH}/a", THING, "us")
    await client.json_patch(f"{PATH}/a", EDIT, "us")
    assert [(a.method, a.headers["Content-Type"], a.query, a.body) for a in server.asked] == [
        ("POST", "application/json", {}, THING),
        ("PATCH", "application/merge-patch+json", {}, THING),
        ("PATCH", "application/apply-patch+yaml", {"fieldManager": "us", "force": "true"}, THING),
        ("PATCH", "application/json-patch+json", {"fieldManager": "us"}, EDIT),
    ]


@pytest.mark.parametrize(
    ("odd", "sent"), [(2**70, 2**70), ("\ud800", "\ufffd")], ids=["a number beyond 64 bits", "half a character"]
)
async def test_unusual_values_of_a_users_file_are_sent(
    server: Server, client: Client, odd: object, sent: object
) -> None:
    """The API server reports the problem; an error here would end in a traceback."""
    server.lists = [says(THING)]
    await client.create(PATH, {"replicas": odd})
    (asked,) = server.asked
    assert asked.body == {"replicas": sent}


@pytest.mark.parametrize(("status", "done"), [(200, True), (404, True), (409, True), (403, False), (500, False)])
async def test_the_deletion_of_a_missing_object_is_done(
    server: Server, client: Client, status: int, done: bool
) -> None:
    server.lists = [refuses(status)]
    if done:
        await client.delete(f"{PATH}/a", "u1")
    else:
        with pytest.raises(ApiError):
            await client.delete(f"{PATH}/a", "u1")
    assert server.asked[0].body == {"preconditions": {"uid": "u1"}, "propagationPolicy": "Background"}


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_is_read_by_lines_wherever_it_is_split(server: Server, client: Client) -> None:
    server.watches = [streams("on", "e\ntw", "o\n\nthree\nhalf")]
    async with client.stream(PATH, {"watch": "true"}, apiserver.PATIENCE) as lines:
        found = [line async for line in lines]
    assert found == [b"one", b"two", b"", b"three"], "what was cut in the middle is nothing"


async def test_a_silent_stream_ends(server: Server, client: Client) -> None:
    """Silence does not prove a loss; the next request shows it."""
    server.watches = [apiserver.holds(server, "one\n")]
    async with asyncio.timeout(apiserver.PATIENCE):
        async with client.stream(PATH, {"watch": "true"}, 0.1) as lines:
            assert [line async for line in lines] == [b"one"]


async def test_a_cut_stream_is_unreachable(server: Server, client: Client) -> None:
    heard = asyncio.Event()

    async def then(request: web.Request) -> None:
        await heard.wait()
        await apiserver.cut(request)

    server.watches = [streams("one\n", then=then)]
    found: list[bytes] = []
    with pytest.raises(Unreachable):
        async with client.stream(PATH, {"watch": "true"}, apiserver.PATIENCE) as lines:
            async for line in lines:
                found.append(line)
                heard.set()
    assert found == [b"one"]


@pytest.mark.parametrize("status", [302, 401, 403, 410, 503])
async def test_a_rejected_stream_is_never_open(server: Server, client: Client, status: int) -> None:
    server.watches = [text(PAGE, status, Location=f"{server.url}/login")]
    with pytest.raises(ApiError) as found:
        async with client.stream(PATH, {"watch": "true"}, apiserver.PATIENCE):
            raise AssertionError("it opened")
    assert found.value.status == status
    assert len(server.asked) == 1


def bytes_(body: bytes, status: int = 200) -> apiserver.Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type="text/html")

    return answer


async def test_a_page_in_another_encoding_is_from_no_api_server(server: Server, client: Client) -> None:
    server.lists = [bytes_("für".encode("latin-1")), bytes_("für".encode("latin-1"), 502)]
    with pytest.raises(Unreachable):
        await client.get(PATH)
    with pytest.raises(ApiError):
        await client.probe()


async def test_a_token_with_a_line_end_is_no_internal_error(server: Server) -> None:
    with pytest.raises((BadLogin, Unreachable)):
        client = await Client.from_kubeconfig(yaml.safe_dump(kubeconfig(server.url, user={"token": "abc\n"})))
        try:
            await client.get(PATH)
        finally:
            await client.close()


async def test_a_login_page_is_no_sign_of_life(server: Server, client: Client) -> None:
    server.lists = [text(PAGE)]
    with pytest.raises(Unreachable):
        await client.probe()


@pytest.mark.parametrize("name", ["../../other/secrets/x", "x?watch=1", "x#y", "%2e%2e/x", "a b", "svc:port"])
async def test_no_name_changes_the_path(name: str) -> None:
    server = Server(lists=[says({"kind": "Pod"})] * 2)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        await client.get(PODS.path("demo", name))
        await client.get(PODS.path(name, "p"))
    base = "/api/v1/namespaces"
    assert [one.path for one in server.asked] == [f"{base}/demo/pods/{name}", f"{base}/{name}/pods/p"]


@pytest.mark.parametrize("place", [("demo", ".."), ("..", "p"), ("demo", ".")])
def test_names_that_no_path_can_contain_are_rejected(place: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="no object can have such a name"):
        PODS.path(*place)
