"""Requests are divided by workers, by phase, cluster and client; none counts twice."""

import math

from hack.bench import report
from hack.bench.report import Run
from hack.testbed.audit import Kind, Request

TIMES = {"running_p99_s": 2.0, "all_gone_s": 1.0}


def asked(client: str, count: int, *, code: int = 200) -> list[Request]:
    return [Request(Kind(client, "create", "pods"), "bench", code)] * count


SPANNING = Run(
    "mgr",
    TIMES,
    up={
        "mgr": asked("rayspan-controller", 4) + asked("kuberay-operator", 2), "east": asked("rayspan-worker", 2),
        "west": [],
    },
    down={"mgr": asked("rayspan-controller", 1, code=409), "east": asked("kwok", 2), "west": asked("kwok", 2)},
)  # fmt: skip
PLAIN = Run(
    "mgr", {"running_p99_s": 1.0, "all_gone_s": math.nan}, up={"mgr": asked("kuberay-operator", 4)}, down={"mgr": []}
)


def test_requests_are_reported_by_worker() -> None:
    found = report.walk_values(2, SPANNING, PLAIN)
    assert {key: value for key, value in found.items() if key.startswith(("up_", "down_"))} == {
        "up_ours_manager": 2,
        "up_ours_workers": 1,
        "up_all_manager": 3,
        "up_all_workers": 1,
        "up_plain": 2,
        "down_ours_manager": 0.5,
        "down_ours_workers": 0,
        "down_all_manager": 0.5,
        "down_all_workers": 2,
        "down_plain": 0,
    }
    assert found["requests_ratio"] == (8 + 5) / 4
    assert found["running_ratio"] == 2
    assert found["ours_refused"] == 0.5


def test_the_tables_list_ours_by_kind_and_others_by_client() -> None:
    lines = [line.split() for line in report.walk_text(2, SPANNING, PLAIN).splitlines()]
    assert ["manager", "create", "pods", "2", "0.5", "0", "0"] in lines
    assert ["workers", "kwok", "0", "2", "0", "0"] in lines
    assert ["all", "1", "2", "2", "0"] in lines
