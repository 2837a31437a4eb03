"""A verb of kubectl rayspan, as a shell would run it, within a test that serves it."""

import asyncio
import sys

import pytest

from adapter import __main__ as command
from tests.unit.apiserver import Server


async def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Run the command in its own thread, because it brings its own event loop; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["kubectl-rayspan", *map(str, words)])
    try:
        return await asyncio.to_thread(command.main)
    except SystemExit as leaving:
        assert isinstance(leaving.code, int)
        return leaving.code


async def run_until_silent(monkeypatch: pytest.MonkeyPatch, server: Server, *words: object) -> int:
    """Run a command with `--timeout=1h`; the hour has passed once the server's script is at its end."""
    timeouts, make_timeout = list[tuple[asyncio.AbstractEventLoop, asyncio.Timeout]](), asyncio.timeout

    def note_timeout(delay: float | None) -> asyncio.Timeout:
        timeout = make_timeout(delay)
        if delay == 3600:
            timeouts.append((asyncio.get_running_loop(), timeout))
        return timeout

    monkeypatch.setattr(asyncio, "timeout", note_timeout)
    running, silent = asyncio.create_task(run(monkeypatch, *words)), asyncio.create_task(server.silent.wait())
    await asyncio.wait([running, silent], return_when=asyncio.FIRST_COMPLETED)
    if silent.done() and not running.done():
        ((loop, timeout),) = timeouts
        loop.call_soon_threadsafe(timeout.reschedule, 0)
    silent.cancel()
    return await running
