"""A verb's waits, in tests beside which Ray's nodes start: what is slow then is the machine."""

import pytest

from adapter.cli import common
from adapter.shell.kube import client

_SECONDS = 100.0  # of one answer; the longest that was seen took 18


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told to wait, and no server is given up, unless a test is about that."""
    monkeypatch.setattr(common, "HINT_AFTER_SECONDS", _SECONDS)
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", _SECONDS)
