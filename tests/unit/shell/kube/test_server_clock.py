"""A client sets the clock of its cluster by each answer; decisions read no wall clock of this machine."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web

import adapter
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.server_clock import ServerClock
from tests.unit.apiserver import Answer, Server, says
from tests.unit.stores import make_member

PATH = "/api/v1/pods"
HOUR = timedelta(hours=1)
# Times that people read only, and the dates in a certificate.
_NO_DECISIONS = {
    "shell/admission/webhook_certificate.py",
    "shell/clusters/claim_holder.py",
    "shell/clusters/worker_cache.py",
    "shell/controller/lease.py",
}


def dated(ahead: timedelta, status: int = 200) -> Answer:
    """An answer of an API server whose clock is ahead."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await says({"kind": "Pod", "metadata": {}}, status)(request)
        response.headers["Date"] = format_datetime(datetime.now(UTC) + ahead, usegmt=True)
        return response

    return answer


def ahead(clock: ServerClock) -> timedelta:
    """How far a clock is ahead of this machine's, in whole hours."""
    return timedelta(hours=round((clock.now() - datetime.now(UTC)) / HOUR))


@pytest.mark.parametrize("hours", [-1, 0, 1])
async def test_an_answer_sets_the_clock(server: Server, client: Client, hours: int) -> None:
    server.lists = [dated(hours * HOUR)]
    await client.get(PATH)
    assert ahead(client.clock) == hours * HOUR


async def test_a_watch_sets_the_clock_when_it_opens(server: Server, client: Client) -> None:
    server.watches = [dated(HOUR)]
    async with client.stream(PATH, {"watch": "1"}, 5):
        assert ahead(client.clock) == HOUR


@pytest.mark.parametrize("status", [401, 403, 407, 429, 503])
async def test_a_server_before_the_api_server_sets_no_clock(server: Server, client: Client, status: int) -> None:
    """A proxy or a gateway answers so, and has another clock."""
    server.lists = [dated(HOUR, status)]
    with pytest.raises(ApiError):
        await client.get(PATH)
    assert ahead(client.clock) == timedelta(0)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_one_answer_does_not_move_a_clock_that_is_set(server: Server, client: Client, hours: int) -> None:
    server.lists = [dated(0 * HOUR), dated(hours * HOUR)]
    await client.get(PATH)
    await client.get(PATH)
    assert ahead(client.clock) == timedelta(0)


async def test_a_followed_cluster_has_the_clock_of_its_client(server: Server, client: Client) -> None:
    east, west = make_member("east", 1), make_member("west", 1)
    server.lists = [dated(-HOUR)]
    east.client = client
    await _begin(east)
    await client.get(PATH)
    assert timedelta(hours=round(east.clock.ahead_of(west.clock) / HOUR)) == -HOUR


async def _begin(cache: WorkerClusterCache) -> None:
    """Run a cache up to its first request."""
    cache._watched_kinds = []
    cache.client.probe = _refuse  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the first request"):
        await cache.run()


async def _refuse() -> None:
    raise RuntimeError("the first request")


def test_a_wall_clock_that_is_put_back_changes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServerClock()
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert timedelta(0) <= clock.now() - before < HOUR and ServerClock().now() >= before


def test_clocks_that_agree_differ_by_nothing() -> None:
    assert ServerClock().ahead_of(ServerClock()) == timedelta(0)


def test_the_controller_decides_by_no_wall_clock_of_its_machine() -> None:
    root = Path(adapter.__file__).parent
    readers = {
        str(path.relative_to(root))
        for path in (root / "shell").rglob("*.py")
        if "datetime.now(" in path.read_text() or "time.time(" in path.read_text()
    }
    assert readers == _NO_DECISIONS | {"shell/kube/server_clock.py"}
