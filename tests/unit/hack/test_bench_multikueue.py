"""MultiKueue's cost for its Jobs is reported by pod beside ours; nothing is promised about it."""

import math

import pytest

from adapter.objects.unstructured import Raw
from hack.bench import backlog, multikueue, promises, verdicts
from hack.bench.promises import BESIDE, DISPATCH_BESIDE, MULTIKUEUE
from hack.testbed.audit import Kind, Request
from hack.testbed.recorder import Change
from tests.unit.builders import make_condition


def a_job(at: float, name: str, *, complete: bool = False) -> Change:
    status: Raw = {"conditions": [make_condition("Complete")]} if complete else {}
    return Change(at, "mgr", "jobs", name, {"metadata": {"name": name}, "status": status})


def a_pod(at: float, name: str, phase: str) -> Change:
    return Change(at, "east", "pods", name, {"metadata": {"name": name}, "status": {"phase": phase}})


def test_a_pod_counts_once_it_runs_and_a_job_once_the_manager_knows() -> None:
    changes = [
        a_job(100, "a"), a_job(101, "b"), a_pod(102, "a-0", "Pending"), a_pod(103, "a-0", "Running"),
        a_pod(104, "a-0", "Succeeded"),
        a_pod(105, "b-0", "Succeeded"), a_job(106, "a", complete=True), a_job(108, "b", complete=True),
        Change(109, "mgr", "jobs", "a", None), Change(109, "east", "pods", "a-0", None),
    ]  # fmt: skip
    assert multikueue.times(changes, "mgr") == {"pods_s": 2 / 5, "total_s": 5, "complete_s": 8}


def test_pods_that_never_ran_have_no_pace() -> None:
    assert math.isnan(multikueue.times([a_job(100, "a")], "mgr")["pods_s"])


def test_requests_are_counted_by_client() -> None:
    def asked(client: str, count: int) -> list[Request]:
        return [Request(Kind(client, "create", "jobs"), "bench", 200)] * count

    requests = {
        "mgr": asked("kueue-controller-manager", 10) + asked("it-multikueue", 1) + asked("job-controller", 5),
        "east": asked("it-multikueue", 4) + asked("kueue-controller-manager", 6),
        "west": asked("it-multikueue", 2),
    }
    assert multikueue.cost(2, "mgr", requests, cpu_s=0.1, lab_cpu_s=1) == {
        "kueue_manager": 5,
        "kueue_workers": 3,
        "all_manager": 8,
        "all_workers": 6,
        "cpu_ms": 50,
        "lab_cpu_ms": 500,
    }


def test_the_figures_of_rayspan_and_multikueue_are_comparable() -> None:
    assert {*DISPATCH_BESIDE.values()} & {*MULTIKUEUE.values()}
    values = {**dict.fromkeys(MULTIKUEUE, 3.0), "jobs": 1, "pods": 100}
    rows = promises.rows("multikueue", multikueue._about(values), values, MULTIKUEUE)
    assert {row.about for row in rows} == {"one Job of 100 pods"}
    assert {row.verdict for row in rows} == {BESIDE}
    assert not verdicts.sentences(rows, lenient=False)
    assert {row.promise.bound for row in rows} == {"none"}


@pytest.mark.parametrize("pods", [1, 100])
def test_a_job_requests_as_much_as_our_workers(pods: int) -> None:
    spec = multikueue.job("job-0", "bench", pods)["spec"]
    assert (spec["parallelism"], spec["completions"]) == (pods, pods)
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": backlog.CPU}
