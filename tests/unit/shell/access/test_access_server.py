"""The access server's audit log, and the connections that it rejects early, over its own TLS."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

from adapter.objects.unstructured import Raw
from adapter.shell.access import access_server, self_signed
from adapter.shell.kube.server_clock import ServerClock
from adapter.shell.shipped_policies import access_policy
from tests.unit.apiserver import PATIENCE, Server, connected, refuses, says, serving
from tests.unit.shell.access.test_grant_resolver import KEY, PROFILED, SYSTEM, at, granted, judging

LOG = f"/default/kubectl-1/{KEY}/api/v1/namespaces/default/pods/worker-a/log"
POD = {
    "metadata": {
        "namespace": "default",
        "name": "worker-a",
        "uid": "u-1",
        "annotations": {"rayspan.dev/slot": "east/1/r/0"},
    }
}


VISIBLE_POD = LOG.removesuffix("/log")


class Manager:
    """The client of a manager that answers within 5 ms."""

    def __init__(self) -> None:
        self.lookups, self.flooded, self.clock = 0, asyncio.Event(), ServerClock()

    async def find(self, path: str) -> Raw | None:
        if "workeraccesses" in path:
            self.lookups += 1
            if self.lookups == 100:
                self.flooded.set()
        await asyncio.sleep(0.005)
        if path.endswith("workeraccesses/kubectl-1"):
            return granted()
        if "validatingadmissionpolic" in path:
            shipped = access_policy()
            spec = shipped.binding if "validatingadmissionpolicybindings" in path else shipped.policy
            return {"metadata": {"creationTimestamp": at(60)}, "spec": spec}
        return POD if path.endswith("pods/worker-a") else None


@asynccontextmanager
async def asking(manager: Server | Manager) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of an access server that asks this manager, as the API server's proxy asks it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with AsyncExitStack() as stack:
        client: Any = manager
        if isinstance(manager, Server):
            there = await stack.enter_async_context(serving(manager))
            client = await stack.enter_async_context(connected(there.url))
        runner = await access_server.serve(client, await self_signed.self_signed_context(), port)
        stack.push_async_callback(runner.cleanup)
        connector = aiohttp.TCPConnector(ssl=False, limit=0)
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:
            yield session


async def test_an_access_is_logged_only_after_the_remote_pod_was_observed(caplog: pytest.LogCaptureFixture) -> None:
    """Where a pod's own annotation points is noted once its copy was seen there, and not before."""
    caplog.set_level(logging.INFO)
    answers = [says(granted()), *judging(), says(POD), says(SYSTEM), says(PROFILED), refuses(404)]
    async with asking(Server(lists=answers)) as session, session.get(LOG) as answer:
        assert answer.status == 502
    assert "by WorkerAccess" not in caplog.text


async def test_requests_without_a_key_do_not_refuse_or_delay_one_with_a_key() -> None:
    """They come by the same address, which is the API server's, and ask for a pod of the same namespace."""
    manager = Manager()
    async with asking(manager) as session:
        flood = [asyncio.create_task(flood_without_key(session, number)) for number in range(100)]
        async with asyncio.timeout(PATIENCE):
            await manager.flooded.wait()
        for _ in range(5):
            async with asyncio.timeout(PATIENCE), session.get(VISIBLE_POD) as answer:
                assert answer.status == 200
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)


async def flood_without_key(session: aiohttp.ClientSession, number: int) -> None:
    while True:
        with suppress(aiohttp.ClientError):  # a newer connection takes its place
            async with session.get(VISIBLE_POD.replace(KEY, "B" * 43).replace("kubectl-1", f"x{number}")):
                pass
