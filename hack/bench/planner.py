"""Measures one decision of the planner in milliseconds of CPU time, and how that grows. It needs no cluster.

A decision is what the controller does for one gang: deduct what other gangs were promised, then plan. Quota trees are
kept between decisions and rebuilt when a cluster changes, so that is measured apart. Each dimension is halved twice and
doubled once while the others stay at the goal: a factor near 1 means no influence, near 2 linear. Every kind of
decision and every dimension is judged (promises.py).
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from adapter.planning.plan_request import Candidate, GangRequest
from adapter.planning.planner import charge_shares, plan, shares_to_hold
from adapter.quota import tree
from hack.bench import plannerinput, promises
from hack.bench.plannerinput import Fleet, Size
from hack.bench.promises import Found
from hack.lab.base.progress import LabError, step
from hack.testbed import figures

NAME = "planner"
HELP = "one decision of the planner, by pods, clusters, queues, cohorts, worker groups, gangs on their way and nodes"

_FACTORS = (0.25, 0.5, 1, 2)
_DIMENSIONS = ("pods", "clusters", "queues", "depth", "groups", "gangs", "nodes")
_REPEATS = 5  # the best of so many: disturbances only add


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none of its own."""


def run(asked: argparse.Namespace) -> Found:
    """Measure, print tables, and return the line for programs, and what is judged."""
    goal = Size()
    with step(f"planner: {goal.pods} pods, {goal.clusters} clusters, {goal.queues} queues in each"):
        base = plannerinput.make(goal)
        kinds = {name: _cost(work) for name, work in _kinds(base).items()}
        again = plannerinput.make(replace(goal, reclaims=True))
        kinds["FillInOrder, one too many, reclaims"] = _cost(
            lambda: _decide(again, plannerinput.one_more(again.request), fits=False)
        )
        build, rebuild = _build(goal)
    rows = [_dimension(goal, name, kinds["FillInOrder"]) for name in _DIMENSIONS]
    print("\n" + figures.table(("one decision", "ms"), list(kinds.items())))
    print("\n" + figures.table(("FillInOrder, ms", *(f"x{f:g}" for f in _FACTORS), "last doubling"), rows))
    print(f"\nA cluster's quota tree is built in {build:.3g} ms, and anew after one queue changed in {rebuild:.3g} ms.")
    worst = max(kinds.values())
    values: dict[str, figures.Value] = {"decision_ms": kinds["FillInOrder"], "worst_ms": worst}
    values |= {"build_ms": build, "rebuild_ms": rebuild}
    doubled = {name: row[-1] for name, row in zip(_DIMENSIONS, rows, strict=True)}
    values |= {f"{name}_doubled": factor for name, factor in doubled.items()}
    values |= {"goal_ms": promises.DECISION.goal, "met": str(all(map(promises.DECISION.meets, kinds.values()))).lower()}
    return Found([figures.line(NAME, values)], promises.planner(kinds, doubled))


def _build(goal: Size) -> tuple[float, float]:
    """The cost of a cluster's tree at first, and after a change of one of its queues."""
    queues, cohorts, flavors = plannerinput.objects(goal)
    first = tree.build(queues, cohorts, flavors)
    changed = [{**queues[0]}, *queues[1:]]
    return _cost(lambda: tree.build(queues, cohorts, flavors)), _cost(
        lambda: tree.build(changed, cohorts, flavors, previous=first)
    )


def _dimension(goal: Size, name: str, at_goal: float) -> tuple[str, float, float, float, float, float]:
    base = getattr(goal, name)
    with step(f"planner: {name} from {int(base * _FACTORS[0])} to {base * _FACTORS[-1]}"):
        quarter, half, whole, double = (at_goal if f == 1 else _at(_with(goal, name, int(base * f))) for f in _FACTORS)
    return f"{name}, x1 is {base}", quarter, half, whole, double, figures.ratio(double, whole)


def _with(goal: Size, name: str, value: int) -> Size:
    changed: dict[str, Any] = {name: value}
    return replace(goal, **changed)


def _at(size: Size) -> float:
    made = plannerinput.make(size)
    return _cost(lambda: _decide(made, made.request))


def _kinds(made: Fleet) -> dict[str, Callable[[], object]]:
    """Every kind of decision on the same fleet; those that do not fit are the longest, for all is tried."""
    ask, more = made.request, plannerinput.one_more(made.request)
    small = replace(ask, groups=tuple(replace(group, count=2) for group in ask.groups))
    spread = replace(ask, strategy="Spread")
    return {
        "FillInOrder": lambda: _decide(made, ask),
        "FillInOrder, one too many": lambda: _decide(made, more, fits=False),
        "AvailableCapacity": lambda: _decide(made, replace(ask, strategy="AvailableCapacity")),
        "Spread": lambda: _decide(made, spread),
        "Spread, one too many": lambda: _decide(made, replace(more, strategy="Spread"), fits=False),
        "SameCluster, a small gang": lambda: _decide(made, replace(small, mode="SameCluster")),
        "SameCluster, too large": lambda: _decide(made, replace(ask, mode="SameCluster"), fits=False),
        "keep room for one too many": lambda: shares_to_hold(more, _after_others(made)),
    }


def _decide(made: Fleet, request: GangRequest, *, fits: bool = True) -> None:
    """One decision; raises LabError if it is not the one that was to be measured."""
    found = plan(request, _after_others(made))
    if bool(found.shares) is not fits:
        raise LabError(f"This is not what was to be measured: {found.sentence[:300]}")


def _after_others(made: Fleet) -> list[Candidate]:
    candidates = list(made.candidates)
    for request, shares in made.in_flight:
        candidates = charge_shares(request, candidates, shares)
    return candidates


def _cost(work: Callable[[], object]) -> float:
    """Milliseconds of CPU time for one call; others on the machine count less than by the clock."""
    costs = []
    for _ in range(_REPEATS):
        begun = time.process_time()
        work()
        costs.append(time.process_time() - begun)
    return min(costs) * 1000
