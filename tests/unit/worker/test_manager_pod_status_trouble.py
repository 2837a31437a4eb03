"""The message for a job's user about a worker that cannot start or run."""

import pytest

from adapter.objects.unstructured import RawDict as Raw
from adapter.worker import manager_pod_status


def pod(
    state: Raw | None = None, last: Raw | None = None, *, field: str = "containerStatuses", **scheduled: str
) -> Raw:
    status: Raw = {field: [{"name": "ray-worker", "state": state or {}, "lastState": last or {}}]}
    status["conditions"] = [{"type": "PodScheduled", **scheduled}] if scheduled else []
    return {"metadata": {"name": "w-1"}, "status": status}


def waiting(reason: str, message: str = "") -> Raw:
    return {"waiting": {"reason": reason, "message": message}}


IN_EAST = "Container ray-worker of a worker in east"
KILLED = f"{IN_EAST} ran out of memory (OOMKilled); raise its memory limit."
PULL = waiting("ErrImagePull", "pull access denied")
OOM = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("remote", "want"),
    [
        pytest.param(pod(PULL),
                     f"{IN_EAST} does not start, ErrImagePull: pull access denied", id="the image cannot be pulled"),
        pytest.param(pod(waiting("ImagePullBackOff")),
                     f"{IN_EAST} does not start, ImagePullBackOff", id="the image pull backs off"),
        pytest.param(pod(waiting("ImagePullBackOff", "Back-off pulling image: no such host")),
                     f"{IN_EAST} does not start, ImagePullBackOff: Back-off pulling image: no such host",
                     id="the registry's words in a back-off"),
        pytest.param(pod(waiting("CrashLoopBackOff", "back-off 10s restarting w-1")),
                     f"{IN_EAST} does not start, CrashLoopBackOff", id="words that differ among siblings"),
        pytest.param(pod(waiting("RegistryUnavailable", "503")),
                     f"{IN_EAST} does not start, RegistryUnavailable: 503", id="no registry answers"),
        pytest.param(pod(PULL, field="initContainerStatuses"),
                     f"{IN_EAST} does not start, ErrImagePull: pull access denied",
                     id="the image of an init container cannot be pulled"),
        pytest.param(pod(waiting("CreateContainerConfigError", "no key")),
                     f"{IN_EAST} does not start, CreateContainerConfigError: no key", id="a missing Secret key"),
        pytest.param(pod(waiting("CrashLoopBackOff"), OOM), KILLED, id="a crash loop by lack of memory"),
        pytest.param(pod(OOM), KILLED, id="killed by lack of memory"),
        pytest.param(pod(status="False", reason="Unschedulable", message="0/3 nodes"),
                     "A worker in east cannot be scheduled: 0/3 nodes", id="unschedulable"),
        pytest.param(pod(status="False", reason="SchedulingGated"), "", id="gated by Kueue"),
        pytest.param(pod(waiting("ContainerCreating")), "", id="containers being created"),
        pytest.param(pod({"terminated": {"reason": "Completed"}}), "", id="completed"),
        pytest.param(pod({"running": {}}), "", id="running"),
        pytest.param({"status": {}}, "", id="no status yet"),
    ],
)  # fmt: skip
def test_trouble_message(remote: Raw, want: str) -> None:
    assert manager_pod_status.trouble_message(remote, "east") == want
