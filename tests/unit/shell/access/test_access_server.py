"""What does the access server note of who is let in, and whom does it turn away before it has asked anybody? Over its own TLS."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from adapter.shell.access import access_server, self_signed
from adapter.shell.access.concurrency import MOST_PENDING_REQUESTS
from tests.unit.apiserver import Server, connected, refuses, says, serving
from tests.unit.shell.access.test_grant_resolver import KEY, PROFILED, SYSTEM, granted, judging

LOG = f"/default/kubectl-1/{KEY}/api/v1/namespaces/default/pods/worker-a/log"
POD = {
    "metadata": {
        "namespace": "default",
        "name": "worker-a",
        "uid": "u-1",
        "annotations": {"rayspan.dev/slot": "east/1/r/0"},
    }
}


@asynccontextmanager
async def asking(manager: Server) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of an access server that asks this manager, as the API server's proxy asks it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with serving(manager) as there, connected(there.url) as client:
        runner = await access_server.serve(client, await self_signed.self_signed_context(), port)
        connector = aiohttp.TCPConnector(ssl=False, limit=0)
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:
            yield session
        await runner.cleanup()


async def test_what_is_noted_was_proved(caplog: pytest.LogCaptureFixture) -> None:
    """Where a pod's own annotation points is noted once its copy was seen there, and not before."""
    caplog.set_level(logging.INFO)
    answers = [says(granted()), *judging(), says(POD), says(SYSTEM), says(PROFILED), refuses(404)]
    async with asking(Server(lists=answers)) as session, session.get(LOG) as answer:
        assert answer.status == 502
    assert "by WorkerAccess" not in caplog.text


async def test_many_who_show_no_key_are_told_to_come_again() -> None:
    """They hold no place, and more than so many ask nobody anything."""
    manager = Server()  # which says nothing
    async with asking(manager) as session:
        waiting = [asyncio.create_task(session.get(LOG)) for _ in range(MOST_PENDING_REQUESTS + 3)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result().status for task in done} == {429}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
