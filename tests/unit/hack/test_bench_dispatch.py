"""The pace counts from the first pod that is dispatched, and the requests are shared out to the pods."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from adapter import names
from adapter.actions import CreatePod
from adapter.objects.placement import placement
from adapter.objects.raw import Raw
from adapter.objects.reservation import reservation
from adapter.rewrite.headaddress import HeadAddress
from adapter.worker import dispatch
from adapter.worker.facts import Worker
from hack.bench import floor, report
from hack.testbed import procstat
from hack.testbed.audit import Kind, Request
from hack.testbed.recorder import Change
from hack.testbed.stage import Stage
from tests.unit import apiserver
from tests.unit import builders as make
from tests.unit.apiserver import event, says, streams

FIGURES = {
    "pods_s": 10.0, "total_s": 10.0, "running_p50_s": 5.0, "running_p99_s": 9.0, "copy_p50_s": 1.0, "copy_p99_s": 2.0,
    "ours_manager": 1.0, "ours_workers": 1.0, "all_manager": 5.0, "all_workers": 6.0, "cpu_ms": 9.0, "lab_cpu_ms": 70.0,
    "rss_mb": 90.0,
}  # fmt: skip
THROUGH = {"through_pods_s": 8.0, "kuberay_pods_s": 9.0, "through_p50_s": 1.0, "through_p99_s": 2.0, "gone_s": 3.0}


def here(at: float, name: str, *, slot: str = "", phase: str = "Pending") -> Change:
    annotations = {names.SLOT_ANNOTATION: slot} if slot else {}
    return _pod(at, "mgr", name, {names.RAY_NODE_TYPE_LABEL: "worker"}, annotations, phase)


def there(at: float, name: str, *, phase: str = "Pending") -> Change:
    return _pod(at, "east", name, {names.POD_UID_LABEL: f"uid-of-{name}"}, {}, phase)


def _pod(
    at: float, cluster: str, name: str, labels: Mapping[str, str], annotations: Mapping[str, str], phase: str
) -> Change:
    raw: Raw = {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {"phase": phase},
    }
    return Change(at, cluster, "pods", name, raw)


RAY_CLUSTER = Change(100, "mgr", "rayclusters", "gang", {"metadata": {"name": "gang"}})
OF_KUBERAY = [RAY_CLUSTER, here(101, "x"), here(105, "y")]
MADE = [RAY_CLUSTER, here(199, "a"), here(200, "b")]
OURS = [
    *MADE, here(200, "a", slot="east/r/0"), there(201, "a"), here(202, "b", slot="east/r/1"), there(203, "b"),
    there(203.5, "a", phase="Running"), here(204, "a", slot="east/r/0", phase="Running"),
    there(204.5, "b", phase="Running"), here(205, "b", slot="east/r/1", phase="Running"),
]  # fmt: skip
FLOOR = [*MADE, there(201, "a"), there(203, "b"), here(204, "a", phase="Running"), here(205, "b", phase="Running")]


@pytest.mark.parametrize("changes", [pytest.param(OURS, id="ours"), pytest.param(FLOOR, id="the floor")])
def test_the_pace_counts_from_the_first_pod_that_is_dispatched(changes: list[Change]) -> None:
    """How long KubeRay took to make the pods whose likes are dispatched is nobody's pace."""
    found = report.pace([*OF_KUBERAY, *changes], "mgr")
    assert found == {
        "pods_s": 2 / 6,
        "total_s": 6,
        "running_p50_s": 5,
        "running_p99_s": 6,
        "copy_p50_s": 2,
        "copy_p99_s": 3,
    }


def test_the_by_line_counts_from_the_first_pod_that_kuberay_makes() -> None:
    assert report.through(OURS, "mgr") == {
        "through_pods_s": 2 / 6,
        "kuberay_pods_s": 2 / 1,
        "through_p50_s": 5,
        "through_p99_s": 5,
    }


def test_nothing_dispatched_is_no_pace() -> None:
    """A script that fails leaves nothing to measure; its own failure is told, not a division by nothing."""
    assert math.isnan(report.pace(MADE, "mgr")["pods_s"])


def test_own_requests_are_told_from_everybodys() -> None:
    def asked(client: str, count: int) -> list[Request]:
        return [Request(Kind(client, "create", "pods"), "bench", 200)] * count

    requests = {
        "mgr": asked("rayspan-controller", 6),
        "east": asked("rayspan-worker", 2) + asked("kwok", 8),
        "west": [],
    }
    found = report.cost(2, "mgr", requests, cpu_s=0.5, lab_cpu_s=1, rss_mb=80)
    assert found == {
        "ours_manager": 3,
        "ours_workers": 1,
        "all_manager": 3,
        "all_workers": 5,
        "cpu_ms": 250,
        "lab_cpu_ms": 500,
        "rss_mb": 80,
    }


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param({"pods_s": 8.0}, "yes", id="as fast as it must be"),
        pytest.param({"pods_s": 7.9}, "no", id="too slow"),
        pytest.param({"ours_manager": 1.3}, "no", id="asks the manager too much"),
        pytest.param({"ours_workers": 7.1}, "no", id="asks the worker clusters too much"),
    ],
)
def test_the_goal_is_met_only_as_a_whole(changed: Mapping[str, float], want: str) -> None:
    row = report.dispatch_values(100, [{**FIGURES, **changed}], [FIGURES], THROUGH)
    assert row["met"] == want
    well = report.dispatch_values(300, [FIGURES], [FIGURES], THROUGH)
    last = report.dispatch_last_line([row, well])
    assert (last["ratio_300"], last["met"]) == (1, want)
    assert last["ratio_100"] == pytest.approx(changed.get("pods_s", 10) / 10)


def test_the_table_holds_each_size_beside_its_floor() -> None:
    rows = [report.dispatch_values(n, [FIGURES | {"pods_s": 9.0}], [FIGURES], THROUGH) for n in (100, 300)]
    lines = [line.rsplit(maxsplit=4) for line in report.dispatch_table(rows).splitlines()]
    assert ["gated pods", "100", "floor", "300", "floor"] in lines
    assert ["pods/s", "9", "10", "9", "10"] in lines
    assert ["pods/s that KubeRay makes", "9", "-", "9", "-"] in lines


def test_the_kernels_lines_are_read() -> None:
    """The name of a process may hold spaces and parentheses."""
    stat = "42 (a) b) S 1 42 42 0 -1 4194560 9 0 0 0 250 50 7 7 20 0 4 0 123 9 9"
    assert procstat._cpu(stat) == 300 / procstat._TICKS
    assert procstat._cpu("") == 0
    assert procstat._memory("Name:\tpython3\nVmRSS:\t  2048 kB\nThreads:\t4\n") == 2
    assert procstat._memory("") == 0


# --- the floor -------------------------------------------------------------------------------------------------------

WORK = make.make_workload()
PLACE = make.make_placement(WORK)
PODS = [make.make_pod(f"worker-{n}", placement=PLACE["metadata"]["name"]) for n in range(4)]
HEAD = {"metadata": make.make_meta("head"), "status": {"podIP": "10.12.0.5"}}
SHARE = make.make_reservation(PLACE)
SHARE["metadata"]["labels"][names.MANAGER_LABEL] = "mgr"


def a_stage() -> Stage:
    """A stage as far as the orders look at it."""
    worker = SimpleNamespace(get=lambda kind, name, namespace: SHARE if name == SHARE["metadata"]["name"] else {})
    fleet = SimpleNamespace(workers={"east": worker, "west": worker})
    manager = SimpleNamespace(get=lambda _, name: make.make_worker_cluster(name), items=lambda *_: [HEAD])
    stage = SimpleNamespace(name=make.NAMESPACE, manager=manager, fleet=fleet, placement=lambda _: PLACE)
    return cast(Stage, stage)


def test_the_floor_creates_the_same_bytes_as_the_controller() -> None:
    found = list(floor._orders(a_stage(), PODS[::-1], placement(PLACE)))
    assert [(one["cluster"], one["pod"]["metadata"]["name"]) for one in found] == [
        ("east", "worker-0"), ("east", "worker-1"), ("west", "worker-2"), ("west", "worker-3"),
    ]  # fmt: skip
    place = placement(PLACE)
    for order in found:
        slot = order["body"]["metadata"]["annotations"][names.SLOT_ANNOTATION]
        target = floor._target(a_stage(), order["cluster"], SHARE, place)
        assert (target.workload, target.workload_uid, target.manager) == ("rayjob-train", "uid-of-rayjob-train", "mgr")
        pod = json.loads(json.dumps(order["pod"]))
        pod["metadata"]["annotations"][names.SLOT_ANNOTATION] = slot
        found_there = reservation(order["cluster"], SHARE)
        standing = {(found_there.cluster, found_there.round): found_there}
        worker = Worker(
            pod,
            {},
            place,
            None,
            True,
            HeadAddress.of(pod, "10.12.0.5"),
            standing,
            {order["cluster"]: target},
            frozenset(),
        )
        (action,) = dispatch.decide(worker, make.START)
        assert isinstance(action, CreatePod)
        assert order["body"] == action.body


def _orders_in(folder: Path, home: str, east: str) -> None:
    for name, url in ((floor.USER, home), (floor.HOME, home), ("east", east)):
        (folder / name).write_text(json.dumps(apiserver.kubeconfig(url)))
    copies = [make.make_copy(pod) for pod in PODS]
    work = [{"cluster": "east", "pod": pod, "body": copy} for pod, copy in zip(PODS, copies, strict=True)]
    (folder / floor.WORK).write_text(json.dumps({"namespace": "demo", "placement": "p", "orders": work}))


async def test_the_floor_makes_each_pod_one_copy_and_one_status(tmp_path: Path) -> None:
    runs = [event("MODIFIED", make.make_copy(pod, phase="Running")) for pod in PODS]
    async with apiserver.serving() as home, apiserver.serving() as east:

        async def when_all_are_made(request: web.Request) -> web.StreamResponse:
            await east.until(lambda: len(east.of(watch=False)) == len(PODS))
            return await streams(*runs, *runs)(request)

        east.watches, east.lists = [when_all_are_made], [says({})] * 4
        home.lists = [*map(says, PODS), *[says({})] * 4]
        _orders_in(tmp_path, home.url, east.url)
        spent_itself = await floor.run(tmp_path)
    patched = [("PATCH", f"/api/v1/namespaces/demo/pods/{pod['metadata']['name']}/status") for pod in PODS]
    posted = [("POST", "/api/v1/namespaces/demo/pods")] * 4
    assert sorted((one.method, one.path) for one in home.asked) == [*patched, *posted]
    assert [(one.method, one.path) for one in east.of(watch=False)] == posted
    uids = {one.body["metadata"]["labels"][names.POD_UID_LABEL] for one in east.of(watch=False)}
    assert uids == {pod["metadata"]["uid"] for pod in PODS}
    assert {one.body["status"]["phase"] for one in home.asked if one.method == "PATCH"} == {"Running"}
    assert spent_itself["cpu_s"] >= 0 and spent_itself["rss_mb"] > 1


async def test_whoever_only_makes_pods_leaves_the_rest_to_others(tmp_path: Path) -> None:
    async with apiserver.serving() as home, apiserver.serving() as east:
        home.lists = [*map(says, PODS)]
        _orders_in(tmp_path, home.url, east.url)
        await floor.run(tmp_path, make_only=True)
    assert [one.method for one in home.asked] == ["POST"] * 4
    assert not east.asked
