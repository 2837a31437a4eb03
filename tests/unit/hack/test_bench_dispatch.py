"""The pace counts from the first dispatched pod, and requests are divided by pods."""

import argparse
import json
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from adapter import names
from adapter.actions import CreatePod
from adapter.objects.placement import parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import Raw
from adapter.rewrite.head_address import HeadAddress
from adapter.worker import dispatch
from adapter.worker.worker_facts import HeadFacts
from hack.bench import dispatch as dispatch_bench
from hack.bench import floor, report
from hack.testbed import deployment, procstat
from hack.testbed.audit import Kind, Request
from hack.testbed.clusters import Clusters
from hack.testbed.recorder import Change
from hack.testbed.stage import Stage
from tests.unit import apiserver
from tests.unit import builders as make
from tests.unit.apiserver import Answer, Asked, Server, event, says, streams
from tests.unit.fact_builders import make_worker

FIGURES = {
    "pods_s": 10.0, "total_s": 10.0, "running_p50_s": 5.0, "running_p99_s": 9.0, "copy_p50_s": 1.0, "copy_p99_s": 2.0,
    "ours_manager": 1.0, "ours_workers": 1.0, "all_manager": 5.0, "all_workers": 6.0, "cpu_ms": 4.0, "lab_cpu_ms": 70.0,
    "rss_mb": 90.0, "gone_s": 5.0,
}  # fmt: skip
THROUGH = {
    "through_pods_s": 8.0,
    "kuberay_pods_s": 9.0,
    "through_p50_s": 1.0,
    "through_p99_s": 2.0,
    "through_gone_s": 3.0,
}


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
    *MADE, here(200, "a", slot="east/1/r/0"), there(201, "a"), here(202, "b", slot="east/1/r/1"), there(203, "b"),
    there(203.5, "a", phase="Running"), here(204, "a", slot="east/1/r/0", phase="Running"),
    there(204.5, "b", phase="Running"), here(205, "b", slot="east/1/r/1", phase="Running"),
]  # fmt: skip
FLOOR = [*MADE, there(201, "a"), there(203, "b"), here(204, "a", phase="Running"), here(205, "b", phase="Running")]


@pytest.mark.parametrize("changes", [pytest.param(OURS, id="our controller"), pytest.param(FLOOR, id="the floor")])
def test_the_pace_counts_from_the_first_pod_that_is_dispatched(changes: list[Change]) -> None:
    """The time that KubeRay took for the pods is not part of the pace."""
    found = report.pace([*OF_KUBERAY, *changes], "mgr")
    assert found == {
        "pods_s": 2 / 6,
        "total_s": 6,
        "running_p50_s": 5,
        "running_p99_s": 6,
        "copy_p50_s": 2,
        "copy_p99_s": 3,
    }


def test_the_by_line_counts_from_the_first_pod_of_kuberay() -> None:
    assert report.through(OURS, "mgr") == {
        "through_pods_s": 2 / 6,
        "kuberay_pods_s": 2 / 1,
        "through_p50_s": 5,
        "through_p99_s": 5,
    }


def test_a_gang_is_deleted_with_its_last_pod_and_remote_pod() -> None:
    left = [Change(at, where, "pods", name, None) for at, where, name in ((213, "mgr", "a"), (214, "east", "a"))]
    ended = Change(210, "mgr", "rayclusters", "gang", None)
    earlier = [*OF_KUBERAY, Change(106, "mgr", "pods", "x", None)]
    assert report.gone([*earlier, *OURS, ended, *left], "mgr") == {"gone_s": 4}


def test_no_dispatched_pod_gives_no_pace() -> None:
    """A failed script leaves nothing to measure: its own error is reported, and no division by zero."""
    assert math.isnan(report.pace(MADE, "mgr")["pods_s"])


def test_our_requests_are_separated_from_those_of_others() -> None:
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
        pytest.param({"pods_s": 9.5}, "yes", id="the goal is met"),
        pytest.param({"pods_s": 9.4}, "no", id="the pace is too slow"),
        pytest.param({"ours_manager": 1.2}, "no", id="too many requests to the manager"),
        pytest.param({"ours_workers": 1.1}, "no", id="too many requests to worker clusters"),
        pytest.param({"cpu_ms": 5.1}, "no", id="too much CPU time"),
        pytest.param({"gone_s": 6.1}, "no", id="the deletion is too slow"),
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
    lines = [re.split(r"\s{2,}", line) for line in report.dispatch_table(rows).splitlines()]
    assert ["gated pods", "100", "floor", "300", "floor"] in lines
    assert ["pods/s", "9 (9 to 9)", "10 (10 to 10)", "9 (9 to 9)", "10 (10 to 10)"] in lines
    assert ["pods/s that KubeRay makes", "9", "-", "9", "-"] in lines
    assert not any("one more write" in line[0] for line in lines)


def test_the_spread_is_that_of_consecutive_runs() -> None:
    ours, floor = [FIGURES | {"pods_s": n} for n in (9.0, 8.0)], [FIGURES | {"pods_s": n} for n in (10.0, 20.0)]
    row = report.dispatch_values(1000, ours, floor, THROUGH)
    assert [row[key] for key in ("ratio", "ratio_min", "ratio_max")] == pytest.approx([8.5 / 15, 0.4, 0.9])
    assert [row[key] for key in ("pods_s_min", "pods_s_max", "floor_pods_s_min", "floor_pods_s_max")] == [8, 9, 10, 20]


def test_the_cost_of_one_more_write_is_a_time() -> None:
    row = report.dispatch_values(100, [FIGURES], [FIGURES], THROUGH, [FIGURES | {"pods_s": 8.0}])
    assert row["extra_pods_s"] == 8
    assert row["extra_ms"] == pytest.approx(25)
    assert "what such a write costs it, ms per pod" in report.dispatch_table([row])


@pytest.mark.parametrize(
    ("how", "want"),
    [
        pytest.param(["100"], ["floor-0", "ours-0", "ours-1", "floor-1", "floor-2", "ours-2"], id="alternating"),
        pytest.param(["1000"], ["floor-0", "ours-0", "ours-1", "floor-1"], id="a large size twice"),
        pytest.param(["100", "--times", "1", "--extra-patch"], ["floor-0", "ours-0", "extra-0"], id="one more write"),
    ],
)
def test_the_order_of_a_pair_alternates(how: list[str], want: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    went = list[str]()

    def ran(stage: Stage, job: str, workers: int, how: str) -> Mapping[str, float]:
        went.append(job)
        return FIGURES

    @contextmanager
    def staged(fleet: Clusters, workers: int) -> Iterator[None]:
        yield

    for name, by in (("_run", ran), ("_stage", staged), ("_through", lambda *_: THROUGH)):
        monkeypatch.setattr(dispatch_bench, name, by)
    monkeypatch.setattr(deployment, "on_lab", lambda **_: None)
    parser = argparse.ArgumentParser()
    dispatch_bench.add_arguments(parser)
    dispatch_bench.run(argparse.Namespace(renew=False, **vars(parser.parse_args(["--backlogs", *how]))))
    assert went == want


def test_the_kernels_lines_are_read() -> None:
    """The name of a process may have spaces and parentheses."""
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
    """A stage with the fields that the orders read."""
    worker = SimpleNamespace(get=lambda kind, name, namespace: SHARE if name == SHARE["metadata"]["name"] else {})
    fleet = SimpleNamespace(workers={"east": worker, "west": worker})
    manager = SimpleNamespace(get=lambda _, name: make.make_worker_cluster(name), items=lambda *_: [HEAD])
    stage = SimpleNamespace(name=make.NAMESPACE, manager=manager, fleet=fleet, placement=lambda _: PLACE)
    return cast(Stage, stage)


def test_the_floor_creates_the_same_bytes_as_the_controller() -> None:
    found = list(floor._orders(a_stage(), PODS[::-1], parse_placement(PLACE)))
    assert [(one["cluster"], one["pod"]["metadata"]["name"]) for one in found] == [
        ("east", "worker-0"), ("east", "worker-1"), ("west", "worker-2"), ("west", "worker-3"),
    ]  # fmt: skip
    place = parse_placement(PLACE)
    for order in found:
        slot = order["body"]["metadata"]["annotations"][names.SLOT_ANNOTATION]
        target = floor._target(a_stage(), order["cluster"], SHARE, place)
        assert (target.workload, target.workload_uid, target.manager) == ("rayjob-train", "uid-of-rayjob-train", "mgr")
        pod = json.loads(json.dumps(order["pod"]))
        pod["metadata"]["annotations"][names.SLOT_ANNOTATION] = slot
        found_there = parse_reservation(order["cluster"], SHARE)
        standing = {found_there.key: found_there}
        worker = make_worker(
            pod=pod,
            placement=place,
            owns_pod=True,
            head=HeadFacts(HeadAddress.from_pod(pod, "10.12.0.5"), pod=None, mirrors={}),
            reservations=standing,
            targets={order["cluster"]: target},
        )
        (action,) = dispatch.decide(worker, make.START)
        assert isinstance(action, CreatePod)
        assert order["body"] == action.body


def _orders_in(folder: Path, home: str, east: str) -> None:
    for name, url in ((floor.USER, home), (floor.HOME, home), ("east", east)):
        (folder / name).write_text(json.dumps(apiserver.kubeconfig(url)))
    copies = [make.make_copy(pod) for pod in PODS]
    work = [{"cluster": "east", "pod": pod, "body": copy} for pod, copy in zip(PODS, copies, strict=True)]
    (folder / floor.WORK).write_text(json.dumps({"namespace": "demo", "job": "gang", "placement": "p", "orders": work}))


def opened(server: Server, sessions: int) -> list[Answer]:
    """Answers the requests that open connections once all have arrived, so that none shares a connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await server.until(lambda: len(server.asked) >= sessions * floor._CONNECTIONS)
        return await says({})(request)

    return [answer] * (sessions * floor._CONNECTIONS)


def work(server: Server) -> list[Asked]:
    """The requests beside the watch, after all connections were open."""
    opening = [one for one in server.asked if one.path == "/version"]
    assert opening == server.asked[: len(opening)]
    return [one for one in server.asked[len(opening) :] if not one.watch]


def words(server: Server) -> list[tuple[str, str]]:
    return sorted((one.method, one.path) for one in work(server))


POSTED = [("POST", "/api/v1/namespaces/demo/pods")] * 4
PATHS = [f"/api/v1/namespaces/demo/pods/{pod['metadata']['name']}" for pod in PODS]


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[Server, Server]]:
    """The manager's API server, for user and controller, and that of a worker cluster where remote pods run at once."""
    runs = [event("MODIFIED", make.make_copy(pod, phase="Running")) for pod in PODS]
    async with apiserver.serving() as home, apiserver.serving() as east:

        async def when_all_are_made(request: web.Request) -> web.StreamResponse:
            await east.until(lambda: len(work(east)) == len(PODS))
            return await streams(*runs, *runs)(request)

        home.lists = [*opened(home, 2), *map(says, PODS)]
        east.watches, east.lists = [when_all_are_made], [*opened(east, 1), *[says({})] * 4]
        _orders_in(tmp_path, home.url, east.url)
        yield home, east


async def test_the_floor_creates_one_remote_pod_and_one_status_for_each_pod(
    tmp_path: Path, servers: tuple[Server, Server]
) -> None:
    home, east = servers
    home.lists += [says({})] * 4
    spent_itself = await floor.run(tmp_path)
    assert words(home) == sorted([*[("PATCH", f"{path}/status") for path in PATHS], *POSTED])
    assert words(east) == POSTED
    uids = {one.body["metadata"]["labels"][names.POD_UID_LABEL] for one in work(east)}
    assert uids == {pod["metadata"]["uid"] for pod in PODS}
    assert {one.body["status"]["phase"] for one in work(home) if one.method == "PATCH"} == {"Running"}
    assert spent_itself["cpu_s"] >= 0 and spent_itself["rss_mb"] > 1


async def test_the_floor_can_write_once_more_before_a_remote_pod(
    tmp_path: Path, servers: tuple[Server, Server]
) -> None:
    home, east = servers
    home.lists += [*map(says, PODS), *[says({})] * 4]
    await floor.run(tmp_path, floor.EXTRA_PATCH)
    extra = [one for one in work(home) if one.method == "PATCH" and "annotations" in one.body.get("metadata", {})]
    assert sorted(one.path for one in extra) == [f"{path}/status" for path in PATHS], "all that our account may write"
    assert max(one.when for one in extra) <= max(one.when for one in work(east))
    assert words(east) == POSTED


async def test_the_order_to_create_pods_does_nothing_else(tmp_path: Path, servers: tuple[Server, Server]) -> None:
    home, east = servers
    await floor.run(tmp_path, floor.MAKE_ONLY)
    assert words(home) == POSTED
    assert not work(east)


async def test_the_floor_deletes_the_raycluster_and_each_remote_pod(
    tmp_path: Path, servers: tuple[Server, Server]
) -> None:
    home, east = servers
    await floor.run(tmp_path, floor.END)
    assert words(home) == [("DELETE", "/apis/ray.io/v1/namespaces/demo/rayclusters/gang")]
    assert words(east) == [("DELETE", path) for path in PATHS]
