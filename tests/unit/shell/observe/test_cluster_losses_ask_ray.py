"""Ray heads are asked for their nodes: answers of any size and from any server, tokens, and limits."""

import asyncio
import base64
import gzip
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from aiohttp import web
from yarl import URL

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.relay.relay_network import RelayNetwork
from adapter.shell.kube.client import Client
from adapter.shell.observe import head_client
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.worker import ray_nodes
from adapter.worker.head_polling import POLLS_AT_ONCE
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, refuses, says, serving, streams, text
from tests.unit.builders import NAMESPACE, START, make_meta, make_pod
from tests.unit.shell.observe.test_cluster_losses import MINUTE, lost_east
from tests.unit.stores import Sight, fill

NODES = 1000
TOKEN = "swordfish"
_GOOD, _ODD = "good", "odd"
(OWNER,) = make_pod()["metadata"]["ownerReferences"]  # the RayCluster of `worker`, whatever its name


def nodes(count: int) -> str:
    """As Ray's dashboard answers."""
    found = [{"node_ip": f"10.0.{n // 250}.{n % 250}", "state": "ALIVE", "node_name": "x" * 400} for n in range(count)]
    return json.dumps({"result": True, "data": {"result": {"total": count, "result": found}}})


def parts(text: str, size: int = 14_000) -> Iterator[str]:
    """As a network delivers it."""
    return (text[begin : begin + size] for begin in range(0, len(text), size))


def worker(ray_cluster: str, address: str, namespace: str = NAMESPACE) -> Raw:
    pod = make_pod(f"{ray_cluster}-worker", placement="train", slot="east/1/workers/0")
    pod["metadata"]["labels"][names.RAY_GCS_CLUSTER_LABEL] = ray_cluster
    pod["metadata"]["namespace"] = namespace
    return pod | {"status": {"podIP": address}}


def head(ray_cluster: str, url: str, *env: Raw, namespace: str = NAMESPACE, **status: Any) -> Raw:
    labels = {names.RAY_GCS_CLUSTER_LABEL: ray_cluster, names.RAY_NODE_TYPE_LABEL: names.HEAD}
    ports = [{"name": "dashboard", "containerPort": URL(url).port}]
    return {
        "metadata": make_meta(f"{ray_cluster}-head", namespace=namespace, labels=labels, ownerReferences=[OWNER]),
        "spec": {"containers": [{"ports": ports, "env": list(env)}]},
        "status": {"podIP": "127.0.0.1", **status},
    }


@asynccontextmanager
async def asking(sight: Sight) -> AsyncIterator[tuple[ClusterLosses, Callable[[Callable[[], bool]], Any]]]:
    """Heads are asked; the function waits for what comes of that."""
    found, news = ClusterLosses(sight.manager, sight.fleet), asyncio.Event()
    task = asyncio.create_task(found.run(lambda _: news.set()))

    async def until(happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(apiserver.PATIENCE):
            while not happened():
                news.clear()
                told = asyncio.create_task(news.wait())
                await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
                assert not task.done()

    try:
        yield found, until
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def endless(server: Server) -> Answer:
    """A body that comes a byte at a time, until the test ends."""

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while not server.closing.is_set():
                await response.write(b" ")
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await server.closing.wait()
        return response

    return drip


async def packed(_: web.Request) -> web.StreamResponse:
    """A valid compressed answer. It is not decompressed, as a few compressed bytes could fill the memory."""
    return web.Response(body=gzip.compress(nodes(1).encode()), headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(lambda _: streams("[" * 100_000), id="deeper than a parser goes"),
        pytest.param(
            lambda _: streams(*parts(nodes(1) + " " * head_client.LARGEST_BYTES, 1 << 20)), id="an endless answer"
        ),
        pytest.param(lambda _: streams("{", then=apiserver.cut), id="half an answer"),
        pytest.param(lambda server: text("", 307, Location=server.url), id="a redirect"),
        pytest.param(lambda _: says({}, 500), id="an internal error"),
        pytest.param(lambda _: packed, id="a compressed answer"),
        pytest.param(endless, id="a byte at a time"),
        pytest.param(apiserver.silence, id="no answer"),
    ],
)
async def test_a_thousand_nodes_are_read_whatever_another_head_answers(odd: Callable[[Server], Answer]) -> None:
    sight = lost_east(0)
    async with serving() as other, serving() as elsewhere, serving() as ray:
        other.lists, ray.lists = [odd(elsewhere)], [streams(*parts(nodes(NODES)))]
        good, odd_one = worker(_GOOD, "10.0.3.249"), worker(_ODD, "10.0.0.0")
        fill(sight.manager.pods, good, odd_one)
        fill(sight.manager.heads, head(_ODD, other.url), head(_GOOD, ray.url))
        async with asking(sight) as (found, until):
            await until(lambda: {(NAMESPACE, _GOOD), (NAMESPACE, _ODD)} <= found._live_nodes.keys())
            silence = found.silence_of_pod("east", good, MINUTE)
            assert silence and silence.ray_node_alive is True and silence.lost_since == START
            assert found._live_nodes[NAMESPACE, _GOOD][0] == {f"{_GOOD}-worker": True}, (
                "of a thousand, those of its pods are kept"
            )
            nothing = found.silence_of_pod("east", odd_one, MINUTE)
            assert nothing and nothing.ray_node_alive is None and not nothing.head_problem
            assert nothing.given_up_at is None, "one failed poll says nothing"
            found._live_nodes[NAMESPACE, _ODD] = ray_nodes.NO_NODES
            nothing = found.silence_of_pod("east", odd_one, MINUTE)
            assert nothing and nothing.given_up_at
        assert len(other.asked) == 1 and not elsewhere.asked


@pytest.mark.parametrize(
    ("listed", "cluster", "is_alive"),
    [
        pytest.param("10.0.0.9", "east", True, id="a node of no known pod, which may be its own"),
        pytest.param("10.0.0.9", "west", None, id="such a node in another cluster"),
        pytest.param("10.0.0.9", None, None, id="a node in the manager"),
        pytest.param("127.0.0.1", "east", None, id="the head's own node"),
        pytest.param("10.0.0.1", "east", None, id="the node of a sibling in a reachable cluster"),
    ],
)
async def test_a_worker_without_a_known_address_is_kept_while_an_unknown_node_lives(
    listed: str, cluster: str | None, is_alive: bool | None
) -> None:
    """It became ready just as its cluster became unreachable, so its address was never mirrored."""
    sight, pod, sibling = lost_east(0), worker(_GOOD, ""), worker(_GOOD, "10.0.0.1")
    sibling["metadata"] |= {"name": "sibling", "annotations": {names.SLOT_ANNOTATION: "west/1/workers/0"}}
    node = {"node_ip": listed, "state": "ALIVE", "labels": {names.CLUSTER_LABEL: cluster}}
    answer = json.dumps({"data": {"result": {"result": [node]}}})
    async with serving() as ray:
        ray.lists = [streams(answer)]
        fill(sight.manager.pods, pod, sibling)
        fill(sight.manager.heads, head(_GOOD, ray.url))
        async with asking(sight) as (found, until):
            await until(lambda: bool(found._live_nodes))
            silence = found.silence_of_pod("east", pod, MINUTE)
            assert silence and silence.ray_node_alive is is_alive


async def test_a_node_of_a_relayed_network_is_known_by_its_name() -> None:
    """Pods of two clusters may have the same IP there."""
    sight, pod, sibling = lost_east(0), worker(_GOOD, "10.0.0.1"), worker(_GOOD, "10.0.0.1")
    sibling["metadata"] |= {"name": "sibling"}
    network = RelayNetwork("abc", NAMESPACE)
    states = {network.node_name(f"{_GOOD}-worker", "east"): "ALIVE", network.node_name("sibling", "east"): "DEAD"}
    nodes_of_head = [{"node_ip": name, "state": state} for name, state in states.items()]
    async with serving() as ray:
        ray.lists = [streams(json.dumps({"data": {"result": {"result": nodes_of_head}}}))]
        fill(sight.manager.pods, pod, sibling)
        relayed_head = head(_GOOD, ray.url)
        relayed_head["metadata"]["labels"][names.RELAY_LABEL] = network.identity
        relayed_head["status"]["initContainerStatuses"] = [{"name": names.RELAY_SERVER}]
        fill(sight.manager.heads, relayed_head)
        async with asking(sight) as (found, until):
            await until(lambda: bool(found._live_nodes))
            silences = [found.silence_of_pod("east", each, MINUTE) for each in (pod, sibling)]
            assert [silence and silence.ray_node_alive for silence in silences] == [True, False]
            assert [found.is_node_dead(each) for each in (pod, sibling)] == [False, True]


async def test_an_answer_with_invalid_nodes_is_ignored() -> None:
    sight, pod = lost_east(0), worker(_ODD, "10.0.0.0")
    async with serving() as ray:
        ray.lists = [streams('{"data": {"result": {"result": [{"node_ip": {}, "state": []}]}}}')]
        fill(sight.manager.pods, pod)
        fill(sight.manager.heads, head(_ODD, ray.url))
        async with asking(sight) as (found, until):
            await until(lambda: bool(found._live_nodes))
            assert found._live_nodes[NAMESPACE, _ODD][0] == {}


async def test_unresponsive_heads_of_one_namespace_leave_polls_to_others() -> None:
    """Forty that take the question and say nothing: no sooner than after five seconds would one of them give way.

    The other namespace's head appears only when they have all the polls that they can get.
    """
    sight, crowd = lost_east(0), [f"silent-{n}" for n in range(40)]
    async with serving() as silent, serving() as ray:
        ray.lists = [streams(nodes(1))]
        pods = [worker(name, "10.0.0.1") for name in crowd]
        heads = [head(name, silent.url) for name in crowd]
        fill(sight.manager.pods, *pods)
        fill(sight.manager.heads, *heads)
        async with asking(sight) as (found, until):
            await silent.until(lambda: len(silent.asked) == POLLS_AT_ONCE // 2)
            fill(sight.manager.pods, *pods, worker(_GOOD, "10.0.0.0", "mine"))
            fill(sight.manager.heads, *heads, head(_GOOD, ray.url, namespace="mine"))
            await until(lambda: ("mine", _GOOD) in found._live_nodes)
            assert len(found._live_nodes) == 1 and len(silent.asked) == POLLS_AT_ONCE // 2


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Failed"}, id="an ended pod, whose address may be another's by now"),
        pytest.param({"podIP": "localhost"}, id="a name in place of an address"),
    ],
)
async def test_only_a_running_head_is_asked(status: Raw) -> None:
    sight = lost_east(0)
    async with serving() as ray:
        fill(sight.manager.pods, worker(_ODD, "10.0.0.0"))
        fill(sight.manager.heads, head(_ODD, ray.url, **status))
        async with asking(sight) as (found, until):
            await until(lambda: bool(found._live_nodes))
        assert ray.asked == []


OF_KUBERAY = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "train-abc", "key": "auth_token"}}}
OF_USER = {"name": "RAY_AUTH_TOKEN", "value": TOKEN}
SECRET = says({"kind": "Secret", "data": {"auth_token": base64.b64encode(TOKEN.encode()).decode()}})
EMPTY = says({"kind": "Secret", "data": {"auth_token": ""}})


async def guarded(request: web.Request) -> web.StreamResponse:
    """A dashboard that asks for a token, as Ray's does."""
    shown = request.headers.get("x-ray-authorization") or ""
    if shown != f"Bearer {TOKEN}":
        return web.Response(status=403 if shown else 401)
    return web.Response(text=nodes(1), content_type="application/json")


@asynccontextmanager
async def of_head(*env: Raw, api: Answer | None, answer: Answer) -> AsyncIterator[tuple[ClusterLosses, Server, Server]]:
    """The observer after one poll, the head, and the manager's API server, whose answer for the Secret is `api`."""
    sight, pod = lost_east(0), worker(_GOOD, "10.0.0.0")
    async with AsyncExitStack() as stack:
        ray, manager = await stack.enter_async_context(serving()), await stack.enter_async_context(serving())
        client: Client = await stack.enter_async_context(apiserver.connected(manager.url))
        ray.lists, manager.lists = [answer], [api] if api else []
        sight.manager.client = client
        fill(sight.manager.pods, pod)
        fill(sight.manager.heads, head(_GOOD, ray.url, *env))
        found, until = await stack.enter_async_context(asking(sight))
        await until(lambda: bool(found._live_nodes))
        yield found, ray, manager


@pytest.mark.parametrize(
    ("env", "read"),
    [
        pytest.param(
            OF_KUBERAY, [f"/api/v1/namespaces/{NAMESPACE}/secrets/train-abc"], id="a token in the Secret of KubeRay"
        ),
        pytest.param(OF_USER, [], id="a token in the pod"),
    ],
)
async def test_a_head_gets_its_own_token(env: Raw, read: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with of_head(env, api=SECRET, answer=guarded) as (found, ray, manager):
        silence = found.silence_of_pod("east", worker(_GOOD, "10.0.0.0"), MINUTE)
        assert silence and silence.ray_node_alive is True and not silence.head_problem
        assert [asked.path for asked in manager.asked] == read
        (asked,) = ray.asked
        assert "Authorization" not in asked.headers, "which is the one of our own account"
        assert TOKEN not in repr(vars(found)) or env is OF_USER, "none is kept"
    assert TOKEN not in caplog.text


async def test_a_head_without_authentication_gets_no_token() -> None:
    async with of_head(api=SECRET, answer=says(json.loads(nodes(1)))) as (_, ray, manager):
        assert manager.asked == [] and "x-ray-authorization" not in {name.lower() for name in ray.asked[0].headers}


@pytest.mark.parametrize(
    ("env", "api", "asked", "said"),
    [
        pytest.param([OF_KUBERAY], refuses(403), 0, "the controller may not read Secret train-abc in namespace demo",
                     id="forbidden Secret"),
        pytest.param([OF_KUBERAY], refuses(404), 0, "Secret train-abc with its token does not exist",
                     id="missing Secret"),
        pytest.param([OF_KUBERAY], EMPTY, 0, "key auth_token of Secret train-abc holds no valid token",
                     id="empty Secret"),
        pytest.param([OF_KUBERAY
                      | {"valueFrom": {"secretKeyRef": {"name": "../../other/secrets/x", "key": "auth_token"}}}],
                     SECRET, 0, "holds no valid token", id="Secret name with path segments"),
        pytest.param([OF_USER | {"value": "an old one"}], None, 1, "it answers 403 to the token in env RAY_AUTH_TOKEN",
                     id="rejected token"),
        pytest.param([], None, 1, "it answers 401, and its container has no token", id="no token"),
        pytest.param([OF_KUBERAY], refuses(500), 0, "", id="internal error of the API server"),
    ],
)  # fmt: skip
async def test_a_head_that_cannot_be_asked_is_reported(
    env: list[Raw], api: Answer | None, asked: int, said: str
) -> None:
    async with of_head(*env, api=api, answer=guarded) as (found, ray, _):
        silence = found.silence_of_pod("east", worker(_GOOD, "10.0.0.0"), MINUTE)
        assert silence and silence.ray_node_alive is None
        assert bool(silence.given_up_at) is bool(said), "an internal error may be over in a moment"
        assert (
            said in silence.head_problem
            and bool(said) is bool(silence.head_problem)
            and TOKEN not in silence.head_problem
        )
        assert len(ray.asked) == asked


async def test_large_answers_use_a_tenth_of_the_loops_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second large answer waits nine times as long as the first one took; a small one does not wait."""
    clock, slept = [100.0], list[float]()

    def loads(_: bytes) -> object:
        clock[0] += 0.5
        return {}

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(orjson, "loads", loads)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    async with head_client.open_client(lost_east(0).manager) as client:
        for size in (head_client.SMALL_BYTES + 1, head_client.SMALL_BYTES + 1, head_client.SMALL_BYTES):
            await client._parse_body(bytearray(size))
    assert slept == [-100.0, 4.5]


async def until(happened: Callable[[], bool]) -> None:
    """Let others run until it has."""
    async with asyncio.timeout(apiserver.PATIENCE):
        while not happened():  # noqa: ASYNC110 (a lock tells nobody that it is taken)
            await asyncio.sleep(0)


async def test_the_memory_of_large_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes all of its time holds up the large ones that come after it, and no small one."""
    monkeypatch.setattr(head_client, "LARGE_AT_ONCE", 1)
    async with serving() as slow, serving() as ray, head_client.open_client(lost_east(0).manager) as client:
        slow.lists = [apiserver.holds(slow, nodes(NODES)[: 2 * head_client.SMALL_BYTES])]
        ray.lists = [streams(nodes(1)), streams(*parts(nodes(NODES)))]
        holds = asyncio.create_task(client.poll_nodes(head("slow", slow.url, namespace="a")))
        await until(client._large_slots.locked)
        assert (await client.poll_nodes(head("small", ray.url, namespace="b"))).nodes == {"10.0.0.0": True}
        waits = asyncio.create_task(client.poll_nodes(head("large", ray.url, namespace="c")))
        await until(lambda: client._large_locks["c"].locked())
        assert not waits.done()
        holds.cancel()
        assert len((await waits).nodes or ()) == NODES


async def test_large_answers_of_one_namespace_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its heads take their time, others have their places."""
    monkeypatch.setattr(head_client, "LARGE_AT_ONCE", 2)
    async with serving() as slow, serving() as ray, head_client.open_client(lost_east(0).manager) as client:
        slow.lists = [apiserver.holds(slow, nodes(NODES)[: 2 * head_client.SMALL_BYTES])] * 3
        ray.lists = [streams(*parts(nodes(NODES)))]
        drips = [asyncio.create_task(client.poll_nodes(head(f"slow-{n}", slow.url, namespace="a"))) for n in range(3)]
        await slow.until(lambda: len(slow.asked) == 3)
        await until(lambda: client._large_locks["a"].locked())
        assert len((await client.poll_nodes(head("large", ray.url, namespace="b"))).nodes or ()) == NODES
        for drip in drips:
            drip.cancel()
        await asyncio.gather(*drips, return_exceptions=True)
