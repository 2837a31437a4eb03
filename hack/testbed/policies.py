"""Changes the demo's DispatchPolicy for a while."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hack.testbed.clusters import Cluster, condition

POLICY = "everywhere"


@contextmanager
def changed(manager: Cluster, spec: Mapping[str, Any]) -> Iterator[None]:
    """Set fields of the policy; each has its earlier value, or its default, in the end."""
    before = manager.get("dispatchpolicies", POLICY)["spec"]
    try:
        _write(manager, spec)
        yield
    finally:
        _write(manager, {field: before.get(field) for field in spec})


def _write(manager: Cluster, spec: Mapping[str, Any]) -> None:
    patch = json.dumps({"spec": spec})  # null removes a field, and the server sets its default
    manager.kubectl("patch", "dispatchpolicy", POLICY, "--type=merge", "-p", patch)
    manager.wait(lambda: _known(manager), 30, "the controller knows the policy")


def _known(manager: Cluster) -> bool:
    policy = manager.get("dispatchpolicies", POLICY)
    ready = condition(policy, "Ready")
    return (ready.get("observedGeneration"), ready.get("status")) == (policy["metadata"]["generation"], "True")
