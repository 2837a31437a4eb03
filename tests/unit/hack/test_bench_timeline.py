"""Recorded changes become seconds: the first time that a state is reached, and the last deletion."""

import math

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import Raw
from hack.bench import timeline
from hack.testbed import figures
from hack.testbed.recorder import Change
from tests.unit.builders import make_condition

RUNS = {"phase": "Running"}


def change(at: float, cluster: str, kind: str, name: str, after: Raw | None) -> Change:
    return Change(100 + at, cluster, kind, name, after)


def worker(status: Raw | None = None, *, copy: bool = False) -> Raw:
    labels = {names.POD_UID_LABEL: "u"} if copy else {names.RAY_NODE_TYPE_LABEL: "worker"}
    return {"metadata": {"labels": labels}, "status": status or {}}


def workload(*conditions: str, check: str = names.CHECK_PENDING) -> Raw:
    held = [make_condition(kind) for kind in conditions]
    return {"status": {"conditions": held, "admissionChecks": [{"name": "rayspan", "state": check}]}}


WALK = [
    change(0, "mgr", "rayclusters", "gang", {"metadata": {}}),
    change(1, "mgr", "workloads", "w", workload(names.QUOTA_RESERVED)),
    change(2, "mgr", "placements", "p", {"status": {"state": PlacementState.PLACED}}),
    change(3, "mgr", "workloads", "w", workload(names.QUOTA_RESERVED, check=names.CHECK_READY)),
    change(4, "mgr", "workloads", "w", workload(names.QUOTA_RESERVED, names.ADMITTED, check=names.CHECK_READY)),
    change(5, "mgr", "pods", "head", {"metadata": {"labels": {names.RAY_NODE_TYPE_LABEL: "head"}}, "status": RUNS}),
    change(6, "mgr", "pods", "a", worker()),
    change(7, "mgr", "pods", "b", worker()),
    change(8, "east", "pods", "a", worker(copy=True)),
    change(8.5, "west", "pods", "b", worker(copy=True)),
    change(9, "east", "pods", "a", worker(RUNS, copy=True)),
    change(10, "mgr", "pods", "a", worker(RUNS)),
    change(10, "west", "pods", "b", worker(RUNS, copy=True)),
    change(11, "mgr", "pods", "a", worker(RUNS)),  # a second status does not count
    change(13, "mgr", "pods", "b", worker(RUNS)),
    change(14, "mgr", "rayclusters", "gang", {"metadata": {}, "status": {"state": "ready"}}),
    change(20, "mgr", "rayclusters", "gang", {"metadata": {"deletionTimestamp": "now"}}),
    change(21, "mgr", "rayclusters", "gang", None),
    change(22, "mgr", "pods", "a", None),
    change(24, "east", "pods", "a", None),
    change(25, "east", "workloads", "share", None),
]


def test_the_start_of_a_gang_is_read() -> None:
    assert timeline.rise(WALK, "mgr").figures() == {
        "reserved_s": 1,
        "placed_s": 2,
        "ready_s": 3,
        "admitted_s": 4,
        "first_pod_s": 6,
        "last_pod_s": 7,
        "first_remote_s": 8,
        "last_remote_s": 8.5,
        "running_p50_s": 10,
        "running_p99_s": 13,
        "whole_s": 14,
        "pod_to_copy_p50_s": 1.5,
        "pod_to_copy_p99_s": 2,
        "copy_runs_to_mirrored_p50_s": 1,
        "copy_runs_to_mirrored_p99_s": 3,
    }


def test_the_end_of_a_gang_is_read_from_its_deletion() -> None:
    assert timeline.fall(WALK, "mgr") == {"pods_gone_s": 2, "copies_gone_s": 4, "all_gone_s": 5}


def test_a_plain_run_has_no_remote_pods_and_no_check() -> None:
    plain = [one for one in WALK if one.cluster == "mgr" and one.kind not in ("placements", "workloads")]
    found = timeline.rise(plain, "mgr").figures()
    assert found["running_p99_s"] == 13
    missing = ("reserved_s", "placed_s", "ready_s", "first_remote_s", "pod_to_copy_p50_s")
    assert all(math.isnan(found[key]) for key in missing)


def test_a_percentile_is_an_observed_value() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert [figures.percentile(values, p) for p in (0, 50, 99, 100)] == [1, 3, 5, 5]
    assert math.isnan(figures.percentile([], 50))


def test_a_line_can_be_parsed() -> None:
    said = figures.line("walk", {"workers": 4, "ready_s": 0.25, "none": math.nan})
    assert said == "BENCH walk workers=4 ready_s=0.25 none=-"
