"""What is wrong with a worker in its cluster, as its job's user reads it once."""

import pytest

from adapter.objects.unstructured import RawDict as Raw
from adapter.worker import status_mirror


def pod(
    state: Raw | None = None, last: Raw | None = None, *, field: str = "containerStatuses", **scheduled: str
) -> Raw:
    status: Raw = {field: [{"name": "ray-worker", "state": state or {}, "lastState": last or {}}]}
    status["conditions"] = [{"type": "PodScheduled", **scheduled}] if scheduled else []
    return {"metadata": {"name": "w-1"}, "status": status}


def waiting(reason: str, message: str = "") -> Raw:
    return {"waiting": {"reason": reason, "message": message}}


PULL = waiting("ErrImagePull", "pull access denied")
OOM = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(pod(PULL), "Container ray-worker of a worker in east does not start, ErrImagePull: pull access denied", id="no image"),
        pytest.param(pod(waiting("ImagePullBackOff")), "Container ray-worker of a worker in east does not start, ImagePullBackOff", id="still none"),
        pytest.param(pod(PULL, field="initContainerStatuses"), "Container ray-worker of a worker in east does not start, ErrImagePull: pull access denied", id="of an init container"),
        pytest.param(pod(waiting("CreateContainerConfigError", "no key")), "Container ray-worker of a worker in east does not start, CreateContainerConfigError: no key", id="a bad reference"),
        pytest.param(pod(waiting("CrashLoopBackOff"), OOM), "Container ray-worker of a worker in east was killed for want of memory (OOMKilled); raise its memory limit.", id="a crash loop by memory"),
        pytest.param(pod(OOM), "Container ray-worker of a worker in east was killed for want of memory (OOMKilled); raise its memory limit.", id="killed"),
        pytest.param(pod(status="False", reason="Unschedulable", message="0/3 nodes"), "A worker in east finds no node: 0/3 nodes", id="no node"),
        pytest.param(pod(status="False", reason="SchedulingGated"), "", id="Kueue holds it"),
        pytest.param(pod(waiting("ContainerCreating")), "", id="it takes its time"),
        pytest.param(pod({"terminated": {"reason": "Completed"}}), "", id="it ended"),
        pytest.param(pod({"running": {}}), "", id="it runs"),
        pytest.param({"status": {}}, "", id="nothing is known yet"),
    ],
)  # fmt: skip
def test_sentence(given: Raw, want: str) -> None:
    assert status_mirror.trouble_message(given, "east") == want
