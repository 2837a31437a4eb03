"""An unreachable worker cluster as the manager records it, and a policy that gives its workers up sooner."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from adapter import names
from adapter.objects.unstructured import parse_time
from adapter.worker.head_polling import POLL_SECONDS
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.rayjob import Job

_POLICY = "everywhere"
_TIMEOUT = timedelta(seconds=10)  # the policy's workerLostTimeout: the minimum
_POLLED_SINCE = timedelta(seconds=POLL_SECONDS + 5)  # the poll interval of the head, and 5 s for its answer


@contextmanager
def short_timeout(manager: Cluster) -> Iterator[None]:
    """A policy that gives up unreachable workers after ten seconds."""
    try:
        _set_lost_timeout(manager, f"{_TIMEOUT.seconds}s")
        yield
    finally:
        _set_lost_timeout(manager, None)


def wait_for_given_up(job: Job, cluster: str) -> None:
    """Wait until the timeout has passed for a cluster with one worker of the job, and Ray was polled since."""
    wait(lambda: len(unknown_conditions(job)) == 1, 60, f"the state of {cluster}'s worker is unknown", job.dump)
    wait(
        lambda: _unreachable_for(job.manager, cluster) > _TIMEOUT + _POLLED_SINCE,
        60,
        "the timeout has passed, and Ray was polled since",
        job.dump,
    )


def unknown_conditions(job: Job) -> list[object]:
    """The conditions of the job's worker pods whose remote pods cannot be observed."""
    conditions = (condition(pod, names.DISPATCHED_CONDITION) for pod in job.pods())
    return [dispatched for dispatched in conditions if dispatched.get("status") == "Unknown"]


def _unreachable_for(manager: Cluster, cluster: str) -> timedelta:
    since = parse_time((manager.get("workerclusters", cluster).get("status") or {}).get("lostSince"))
    return datetime.now(UTC) - since if since else timedelta(0)


def _set_lost_timeout(manager: Cluster, timeout: str | None) -> None:
    patch = json.dumps({"spec": {"workerLostTimeout": timeout}})
    manager.kubectl("patch", "dispatchpolicy", _POLICY, "--type=merge", "-p", patch)
