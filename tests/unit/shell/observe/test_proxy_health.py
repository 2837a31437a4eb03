"""The proxies of workers in unreachable clusters are polled, and any answer is accepted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.shell.kube.client import Unreachable
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.worker import proxy_polling
from tests.unit import apiserver
from tests.unit.builders import NAMESPACE, make_service, make_serving, make_worker_cluster
from tests.unit.shell.observe.test_service_observer import KEY
from tests.unit.stores import Sight, fill

POD = make_serving("there", address="127.0.0.1", slot="west/1/w/0")


class Proxy:
    """A web server that answers like a proxy, or as the test sets it."""

    def __init__(self) -> None:
        self.status, self.asked, self.closing = 200, list[str](), asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if self.status == 0:
            await self.closing.wait()
        headers = {"Location": f"http://{request.host}/elsewhere"} if self.status == 302 else {}
        return web.Response(status=self.status, headers=headers)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Proxy, int]]:
    proxy, app = Proxy(), web.Application()
    app.router.add_route("*", "/{path:.*}", proxy.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield proxy, int(URL(str(runner.addresses[0][1])).path)
    finally:
        proxy.closing.set()
        await runner.cleanup()


def make_slice(port: int, pod: Raw = POD, **changes: Any) -> Raw:
    target = {"kind": "Pod", "namespace": NAMESPACE, "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    conditions = {"ready": True, "serving": True, "terminating": False}
    return {
        "metadata": {"name": "ours", "namespace": NAMESPACE, "labels": {names.SERVICE_NAME_LABEL: KEY[1]}},
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": conditions, "targetRef": target, **changes}],
        "ports": [{"name": "serve", "port": port}, {"name": "grpc", "port": 1}],
    }


def sight(*slices: Raw) -> Sight:
    found = Sight({"east": 8, "west": 8})
    fill(found.manager.pods, POD)
    fill(found.manager.services, make_service())
    fill(found.manager.slices, *slices)
    fill(found.manager.worker_clusters, make_worker_cluster("east"), make_worker_cluster("west"))
    return found


@asynccontextmanager
async def asking(
    found: Sight,
) -> AsyncIterator[tuple[ProxyHealth, Callable[[Callable[[], bool]], Any], list[Mapping[str, Any]]]]:
    """Poll proxies; the function waits for a result, and the list has the pods that were notified."""
    made, news = ProxyHealth(found.manager, found.fleet), list[Mapping[str, Any]]()
    task = asyncio.create_task(made.run(news.append))

    async def until(happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(apiserver.PATIENCE):
            while not happened():
                await asyncio.wait([task], timeout=0.01)
                assert not task.done()

    try:
        yield made, until, news
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls follow each other closely, and a busy machine may take long to answer them."""
    monkeypatch.setattr(proxy_polling, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(proxy_polling, "DEADLINE_SECONDS", apiserver.PATIENCE)
    monkeypatch.setattr("adapter.shell.observe.proxy_health.REFRESH_SECONDS", 0.02)


@pytest.mark.parametrize("ends", [0, 302, 503])
async def test_a_proxy_that_stops_answering_is_unresponsive_until_it_answers(
    ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polled once while its cluster is reachable, repeatedly while it is not; redirects are not followed."""
    if ends == 0:  # no answer at all
        monkeypatch.setattr(proxy_polling, "DEADLINE_SECONDS", 3.0)
    async with served() as (proxy, port):
        found = sight(make_slice(port))
        async with asking(found) as (proxies, until, news):
            await until(lambda: any(turn.ever_answered for turn in proxies._poll_schedule.values()))
            assert proxy.asked == [proxy_polling.HEALTH_PATH]
            found.members["west"]._note_error("probe", Unreachable("no answer"))
            await until(lambda: len(proxy.asked) > 3)
            assert not proxies.is_unresponsive(POD) and not news, "the API alone is silent: requests go on"
            proxy.status = ends
            await until(lambda: proxies.is_unresponsive(POD))
            proxy.status = 200
            await until(lambda: not proxies.is_unresponsive(POD))
            assert [*map(key_of, news)] == [key_of(POD)] * 2 and set(proxy.asked) == {proxy_polling.HEALTH_PATH}


async def test_a_proxy_that_never_answered_is_not_unresponsive() -> None:
    """A policy of the network may keep us alone out."""
    async with served() as (proxy, port):
        proxy.status = 503
        found = sight(make_slice(port))
        found.members["west"]._note_error("probe", Unreachable("no answer"))
        async with asking(found) as (proxies, until, news):
            await until(lambda: len(proxy.asked) > proxy_polling.FAILURE_THRESHOLD + 1)
            assert not proxies.is_unresponsive(POD) and not news


async def test_only_endpoints_are_polled() -> None:
    odd: list[Raw] = [
        {"conditions": {"serving": False}},
        {"targetRef": {"name": "there", "uid": "another"}},
        {"targetRef": None},
        {"addresses": ["localhost"]},
    ]
    async with served() as (proxy, port):
        slices = [make_slice(port, **changes) for changes in odd]
        for number, one in enumerate(slices):
            one["metadata"]["name"] = f"odd-{number}"
        without = {**make_slice(port), "ports": [{"name": "a", "port": port}, {"name": "b", "port": port}]}
        found = sight(*slices, {**without, "metadata": {**without["metadata"], "name": "no-port"}})
        found.members["west"]._note_error("probe", Unreachable("no answer"))
        proxies = ProxyHealth(found.manager, found.fleet)
        proxies._refresh_endpoints()
        assert not proxies._poll_schedule and not proxy.asked
        fill(found.manager.slices, make_slice(port))
        proxies._refresh_endpoints()
        assert list(proxies._poll_schedule) == [(NAMESPACE, POD["metadata"]["uid"], f"127.0.0.1:{port}")]
        fill(found.manager.slices)
        proxies._refresh_endpoints()
        assert not proxies._poll_schedule, "and who is none any more is forgotten"
