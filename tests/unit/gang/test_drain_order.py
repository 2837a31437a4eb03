"""What still runs in a drained worker cluster is reported per job, with what the job waits for."""

from typing import Any

import pytest

from adapter.gang.drain_order import change_lines, remaining_jobs, remaining_workers_text
from adapter.objects.unstructured import Raw
from tests.unit.builders import make_pod


def pod(placement: str = "train", *, namespace: str = "demo", phase: str = "Running", **meta: Any) -> Raw:
    labels = {"rayspan.dev/placement": placement, "rayspan.dev/cluster": "east"}
    return {"metadata": {"namespace": namespace, "labels": labels, **meta}, "status": {"phase": phase}}


def placement(name: str = "train", *, state: str = "Placed", reason: str = "", **shares: int) -> Raw:
    spread = [{"cluster": c, "groups": [{"name": "w", "role": "r", "count": n}]} for c, n in shares.items()]
    return {
        "metadata": {"namespace": "demo", "name": name},
        "spec": {"job": {"kind": "RayJob", "name": f"{name}-job"}, "shares": spread},
        "status": {"state": state, "reason": reason},
    }


def came(*, listed: str = "east/1/r/2") -> Raw:
    """A worker pod with a template slot, which is not written into the pod yet."""
    return make_pod(placement="train", group="w", index="1", listed=listed)


def in_round(found: Raw) -> Raw:
    return {**found, "spec": found["spec"] | {"round": 1}}


def told(pods: list[Raw], placements: list[Raw]) -> list[str]:
    return list(change_lines({}, remaining_jobs({"east"}, pods, placements)))


@pytest.mark.parametrize(
    ("pods", "placements", "want"),
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param([pod(), pod()], [placement(east=2)], ["RayJob demo/train-job: 2 workers left"], id="pods count"),
        pytest.param(
            [pod()],
            [placement(east=1, reason="no room.")],
            ["RayJob demo/train-job: 1 worker left; no room."],
            id="the job says what it waits for",
        ),
        pytest.param(
            [],
            [placement(east=2, west=3)],
            ["RayJob demo/train-job: the quota of 2 workers left"],
            id="quota whose pods are still to come",
        ),
        pytest.param([], [placement(west=3)], [], id="quota elsewhere"),
        pytest.param([], [placement(east=2, state="Ended")], [], id="the record of an ended job does not count"),
        pytest.param([pod(phase="Succeeded"), pod(phase="Failed")], [], [], id="pods that have ended"),
        pytest.param(
            [pod(deletionTimestamp="now")],
            [placement()],
            ["RayJob demo/train-job: 1 worker left"],
            id="a pod that is being deleted still counts",
        ),
        pytest.param(
            [came(), pod()],
            [in_round(placement(east=2))],
            ["RayJob demo/train-job: 2 workers left"],
            id="a pod with a template slot counts",
        ),
        pytest.param([came()], [in_round(placement(west=2))], [], id="a template slot outside the plan does not count"),
        pytest.param(
            [came(listed="west/1/r/2")],
            [in_round(placement(west=2))],
            [],
            id="a template slot in another cluster does not count",
        ),
        pytest.param([pod()], [], ["Placement demo/train: 1 worker left"], id="a pod without its Placement counts"),
        pytest.param(
            [pod("b"), pod("a")],
            [placement("a"), placement("b")],
            ["RayJob demo/a-job: 1 worker left", "RayJob demo/b-job: 1 worker left"],
            id="jobs are listed by name",
        ),
    ],
)
def test_remaining_workers_per_job(pods: list[Raw], placements: list[Raw], want: list[str]) -> None:
    assert told(pods, placements) == want


def test_only_changes_are_reported_again() -> None:
    both = remaining_jobs({"east"}, [pod("a"), pod("b"), pod("b")], [placement("a"), placement("b")])
    one = remaining_jobs({"east"}, [pod("a"), pod("b")], [placement("a"), placement("b", reason="no room.")])
    assert list(change_lines(both, both)) == []
    assert list(change_lines(both, one)) == ["RayJob demo/b-job: 1 worker left; no room."]
    assert list(change_lines(one, {})) == ["RayJob demo/a-job: no worker left", "RayJob demo/b-job: no worker left"]


def test_the_total_counts_pods_and_quota_whose_pods_are_still_to_come() -> None:
    found = remaining_jobs({"east"}, [pod("a"), pod("a")], [placement("a", east=2), placement("b", east=1)])
    assert remaining_workers_text(found) == "3 workers"
    assert remaining_workers_text(remaining_jobs({"east"}, [pod("a")], [])) == "1 worker"
