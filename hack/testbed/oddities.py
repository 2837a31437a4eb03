"""Values that no API server would write, objects with one of them in some place, and true objects.

All of it is made from a request and a draw; nothing is sent here. It knows no kind of object beyond the common frame,
and what a queue grants.
"""

import json
import random
from typing import Any

from adapter import names
from hack.testbed.said import Asked

# The beginning of a forged log line, which appears only if line breaks in a message come through.
FORGED = "FORGED by a worker cluster"
# Values that no reader expects in their place. Numbers as text are those of versions, times and Kubernetes' quantities.
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 7, 2**53, 2**63, 10**30, 0.5, 1e300, "", " ", "x", "5", "-5", "1e9", "1e999999999",
    "9" * 19, "9" * 40, "\u0663", "1Ei", "-1Ei", "999999999999E", "0.0000000001n", "\x00", f"x\n{FORGED}",
    f"x\r{FORGED}",
    "../../secrets", ".", "..", "a/b", "2026-13-45T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59",
    "x" * 70_000, "\u202e",
    [], [None], [[]], [{}], ["x"], [0, "x", {}], {}, {"": None}, {"a": 1}, {"name": 5}, {"name": ""},
    [{"name": "x"}, {"name": "x"}],
    [{"type": "Ready", "status": True}], {"cpu": -1}, {"cpu": "many"},
)  # fmt: skip
EVENTS: tuple[Any, ...] = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "REPLACED", "", None, 5, [], {})


def specimen(asked: Asked, name: str, version: int) -> dict[str, Any]:
    """An object as an API server would write it."""
    pairs = (part.partition("=") for part in asked.query.get("labelSelector", "").split(",") if part)
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Test", "message": "it is a lie"}
    return {
        "metadata": {
            "name": f"lie-{name}",
            "namespace": "default",
            "uid": f"00000000-0000-0000-0000-{name:0>12}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {key: value or "lie" for key, _, value in pairs},
            "annotations": {},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"lie-{name}", "uid": f"lie-{name}"}],
        },
        "spec": {
            "clusterQueue": "lie",
            "queueName": "lie",
            "podSets": [{"name": "main", "count": 1, "template": {"metadata": {}, "spec": {"containers": []}}}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {
            "phase": "Running",
            "allocatable": {"cpu": "4", "pods": "110"},
            "conditions": [
                {"type": kind, "status": "True", **since} for kind in ("Ready", names.ACTIVE, names.ADMITTED)
            ],
            "containerStatuses": [{"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}}],
        },
    }


def bent(draw: random.Random, true: object, times: int = 1) -> Any:
    """The same with an odd value in so many places; a place is drawn from the top, so that shallow ones come often."""
    made = json.loads(json.dumps(true))
    for _ in range(times):
        made = _bend(draw, made)
    return made


def _bend(draw: random.Random, there: Any) -> Any:
    places = list(there) if isinstance(there, dict) else list(range(len(there))) if isinstance(there, list) else []
    if not places or draw.random() < 0.1:
        return draw.choice(ODD)
    place = draw.choice(places)
    if isinstance(there, dict) and draw.random() < 0.1:
        del there[place]
    else:
        there[place] = _bend(draw, there[place])
    return there


def granted(one: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(one.get("metadata"), dict):
        return one
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Test", "message": "granted"}
    kinds = (
        names.QUOTA_RESERVED,
        names.ADMITTED,
        names.ACTIVE,
        "Ready",
        "PodScheduled",
        "Initialized",
        "ContainersReady",
    )
    conditions = [{"type": kind, "status": "True", **since} for kind in kinds]
    spec = one.get("spec") if isinstance(one.get("spec"), dict) else {}
    podsets = [
        {
            "name": podset.get("name"),
            "flavors": {"cpu": "lie"},
            "count": podset.get("count"),
            "resourceUsage": {"cpu": "0"},
        }
        for podset in (spec or {}).get("podSets") or ()
    ]
    admission = {"clusterQueue": "lie", "podSetAssignments": podsets}
    more = {
        "conditions": conditions,
        "admission": admission,
        "phase": "Running",
        "podIP": "10.0.0.1",
        "hostIP": "10.0.0.1",
    }
    return {**one, "status": {**(one.get("status") or {}), **more}}
