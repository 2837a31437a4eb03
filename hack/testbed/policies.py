"""Changes the demo's DispatchPolicy for a while."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hack.testbed.clusters import Cluster, condition

POLICY = "everywhere"


@contextmanager
def changed(manager: Cluster, spec: Mapping[str, Any]) -> Iterator[None]:
    """Set fields of the policy; its spec is as before in the end."""
    before = manager.get("dispatchpolicies", POLICY)["spec"]
    try:
        _patch(manager, "merge", {"spec": spec})
        yield
    finally:
        _patch(manager, "json", [{"op": "replace", "path": "/spec", "value": before}])


def _patch(manager: Cluster, kind: str, patch: object) -> None:
    manager.kubectl("patch", "dispatchpolicy", POLICY, f"--type={kind}", "-p", json.dumps(patch))
    manager.wait(lambda: _known(manager), 30, "the controller knows the policy")


def _known(manager: Cluster) -> bool:
    policy = manager.get("dispatchpolicies", POLICY)
    ready = condition(policy, "Ready")
    return (ready.get("observedGeneration"), ready.get("status")) == (policy["metadata"]["generation"], "True")
