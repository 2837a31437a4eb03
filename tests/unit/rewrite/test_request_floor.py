"""The floor of a pod's requests is what its template requests, and nothing is counted twice."""

from typing import Any

from adapter.objects.pod_requests import pod_requests
from adapter.rewrite.request_floor import with_request_floor


def spec(cpu: str, pod_cpu: str = "", overhead: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    if pod_cpu:
        made["resources"] = {"requests": {"cpu": pod_cpu}}
    return made | ({"overhead": {"cpu": overhead}} if overhead else {})


def test_requests_at_pod_level_are_raised_to_the_sum_of_the_containers() -> None:
    assert pod_requests(with_request_floor(spec("2", "1"), spec("2"), {}))["cpu"] == 2_000


def test_the_overhead_is_counted_once() -> None:
    assert pod_requests(with_request_floor(spec("2", "1", "1"), spec("2", overhead="1"), {}))["cpu"] == 3_000
    assert pod_requests(with_request_floor(spec("2", overhead="1"), spec("2", overhead="1"), {}))["cpu"] == 3_000
