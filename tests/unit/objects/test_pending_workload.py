"""From when on a Workload counts as waiting for quota; it never does if no quota would help it.

The messages are those that Kueue 0.19.2 wrote on real clusters.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from adapter import names
from adapter.objects.pending_workload import TRIED_WITHIN, UNTRIED_COUNTS_AFTER, counts_as_waiting_from
from adapter.objects.unstructured import format_time
from tests.unit.builders import START

CAME = START
LATER = START + timedelta(seconds=40)
NOW = START + timedelta(seconds=60)
IN_USE = "insufficient unused quota for cpu in flavor default, 2 more needed"
TAKEN = f"couldn't assign flavors to pod set main: {IN_USE}"
NOT_COVERED = "couldn't assign flavors to pod set main: resource ray.io/node-type unavailable in ClusterQueue"
TOO_MUCH = (
    "couldn't assign flavors to pod set workers: insufficient quota for cpu in flavor default, previously considered "
    "podsets "
    "requests (0) + current podset request (9) > maximum capacity (8)"
)
HELD_UP = "waiting for all admitted workloads to be in PodsReady condition"
LONG_AGO = START - timedelta(hours=1)
NO_TOPOLOGY = 'couldn\'t assign flavors to pod set main: topology "default" allows to fit only 1 out of 2 pod(s)'


def _pending(
    message: str = "", reason: str = "Pending", at: datetime = CAME, created: datetime = CAME, **more: Any
) -> dict[str, Any]:
    said = {
        "type": names.QUOTA_RESERVED,
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(at),
    }
    conditions = [*([said] if message else []), *more.get("conditions", ())]
    return {
        "metadata": {
            "name": "w",
            "namespace": "n",
            "creationTimestamp": format_time(created),
            **more.get("metadata", {}),
        },
        "spec": {"queueName": "q", **more.get("spec", {})},
        "status": {"conditions": conditions},
    }


def _true(kind: str, at: datetime) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": format_time(at)}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(_pending(TAKEN), CAME, id="others hold its quota"),
        pytest.param(_pending(f"{TOO_MUCH}, {IN_USE}"), CAME, id="others hold the quota of one of two flavors"),
        pytest.param(_pending(NO_TOPOLOGY), CAME, id="others hold its nodes"),
        pytest.param(_pending(f"{TAKEN}; {TOO_MUCH}"), None, id="one podset waits, and the other one never fits"),
        pytest.param(
            _pending(TOO_MUCH.replace("default", "topology-a")), None, id="a flavor has the name of a topology"
        ),
        pytest.param(_pending(HELD_UP), CAME, id="others are not ready"),
        pytest.param(_pending(NOT_COVERED), None, id="the queue does not cover the resource"),
        pytest.param(_pending(TOO_MUCH), None, id="the queue never has so much"),
        pytest.param(_pending("Job is on hold", "OnHold"), None, id="the Workload is on hold"),
        pytest.param(_pending("LocalQueue q doesn't exist", "Inadmissible"), None, id="the Workload has no queue"),
        pytest.param(_pending(), NOW + TRIED_WITHIN, id="Kueue has not tried the Workload yet, and may never"),
        pytest.param(
            _pending(created=LONG_AGO), LONG_AGO + UNTRIED_COUNTS_AFTER, id="Kueue has said nothing for minutes"
        ),
        pytest.param(_pending("Workload no longer fits"), NOW + TRIED_WITHIN, id="an unknown message"),
        pytest.param(
            _pending("The workload is deactivated", conditions=[_true(names.REQUEUED, LATER)]),
            NOW + TRIED_WITHIN,
            id="the Workload was deactivated and reactivated",
        ),
        pytest.param(_pending(TAKEN, spec={"active": False}), None, id="the Workload is deactivated"),
        pytest.param(
            _pending(TAKEN, metadata={"deletionTimestamp": format_time(LATER)}),
            None,
            id="the Workload is being deleted",
        ),
        pytest.param(_pending(conditions=[_true(names.QUOTA_RESERVED, LATER)]), None, id="the Workload has quota"),
        pytest.param(_pending(TAKEN, conditions=[_true(names.FINISHED, LATER)]), None, id="the Workload is finished"),
    ],
)
def test_counts_as_waiting_from(raw: dict[str, Any], expected: datetime | None) -> None:
    assert counts_as_waiting_from(raw, strict=False, now=NOW) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(_pending(), CAME + TRIED_WITHIN, id="the Workload may stand behind another"),
        pytest.param(
            _pending("The workload is deactivated", conditions=[_true(names.REQUEUED, LATER)]),
            LATER + TRIED_WITHIN,
            id="the Workload was deactivated and reactivated",
        ),
        pytest.param(_pending(TAKEN), CAME, id="others hold its quota"),
    ],
)
def test_in_a_strict_fifo_queue_kueue_tries_only_the_first_workload(
    raw: dict[str, Any], expected: datetime | None
) -> None:
    assert counts_as_waiting_from(raw, strict=True, now=NOW) == expected
