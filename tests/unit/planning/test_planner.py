"""How many workers each cluster gets: in order, all or nothing, never more than fit; and the message for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.placement import GroupShare, Share
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.planner import GangPlan, plan
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor

NOTHING = build((), (), ())


def cluster(name: str, cores: int, *, used: int = 0, problem: str = "", stopped: str = "", **spec: Any) -> Candidate:
    """A cluster with one ClusterQueue behind the LocalQueue that the gang asks for."""
    tree = build([make_cluster_queue(cores, used=used, **spec)], [], [make_flavor()])
    return Candidate(name, problem, tree, {(NAMESPACE, QUEUE): ("team-a", stopped)}, {NAMESPACE: {}})


def group(count: int, *, cores: int = 1, name: str = "workers") -> GroupRequest:
    return GroupRequest(name, f"role-{name}", count, {}, {"cpu": cores * 1000, "pods": 1})


def request(*groups: GroupRequest) -> GangRequest:
    return GangRequest(NAMESPACE, QUEUE, groups)


def counts(made: GangPlan) -> dict[str, dict[str, int]]:
    return {share.cluster: {g.name: g.count for g in share.groups} for share in made.shares}


@dataclass(frozen=True)
class Case:
    id: str
    groups: Sequence[GroupRequest]
    clusters: Sequence[Candidate]
    want: Mapping[str, Mapping[str, int]]
    sentence: str
    why: str


GPU = group(2, cores=4, name="gpu")
CASES = [
    Case(
        "the first cluster takes all that fits",
        [group(4)],
        [cluster("east", 4), cluster("west", 4)],
        {"east": {"workers": 4}},
        "4 of 4 workers to east.",
        "one zone is the fastest network",
    ),
    Case(
        "the next cluster takes the rest",
        [group(4)],
        [cluster("east", 2), cluster("west", 2)],
        {"east": {"workers": 2}, "west": {"workers": 2}},
        "2 of 4 workers to east, 2 to west.",
        "this is what the project is for",
    ),
    Case(
        "clusters are filled in the policy's order",
        [group(4)],
        [cluster("west", 3), cluster("east", 4)],
        {"west": {"workers": 3}, "east": {"workers": 1}},
        "3 of 4 workers to west, 1 to east.",
        "names mean nothing",
    ),
    Case(
        "quota that others use is not available",
        [group(2)],
        [cluster("east", 4, used=4), cluster("west", 4, used=2)],
        {"west": {"workers": 2}},
        "2 of 2 workers to west; east passed over: cpu in flavor any: 0 free of 4, one worker needs 1.",
        "preemption is for that cluster's Kueue to decide, not for us to plan with",
    ),
    Case(
        "groups of different shapes share one cluster",
        [group(2), GPU],
        [cluster("east", 10)],
        {"east": {"workers": 2, "gpu": 2}},
        "4 of 4 workers to east.",
        "2 x 1 + 2 x 4 cores",
    ),
    Case(
        "an earlier group leaves less to a later one",
        [group(2), GPU],
        [cluster("east", 6), cluster("west", 4)],
        {"east": {"workers": 2, "gpu": 1}, "west": {"gpu": 1}},
        "3 of 4 workers to east, 1 to west.",
        "what was given to one group is charged before the next is asked",
    ),
    Case(
        "a cluster may take one group only",
        [GPU, group(2)],
        [cluster("east", 3), cluster("west", 8)],
        {"east": {"workers": 2}, "west": {"gpu": 2}},
        "2 of 4 workers to east, 2 to west.",
        "a big worker does not fit there, a small one does",
    ),
    Case(
        "a problem is quoted",
        [group(2)],
        [cluster("east", 4, problem="it is cordoned"), cluster("west", 4)],
        {"west": {"workers": 2}},
        "2 of 2 workers to west; east passed over: it is cordoned.",
        "the person who waits wants to know why not east",
    ),
    Case(
        "a cluster without the namespace is passed over",
        [group(2)],
        [Candidate("east", "", NOTHING, {}, {}), cluster("west", 4)],
        {"west": {"workers": 2}},
        (
            "2 of 2 workers to west; east passed over: no namespace "
            f"{NAMESPACE} there: create it, with a LocalQueue {QUEUE}."
        ),
        "an admin can do something about it",
    ),
    Case(
        "a cluster without the LocalQueue is passed over",
        [group(2)],
        [Candidate("east", "", NOTHING, {}, {NAMESPACE: {}}), cluster("west", 4)],
        {"west": {"workers": 2}},
        f"2 of 2 workers to west; east passed over: no LocalQueue {QUEUE} in namespace {NAMESPACE} there: create it.",
        "an admin can do something about it",
    ),
    Case(
        "a LocalQueue that is stopped is passed over",
        [group(2)],
        [cluster("east", 4, stopped="LocalQueue team-a is stopped"), cluster("west", 4)],
        {"west": {"workers": 2}},
        "2 of 2 workers to west; east passed over: LocalQueue team-a is stopped.",
        "its ClusterQueue may have room for others",
    ),
    Case(
        "a namespace that the ClusterQueue does not select is passed over",
        [group(2)],
        [cluster("east", 4, namespaceSelector={"matchLabels": {"team": "b"}}), cluster("west", 4)],
        {"west": {"workers": 2}},
        "2 of 2 workers to west; east passed over: ClusterQueue team-a does not select the namespace.",
        "that Kueue would not admit it",
    ),
    Case(
        "a gang that fits only in part is not placed",
        [group(4)],
        [cluster("east", 4, used=4), cluster("west", 4, used=4)],
        {},
        "4 workers needed at once, 0 fit now: east has capacity for 0 (cpu in flavor any: 0 free of 4, one worker "
        "needs 1); west has capacity for 0 (cpu in flavor any: 0 free of 4, one worker needs 1).",
        "it waits, and its person reads for what",
    ),
    Case(
        "one worker that is larger than every quota never fits",
        [group(2, cores=8)],
        [cluster("east", 4)],
        {},
        "2 workers needed at once, 0 fit now: east has capacity for 0 (cpu in flavor any: 4 at most, one worker needs "
        "8). Even empty clusters hold only 0: raise a quota or request fewer workers.",
        "waiting will not help",
    ),
    Case(
        "a policy without clusters holds nothing",
        [group(2)],
        [],
        {},
        "2 workers needed at once, 0 fit now: the policy selects no WorkerCluster; label or name one.",
        "a selector may select nothing",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan(case: Case) -> None:
    made = plan(request(*case.groups), case.clusters)
    assert counts(made) == case.want, case.why
    assert made.sentence == case.sentence, case.why


def test_a_worker_too_large_by_one_is_reported() -> None:
    made = plan(request(group(5)), [cluster("east", 2), cluster("west", 2)])
    assert made.shares == ()
    assert made.sentence.startswith("5 workers needed at once, 4 fit now: east has capacity for 2")
    assert made.sentence.endswith("Even empty clusters hold only 4: raise a quota or request fewer workers.")


def test_a_worker_too_large_for_now_gets_no_advice_on_quota() -> None:
    made = plan(request(group(4)), [cluster("east", 2, used=1), cluster("west", 2)])
    assert made.shares == ()
    assert made.sentence.startswith("4 workers needed at once, 3 fit now: east has capacity for 1")
    assert "raise a quota" not in made.sentence


def test_a_share_names_the_role_of_its_group() -> None:
    made = plan(request(group(2)), [cluster("east", 2)])
    assert made.shares == (Share("east", (GroupShare("workers", "role-workers", 2),)),)


def test_verdicts_say_of_each_cluster_what_fits_and_what_was_taken() -> None:
    made = plan(request(group(3)), [cluster("east", 9, used=7), cluster("west", 4), cluster("north", 1, problem="off")])
    found = [(v.cluster, v.fitting_workers, v.potential, v.chosen) for v in made.verdicts]
    assert found == [("east", 2, 3, 2), ("west", 3, 3, 1), ("north", 0, 0, 0)]
    assert made.verdicts[2].reason == "off"


def test_where_nothing_is_placed_no_verdict_says_chosen() -> None:
    made = plan(request(group(9)), [cluster("east", 4), cluster("west", 4)])
    assert [(v.fitting_workers, v.chosen) for v in made.verdicts] == [(4, 0), (4, 0)]


def test_a_shortfall_names_the_resource_that_is_short() -> None:
    made = plan(request(group(4)), [cluster("east", 2)])
    assert "east has capacity for 2 (cpu in flavor any: 2 free of 2, one worker needs 1)" in made.sentence


def test_a_flavor_in_which_all_fit_is_taken() -> None:
    rows = [{"name": f, "resources": [{"name": "cpu", "nominalQuota": n}]} for f, n in (("any", "1"), ("spot", "4"))]
    queue = make_cluster_queue(0, resourceGroups=[{"coveredResources": ["cpu"], "flavors": rows}])
    tree = build([queue], [], [make_flavor(), make_flavor("spot")])
    one = Candidate("east", "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}})
    assert counts(plan(request(group(4)), [one])) == {"east": {"workers": 4}}


# --- what a verdict says is short ------------------------------------------------------------------------------------


def test_a_cluster_that_was_not_needed_is_not_reported_as_short() -> None:
    made = plan(request(group(4)), [cluster("east", 4), cluster("west", 2)])
    assert made.sentence == "4 of 4 workers to east."


def test_a_worker_that_does_not_fit_is_not_reported_to_fit() -> None:
    made = plan(request(group(2), group(3, name="more")), [cluster("east", 2), cluster("west", 2)])
    assert made.shares == ()
    assert made.sentence.startswith("5 workers needed at once, 4 fit now:")


def test_an_absent_cluster_is_no_reason_to_raise_a_quota() -> None:
    made = plan(request(group(4)), [cluster("east", 2), cluster("west", 2, problem="it is unreachable")])
    assert "raise a quota" not in made.sentence


# --- properties ------------------------------------------------------------------------------------------------------

ROOMS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=4)
GROUPS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=3)


def clusters(rooms: Sequence[tuple[int, int, bool]]) -> list[Candidate]:
    return [
        cluster(f"c{at}", cores, used=used, problem="off" if off else "") for at, (cores, used, off) in enumerate(rooms)
    ]


def gang(groups: Sequence[tuple[int, int]]) -> GangRequest:
    return request(*(group(count, cores=cores, name=f"g{at}") for at, (count, cores) in enumerate(groups)))


@given(ROOMS, GROUPS)
def test_all_or_nothing(rooms: list[tuple[int, int, bool]], groups: list[tuple[int, int]]) -> None:
    asked, made = gang(groups), plan(gang(groups), clusters(rooms))
    taken = {g.name: sum(counts(made).get(c.name, {}).get(g.name, 0) for c in clusters(rooms)) for g in asked.groups}
    whole = {g.name: g.count for g in asked.groups}
    assert taken in (whole, dict.fromkeys(whole, 0))
    assert bool(made.shares) is (taken == whole)
    assert all(share.workers for share in made.shares), "an empty share would be asked for"
    assert made.sentence.endswith(".")


@given(ROOMS, GROUPS)
def test_no_cluster_gets_more_workers_than_fit(
    rooms: list[tuple[int, int, bool]], groups: list[tuple[int, int]]
) -> None:
    asked = {g.name: g.request["cpu"] // 1000 for g in gang(groups).groups}
    free = {f"c{at}": 0 if off else max(0, cores - used) for at, (cores, used, off) in enumerate(rooms)}
    for name, share in counts(plan(gang(groups), clusters(rooms))).items():
        assert sum(asked[g] * count for g, count in share.items()) <= free[name]


@given(ROOMS, st.tuples(st.integers(1, 12), st.integers(1, 4)), st.integers(0, 3), st.integers(0, 6))
def test_more_capacity_never_makes_a_gang_of_one_shape_wait(
    rooms: list[tuple[int, int, bool]], shape: tuple[int, int], which: int, more: int
) -> None:
    """With several shapes, filling in order may put a worker where another one was to go."""
    before = plan(gang([shape]), clusters(rooms))
    wider = [(c + more * (at == which), used, off) for at, (c, used, off) in enumerate(rooms)]
    if before.shares:
        assert plan(gang([shape]), clusters(wider)).shares


@given(ROOMS, st.tuples(st.integers(1, 12), st.integers(1, 4)))
def test_a_gang_of_one_shape_waits_only_where_it_does_not_fit(
    rooms: list[tuple[int, int, bool]], shape: tuple[int, int]
) -> None:
    count, cores = shape
    fits = sum(0 if off else max(0, have - used) // cores for have, used, off in rooms)
    assert bool(plan(gang([shape]), clusters(rooms)).shares) is (fits >= count)


@given(ROOMS, GROUPS)
def test_a_later_cluster_is_asked_only_for_what_the_earlier_ones_cannot_take(
    rooms: list[tuple[int, int, bool]], groups: list[tuple[int, int]]
) -> None:
    made = plan(gang(groups[:1]), clusters(rooms))
    for share, verdict in zip(made.shares[:-1], [v for v in made.verdicts if v.chosen], strict=False):
        assert share.workers == verdict.fitting_workers, f"{share.cluster} had room left"


@given(ROOMS, GROUPS)
def test_a_plan_does_not_change_its_snapshot(rooms: list[tuple[int, int, bool]], groups: list[tuple[int, int]]) -> None:
    """A plan charges its own copies: the trees are shared by all plans until a queue changes."""
    picture = clusters(rooms)
    assert plan(gang(groups), picture) == plan(gang(groups), picture) == plan(gang(groups), clusters(rooms))
