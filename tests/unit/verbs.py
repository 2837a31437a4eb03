"""A verb of kubectl rayspan, as a shell would run it, within a test that serves it."""

import asyncio
import sys

import pytest

from adapter import __main__ as command


async def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Run the command in its own thread, because it brings its own event loop; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["kubectl-rayspan", *map(str, words)])
    try:
        return await asyncio.to_thread(command.main)
    except SystemExit as leaving:
        assert isinstance(leaving.code, int)
        return leaving.code
