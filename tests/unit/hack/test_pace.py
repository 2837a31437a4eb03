"""A controller under test waits as pace.py says, in every module that has imported a wait by its name.

Each pace runs in its own process, because it cannot be undone.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from hack.lab.base.paths import REPO
from hack.testbed.pace import HASTY, PACES, QUICK, REAL, SHIPPED

_ASK = """
import json, sys
from adapter.cli import controller
from hack.testbed import pace
pace.keep(sys.argv[1])
from adapter.gang import orphan_anchors, timeouts, lifecycle, running, requeue
from adapter.shell.controller import engine
from adapter.shell.kube import client, reflector
from adapter.shell.observe import transient_state
from adapter.shell.write import copies
from adapter.worker import head_polling
print(json.dumps({
    "resyncs": [one.RESYNC.total_seconds() for one in (timeouts, lifecycle, running, requeue)]
        + [engine.RESYNC_SECONDS, transient_state.PLAN_VALID_FOR.total_seconds()],
    "spill": timeouts.SPILL_AFTER.total_seconds(), "yield": timeouts.DEACTIVATE_AFTER.total_seconds(),
    "first": timeouts.MIN_EXCLUSION.total_seconds(), "longest": timeouts.MAX_EXCLUSION.total_seconds(),
    "settled": orphan_anchors.SETTLED_AFTER.total_seconds(),
    "timeout": client.TIMEOUT_SECONDS, "probe": reflector.PROBE_SECONDS,
    "pause": copies.PAUSE_SECONDS, "again": copies.REWRITE_SECONDS, "ask": head_polling.POLL_SECONDS,
    "first backoff": reflector.FIRST_BACKOFF, "last backoff": reflector.LAST_BACKOFF,
}))
"""


@pytest.fixture(scope="module")
def waits() -> dict[str, dict[str, Any]]:
    """The waits of each pace, in seconds."""
    asked = {pace: [sys.executable, "-c", _ASK, pace] for pace in (*PACES, HASTY)}
    return {pace: json.loads(subprocess.check_output(words, cwd=REPO)) for pace, words in asked.items()}


def test_only_the_shipped_pace_has_frequent_resyncs(waits: dict[str, dict[str, Any]]) -> None:
    assert waits[SHIPPED]["resyncs"] == [30, 30, 30, 30, 60, 30]
    assert waits[REAL]["resyncs"] == waits[QUICK]["resyncs"] == [3600] * 6


def test_only_the_quick_pace_is_quick(waits: dict[str, dict[str, Any]]) -> None:
    shipped, real, quick = ({name: s for name, s in waits[pace].items() if name != "resyncs"} for pace in PACES)
    assert real == shipped
    assert {name for name in quick if quick[name] >= shipped[name]} == {"spill", "first backoff", "last backoff"}


def test_the_hasty_pace_is_quick_except_for_backoff_and_probe(waits: dict[str, dict[str, Any]]) -> None:
    quick, hasty = waits[QUICK], waits[HASTY]
    assert {name for name in quick if quick[name] != hasty[name]} == {"first backoff", "last backoff", "probe"}
    assert hasty["first backoff"] < hasty["last backoff"] < 1 and hasty["probe"] < quick["probe"]


@pytest.mark.parametrize("pace", (*PACES, HASTY))
def test_waits_keep_their_order(waits: dict[str, dict[str, Any]], pace: str) -> None:
    """A gang spills before it is deactivated or retries a cluster; no write is older than a settled anchor."""
    found = waits[pace]
    assert found["spill"] < found["yield"] and found["spill"] < found["first"] < found["longest"]
    assert found["timeout"] < found["settled"] and found["pause"] < found["again"]
