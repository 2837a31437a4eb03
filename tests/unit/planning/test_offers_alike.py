"""Survey results of one plan are reused by the next gang with equal requests, and by no other gang."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.location import Location
from adapter.objects.pod_requests import scheduling_hash
from adapter.objects.required_objects import RequiredObject
from adapter.objects.specs import PodMapping
from adapter.objects.topology_request import TopologyRequest
from adapter.objects.unstructured import Raw
from adapter.planning import offers, planner
from adapter.planning.offers import Offers
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.quota import node_capacity, tree
from adapter.quota.node_capacity import Node
from adapter.quota.tree import Demand, FlavorCapacity, QuotaPath, build
from adapter.rewrite.dry_run_pod import DryRunResult
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor

TOLERANT: Raw = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
CPU = {"cpu": 1000, "pods": 1}


def cluster(name: str, *cores: int, **queue: Any) -> Candidate:
    """A cluster whose queue has so many cores in each of its flavors; the second takes only pods that tolerate it."""
    flavors = [make_flavor("open"), make_flavor("gpu", nodeTaints=[{"key": "gpu", "effect": "NoSchedule"}])]
    rows = [
        {"name": flavor["metadata"]["name"], "resources": [{"name": "cpu", "nominalQuota": str(amount)}]}
        for flavor, amount in zip(flavors, cores, strict=False)
    ]
    raw = make_cluster_queue(0, resourceGroups=[{"coveredResources": ["cpu"], "flavors": rows}], **queue)
    where = {(NAMESPACE, QUEUE): ("team-a", "")}
    return Candidate(name, "", build([raw], [], flavors), where, {NAMESPACE: {}}, location=Location(name))


def group(
    count: int, cores: int = 1, name: str = "workers", spec: Raw | None = None, zone: str = "", region: str = ""
) -> GroupRequest:
    asked, location = {"cpu": cores * 1000, "pods": 1}, Location(zone, region)
    return GroupRequest(
        name, f"role-{name}", count, spec or {}, asked, location, scheduling_hash=scheduling_hash(spec or {}, asked)
    )


def gang(*groups: GroupRequest, **policy: Any) -> GangRequest:
    return GangRequest(NAMESPACE, QUEUE, groups, **policy)


def unlike(request: GangRequest) -> GangRequest:
    """The same gang without a scheduling hash, so that no cached answer serves it."""
    return replace(request, groups=tuple(replace(group, scheduling_hash="") for group in request.groups))


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch) -> list[QuotaPath]:
    """The queue paths that were surveyed, in order."""
    found, survey = list[QuotaPath](), tree.flavor_capacity

    def noted(demand: Demand, line: QuotaPath) -> FlavorCapacity:
        found.append(line)
        return survey(demand, line)

    monkeypatch.setattr(tree, "flavor_capacity", noted)
    return found


def test_equal_requests_get_equal_answers_without_a_survey(surveyed: list[QuotaPath]) -> None:
    fleet = [cluster("east", 3), cluster("west", 2)]
    first = planner.plan(gang(group(9), min_workers=1), fleet)
    asked = len(surveyed)
    assert asked and planner.plan(gang(group(9)), fleet) == first and len(surveyed) == asked
    planner.plan(gang(group(7)), fleet)
    assert len(surveyed) == asked, "nor is quota surveyed for another count"
    assert planner.plan(unlike(gang(group(9))), fleet) == first and len(surveyed) > asked


REFUSED = {"east": DryRunResult(denied_reason="no")}
LARGER = {"cpu": 3000, "pods": 1}
HELD = {
    "east": DryRunResult(
        reserved_template={"spec": TOLERANT}, request=LARGER, scheduling_hash=scheduling_hash(TOLERANT, LARGER)
    )
}
SMALL = node_capacity.index_nodes([Node({}, (), {"cpu": 2000, "pods": 9})])


@pytest.mark.parametrize(
    ("now", "asked"),
    [
        pytest.param({}, gang(group(3)), id="another count"),
        pytest.param({}, gang(group(4, cores=2)), id="larger pods"),
        pytest.param({}, gang(group(4, spec=TOLERANT)), id="another flavor"),
        pytest.param({}, gang(group(4, zone="west")), id="another zone"),
        pytest.param({}, gang(group(4, region="eu")), id="another region"),
        pytest.param({}, gang(replace(group(4, zone="west"), name="others")), id="another name, which messages show"),
        pytest.param({}, gang(group(4), group(1, name="more")), id="a further group"),
        pytest.param({}, gang(replace(group(4), dry_run_results=REFUSED)), id="the cluster denies the pods"),
        pytest.param({}, gang(replace(group(4), dry_run_results=HELD)), id="the cluster changes the pods"),
        pytest.param({}, replace(gang(group(4)), queue="other"), id="another queue"),
        pytest.param({}, replace(gang(group(4)), namespace="other"), id="another namespace"),
        pytest.param({"location": Location("north")}, gang(group(4, zone="east")), id="the cluster's zone"),
        pytest.param({"location": Location("east", "eu")}, gang(group(4, region="us")), id="the cluster's region"),
        pytest.param({"nodes": SMALL}, gang(group(4)), id="its nodes"),
        pytest.param({"nodes": SMALL, "can_grow": True}, gang(group(4)), id="whether its nodes can grow"),
        pytest.param(
            {"pod_mapping": PodMapping(tolerations=({"operator": "Exists"},))}, gang(group(9)), id="its pod mapping"
        ),
        pytest.param(
            {},
            gang(replace(group(4), required=(RequiredObject("hostPath", "spec.volumes[a].hostPath", "/a"),))),
            id="what its pods need there",
        ),
        pytest.param({}, gang(replace(group(4), topology=TopologyRequest("required", "rack"))), id="a topology"),
        pytest.param({"queues": {(NAMESPACE, QUEUE): ("gone", "")}}, gang(group(4)), id="its queues"),
        pytest.param({"namespaces": {NAMESPACE: {"tier": "b"}}}, gang(group(4)), id="its namespaces"),
        pytest.param({"quota_tree": cluster("east", 1).quota_tree}, gang(group(4)), id="its quota"),
    ],
)
def test_a_different_request_or_cluster_is_surveyed_again(now: Raw, asked: GangRequest) -> None:
    selector = {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
    east = cluster("east", 3, 5, namespaceSelector=selector)
    east = replace(
        east,
        queues={**east.queues, (NAMESPACE, "other"): ("gone", ""), ("other", QUEUE): ("team-a", "")},
        namespaces={**east.namespaces, "other": {"tier": "c"}},
    )
    before = replace(east, nodes=now.get("nodes") if now.get("can_grow") else None)
    for known in (group(4), group(9), group(4, zone="east"), group(4, zone="west"), group(4, region="us")):
        planner.plan(gang(known), [before])
    fleet = [replace(east, **now)]
    assert planner.plan(asked, fleet) == planner.plan(unlike(asked), fleet)


@pytest.mark.parametrize(
    "east", [cluster("east", 3, 5), replace(cluster("east", 9, 9), nodes=SMALL)], ids=["", "nodes"]
)
def test_another_count_has_its_own_answer(east: Candidate) -> None:
    for count in (1, 9, 4, 2, 5, 3, 6, 12, 1):
        asked = gang(group(count, spec=TOLERANT))
        known, anew = Offers(asked), Offers(unlike(asked))
        assert known.offer_for(east, known.quota_path(east), asked.groups[0]) == anew.offer_for(
            east, anew.quota_path(east), asked.groups[0]
        )
        assert planner.plan(asked, [east]) == planner.plan(unlike(asked), [east])


@pytest.mark.parametrize("field", ["nodeSelector", "affinity", "tolerations"])
def test_pods_with_different_scheduling_fields_have_different_hashes(field: str) -> None:
    assert (
        scheduling_hash({field: [1], "containers": []}, CPU)
        == scheduling_hash({field: [1]}, dict(CPU))
        != scheduling_hash({}, CPU)
    )


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MAX_CACHED_ANSWERS", 60)
    east = cluster("east", 90)
    for count in range(1, 400):
        planner.plan(gang(group(count, cores=count % 7 + 1), group(count, name="more")), [east])
        assert sum(len(one.answers) for one in kept(east).values()) <= 2 * 60 + 40, "what one plan asks is kept whole"


def test_a_full_cache_keeps_its_entries(monkeypatch: pytest.MonkeyPatch, surveyed: list[QuotaPath]) -> None:
    monkeypatch.setattr(offers, "MAX_CACHED_ANSWERS", 20)
    fleet = [cluster("east", 4)]
    found = list[int]()
    for _ in range(3):
        surveyed.clear()
        for cores in range(1, 9):
            planner.plan(gang(group(1, cores)), fleet)
        found.append(len(surveyed))
    assert 0 < found[1] == found[2] < found[0]


def test_many_counts_of_one_shape_do_not_fill_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MAX_CACHED_ANSWERS", 60)
    east, kinds = cluster("east", 900), list[int]()
    for count in range(1, 100):
        planner.plan(gang(group(count)), [east])
        planner.plan(gang(group(1, cores=2)), [east])
        kinds.append(len(kept(east)))
    assert {1, 2} == set(kinds[1:])


def test_other_namespaces_and_queues_do_not_invalidate_the_cache(surveyed: list[QuotaPath]) -> None:
    east, asked = cluster("east", 4), gang(group(1))
    planner.plan(asked, [east])
    before = len(surveyed)
    queues = {**east.queues, (NAMESPACE, "other"): ("team-b", ""), ("other", QUEUE): ("team-a", "")}
    planner.plan(asked, [replace(east, queues=queues, namespaces={**east.namespaces, "other": {}})])
    assert len(surveyed) == before


def test_answers_for_dry_run_pods_do_not_serve_pods_without_a_dry_run() -> None:
    """The pod mapping applies to pods without a dry run only: a pod from a dry run is mapped already."""
    mapped = PodMapping(node_selector={"pool": "none"})
    east = replace(cluster("east", 4), pod_mapping=mapped, nodes=SMALL)
    held = DryRunResult(reserved_template={"spec": {}}, request=CPU, scheduling_hash=scheduling_hash({}, CPU))
    tried = gang(replace(group(2), dry_run_results={"east": held}))
    assert planner.plan(tried, [east]).shares and not planner.plan(gang(group(2)), [east]).shares


def test_answers_for_a_charged_tree_are_not_cached() -> None:
    """There are as many charged trees as gangs."""
    east, asked = cluster("east", 4), gang(group(1))
    (left,) = planner.charge_shares(asked, [east], planner.plan(asked, [east]).shares)
    assert left.quota_tree is not east.quota_tree and left.quota_tree.offer_cache is None
    assert planner.plan(asked, [left]) == planner.plan(unlike(asked), [left])


def kept(one: Candidate) -> dict[Any, Any]:
    assert one.quota_tree.offer_cache is not None
    return one.quota_tree.offer_cache


SHAPES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.booleans()), min_size=1, max_size=3)
ROOMS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=2), min_size=1, max_size=3)


@given(
    st.lists(SHAPES, min_size=2, max_size=4),
    ROOMS,
    st.sampled_from(["FillInOrder", "Spread", "AvailableCapacity", "Cheapest"]),
)
def test_the_cache_does_not_change_a_plan(
    gangs: Sequence[Sequence[tuple[int, int, bool]]], rooms: Sequence[Sequence[int]], strategy: Any
) -> None:
    fleet = [cluster(f"c{at}", *cores, cohortName="all") for at, cores in enumerate(rooms)]
    for shapes in (*gangs, *gangs):
        groups = [group(n, cores, f"g{at}", TOLERANT if any_ else {}) for at, (n, cores, any_) in enumerate(shapes)]
        request = gang(*groups, strategy=strategy)
        made = planner.plan(request, fleet)
        assert made == planner.plan(unlike(request), fleet)
        assert planner.shares_to_hold(request, fleet) == planner.shares_to_hold(unlike(request), fleet)
        left, alone = (planner.charge_shares(one, fleet, made.shares) for one in (request, unlike(request)))
        assert planner.plan(request, left) == planner.plan(unlike(request), alone)
