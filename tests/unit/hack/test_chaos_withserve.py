"""What must not be with a RayService when faults are over: addresses that lead to nobody, workers that nobody asks, copies of none."""

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
        pytest.param([endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2")], [], id="each"),
        pytest.param([endpoint("one", "10.0.0.1")], ["the worker at 10.0.0.2 gets no requests"], id="one is not led to"),
        pytest.param([endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2", ready=False)], ["the worker at 10.0.0.2 gets no requests"], id="it is led to and gets none"),
        pytest.param([endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2"), endpoint("gone", "10.0.0.3")], ["address 10.0.0.3 gets requests, and is no ready worker's"], id="one that is gone"),
        pytest.param([endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2"), endpoint("gone", "10.0.0.2")], ["address 10.0.0.2 gets requests, and is no ready worker's"], id="whose address another one has"),
        pytest.param([endpoint("one", "10.0.0.1"), endpoint("two", "10.0.0.2"), endpoint("gone", "10.0.0.3", ready=False)], [], id="one that is going"),
    ],
)  # fmt: skip
def test_requests_are_led_to_living_workers_and_to_all_of_them(endpoints: list[Raw], want: list[str]) -> None:
    slices = [{"endpoints": [one]} for one in endpoints]
    assert astray([ONE, TWO], [*slices, {"endpoints": None}]) == want


def test_a_copy_that_stands_for_no_worker_is_an_orphan_if_it_is_of_this_service() -> None:
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
