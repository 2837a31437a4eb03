"""A demo whose job does not end names the pods that wait, with the scheduler's or the kubelet's reason."""

from typing import Any

import pytest

from adapter import names
from hack.demo import watch
from hack.demo.watch import Seen

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}


def _pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "pod"}, "spec": {}, "status": status}


def _container(**state: Any) -> dict[str, Any]:
    return {"name": "ray", "state": state}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(_pod(conditions=[UNSCHEDULABLE]), "0/1 nodes are available: 1 Insufficient cpu", id="no node"),
        pytest.param(
            _pod(containerStatuses=[_container(waiting={"reason": "ErrImagePull", "message": "not found"})]),
            "ray: ErrImagePull: not found",
            id="no image",
        ),
        pytest.param(
            _pod(initContainerStatuses=[_container(waiting={"reason": "CrashLoopBackOff"})]),
            "ray: CrashLoopBackOff: no more is known",
            id="an init container that fails",
        ),
        pytest.param(_pod(containerStatuses=[_container(waiting={"reason": "PodInitializing"})]), "", id="it starts"),
        pytest.param(_pod(containerStatuses=[_container(running={})]), "", id="it runs"),
        pytest.param(_pod(), "", id="a new pod"),
        pytest.param(
            _pod(conditions=[UNSCHEDULABLE]) | {"spec": {"schedulingGates": [{"name": names.GATE}]}},
            "",
            id="a pod that stands for a remote one",
        ),
    ],
)
def test_a_waiting_pod_is_named_with_its_reason(pod: dict[str, Any], reason: str) -> None:
    sentences = list(watch.waiting_reasons(Seen(pods={"east": [pod]})))
    assert sentences == ([f"Pod pod in east waits: {reason}."] if reason else [])
