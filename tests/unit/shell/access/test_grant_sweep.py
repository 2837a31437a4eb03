"""Which WorkerAccesses are deleted, beside any other objects, in bounded memory, over real sockets."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from adapter.access import expired_grants, grant
from adapter.access.grant import LOG
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.access import grant_sweep
from adapter.shell.kube.client import Unreachable
from tests.unit.apiserver import Server, connected, lists, refuses, says, serving
from tests.unit.stores import put_ahead

KEY = "k" * 43
POD = {"metadata": {"namespace": "default", "name": "worker-a", "uid": "u-1"}}
DONE = says({"kind": "Status", "status": "Success"})


def raw(name: str, age: timedelta = timedelta(minutes=6), **about: Any) -> Raw:
    made = grant.manifest(POD, LOG, KEY)
    created = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"namespace": "default", "name": name, "uid": f"uid-of-{name}", "creationTimestamp": created, **about}
    return {**made, "metadata": metadata}


def deleted(server: Server) -> list[str]:
    return [asked.path.rpartition("/")[2] for asked in server.asked if asked.method == "DELETE"]


async def test_expired_grants_are_deleted_by_uid_and_valid_ones_stay() -> None:
    found = lists(1, [raw("old"), raw("good", timedelta()), {"metadata": {"name": 5}}])
    async with serving(Server(lists=[found, DONE])) as server, connected(server.url) as client:
        await grant_sweep.sweep_once(client)
    assert deleted(server) == ["old"]
    assert server.asked[1].body["preconditions"] == {"uid": "uid-of-old"}


@pytest.mark.parametrize("slow", ["API server", "node"])
async def test_a_grant_is_deleted_by_the_slower_of_two_clocks(slow: str) -> None:
    found = lists(1, [raw("young", timedelta(minutes=6 if slow == "API server" else 0))])
    async with serving(Server(lists=[found, DONE])) as server, connected(server.url) as client:
        put_ahead(client.clock, -300 if slow == "API server" else 360)
        await grant_sweep.sweep_once(client)
    assert deleted(server) == []


async def test_the_answer_of_the_first_sweep_sets_the_clock_by_which_grants_are_over() -> None:
    """The node's clock is ahead of the API server's, so a new grant looks old."""

    async def dated(request: web.Request) -> web.StreamResponse:
        response = await lists(1, [raw("young", timedelta(hours=1))])(request)
        response.headers["Date"] = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
        return response

    async with serving(Server(lists=[dated, DONE])) as server, connected(server.url) as client:
        await grant_sweep.sweep_once(client)
    assert deleted(server) == []


async def test_a_failed_deletion_stops_no_other() -> None:
    """As one whose webhook is away, or that a policy holds."""
    found = lists(1, [raw("a"), raw("held"), raw("z")])
    answers = [found, DONE, refuses(500, "InternalError"), DONE]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        await grant_sweep.sweep_once(client)
    assert deleted(server) == ["a", "held", "z"]


async def test_an_unreachable_api_server_ends_the_sweep_until_the_next() -> None:
    async with serving(Server(lists=[refuses(403)])) as server, connected(server.url) as client:
        await client.close()
        with pytest.raises(Unreachable):
            await grant_sweep.sweep_once(client)


async def test_a_sweep_that_is_full_stops_reading_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sweep reads on over any number of valid grants; only its deletions are bounded."""
    monkeypatch.setattr(expired_grants, "MAX_DELETIONS", 1)
    answers = [lists(1, [raw("fresh", timedelta())], "next"), lists(1, [raw("old"), raw("older")], "more"), DONE]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        assert await grant_sweep.sweep_once(client) == "default"
        server.lists += [lists(1, [raw("of-another", namespace="before"), raw("older")]), DONE]
        assert await grant_sweep.sweep_once(client, "default") == ""
    assert deleted(server) == ["old", "older"]
    assert "bound them in each namespace by a ResourceQuota for count/workeraccesses.rayspan.dev" in caplog.text
