"""What does one decision of the pure core cost? Microseconds, and how they grow when one dimension is doubled. No cluster is needed.

Each dimension is doubled alone, so a factor near 1 says that it does not matter, near 2 that the cost is linear.
"""

import argparse
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import yaml

from adapter import quota, rewriter
from adapter.candidate import Candidate, Group, Request
from adapter.facts import Raw
from adapter.planner import plan
from adapter.target import Target
from hack.bench import figures
from hack.lab.paths import REPO

NAME = "plan"
HELP = "the planner with the quota arithmetic by pods, clusters and queues; the rewriter by pod"

_GOLDEN = REPO / "tests" / "unit" / "golden" / "kuberay-1.6.2"
_NAMESPACE, _QUEUE, _FLAVORS = "demo", "team-0", ("spot", "reserved")
_RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
_STEPS = 3
_REPEATS, _SECONDS = 5, 0.03  # the best of so many, each of at least so long: what disturbs only ever adds


@dataclass(frozen=True, slots=True)
class Size:
    """A fleet and a gang; each worker cluster takes its even part of the gang."""

    pods: int = 64
    clusters: int = 4
    queues: int = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none of its own."""


def run(asked: argparse.Namespace) -> list[str]:
    """Measure, print tables, and return the lines for programs."""
    base = Size()
    whole, planning = _decision(base)
    values: dict[str, figures.Value] = {"decision_us": whole, "of_it_planner_us": planning}
    rows: list[tuple[figures.Value, ...]] = []
    for dimension in ("pods", "clusters", "queues"):
        costs = [whole, *(_decision(_grown(base, dimension, 2**power))[0] for power in range(1, _STEPS + 1))]
        values[f"{dimension}_doubled"] = figures.ratio(costs[-1], costs[0]) ** (1 / _STEPS)
        rows.append((f"{dimension}, from {getattr(base, dimension)}", *costs, values[f"{dimension}_doubled"]))
    factors = (f"x{2**power} us" for power in range(_STEPS + 1))
    print("\n" + figures.table(("one decision", *factors, "per doubling"), rows))
    pods = {path.name.partition(".")[0]: _rewrite(yaml.safe_load(path.read_text())) for path in _golden()}
    print("\n" + figures.table(("rewrite of one pod", "us"), list(pods.items())))
    return [figures.line(NAME, values | {f"rewrite_{name}_us": cost for name, cost in pods.items()})]


def _golden() -> list[Any]:
    return sorted(_GOLDEN.glob("*.in.yaml"))


def _grown(base: Size, dimension: str, factor: int) -> Size:
    return replace(base, **{dimension: getattr(base, dimension) * factor})


def _decision(size: Size) -> tuple[float, float]:
    """Microseconds for reading the quota of all clusters and planning, as the controller does; and for planning alone."""
    raw, request = _queues(size), _request(size)
    candidates = _candidates(size, raw)
    placed = plan(request, candidates)
    assert len(placed.shares) == size.clusters, placed.sentence  # else another path would be measured
    return _cost(lambda: plan(request, _candidates(size, raw))), _cost(lambda: plan(request, candidates))


def _candidates(size: Size, raw: list[Raw]) -> list[Candidate]:
    flavors = [{"metadata": {"name": name}, "spec": {}} for name in _FLAVORS]
    queues = {(_NAMESPACE, f"team-{number}"): (f"team-{number}", "") for number in range(size.queues)}
    return [
        Candidate(f"cluster-{number}", "", quota.build(raw, [], flavors), queues, {_NAMESPACE: {}})
        for number in range(size.clusters)
    ]


def _request(size: Size) -> Request:
    asked = {"cpu": 1000, "memory": 1000, "nvidia.com/gpu": 1}
    return Request(_NAMESPACE, _QUEUE, (Group("workers", "role", size.pods, {}, {**asked, "pods": 1}),))


def _queues(size: Size) -> list[Raw]:
    """One cohort: the first queue has half of the room for a cluster's part of the gang, and borrows the rest of the second."""
    part = size.pods // size.clusters
    rooms = [part // 2, part - part // 2, *([0] * (size.queues - 2))]
    return [_queue(number, room) for number, room in enumerate(rooms)]


def _queue(number: int, room: int) -> Raw:
    """A ClusterQueue whose first flavor is used up and whose second has room for so many pods."""
    nominal, total = ([{"name": name, key: "8"} for name in _RESOURCES] for key in ("nominalQuota", "total"))
    free = [{"name": name, "nominalQuota": str(room if name != "memory" else room * 1000)} for name in _RESOURCES]
    spot, reserved = _FLAVORS
    flavors = [{"name": spot, "resources": nominal}, {"name": reserved, "resources": free}]
    return {
        "metadata": {"name": f"team-{number}"},
        "spec": {
            "cohortName": "all",
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": list(_RESOURCES), "flavors": flavors}],
        },
        "status": {"flavorsReservation": [{"name": spot, "resources": total}]},
    }


def _rewrite(pod: Raw) -> float:
    target = Target(
        cluster="east", zone="a", region="b", queue=_QUEUE, manager="m", workload="w", workload_uid="u", placement="p",
        share="p-1", round=1,
    )  # fmt: skip

    def work() -> object:
        return rewriter.remote_pod(
            pod, head="10.11.0.12", target=target, role="role", total=16, slot="east/role/0", anchor_uid="a"
        )

    return _cost(work)


def _cost(work: Callable[[], object]) -> float:
    """Microseconds for one call."""
    timer = timeit.Timer(work, timer=time.process_time)  # CPU time: others on the machine count less
    once, _ = 1, timer.timeit(1)
    while timer.timeit(once) < _SECONDS:
        once *= 2
    return min(timer.repeat(_REPEATS, once)) / once * 1e6
