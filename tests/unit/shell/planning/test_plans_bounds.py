"""Planning is bounded: an invalid object or an oversized job is skipped with a message and delays no other gang."""

import asyncio
from typing import Any

import pytest

from adapter.actions import Plan
from adapter.objects import references
from adapter.objects.references import Reference
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from adapter.planning import ordering
from adapter.planning.rounds import PlanResult
from adapter.rewrite import copied_objects
from tests.unit import builders
from tests.unit.builders import make_placement, make_reservation, make_workload
from tests.unit.stores import Sight, fill, make_group, make_ray_job, make_template

TOO_MANY = [{"key": f"k{number}", "operator": "Exists"} for number in range(65)]


def gang(name: str, count: int, *, created: float = 0, **spec: Any) -> Raw:
    raw = make_workload(name=name, groups={"workers": count})
    raw["metadata"]["creationTimestamp"] = builders.stamp(created)
    for podset in raw["spec"]["podSets"]:
        podset["template"] = make_template("1", **spec)
    return raw


def plan(sight: Sight, me: Raw) -> PlanResult:
    chosen, _ = sight.facts.policies.policy_of(builders.CHECK)
    return asyncio.run(sight.planning.plan_gang(parse_workload(me), builders.CHECK, chosen, (), builders.START))


def taken(made: PlanResult) -> dict[str, int]:
    return {share.cluster: share.workers for share in made.plan.shares}


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
RESERVED = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
NODES, NO_NODE = "_node_objects", "it has no ready node"


@pytest.mark.parametrize(
    ("store", "odd", "why"),
    [
        pytest.param(NODES, {"status": {**READY, "allocatable": ["x"]}}, NO_NODE, id="a node's allocatable is a list"),
        pytest.param(NODES, {"status": {"conditions": ["Ready"]}}, NO_NODE, id="a node's conditions are text"),
        pytest.param("cluster_queues", {"spec": {"resourceGroups": ["cpu"]}}, "ClusterQueue team-a cannot be read",
                     id="a ClusterQueue's groups are text"),
        pytest.param("flavors", {"spec": {"nodeLabels": ["a"]}}, "ResourceFlavor any cannot be read",
                     id="a flavor's labels are a list"),
        pytest.param("flavors", {"spec": {"nodeLabels": {"a": ["b"]}}},
                     "ResourceFlavor any cannot be read (a value in spec.nodeLabels is not a string)",
                     id="a flavor's label value is a list"),
        pytest.param("flavors", {"spec": {"tolerations": ["a"]}}, "ResourceFlavor any cannot be read",
                     id="a flavor's tolerations are text"),
        pytest.param("local_queues", {"spec": ["team-a"]}, "no LocalQueue team-a", id="a LocalQueue's spec is a list"),
        pytest.param("local_queues", {"status": {"conditions": ["Active"]}, "spec": {"clusterQueue": "team-a"}},
                     "no LocalQueue team-a", id="a LocalQueue's conditions are text"),
    ],
)  # fmt: skip
def test_an_unreadable_object_affects_its_cluster_alone(store: str, odd: Raw, why: str) -> None:
    sight = Sight({"east": 4, "west": 4})
    east = getattr(sight.members["east"], store)
    (before,) = list(east)
    fill(east, {"metadata": before["metadata"], **odd})
    made = plan(sight, gang("me", 2))
    assert taken(made) == {"west": 2}
    assert next(one.reason for one in made.plan.verdicts if one.cluster == "east").startswith(why)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"spec": "x"}, id="the spec is text"),
        pytest.param({"status": {**RESERVED, "admission": ["x"]}}, id="the admission is a list"),
        pytest.param({"status": {**RESERVED, "admission": {"clusterQueue": ["x"]}}}, id="the queue name is a list"),
    ],
)
def test_an_invalid_share_of_another_gang_is_deducted(odd: Raw) -> None:
    """Neither pending shares in its cluster nor preemption candidates depend on it."""
    sight = Sight({"east": 4, "west": 1})
    other, me = gang("other", 3), gang("me", 2)
    queue = builders.make_cluster_queue(4, preemption={"withinClusterQueue": "LowerPriority"})
    fill(sight.members["east"].cluster_queues, queue)
    fill(sight.manager.workloads, other, me)
    place = make_placement(other, shares={"east": {"workers": 3}})
    fill(sight.manager.placements, place)
    fill(sight.members["east"].workloads, {**make_reservation(place), **odd})
    assert taken(plan(sight, me)) == {"east": 1, "west": 1}
    assert taken(plan(sight, gang("large", 6))) == {}


def test_a_gang_rejected_for_its_size_takes_no_capacity() -> None:
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": TOO_MANY}]}
    }
    sight = Sight({"east": 4})
    large, me = gang("large", 4, created=-600, affinity={"nodeAffinity": affinity}), gang("me", 2)
    fill(sight.manager.workloads, large, me)
    assert taken(plan(sight, me)) == {"east": 2}
    fill(sight.manager.workloads, gang("large", 4, created=-600), me)
    assert taken(plan(sight, me)) == {}, "who is not refused comes first"


def test_a_previewed_job_is_rejected_for_its_size() -> None:
    group = make_group(2)
    group["template"]["spec"]["tolerations"] = [{"operator": "Exists"}] * 65
    answer = asyncio.run(
        Sight({"east": 4}).preview.preview_plan(make_ray_job(group), builders.NAMESPACE, builders.START)
    )
    assert (answer["fits"], answer["clusters"]) == (False, [])
    assert answer["sentence"] == (
        "RayJob train: worker group workers: spec.tolerations has 65 entries, and at most 64 are allowed: tolerate "
        'several taints at once with operator "Exists".'
    )


def test_a_long_queue_lets_others_run_between_its_gangs() -> None:
    """A plan that went through a queue in one piece would hold up the renewal of the Lease."""
    sight = Sight({"east": 4})
    me, queue = gang("me", 1), [gang(f"g{number}", 1, created=-600) for number in range(20)]
    fill(sight.manager.workloads, me, *queue)

    async def others(planned: asyncio.Task[Any]) -> int:
        turns = 0
        while not planned.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    async def both() -> int:
        return await others(
            asyncio.create_task(sight.planning.plan_round(Plan(parse_workload(me), None, ()), builders.START))
        )

    assert asyncio.run(both()) >= 2 * len(queue)


def test_earlier_gangs_are_planned_once_for_all_later_ones() -> None:
    sight = Sight({"east": 9})
    first, second, *last = (gang(f"g{number}", 4, created=600 * number) for number in range(5))
    fill(sight.manager.workloads, first, second, *last)
    for me in (*last, last[0], second, last[-1]):
        plan(sight, me)
    assert sight.planning._deductions.applied_count == 4, "each of the first four, for the last one"


def test_a_plan_deducts_a_bounded_number_of_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "MOST_OWN_BEFORE", 2)
    sight = Sight({"east": 4})
    me, queue = gang("me", 1), [gang(f"g{number}", 1, created=-600) for number in range(5)]
    fill(sight.manager.workloads, *queue, me)
    gangs = asyncio.run(sight.planning._waiting_gangs.gangs_before(parse_workload(me), builders.START))
    assert [waiting.workload.name for waiting, _ in gangs] == ["g0", "g1"]


def test_gangs_that_lack_a_secret_take_no_places_of_their_namespaces_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise capacity would be kept for none of the namespace's gangs that may start."""
    monkeypatch.setattr(ordering, "MOST_OWN_BEFORE", 2)
    sight = Sight({"east": 4})
    volume = {"name": "token", "secret": {"secretName": "token"}}
    lacking = [gang(f"lacks-{number}", 1, created=-900, volumes=[volume]) for number in range(5)]
    queue, me = [gang(f"g{number}", 1, created=-600) for number in range(3)], gang("me", 1)
    fill(sight.manager.workloads, *lacking, *queue, me)
    absent = copied_objects.MISSING, float("inf")
    sight.facts.sources._sources[builders.NAMESPACE, Reference(references.SECRET, "token")] = absent
    gangs = asyncio.run(sight.planning._waiting_gangs.gangs_before(parse_workload(me), builders.START))
    assert [waiting.workload.name for waiting, _ in gangs] == ["g0", "g1"]
