"""Of two managers with one identity one writes to a worker cluster; of two leaders of one manager the next one goes on at once."""

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


async def test_the_first_one_holds_it_and_a_clone_does_not() -> None:
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


async def test_who_leads_next_goes_on_at_once() -> None:
    """Whether the one before died or gave the Lease back: its claim is no younger than what the manager's Lease tells of it."""
    async with (
        shelved() as (server, shelf),
        claiming(server, Leader(FIRST)) as mine,
        claiming(server, Leader(NEXT)) as after,
    ):
        await mine.acquire_or_renew()
        await after.acquire_or_renew()
        assert shelf.holder == "b_2" and after.fence_reason() == ""


async def test_a_clone_is_not_taken_for_who_leads_next_when_the_first_one_dies() -> None:
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


async def test_who_loses_it_stops_and_says_so() -> None:
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


async def test_a_claim_that_cannot_be_renewed_runs_out() -> None:
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


@pytest.mark.parametrize("status", [403, 404])
async def test_where_there_is_no_right_to_it_work_goes_on_and_says_so(status: int) -> None:
    """As with an account that was made before there were claims, or in a cluster without our namespace."""
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        shelf.refused = status
        await mine.acquire_or_renew()
        assert mine.fence_reason() == "" and one.told == [""]
        assert (
            "leases is forbidden" in mine.unclaimable_reason
            and "apply kustomize/overlays/worker there" in mine.unclaimable_reason
        )
        shelf.refused = 0
        await mine.acquire_or_renew()
        assert mine.unclaimable_reason == "" and shelf.holder == "a_1" and mine.fence_reason() == ""


@pytest.mark.parametrize(("status", "said"), [(429, "answers 429, too many requests, when"), (503, "answers 503 when")])
async def test_an_api_server_that_is_too_busy_for_it_is_told_once_nothing_is_written_for_it(
    status: int, said: str
) -> None:
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
        await mine.acquire_or_renew()
        assert (bool(mine.unclaimable_reason), mine.blocked_reason) == (True, ""), "work goes on without"


async def test_a_busy_api_server_does_not_hide_who_holds_it() -> None:
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        shelf.refused = 429
        await theirs.acquire_or_renew()
        assert theirs.blocked_reason == "" and clone.told == [names.ConditionReason.CLAIM_CONFLICT]


async def test_a_claim_that_is_deleted_is_made_anew() -> None:
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


@pytest.mark.parametrize("lost_by", ["time", "a thief", "nobody"])
async def test_who_may_write_there_again_says_so_and_no_renewal_does(lost_by: str) -> None:
    """Whatever was to be done there meanwhile failed, and waits."""
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        await mine.acquire_or_renew()
        await mine.acquire_or_renew()
        assert one.opened == 1
        if lost_by == "time":
            one.time += DEADLINE_SECONDS
        if lost_by == "a thief":
            shelf.keep({}, {"holderIdentity": "thief"})
            await mine.acquire_or_renew()
            assert one.opened == 1
            shelf.keep({}, {"holderIdentity": "a_1"})
        await mine.acquire_or_renew()
        assert mine.fence_reason() == "" and one.opened == (1 if lost_by == "nobody" else 2)


async def test_what_is_taken_over_is_said_to_be_open_when_it_is() -> None:
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


async def test_where_work_goes_on_without_a_claim_it_is_open() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        for status, opened in ((500, 0), (403, 1), (403, 1), (0, 1)):
            shelf.refused = status
            await mine.acquire_or_renew()
            assert one.opened == opened


async def test_nothing_is_claimed_in_a_cluster_that_has_not_shown_who_it_is() -> None:
    one = Leader(FIRST)
    async with shelved() as (server, shelf), claiming(server, one) as mine:
        one.identity.mark_unverified()
        assert await mine.acquire_or_renew() < 1 and shelf.kept is None and server.asked == []


async def test_who_leads_not_claims_nothing() -> None:
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


async def test_whom_it_is_taken_from_has_its_time_also_when_the_answer_is_lost() -> None:
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
async def test_a_clone_that_saw_another_one_does_not_go_on_without_a_claim(status: int) -> None:
    """An API server that has just started refuses for a moment what it allows."""
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


async def test_a_claim_that_is_deleted_is_made_anew_by_who_held_it() -> None:
    first, clone = Leader(FIRST), Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, first) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        shelf.kept = None
        await theirs.acquire_or_renew()
        assert shelf.kept is None and theirs.fence_reason() and clone.told[-1] == names.ConditionReason.CLAIM_CONFLICT
        await mine.acquire_or_renew()
        assert shelf.holder == "a_1" and mine.fence_reason() == ""


async def test_a_claim_that_is_deleted_and_that_nobody_makes_anew_is_taken() -> None:
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        shelf.kept = None
        await theirs.acquire_or_renew()
        clone.time += ABANDONED_SECONDS
        await theirs.acquire_or_renew()
        assert shelf.holder == "c_3" and theirs.fence_reason() == ""


# --- given back --------------------------------------------------------------------------------------------------------


async def test_what_is_given_back_is_anybodys_at_once() -> None:
    clone = Leader(CLONE)
    async with shelved() as (server, shelf), claiming(server, Leader(FIRST)) as mine, claiming(server, clone) as theirs:
        await mine.acquire_or_renew()
        await theirs.acquire_or_renew()
        await mine.give_back()
        assert shelf.holder == "" and mine.fence_reason()
        await theirs.acquire_or_renew()
        assert shelf.holder == "c_3" and theirs.fence_reason() == ""


async def test_nobody_gives_back_what_another_one_put() -> None:
    """Who saw somebody else, who lost it, and who made a second connection that has renewed it since."""
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
        """Nobody follows it."""


@pytest.mark.parametrize("answers", [True, False])
async def test_a_worker_cluster_that_is_deleted_is_given_back_and_nobody_waits_for_it(answers: bool) -> None:
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


async def test_what_breaks_while_it_is_given_back_ends_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
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
