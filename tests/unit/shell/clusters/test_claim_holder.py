"""Of two managers with one identity only one writes to a worker cluster; a manager's next leader continues at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
import yaml
from aiohttp import web

from adapter import names
from adapter.admission.cluster_claim import (
    ABANDONED_SECONDS,
    DEADLINE_SECONDS,
    HANDED_OVER_SECONDS,
    RENEW_SECONDS,
    Leadership,
)
from adapter.admission.cluster_identity import IdentityRecord
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.claim_holder import ClaimHolder
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.identity import ConnectionIdentity
from adapter.shell.clusters.logins import Login, LoginReader
from adapter.shell.clusters.worker_cache import WorkerClusterListeners
from adapter.shell.kube.client import Unreachable, UnusableCluster
from adapter.shell.kube.resources import PODS
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, kubeconfig, refuses, says, silence

HERE = "uid-of-kube-system"
SILENT = 0  # instead of a status


@dataclass
class Shelf:
    """The one claim, as the worker cluster's API server keeps it."""

    kept: Raw | None = None
    version: int = 0
    refused: int = 0  # it answers with this
    pods: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "/leases" not in request.path:
            self.pods += 1
            return await says({"kind": "Pod"})(request)
        if self.refused:
            return await refuses(self.refused, "Forbidden", "leases is forbidden")(request)
        if request.method == "GET":
            return await (says(self.kept) if self.kept else refuses(404, "NotFound"))(request)
        body = await request.json()
        if request.method == "PATCH" and body["metadata"]["resourceVersion"] != str(self.version):
            return await refuses(409, "Conflict")(request)
        self.keep(body["metadata"].get("annotations") or {}, body["spec"])
        return await says(self.kept)(request)

    def keep(self, annotations: Raw, spec: Raw) -> None:
        self.version += 1
        metadata = {"uid": "u1", "resourceVersion": str(self.version), "annotations": annotations}
        self.kept = {"metadata": metadata, "spec": spec}

    @property
    def holder(self) -> str:
        return str((self.kept or {"spec": {}})["spec"].get("holderIdentity", "?"))


@dataclass
class Leader:
    """A process that leads; its clock is moved by hand."""

    lead: Leadership
    leading: asyncio.Event = field(default_factory=asyncio.Event)
    time: float = 1000.0
    told: list[str] = field(default_factory=list)
    opened: int = 0
    identity: ConnectionIdentity = field(default_factory=lambda: ConnectionIdentity(IdentityRecord("east", HERE)))

    def __post_init__(self) -> None:
        self.identity.verify_uid(HERE)

    def leadership(self) -> Leadership:
        return self.lead

    def tell(self, trouble: UnusableCluster | None, opened: bool) -> None:
        self.opened += opened
        self.told.append(trouble.reason if trouble else "")


@asynccontextmanager
async def shelved() -> AsyncIterator[tuple[Server, Shelf]]:
    shelf = Shelf()
    async with apiserver.serving() as server:
        server.lists = [shelf.answer] * 1000
        yield server, shelf


@asynccontextmanager
async def claiming(server: Server, one: Leader) -> AsyncIterator[ClaimHolder]:
    async with apiserver.connected(server.url) as own:
        made = ClaimHolder(own, "mgr", one.identity, one, one.tell, lambda: one.time)
        own.write_guard = one.identity.fence_reason
        yield made


FIRST = Leadership("a_1", "", 0, 100)
NEXT = Leadership("b_2", "a_1", 120, 130)  # of the same manager
CLONE = Leadership("c_3", "a_1", 90, 95)  # of its backup, in which a_1 leads and the Lease has come to version 90


async def test_the_first_manager_holds_the_claim_and_a_clone_does_not() -> None:
    first, clone = Leader(FIRST), Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, first) as mine, claiming(server, clone) as theirs:
        assert "does not hold the claim to worker cluster east" in mine.fence_reason()
        assert await mine.acquire_or_renew() == RENEW_SECONDS and mine.fence_reason() == ""
        for _ in range(10):
            first.time += RENEW_SECONDS
            clone.time += RENEW_SECONDS
            await mine.acquire_or_renew()
            await theirs.acquire_or_renew()
            assert theirs.fence_reason() and not mine.fence_reason()
        assert (
            shelf.holder == "a_1"
            and first.told == [""] * 11
            and set(clone.told) == {names.ConditionReason.CLAIM_CONFLICT}
        )
        assert shelf.kept and shelf.kept["metadata"]["annotations"] == {names.LEASE_VERSION_ANNOTATION: "100"}


async def test_the_next_leader_continues_at_once() -> None:
    """After a crash or a released Lease: its claim is no younger than the manager's Lease records."""
    async with (
        shelved() as (server, shelf),
        claiming(server, Leader(FIRST)) as mine,
        claiming(server, Leader(NEXT)) as after,
    ):
        await mine.acquire_or_renew()
        await after.acquire_or_renew()
        assert shelf.holder == "b_2" and after.fence_reason() == ""


async def test_a_clone_is_not_taken_for_the_next_leader() -> None:
    clone, successor = Leader(CLONE), Leader(NEXT)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine:
        async with claiming(server, clone) as theirs, claiming(server, successor) as after:
            await mine.acquire_or_renew()
            await theirs.acquire_or_renew()
            clone.time += ABANDONED_SECONDS - 1  # so long as nobody takes over
            await theirs.acquire_or_renew()
            assert shelf.holder == "a_1"
            await after.acquire_or_renew()
            clone.time += 2
            await theirs.acquire_or_renew()
            assert shelf.holder == "b_2" and theirs.fence_reason(), "its time begins anew"
            clone.time += ABANDONED_SECONDS
            await theirs.acquire_or_renew()
            assert shelf.holder == "c_3" and theirs.fence_reason() == ""


async def test_a_manager_that_loses_the_claim_stops_and_reports_it() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        await mine.acquire_or_renew()
        shelf.keep({}, {"holderIdentity": "thief", "acquireTime": "then"})
        await mine.acquire_or_renew()
        assert mine.fence_reason() and one.told[-1] == names.ConditionReason.CLAIM_CONFLICT and shelf.holder == "thief"
        one.identity.known = IdentityRecord("east", HERE, claim_taken_from="thief")
        await mine.acquire_or_renew()
        assert shelf.holder == "a_1" and one.told[-1] == "" and mine.fence_reason(), (
            "the other one is still to learn of it"
        )
        one.time += HANDED_OVER_SECONDS
        await mine.acquire_or_renew()
        assert mine.fence_reason() == ""


async def test_a_claim_that_cannot_be_renewed_expires() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        await mine.acquire_or_renew()
        shelf.refused = 500
        one.time += DEADLINE_SECONDS - 1
        assert await mine.acquire_or_renew() < RENEW_SECONDS and mine.fence_reason() == ""
        one.time += 1
        assert mine.fence_reason()
        shelf.refused = 0
        await mine.acquire_or_renew()
        assert mine.fence_reason() == "", "nobody took it meanwhile"


async def deny_for_good(one: Leader, mine: ClaimHolder) -> None:
    """Ask for the claim until the denials have lasted for long enough."""
    for _ in range(ABANDONED_SECONDS // 10 + 1):
        await mine.acquire_or_renew()
        one.time += 10


@pytest.mark.parametrize("status", [403, 404])
async def test_without_a_right_to_the_claim_writes_continue_with_a_report(status: int) -> None:
    """As with an account that was made before there were claims, or in a cluster without our namespace."""
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        shelf.refused = status
        await deny_for_good(one, mine)
        assert mine.fence_reason() == "" and one.told[-1] == ""
        assert (
            "leases is forbidden" in mine.unclaimable_reason
            and "apply kustomize/overlays/worker there" in mine.unclaimable_reason
        )
        shelf.refused = 0
        await mine.acquire_or_renew()
        assert mine.unclaimable_reason == "" and shelf.holder == "a_1" and mine.fence_reason() == ""


@pytest.mark.parametrize(("status", "said"), [(429, "answers 429, too many requests, when"), (503, "answers 503 when")])
async def test_a_busy_api_server_is_reported_once_writes_fail(status: int, said: str) -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        shelf.refused = status
        assert await mine.acquire_or_renew() < RENEW_SECONDS
        assert mine.fence_reason() and not mine.unclaimable_reason and one.told == [""]
        assert said in mine.blocked_reason and "Lease rayspan-mgr-east in rayspan-system" in mine.blocked_reason
        shelf.refused = 0
        await mine.acquire_or_renew()
        assert (mine.blocked_reason, mine.fence_reason()) == ("", "")
        shelf.refused = status
        one.time += DEADLINE_SECONDS - 1
        await mine.acquire_or_renew()
        assert mine.blocked_reason == "", "it is held yet"
        one.time += 1
        await mine.acquire_or_renew()
        assert said in mine.blocked_reason
        shelf.refused = 403
        await deny_for_good(one, mine)
        assert (bool(mine.unclaimable_reason), mine.blocked_reason) == (True, ""), "work goes on without"


async def test_a_busy_api_server_does_not_hide_the_holder() -> None:
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        shelf.refused = 429
        await theirs.acquire_or_renew()
        assert theirs.blocked_reason == "" and clone.told == [names.ConditionReason.CLAIM_CONFLICT]


async def test_a_deleted_claim_is_recreated() -> None:
    """Also between a look and a renewal: that is no cluster in which there can be none."""
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        await mine.acquire_or_renew()
        server.lists[:2] = [says(shelf.kept), refuses(404, "NotFound")]
        await mine.acquire_or_renew()
        assert mine.unclaimable_reason == ""
        shelf.kept = None
        await mine.acquire_or_renew()
        assert shelf.holder == "a_1" and mine.fence_reason() == ""


@pytest.mark.parametrize("lost_by", ["expired claim", "another holder", "no loss"])
async def test_the_claim_is_reported_open_when_it_is_regained_and_not_when_renewed(lost_by: str) -> None:
    """Whatever was to be done there meanwhile failed, and waits."""
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        await mine.acquire_or_renew()
        await mine.acquire_or_renew()
        assert one.opened == 1
        if lost_by == "expired claim":
            one.time += DEADLINE_SECONDS
        if lost_by == "another holder":
            shelf.keep({}, {"holderIdentity": "thief"})
            await mine.acquire_or_renew()
            assert one.opened == 1
            shelf.keep({}, {"holderIdentity": "a_1"})
        await mine.acquire_or_renew()
        assert mine.fence_reason() == "" and one.opened == (1 if lost_by == "no loss" else 2)


async def test_a_taken_over_claim_is_reported_open() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        shelf.keep({}, {"holderIdentity": "thief"})
        one.identity.known = IdentityRecord("east", HERE, claim_taken_from="thief")
        await mine.acquire_or_renew()
        waited = 3.0
        one.time += waited
        while mine.fence_reason():
            assert one.opened == 0
            waited += (pause := await mine.acquire_or_renew())
            one.time += pause
        await mine.acquire_or_renew()
        assert (one.opened, waited) == (1, HANDED_OVER_SECONDS)


async def test_a_cluster_without_a_right_to_the_claim_is_reported_open() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        for status, seconds, opened in ((500, 0, 0), *[(403, 10, 0)] * 6, (403, 10, 1), (403, 1, 1), (0, 1, 1)):
            shelf.refused, one.time = status, one.time + seconds
            await mine.acquire_or_renew()
            assert one.opened == opened


async def test_no_claim_is_made_in_a_cluster_of_unknown_identity() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        one.identity.mark_unverified()
        assert await mine.acquire_or_renew() < 1 and shelf.kept is None and server.asked == []


async def test_a_standby_replica_makes_no_claim() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        task = asyncio.create_task(mine.run())
        await asyncio.sleep(0)
        assert server.asked == []
        one.leading.set()
        await server.until(lambda: shelf.holder == "a_1")
        task.cancel()


async def test_a_write_waits_for_the_claim() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine, apiserver.connected(server.url) as client:
        client.write_guard = mine.fence_reason
        with pytest.raises(Unreachable, match="does not hold the claim"):
            await client.create(PODS.path("demo"), {})
        await mine.acquire_or_renew()
        assert await client.create(PODS.path("demo"), {}) and shelf.pods == 1


async def test_the_previous_holder_has_its_duration_even_if_an_answer_is_lost() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        shelf.keep({}, {"holderIdentity": "thief"})
        one.identity.known = IdentityRecord("east", HERE, claim_taken_from="thief")

        async def kept_but_not_told(request: web.Request) -> web.StreamResponse:
            await shelf.answer(request)
            return await refuses(504, "Timeout")(request)

        server.lists[:2] = [shelf.answer, kept_but_not_told]
        await mine.acquire_or_renew()
        assert shelf.holder == "a_1" and mine.fence_reason()
        one.time += 2
        await mine.acquire_or_renew()
        assert mine.fence_reason(), "the other one is still to learn of it"
        one.time += HANDED_OVER_SECONDS
        await mine.acquire_or_renew()
        assert mine.fence_reason() == ""


@pytest.mark.parametrize("status", [403, 404])
async def test_a_clone_that_is_denied_the_claim_for_a_moment_writes_nothing(status: int) -> None:
    """It has seen no holder yet. An API server that has just started denies permitted requests for a moment."""
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        shelf.refused = status
        for _ in range(3):
            pause = await theirs.acquire_or_renew()
            clone.time += ABANDONED_SECONDS / 3 - 1
            assert theirs.fence_reason() and not theirs.unclaimable_reason and pause < RENEW_SECONDS
        assert f"answers {status}" in theirs.blocked_reason and "kustomize/overlays/worker" in theirs.blocked_reason
        shelf.refused = 0
        await theirs.acquire_or_renew()
        assert theirs.blocked_reason == "" and clone.told[-1] == names.ConditionReason.CLAIM_CONFLICT


@pytest.mark.parametrize(
    ("statuses", "pause", "writes"),
    [
        pytest.param([403] * 30, 2, False, id="denials for less than a minute"),
        pytest.param([403] * 31, 2, True, id="denials for a minute"),
        pytest.param([403, *[503] * 20, 403], 3, False, id="other answers between two denials"),
        pytest.param([*[403] * 20, 503, *[403] * 20], 2, False, id="another answer ends the denials"),
        pytest.param([*[403] * 20, 429, *[403] * 20], 2, False, id="too many requests end the denials"),
        pytest.param([403, *[SILENT] * 20, *[403] * 3], 3, False, id="an outage between denials does not count"),
        pytest.param([403, 403, SILENT] * 29, 2, False, id="a connection that comes and goes, with too few denials"),
        pytest.param([403, 403, SILENT] * 30, 2, True, id="a connection that comes and goes, with enough denials"),
        pytest.param([403, 403], 60, False, id="two denials after the process was stopped for a minute"),
    ],
)
async def test_how_long_a_clone_is_denied_the_claim_until_it_writes(
    statuses: list[int], pause: float, writes: bool
) -> None:
    """Another manager may hold the claim; and an account from before there were claims must work in the end."""
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, clone) as theirs:
        for status in statuses:
            clone.time += pause
            shelf.refused = status
            if status == SILENT:
                server.lists[:1] = [says("no API server")]
            await theirs.acquire_or_renew()
        assert (theirs.fence_reason() == "") is writes


@pytest.mark.parametrize("status", [403, 404])
async def test_a_clone_that_saw_another_holder_does_not_write_without_the_claim(status: int) -> None:
    """An API server that has just started denies permitted requests for a moment."""
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        shelf.refused = status
        await theirs.acquire_or_renew()
        assert (
            theirs.fence_reason()
            and not theirs.unclaimable_reason
            and set(clone.told) == {names.ConditionReason.CLAIM_CONFLICT}
        )
        shelf.refused = 0
        clone.identity.known = IdentityRecord("east", HERE, claim_taken_from="a_1")
        await theirs.acquire_or_renew()
        clone.time += HANDED_OVER_SECONDS
        await theirs.acquire_or_renew()
        assert theirs.fence_reason() == "" and clone.told[-1] == ""


async def test_a_deleted_claim_is_recreated_by_its_holder() -> None:
    first, clone = Leader(FIRST), Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, first) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        shelf.kept = None
        await theirs.acquire_or_renew()
        assert shelf.kept is None and theirs.fence_reason() and clone.told[-1] == names.ConditionReason.CLAIM_CONFLICT
        await mine.acquire_or_renew()
        assert shelf.holder == "a_1" and mine.fence_reason() == ""


async def test_a_deleted_claim_that_is_not_recreated_is_taken() -> None:
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        shelf.kept = None
        await theirs.acquire_or_renew()
        clone.time += ABANDONED_SECONDS
        await theirs.acquire_or_renew()
        assert shelf.holder == "c_3" and theirs.fence_reason() == ""


# --- given back ------------------------------------------------------------------------------------------------------


async def test_a_released_claim_is_free_at_once() -> None:
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        await mine.give_back()
        assert shelf.holder == "" and mine.fence_reason()
        await theirs.acquire_or_renew()
        assert shelf.holder == "c_3" and theirs.fence_reason() == ""


async def test_a_manager_does_not_release_another_holders_claim() -> None:
    """A manager that saw another holder, one that lost the claim, and one whose second connection has renewed it."""
    one, clone = Leader(FIRST), Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, one) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        await theirs.give_back()
        assert shelf.holder == "a_1"
        async with claiming(server, one) as again:
            await again.acquire_or_renew()
            await mine.give_back()
            assert shelf.holder == "a_1" and again.fence_reason() == ""
        await mine.acquire_or_renew()
        shelf.keep({}, {"holderIdentity": "thief"})
        await mine.acquire_or_renew()
        asked = len(server.asked)
        await mine.give_back()
        assert len(server.asked) == asked


class OneLogin:
    """The one Secret."""

    def __init__(self, url: str) -> None:
        self.text = yaml.safe_dump(kubeconfig(url))

    async def read_login(self, *_: object) -> Login:
        return Login("Secret east", self.text)

    def forget_cluster(self, _: str) -> None:
        """No watch reads it."""


@pytest.mark.parametrize("answers", [True, False])
async def test_the_claim_of_a_deleted_worker_cluster_is_released_in_the_background(answers: bool) -> None:
    one, cluster = Leader(FIRST), builders.make_worker_cluster("east")
    cluster["status"]["clusterUID"] = HERE
    one.leading.set()
    opened = asyncio.Event()
    async with shelved() as (server, shelf), asyncio.TaskGroup() as tasks:
        server.ready = True
        logins, fleet = cast(LoginReader, OneLogin(server.url)), Fleet(tasks, "mgr", lambda: True, one)
        fleet.set_listeners(WorkerClusterListeners(on_writable=lambda _: opened.set()))
        await fleet.reconcile("east", cluster, logins)
        async with asyncio.timeout(apiserver.PATIENCE):
            await opened.wait()
        claim = fleet.caches()["east"].claim
        assert claim and shelf.holder == "a_1" and not claim.fence_reason()
        if not answers:
            server.lists[:] = [silence(server)] * 1000
        asked = len(server.asked)
        await fleet.reconcile("east", None, logins)
        assert fleet.caches() == {} and not claim.client._session.closed, "nobody waits for it"
        await server.until(lambda: any(one.method == "PATCH" for one in server.asked[asked:]))
        server.closing.set()  # who is silent says no more
    assert shelf.holder == ("" if answers else "a_1")
    assert claim.fence_reason() and claim.client._session.closed


async def test_a_failed_release_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(_: ClaimHolder) -> None:
        raise RuntimeError

    monkeypatch.setattr(ClaimHolder, "give_back", breaks)
    async with asyncio.TaskGroup() as tasks:  # which is the process's own
        logins, fleet = (
            cast(LoginReader, OneLogin("http://127.0.0.1:1")),
            Fleet(tasks, "mgr", lambda: True, Leader(FIRST)),
        )
        await fleet.reconcile("east", builders.make_worker_cluster("east"), logins)
        claim = fleet.caches()["east"].claim
        await fleet.reconcile("east", None, logins)
    assert claim and claim.client._session.closed
