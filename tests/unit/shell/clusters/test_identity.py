"""A connection that leads to another cluster counts as unreachable: nothing is read from it or written to it."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from aiohttp import web

from adapter import names
from adapter.admission.cluster_identity import IdentityRecord
from adapter.objects import specs
from adapter.objects.unstructured import condition, key_of
from adapter.shell.clusters.identity import NO_IDENTITY_NAMESPACE, ConnectionIdentity
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from adapter.shell.kube.client import FENCED, Client, Unreachable
from adapter.shell.kube.reflector import WrongCluster
from adapter.shell.kube.resources import PODS
from tests.unit import apiserver, builders, stores
from tests.unit.apiserver import Server, hurried, kubeconfig, lists, refuses, says
from tests.unit.shell.clusters.test_fleet import Bench, benched

HERE, THERE = "uid-of-kube-system", "uid-of-another"
POD = {"metadata": {"namespace": "demo", "name": "a", "uid": "u", "resourceVersion": "5"}}


class Cluster(Server):
    """A worker cluster with one remote pod, whose watches can be cut; a new `uid` makes it another cluster."""

    def __init__(self) -> None:
        super().__init__(ready=True)
        self.lists, self.watches = [self.answer] * 1000, [self.watch] * 1000
        self.cutting = asyncio.Event()
        self.away = False
        self.busy, self.throttled = 0, 0  # for how many who ask who it is; how many were

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.busy and request.query.get("fieldSelector") == "metadata.name=kube-system":
            self.busy, self.throttled = self.busy - 1, self.throttled + 1
            self.news.set()
            return await refuses(429, "TooManyRequests")(request)
        if self.away:
            await apiserver.cut(request)
            return web.Response()
        return await super().handle(request)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            return await says({"kind": "Pod"})(request)
        return await lists(7, [POD] if request.path.endswith("/pods") and self.uid == HERE else [])(request)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        async def then(_: web.Request) -> None:
            ends = [asyncio.create_task(one.wait()) for one in (self.cutting, self.closing)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for one in ends:
                one.cancel()

        return await apiserver.streams(then=then)(request)

    def cut(self) -> None:
        """End all watches."""
        self.cutting.set()
        self.cutting = asyncio.Event()

    def listed(self) -> int:
        return len(self.of(watch=False))


@asynccontextmanager
async def following(
    server: Cluster, known: IdentityRecord
) -> AsyncIterator[tuple[WorkerClusterCache, Callable[[Callable[[], bool]], Any]]]:
    """A running member, and a function that waits for its notifications."""
    heard = asyncio.Event()

    async def until(so: Callable[[], bool]) -> None:
        async with asyncio.timeout(apiserver.PATIENCE):
            while not so():
                heard.clear()
                await heard.wait()

    spec = specs.parse_worker_cluster(builders.make_worker_cluster("east"))
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        member = WorkerClusterCache(
            "east", spec, client, "mgr", WorkerClusterListeners(on_contact=lambda _: heard.set()), known
        )
        client.write_guard = member.identity.fence_reason
        task = asyncio.create_task(member.run())
        try:
            yield member, until
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def pods(member: WorkerClusterCache) -> list[str]:
    return [key_of(pod)[1] for pod in member.pods]


@hurried
async def test_the_lists_of_another_cluster_are_not_read() -> None:
    server = Cluster()
    server.uid = THERE
    async with following(server, IdentityRecord("east", HERE)) as (member, until):
        await until(lambda: member.unusable_reason == names.ConditionReason.IDENTITY_MISMATCH)
        assert (
            "leads to a different cluster than before" in member.unreachable_reason
            and THERE in member.unreachable_reason
        )
        assert not member.synced and server.listed() == 0 and not member.first_reached.is_set()
        with pytest.raises(Unreachable, match="has not shown yet that it is the one that it was"):
            await member.client.create(PODS.path("demo"), {})
        server.uid = HERE
        await until(lambda: not member.unreachable_reason)
        assert pods(member) == ["a"] and not member.unusable_reason


@hurried
async def test_a_watch_is_not_resumed_in_another_cluster() -> None:
    """Its stores stay unchanged, and are listed again when the connection leads back."""
    server = Cluster()
    async with following(server, IdentityRecord("east", HERE)) as (member, until):
        await until(lambda: not member.unreachable_reason)
        before = server.listed()
        server.uid = THERE
        server.cut()
        await until(lambda: member.unusable_reason == names.ConditionReason.IDENTITY_MISMATCH)
        assert member.unreachable_reason and pods(member) == ["a"]
        assert server.listed() == before
        with pytest.raises(Unreachable, match="has not shown yet"):
            await member.client.delete(PODS.path("demo", "a"), "u")
        assert all(asked.method == "GET" for asked in server.asked)
        server.uid = HERE
        await until(lambda: not member.unreachable_reason)
        assert pods(member) == ["a"] and server.listed() > before


@hurried
async def test_a_probe_notices_another_cluster_while_all_watches_are_open() -> None:
    """As where one of several API servers behind an address is another cluster's."""
    server = Cluster()
    async with following(server, IdentityRecord("east", HERE)) as (member, until):
        await until(lambda: not member.unreachable_reason)
        server.uid = THERE
        await until(lambda: member.unusable_reason == names.ConditionReason.IDENTITY_MISMATCH)
        assert pods(member) == ["a"]


@hurried
async def test_after_a_loss_nothing_is_written_before_the_identity_is_verified() -> None:
    server = Cluster()
    async with following(server, IdentityRecord("east", HERE)) as (member, until):
        await until(lambda: not member.unreachable_reason)
        assert member.identity.fence_reason() == ""
        server.away = True
        server.cut()
        await until(lambda: bool(member.unreachable_reason))
        server.uid, server.away = THERE, False
        await until(lambda: member.unusable_reason == names.ConditionReason.IDENTITY_MISMATCH)
        assert pods(member) == ["a"] and member.identity.fence_reason()


async def test_a_busy_cluster_is_asked_for_its_identity_again_and_stays_reachable() -> None:
    server, told = Cluster(), list[str]()
    async with following(server, IdentityRecord("east", HERE)) as (member, until):
        await until(lambda: not member.unreachable_reason)
        listed, member._listeners = (
            server.listed(),
            WorkerClusterListeners(on_contact=lambda _: told.append(member.unreachable_reason)),
        )
        server.busy = 3
        await server.until(lambda: server.throttled == 3)
        server.busy = 2
        server.cut()
        watches = len(server.of(watch=True))
        await server.until(lambda: server.throttled == 5 and len(server.of(watch=True)) > watches)
        # A busy test machine may answer a probe too late by the hurried clock; that is another reason.
        assert [reason for reason in told if "TooManyRequests" in reason] == [] and server.listed() == listed
        await until(lambda: not member.unreachable_reason)


@hurried
async def test_an_unverified_cluster_stays_reachable_for_a_limited_time() -> None:
    server = Cluster()
    async with following(server, IdentityRecord("east", HERE)) as (member, until):
        await until(lambda: not member.unreachable_reason)
        server.busy = 10**6
        server.cut()
        await until(lambda: "429 TooManyRequests" in member.unreachable_reason)
        server.busy = 0
        await until(lambda: not member.unreachable_reason)


@hurried
async def test_a_new_cluster_is_unreachable_while_it_is_too_busy() -> None:
    server = Cluster()
    server.busy = 3
    async with following(server, IdentityRecord("east", HERE)) as (member, until):
        await until(lambda: "429 TooManyRequests" in member.unreachable_reason)
        assert server.listed() == 0
        await until(lambda: not member.unreachable_reason)


@hurried
async def test_a_cluster_without_a_kube_system_namespace_has_no_identity() -> None:
    server = Cluster()
    server.uid = ""
    async with following(server, IdentityRecord("east")) as (member, until):
        await until(lambda: NO_IDENTITY_NAMESPACE in member.unreachable_reason)
        assert server.listed() == 0 and not member.unusable_reason


async def test_nothing_is_written_before_its_uid_is_on_record() -> None:
    server = Cluster()
    async with following(server, IdentityRecord("east")) as (member, _):
        async with asyncio.timeout(apiserver.PATIENCE):
            await member.first_reached.wait()
        with pytest.raises(Unreachable, match="does not hold the uid of its cluster yet"):
            await member.client.create(PODS.path("demo"), {})
        member.identity.known = IdentityRecord("east", HERE)
        assert await member.client.create(PODS.path("demo"), {})


# --- one connection --------------------------------------------------------------------------------------------------


def test_a_connection_is_of_one_cluster() -> None:
    """One that was accepted beforehand is not read into the stores of the one before."""
    one = ConnectionIdentity(IdentityRecord("east", HERE, THERE))
    one.verify_uid(HERE)
    assert one.fence_reason() == "" and one.still_valid_for(one.known)
    with pytest.raises(WrongCluster, match="connecting again"):
        one.verify_uid(THERE)
    assert one.fence_reason() and not one.still_valid_for(one.known)


@pytest.mark.parametrize(
    ("found", "known", "holds"),
    [
        pytest.param("", IdentityRecord("east", THERE), True, id="no answer yet"),
        pytest.param(HERE, IdentityRecord("east", HERE), True, id="its uid was recorded"),
        pytest.param(HERE, IdentityRecord("east", THERE), False, id="another uid is recorded"),
        pytest.param(
            HERE, IdentityRecord("east", other_cluster_by_uid={HERE: "west"}), False, id="its uid is another cluster's"
        ),
        pytest.param(HERE, IdentityRecord("east", HERE, THERE), True, id="another uid will be accepted"),
    ],
)
def test_when_a_connection_continues(found: str, known: IdentityRecord, holds: bool) -> None:
    one = ConnectionIdentity(IdentityRecord("east"))
    if found:
        one.verify_uid(found)
    one.mark_unverified()  # a silence changes nothing about it
    assert one.still_valid_for(known) is holds and one.fence_reason(), "who answers next may be another one"


def test_an_accepted_other_cluster_is_reconnected() -> None:
    one = ConnectionIdentity(IdentityRecord("east", HERE))
    with pytest.raises(WrongCluster):
        one.verify_uid(THERE)
    assert one.still_valid_for(IdentityRecord("east", HERE)) and not one.still_valid_for(
        IdentityRecord("east", HERE, THERE)
    )


async def test_the_identity_is_checked_beside_the_lease(server: Server) -> None:
    client = await Client.from_kubeconfig(yaml.safe_dump(kubeconfig(server.url)), may_write=lambda: False)
    try:
        client.write_guard = lambda: "no"
        assert client.fence_reason() == FENCED
        client.may_write = lambda: True
        assert client.fence_reason() == "no"
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("items", "uid"),
    [
        pytest.param([{"metadata": {"name": "kube-system", "uid": HERE}}], HERE, id="the namespace alone"),
        pytest.param(
            [{"metadata": {"name": "a", "uid": "x"}}, {"metadata": {"name": "kube-system", "uid": HERE}}],
            HERE,
            id="a list of all namespaces",
        ),
        pytest.param([], "", id="an empty list"),
        pytest.param([{"metadata": {"name": "default", "uid": "x"}}], "", id="another namespace"),
        pytest.param(5, "", id="no list"),
        pytest.param(
            [None, 5, {"metadata": 5}, {"metadata": {"name": "kube-system", "uid": 5}}], "", id="an invalid uid"
        ),
    ],
)
async def test_parsing_the_identity(items: object, uid: str) -> None:
    class Odd(Server):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            return await says({"items": items, "metadata": {}, "kind": "List"})(request)

    async with apiserver.serving(Odd()) as server, apiserver.connected(server.url) as client:
        assert await client.cluster_uid() == uid


# --- what admins read and write --------------------------------------------------------------------------------------


def _recorded(bench: Bench) -> str:
    return str((bench.manager.worker_clusters.by_name("east") or {})["status"].get("clusterUID") or "")


async def _seen(bench: Bench, good: str) -> None:
    await bench.look(good)
    await asyncio.wait_for(bench.fleet.caches()["east"].first_reached.wait(), apiserver.PATIENCE)


def _annotated(bench: Bench, uid: str) -> None:
    raw = bench.manager.worker_clusters.by_name("east") or {}
    metadata = {**raw["metadata"], "annotations": {names.ACCEPT_CLUSTER_ANNOTATION: uid}}
    stores.fill(bench.manager.worker_clusters, {**raw, "metadata": metadata})


async def test_the_first_identity_is_recorded_and_another_one_only_when_accepted() -> None:
    async with benched() as bench, apiserver.serving(Cluster()) as other:
        heard, other.uid = _hearing(bench), THERE
        good, bad = (
            base64.b64encode(yaml.safe_dump(kubeconfig(one.url)).encode()).decode() for one in (bench.server, other)
        )
        await _seen(bench, good)
        told = await bench.look(good)
        assert (told["status"], _recorded(bench)) == ("True", HERE)
        assert [
            asked.body["metadata"]
            for asked in bench.server.asked
            if (asked.body or {}).get("status", {}).get("clusterUID")
        ] == [{"uid": "uid-of-east", "resourceVersion": None}]
        await bench.look(good)  # it reads what it wrote
        assert bench.fleet.caches()["east"].client.fence_reason() == ""

        await bench.look(bad)
        await _stranger(bench, heard)
        told = await bench.look(bad)
        assert (told["status"], told["reason"]) == ("False", names.ConditionReason.IDENTITY_MISMATCH)
        assert told["message"].startswith("worker cluster east is unreachable since ")
        assert (bench.manager.worker_clusters.by_name("east") or {})["status"]["lostSince"]
        assert _recorded(bench) == HERE and bench.fleet.reachable() == {}

        _annotated(bench, "a-third-one")
        stays = bench.fleet.caches()["east"]
        await bench.look(bad)
        assert bench.fleet.caches()["east"] is stays and not stays.first_reached.is_set()
        _annotated(bench, THERE)
        await _seen(bench, bad)
        told = await bench.look(bad)
        assert (told["status"], _recorded(bench)) == ("True", THERE)


def _hearing(bench: Bench) -> asyncio.Event:
    """Set with each change of contact to the members that are engaged from now on."""
    heard = asyncio.Event()
    bench.fleet.set_listeners(WorkerClusterListeners(on_contact=lambda _: heard.set()))
    return heard


async def _stranger(bench: Bench, heard: asyncio.Event) -> None:
    async with asyncio.timeout(apiserver.PATIENCE):
        while not bench.fleet.caches()["east"].unusable_reason:
            heard.clear()
            await heard.wait()


async def test_one_cluster_under_two_names_is_connected_under_one() -> None:
    async with benched() as bench:
        heard = _hearing(bench)
        good = base64.b64encode(yaml.safe_dump(kubeconfig(bench.server.url)).encode()).decode()
        east, west = (builders.make_worker_cluster(name) for name in ("east", "west"))
        stores.fill(bench.manager.worker_clusters, east, {**west, "status": {"clusterUID": HERE}})
        await bench.look(good)
        await _stranger(bench, heard)
        told = await bench.look(good)
        assert (told["status"], told["reason"]) == ("False", names.ConditionReason.DUPLICATE_CLUSTER)
        assert (
            "it is the cluster of WorkerCluster west"
            in condition(bench.manager.worker_clusters.by_name("east") or {}, names.CONNECTED)["message"]
        )
        stores.fill(bench.manager.worker_clusters, dict(bench.manager.worker_clusters.by_name("east") or {}))
        await _seen(bench, good)
        assert (await bench.look(good))["status"] == "True"
