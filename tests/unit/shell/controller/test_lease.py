"""A process writes only while it holds the Lease, even after a pause: over real sockets, by a clock that can jump."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import yaml
from aiohttp import web

from adapter import names
from adapter.admission.cluster_claim import Leadership
from adapter.admission.cluster_identity import IdentityRecord
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.logins import Login, LoginReader
from adapter.shell.controller.lease import LeaderElector, LeadershipLost
from adapter.shell.kube.client import FENCED, PARALLEL_REQUESTS, ApiError, Client, Unreachable
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, kubeconfig, refuses, says, stop_for, stoppable

COLLECTION = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases"
PATH = f"{COLLECTION}/{names.LEASE}"
PODS = "/api/v1/namespaces/demo/pods"


@dataclass
class Shelf:
    """The one Lease, as an API server keeps it."""

    server: Server
    kept: Raw | None = None
    version: int = 0
    broken: bool = False  # it answers with an error
    slow: float = 0.0  # for so long a process is stopped when it has just asked for the Lease
    raced: bool = False  # somebody else is quicker, whatever is written
    deaf: bool = False  # it does what it is told, and then the connection is cut
    writes: list[Raw] = field(default_factory=list)

    def put(self, holder: str) -> None:
        self._keep({"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 0})

    @property
    def holder(self) -> str:
        return str((self.kept or {"spec": {}})["spec"].get("holderIdentity", "?"))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path not in (COLLECTION, PATH):
            return await says({"kind": "Pod"})(request)
        if self.broken:
            return await refuses(500, "InternalError", "etcd is away")(request)
        if request.method == "GET":
            answer = says(self.kept) if self.kept else refuses(404, "NotFound")
            if self.raced:
                self.put("quick")
            return await answer(request)
        body = await request.json()
        self.writes.append(body)
        stale = request.method == "PATCH" and body["metadata"]["resourceVersion"] != str(self.version)
        if stale or (request.method == "POST" and self.kept):
            return await refuses(409, "Conflict")(request)
        self._keep(body["spec"], (body.get("metadata") or {}).get("annotations") or {})
        stop_for(self.slow)
        if self.deaf:
            await apiserver.cut(request)
        return await says(self.kept)(request)

    def _keep(self, spec: Raw, annotations: Raw | None = None) -> None:
        self.version += 1
        before = self.kept or {"spec": {}, "metadata": {}}
        noted = {**(before["metadata"].get("annotations") or {}), **(annotations or {})}
        metadata = {"uid": "u1", "resourceVersion": str(self.version), "annotations": noted}
        self.kept = {"metadata": metadata, "spec": {**before["spec"], **spec}}


class Counted(LeaderElector):
    """A Lease that counts its checks, for tests that wait for them."""

    def __init__(self, client: Client, name: str, server: Server) -> None:
        super().__init__(client, name, asyncio.get_running_loop().time)
        self.looks, self._server = 0, server

    async def _acquire_or_renew(self) -> float:
        pause = await super()._acquire_or_renew()
        self.looks += 1
        self._server.news.set()
        return pause

    async def looked(self, *, after: float = 0.0) -> None:
        """Stop for so long, and wait until the Lease was looked at once more."""
        wanted = self.looks + 1
        stop_for(after)
        await self._server.until(lambda: self.looks >= wanted)


@dataclass
class Process:
    """What takes part in the election, and a client that it fences."""

    lease: Counted
    client: Client
    task: asyncio.Task[None]

    async def leads(self) -> None:
        async with asyncio.timeout(apiserver.PATIENCE):
            await self.lease.leading.wait()

    async def ended(self) -> str:
        """Why it must end."""
        async with asyncio.timeout(apiserver.PATIENCE):
            with pytest.raises(LeadershipLost) as lost:
                await self.task
        return str(lost.value)


@asynccontextmanager
async def shelved() -> AsyncIterator[Shelf]:
    async with apiserver.serving() as server:
        shelf = Shelf(server)
        server.lists = [shelf.answer] * 1000
        yield shelf


@asynccontextmanager
async def running(shelf: Shelf, name: str) -> AsyncIterator[Process]:
    async with apiserver.connected(shelf.server.url) as own:
        lease = Counted(own, name, shelf.server)
        client = await Client.from_kubeconfig(yaml.safe_dump(kubeconfig(shelf.server.url)), may_write=lease.may_write)
        task = asyncio.create_task(lease.run())
        try:
            yield Process(lease, client, task)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, LeadershipLost):
                await task
            await client.close()


# --- the election ----------------------------------------------------------------------------------------------------


@stoppable
async def test_the_first_replica_leads_and_the_second_stands_by() -> None:
    async with shelved() as shelf, running(shelf, "a") as first:
        assert not first.lease.may_write()
        await first.leads()
        assert first.lease.may_write() and shelf.holder == "a"
        async with running(shelf, "b") as second:
            await second.lease.looked()
            assert not second.lease.leading.is_set() and not second.lease.may_write()
            await first.client.create(PODS, {})
            with pytest.raises(Unreachable, match=FENCED):
                await second.client.create(PODS, {})
    assert [asked.path for asked in shelf.server.asked].count(PODS) == 1


@stoppable
async def test_an_expired_lease_is_taken_after_its_duration_without_a_change() -> None:
    async with shelved() as shelf:
        shelf.put("dead")
        async with running(shelf, "b") as process:
            await process.lease.looked()
            for _ in range(5):
                await process.lease.looked(after=2)
            assert shelf.writes == [] and not process.lease.may_write(), "ten of fifteen seconds"
            stop_for(7)
            await process.leads()
        assert shelf.holder == "b"


@stoppable
async def test_a_renewed_lease_is_never_taken() -> None:
    async with shelved() as shelf:
        shelf.put("alive")
        async with running(shelf, "b") as process:
            await process.lease.looked()
            for _ in range(10):
                shelf.put("alive")
                await process.lease.looked(after=12)
        assert shelf.writes == []


@stoppable
async def test_a_lost_answer_costs_nothing() -> None:
    """It was granted, and the process does not know: it learns so at its next look, and leads from then on."""
    async with shelved() as shelf:
        shelf.deaf = True
        async with running(shelf, "a") as process:
            await process.lease.looked()
            assert shelf.holder == "a" and not process.lease.may_write()
            shelf.deaf = False
            stop_for(2)
            await process.leads()
        assert shelf.holder == "a" and shelf.kept and shelf.kept["spec"]["leaseTransitions"] == 0


@stoppable
async def test_one_of_two_concurrent_candidates_gets_the_lease() -> None:
    async with shelved() as shelf, running(shelf, "a") as first, running(shelf, "b") as second:
        await asyncio.gather(first.lease.looked(), second.lease.looked())
        await asyncio.gather(first.lease.looked(after=2), second.lease.looked())
        assert [first.lease.may_write(), second.lease.may_write()].count(True) == 1
        assert first.lease.may_write() is (shelf.holder == "a")


@stoppable
async def test_a_late_answer_does_not_make_a_leader() -> None:
    async with shelved() as shelf:
        shelf.put("")
        shelf.raced = True
        async with running(shelf, "slow") as process:
            await process.lease.looked()
            shelf.raced = False
            await process.lease.looked(after=2)
            assert len(shelf.writes) == 1 and shelf.holder == "quick"
            assert not process.lease.may_write() and not process.lease.leading.is_set()


@stoppable
async def test_a_leader_survives_a_short_outage_and_ends_after_a_long_one() -> None:
    async with shelved() as shelf, running(shelf, "a") as process:
        await process.leads()
        shelf.broken = True
        await process.lease.looked(after=3)
        assert process.lease.may_write()
        shelf.broken = False
        await process.lease.looked(after=3)
        shelf.broken = True
        await process.lease.looked(after=6)
        assert process.lease.may_write(), "its deadline counts from when it was renewed last"
        stop_for(5)
        said = await process.ended()
        assert said.startswith("Lease rayspan-controller in rayspan-system: it was not renewed for 10 s: ")
        assert not process.lease.may_write()


@stoppable
async def test_the_deadline_counts_from_when_the_renewal_was_sent() -> None:
    """The others count from when it arrived, and that may be long before its answer is heard."""
    async with shelved() as shelf:
        shelf.slow = 3
        async with running(shelf, "a") as process:
            await process.leads()
            assert process.lease.may_write()
            stop_for(8)
            assert not process.lease.may_write()


@stoppable
async def test_a_leader_whose_lease_has_another_holder_ends() -> None:
    async with shelved() as shelf, running(shelf, "a") as process:
        await process.leads()
        shelf.put("usurper")
        stop_for(2)
        assert await process.ended() == "Lease rayspan-controller in rayspan-system: it is held by usurper"


@stoppable
async def test_only_the_holder_releases_the_lease() -> None:
    async with shelved() as shelf, running(shelf, "a") as first:
        await first.leads()
        first.task.cancel()
        await first.lease.give_back()
        assert shelf.holder == "" and not first.lease.may_write()
        async with running(shelf, "b") as second:
            await second.leads()
            before = len(shelf.writes)
            await first.lease.give_back()
            assert len(shelf.writes) == before and shelf.holder == "b"


@stoppable
async def test_releasing_the_lease_may_fail() -> None:
    async with shelved() as shelf, running(shelf, "a") as process:
        await process.leads()
        shelf.broken = True
        await process.lease.give_back()
        assert shelf.holder == "a" and not process.lease.may_write()


# --- the fence -------------------------------------------------------------------------------------------------------


@stoppable
async def test_a_process_does_not_write_first_after_a_long_pause() -> None:
    """Every verb that writes is refused from the first moment on, and the process ends."""
    async with shelved() as shelf, running(shelf, "a") as process:
        await process.leads()
        client = process.client
        await client.create(PODS, {})
        stop_for(11)
        writes: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: client.create(PODS, {}),
            lambda: client.merge_patch(f"{PODS}/a", {}),
            lambda: client.apply(f"{PODS}/a", {}, "us"),
            lambda: client.json_patch(f"{PODS}/a", [], "us"),
            lambda: client.delete(f"{PODS}/a", "u1"),
        ]
        for write in writes:
            with pytest.raises(Unreachable, match=FENCED):
                await write()
        assert await client.get(PODS), "what it reads harms nobody"
        assert "this process did not run in time" in await process.ended()
    assert [asked.method for asked in shelf.server.asked if asked.path.startswith(PODS)] == ["POST", "GET"]


@stoppable
async def test_a_queued_write_is_checked_when_it_starts() -> None:
    """It was allowed when it came; by the time that those before it have given up, it is not."""
    async with shelved() as shelf, running(shelf, "a") as process:
        await process.leads()
        shelf.server.lists = [apiserver.silence(shelf.server)] * 1000
        hanging = [asyncio.create_task(process.client.get(f"{PODS}/{number}")) for number in range(PARALLEL_REQUESTS)]
        await shelf.server.until(
            lambda: len([a for a in shelf.server.asked if a.path.startswith(PODS)]) == PARALLEL_REQUESTS
        )
        write = asyncio.create_task(process.client.create(PODS, {}))
        await asyncio.sleep(0)
        stop_for(11)
        with pytest.raises(Unreachable, match=FENCED):
            await write
        assert all(isinstance(e, Unreachable) for e in await asyncio.gather(*hanging, return_exceptions=True))
    assert "POST" not in [asked.method for asked in shelf.server.asked if asked.path.startswith(PODS)]


async def test_a_write_is_checked_when_its_connection_is_open() -> None:
    """Connecting takes as long as the other side likes; a process that was stopped meanwhile must not send on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        seen: list[socket.socket] = []

        def may_write() -> bool:
            seen.append(listener.accept()[0])  # fails if nobody is connected
            return False

        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = await Client.from_kubeconfig(yaml.safe_dump(kubeconfig(url)), may_write=may_write)
        try:
            with pytest.raises(Unreachable, match=FENCED):
                await client.create(PODS, {})
        finally:
            await client.close()
        (connection,) = seen
        with connection:
            connection.settimeout(apiserver.PATIENCE)
            assert connection.recv(1) == b"", "it was hung up without a word"


# --- who led before --------------------------------------------------------------------------------------------------


@stoppable
async def test_the_previous_leader_is_known_from_the_lease() -> None:
    async with shelved() as shelf, running(shelf, "b") as second:
        shelf.put("a")
        await second.lease.looked(after=2)
        shelf.put("a")
        await second.lease.looked(after=2)
        of_before = shelf.version
        assert second.lease.leadership() == Leadership("b", "a", of_before, 0)
        for _ in range(4):
            await second.lease.looked(after=5)
        await second.leads()
        found = second.lease.leadership()
        assert (found.name, found.predecessor, found.predecessor_version, found.version) == (
            "b",
            "a",
            of_before,
            shelf.version,
        )
        await second.lease.looked(after=2)
        assert second.lease.leadership().version == shelf.version > found.version, "it goes on with each renewal"


@stoppable
async def test_a_leader_that_released_the_lease_is_known() -> None:
    async with shelved() as shelf:
        async with running(shelf, "a") as first:
            await first.leads()
            await first.lease.give_back()
            given_back = shelf.version
        async with running(shelf, "b") as second:
            await second.leads()
            assert (second.lease.leadership().predecessor, second.lease.leadership().predecessor_version) == (
                "a",
                given_back,
            )


@stoppable
async def test_a_lease_from_a_backup_does_not_change_the_observed_leader() -> None:
    async with shelved() as shelf, running(shelf, "b") as second:
        shelf.version = 100
        shelf.put("a")
        await second.lease.looked(after=2)
        shelf.version = 40
        shelf.put("a")
        await second.lease.looked(after=2)
        assert second.lease.leadership().predecessor_version == 101


async def test_worker_clusters_are_fenced_by_the_lease() -> None:
    """A leader's writes go to all clusters."""
    allowed = True
    text = yaml.safe_dump(kubeconfig("http://127.0.0.1:1"))

    class OneLogin:
        async def read_login(self, *_: object) -> Login:
            return Login("Secret east", text)

        def forget_cluster(self, _: str) -> None:
            pass

    logins = cast(LoginReader, OneLogin())
    async with asyncio.TaskGroup() as tasks:
        fleet = Fleet(tasks, "mgr", lambda: allowed, cast(LeaderElector, _Elected()))
        await fleet.reconcile("east", builders.make_worker_cluster("east"), logins)
        member = fleet.caches()["east"]
        assert member.claim, "who takes part in an election claims what it writes to"
        for client in (member.client, member.claim.client):
            allowed = True
            assert client.may_write() and client.fence_reason() == member.identity.fence_reason() != ""
            allowed = False
            assert not client.may_write() and client.fence_reason() == FENCED
        allowed = True
        member.identity.known = IdentityRecord("east", "u1")
        member.identity.verify_uid("u1")
        assert member.claim.client.fence_reason() == ""
        assert "does not hold the claim to worker cluster east" in member.client.fence_reason()
        await asyncio.sleep(0)  # its task has begun, so that it closes its connections
        await fleet.reconcile("east", None, logins)


class _Elected:
    """A process that does not lead yet."""

    def __init__(self) -> None:
        self.leading = asyncio.Event()


async def test_a_client_without_a_fence_writes() -> None:
    """Such as that of `rayspan plan`, which asks by POST."""
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        server.lists = [says({"kind": "Pod"}), refuses(403)]
        assert await client.create(PODS, {})
        with pytest.raises(ApiError):
            await client.create(PODS, {})
