"""Violations of a RayService after faults: addresses without a worker, workers without requests, orphans."""

import pytest

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from hack.trials.chaos.withserve import astray, orphans


def worker(uid: str, address: str) -> Raw:
    return {"metadata": {"name": uid, "uid": uid}, "status": {"podIP": address}}


def endpoint(uid: str, address: str, *, ready: bool = True) -> Raw:
    return {"addresses": [address], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "uid": uid}}


ONE, TWO = worker("one", "10.0.0.1"), worker("two", "10.0.0.2")


@pytest.mark.parametrize(
    ("endpoints", "want"),
    [
        pytest.param([endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2")], [], id="all workers have an endpoint"),
        pytest.param(
            [endpoint("one", "10.0.0.1")], ["the worker at 10.0.0.2 gets no requests"],
            id="a worker without an endpoint",
        ),
        pytest.param(
            [endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2", ready=False)],
            ["the worker at 10.0.0.2 gets no requests"], id="a worker whose endpoint is not ready",
        ),
        pytest.param(
            [endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2"), endpoint("gone", "10.0.0.3")],
            ["address 10.0.0.3 gets requests, and is no ready worker's"], id="an endpoint of a deleted worker",
        ),
        pytest.param(
            [endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2"), endpoint("gone", "10.0.0.2")],
            ["address 10.0.0.2 gets requests, and is no ready worker's"],
            id="an endpoint of a deleted worker with another worker's address",
        ),
        pytest.param(
            [endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2"), endpoint("gone", "10.0.0.3", ready=False)], [],
            id="an endpoint of a deleted worker that is not ready",
        ),
    ],
)  # fmt: skip
def test_requests_reach_all_ready_workers_and_no_others(endpoints: list[Raw], want: list[str]) -> None:
    slices = [{"endpoints": [one]} for one in endpoints]
    assert astray([ONE, TWO], [*slices, {"endpoints": None}]) == want


def test_a_remote_pod_of_this_service_without_a_worker_is_an_orphan() -> None:
    def copy(uid: str, of: str) -> Raw:
        return {
            "metadata": {
                "name": f"copy-of-{uid}",
                "labels": {names.REMOTE_RAY_CLUSTER_LABEL: of, names.POD_UID_LABEL: uid},
            }
        }

    there = {
        "east": [copy("one", "chaos-serve-abc")],
        "west": [copy("old", "chaos-serve-xyz"), copy("x", "chaos-ray-abc")],
    }
    assert orphans([ONE, TWO], there) == ["pod copy-of-old in west stands for no worker"]
