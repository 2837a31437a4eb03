"""The figures of `make bursts`: the end and duration of a step, requests by client, and the last line."""

from collections.abc import Mapping

import pytest

from adapter import names
from adapter.objects.unstructured import Raw
from hack.testbed import deployment
from hack.testbed.audit import Kind, Request
from hack.testbed.recorder import Change, Place
from hack.trials.bursts import __main__ as program
from hack.trials.bursts import report, steps, waits
from hack.trials.bursts.job import GROUP, NAME, workers_of
from hack.trials.bursts.steps import Taken
from hack.trials.bursts.waves import WORKERS, Half
from hack.trials.chaos.invariants import LAB, ORPHAN, Finding
from tests.unit.builders import make_condition

MGR = "mgr"
RAY, WORK, POD = "rayclusters", "workloads", "pods"


def ray_cluster(replicas: int) -> Raw:
    return {"metadata": {"name": NAME}, "spec": {"workerGroupSpecs": [{"groupName": GROUP, "replicas": replicas}]}}


def workload(count: int, uid: str = "first", *, finished: bool = False) -> Raw:
    """One slice of the job in the manager."""
    over = [make_condition(names.FINISHED) | {"reason": names.SLICE_REPLACED}] if finished else []
    podsets = [{"name": "head", "count": 1}, {"name": GROUP, "count": count}]
    conditions = [make_condition(names.QUOTA_RESERVED), *over]
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"podSets": podsets}, "status": {"conditions": conditions}}


def share() -> Raw:
    return {"metadata": {"labels": {names.MANAGER_LABEL: "m"}}, "spec": {"podSets": [{"name": "r1", "count": 1}]}}


def worker(phase: str = "Running") -> Raw:
    return {"metadata": {"labels": {names.RAY_NODE_TYPE_LABEL: "worker"}}, "status": {"phase": phase}}


def copied() -> Raw:
    return {"metadata": {"labels": {names.POD_UID_LABEL: "uid"}}, "status": {"phase": "Running"}}


HEAD: Raw = {"metadata": {"labels": {names.RAY_NODE_TYPE_LABEL: names.HEAD}}, "status": {"phase": "Running"}}


def two() -> dict[Place, Raw]:
    """Two running workers in two clusters, after one scale-up of the job."""
    return {
        (MGR, RAY, NAME): ray_cluster(2),
        (MGR, WORK, "first"): workload(1, "first", finished=True),
        (MGR, WORK, "second"): workload(2, "second"),
        (MGR, POD, "head"): HEAD,
        **{(MGR, POD, name): worker() for name in "ab"},
        **{(cluster, POD, name): copied() for name, cluster in (("a", "east"), ("b", "west"))},
        **{(cluster, WORK, name): share() for name, cluster in (("a", "east"), ("b", "west"))},
    }


def test_a_step_is_done_when_all_its_parts_are() -> None:
    assert steps.settled(two(), MGR, 2, spans=True)
    assert not steps.settled(two(), MGR, 3, spans=True)
    alone = {place: raw for place, raw in two().items() if place[0] == MGR}
    assert steps.settled(alone, MGR, 2, spans=False)
    assert not steps.settled(alone, MGR, 2, spans=True)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({(MGR, POD, "b"): worker("Pending")}, id="a worker does not run"),
        pytest.param({(MGR, POD, "c"): worker()}, id="a deleted worker still exists"),
        pytest.param({("east", POD, "c"): copied()}, id="a deleted remote pod still exists"),
        pytest.param({("east", WORK, "c"): share()}, id="a deleted share still exists"),
        pytest.param({(MGR, WORK, "second"): workload(3, "second")}, id="the manager holds quota for three workers"),
    ],
)
def test_a_step_is_not_done_before(change: Mapping[Place, Raw]) -> None:
    assert not steps.settled({**two(), **change}, MGR, 2, spans=True)


def test_the_number_of_workers_of_a_workload() -> None:
    """The manager's Workload has a head too, and a share has none."""
    assert [workers_of(workload(3)), workers_of(share()), workers_of({})] == [3, 1, 0]


def test_a_step_lasts_from_the_patch_until_its_target_is_reached() -> None:
    """States before and after the step do not count."""
    start = {place: raw for place, raw in two().items() if place[2] != "b"}
    start |= {(MGR, RAY, NAME): ray_cluster(1)}
    before = [Change(1.0, *place, raw) for place, raw in start.items()]
    news: list[tuple[float, Place, Raw | None]] = [
        (9.0, (MGR, POD, "head"), HEAD),
        (10.0, (MGR, RAY, NAME), ray_cluster(2)),
        (10.5, (MGR, POD, "b"), worker("Pending")),
        (10.6, ("west", WORK, "b"), share()),
        (10.8, ("west", POD, "b"), copied()),
        (11.5, (MGR, POD, "b"), worker()),
        (13.0, (MGR, RAY, NAME), ray_cluster(2)),
    ]
    changes = [*before, *(Change(at, *place, raw) for at, place, raw in news)]

    def took(told: list[Change]) -> float:
        return steps.took(told, len(before), MGR, 2, lambda now: steps.settled(now, MGR, 2, spans=True))

    assert took(changes) == 1.5
    assert took(changes[:-2]) != took(changes[:-2]), "it was not done"
    again = [Change(20.0, MGR, POD, "b", None), Change(20.5, MGR, POD, "b", worker())]
    assert (
        steps.took([*changes, *again], len(changes) + 1, MGR, 2, lambda now: steps.settled(now, MGR, 2, spans=True))
        == 0
    )


def test_a_worker_that_is_lost_without_being_named_is_found() -> None:
    """A job that changes its size must lose no other worker, however fast it is replaced."""
    before = [Change(1.0, *place, raw) for place, raw in two().items()]
    news = [
        Change(9.0, MGR, POD, "head", None),
        Change(9.0, "east", POD, "a", None),
        Change(9.5, MGR, POD, "a", None),
        Change(9.6, MGR, POD, "c", worker()),
        Change(9.7, MGR, POD, "b", None),
    ]
    assert steps.strays([*before, *news], len(before), MGR, ["b"]) == ["a"]
    assert steps.strays([*before, *news], len(before), MGR, ["a", "b"]) == []
    assert steps.strays([*before, *news], len(before) + len(news), MGR, []) == []


def asked(client: str, verb: str, times: int) -> list[Request]:
    return [Request(Kind(client, verb, "pods"), "bursts", 200)] * times


def halves() -> list[Half]:
    """Two waves; the second equals the first."""
    up = {MGR: asked("rayspan-controller", "patch", WORKERS), "east": asked("rayspan-worker", "create", WORKERS // 2)}
    up["west"] = asked("rayspan-worker", "create", WORKERS // 2)
    down = {MGR: asked("kuberay-operator", "delete", 3 * WORKERS), "east": [], "west": []}
    return [Half("up", 2.0, up, []), Half("down", 3.0, down, [])] * 2


def test_requests_are_counted_by_client_and_kind() -> None:
    assert report.requests_table(halves(), MGR).splitlines() == [
        "requests per worker               up  down",
        "manager kuberay-operator delete    0     3",
        "manager rayspan-controller patch   1     0",
        "workers rayspan-worker create      1     0",
        "all                                2     3",
    ]
    assert report.requests_values(halves(), MGR) == {
        "workers": WORKERS,
        "up_s": 2.0, "up_manager": 1.0, "up_manager_ours": 1.0, "up_workers": 1.0, "up_workers_ours": 1.0,
        "down_s": 3.0, "down_manager": 3.0, "down_manager_ours": 0, "down_workers": 0, "down_workers_ours": 0,
    }  # fmt: skip


def taken(*seconds: float) -> list[Taken]:
    """Steps of these durations in seconds, each with twice as much CPU time."""
    return [Taken(one, 2 * one) for one in seconds]


def test_a_step_is_compared_with_one_cluster() -> None:
    ours = {"+1": taken(1.5, 1.0, 3.0), "-1": taken(1.0), "+50": taken(9.0)}
    (one, fewer) = report.steps_rows(ours, {"+1": taken(1.0, 1.0, 1.5), "-1": taken(0.5)})
    assert one["step"] == "+1" and one["times"] == 3
    assert (one["p50_s"], one["alone_p50_s"], one["ratio_p50"], one["added_p50_s"]) == (1.5, 1.0, 1.5, 0.5)
    assert (one["p99_s"], one["alone_p99_s"], one["ratio_p99"], one["added_p99_s"]) == (3.0, 1.5, 2.0, 1.5)
    assert (one["cpu_s"], one["alone_cpu_s"]) == (3.0, 2.0)
    assert (one["met"], fewer["met"]) == ("no", "yes")
    assert report.steps_table([one, fewer]).count("\n") == 2 and report.steps_table([]) == ""


def test_the_last_line() -> None:
    rows = report.steps_rows({"+1": taken(1.5)}, {"+1": taken(1.0)})
    assert report.closing([], rows) == (
        "lost 0, doubled 0, orphans 0, leaked 0, other 0; +1 adds P50 0.50 s, P99 0.50 s; goal of 1 s met: yes"
    )
    *failed, last = report.closing([Finding(ORPHAN, "x"), Finding(LAB, "y")], []).splitlines()
    assert failed == ["FAILED: orphan: x", "FAILED: lab: y"]
    assert last == "lost 0, doubled 0, orphans 1, leaked 0, other 1; no step was taken; goal of 1 s met: no"


def test_lines_for_programs_have_no_space_in_a_value() -> None:
    rows = report.steps_rows({"+1": taken(1.5)}, {"+1": taken(1.0)})
    waves, step = report.lines(halves(), MGR, rows)
    assert waves.startswith("BENCH bursts-waves workers=8 up_s=2 ")
    assert step.startswith("BENCH bursts-step step=+1 times=1 p50_s=1.5 alone_p50_s=1 ratio_p50=1.5 ")
    assert report.lines([], MGR, []) == []


@pytest.mark.parametrize(("wrong", "status"), [([], 0), ([Finding(ORPHAN, "x")], 1)])
def test_it_fails_when_something_is_wrong(
    wrong: list[Finding], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fleet:
        class manager:
            name = MGR

    monkeypatch.setattr(deployment, "on_lab", lambda **_: Fleet)
    monkeypatch.setattr(program, "_alone", lambda _, found: found.alone.update({"+1": taken(1.0)}))

    def spanning(_: object, found: program.Found) -> None:
        found.halves += [*halves(), Half("up", 1.0, {}, wrong)]
        found.ours.update({"+1": taken(5.0)})

    monkeypatch.setattr(program, "_spanning", spanning)
    monkeypatch.setattr(program, "_waits", lambda _, found, seconds: found.waits.update(next_s=seconds))
    assert program.main([]) == status
    said = capsys.readouterr().out
    assert "goal of 1 s met: no" in said, "which is told, and no failure"
    assert "BENCH bursts-waits next_s=300" in said


def test_a_worker_without_a_cluster_waits() -> None:
    placed, pending = worker(), worker("Pending")
    placed["metadata"]["labels"][names.CLUSTER_LABEL] = "east"
    pending["metadata"]["name"] = "b"
    now = {(MGR, POD, "a"): placed, (MGR, POD, "head"): HEAD, ("east", POD, "b"): worker("Pending")}
    assert waits.nowhere(now, MGR) == []
    assert waits.nowhere({**now, (MGR, POD, "b"): pending}, MGR) == ["b"]


def test_a_step_that_is_slower_than_promised_fails() -> None:
    assert waits.late({"next_s": 5.0, "room_s": 0.1}) == []
    (said,) = waits.late({"next_s": 0.1, "room_s": 5.01})
    assert said.text == "the one that waited, once room came, took 5.01 s, and shall take 5 at most"


def test_a_waiting_worker_is_the_same_pod_throughout() -> None:
    """A pod that is created, deleted or replaced under its name meanwhile does not wait."""

    def pod(name: str, uid: str | None) -> Change:
        return Change(0.0, MGR, POD, name, {"metadata": {"name": name, "uid": uid}} if uid else None)

    before = [pod("a", "1"), pod("b", "2")]
    assert waits.made_anew([*before, pod("a", "1")], 2, MGR) == []
    assert [one.text for one in waits.made_anew([*before, pod("a", None), pod("c", "3")], 2, MGR)] == [
        "a went meanwhile",
        "c came meanwhile",
    ]
    assert [one.text for one in waits.made_anew([*before, pod("b", "9")], 2, MGR)] == ["b came meanwhile"]
    assert waits.made_anew([pod("a", "1"), Change(0.0, "east", POD, "a", None)], 1, MGR) == [], (
        "its copy is another matter"
    )
