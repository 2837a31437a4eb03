"""Lengthens the waits of verbs, because Ray nodes that start beside these tests slow the machine down."""

import pytest

from adapter.cli import common
from adapter.shell.kube import client

_SECONDS = 100.0  # for one answer; the longest observed took 18


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verb reports a wait or gives up a server, unless a test is about that."""
    monkeypatch.setattr(common, "HINT_AFTER_SECONDS", _SECONDS)
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", _SECONDS)
