"""Which workers of a plan stay together in one share, and which have one of their own."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.placement import GroupShare, Share
from adapter.planning.split_shares import number_rounds, split_by_worker


def share(cluster: str, *, preempts: bool = False, **counts: int) -> Share:
    return Share(cluster, tuple(GroupShare(name, f"role-{name}", count) for name, count in counts.items()), preempts)


def alone(cluster: str, group: str, *, preempts: bool = False) -> Share:
    return Share(cluster, (GroupShare(group, f"role-{group}", 1),), preempts, single_worker=True)


@pytest.mark.parametrize(
    ("shares", "together", "starts", "want"),
    [
        pytest.param([share("east", a=2)], None, True, [share("east", a=2)], id="all stay together"),
        pytest.param([share("east", a=2)], {}, False, [alone("east", "a")] * 2, id="each grows by itself"),
        pytest.param(
            [share("east", a=2)], {"a": 2}, True, [share("east", a=2)], id="it wants no more than it always has"
        ),
        pytest.param([share("east", a=2)], {"a": 9}, True, [share("east", a=2)], id="it wants less"),
        pytest.param(
            [share("east", a=3)],
            {"a": 1},
            True,
            [share("east", a=1), *[alone("east", "a")] * 2],
            id="what comes on top",
        ),
        pytest.param(
            [share("east", a=2), share("west", a=2)],
            {"a": 3},
            True,
            [share("east", a=2), share("west", a=1), alone("west", "a")],
            id="the first clusters hold what stays",
        ),
        pytest.param(
            [share("east", a=1, b=2)],
            {"a": 1, "b": 1},
            True,
            [share("east", a=1, b=1), alone("east", "b")],
            id="of each group its own",
        ),
        pytest.param(
            [share("east", a=1, b=1)], {"b": 1}, True, [share("east", b=1), alone("east", "a")], id="of one none"
        ),
        pytest.param(
            [share("east", preempts=True, a=2), share("west", a=1)],
            {"a": 1},
            True,
            [share("east", preempts=True, a=2), alone("west", "a")],
            id="a first share that preempts takes all of it or nothing",
        ),
        pytest.param(
            [share("east", preempts=True, a=2)],
            {},
            False,
            [alone("east", "a", preempts=True)] * 2,
            id="later each preempts for itself",
        ),
        pytest.param(
            [share("east", a=3), share("west", a=1, b=1)],
            {},
            False,
            [alone("east", "a"), alone("west", "a"), alone("east", "a"), alone("west", "b"), alone("east", "a")],
            id="of each cluster one in turn, so that none waits until another one is done",
        ),
    ],
)
def test_apart(shares: list[Share], together: Mapping[str, int] | None, starts: bool, want: list[Share]) -> None:
    assert list(split_by_worker(shares, together, max_shares=9, starting=starts)) == want


@pytest.mark.parametrize(
    ("most", "want"),
    [
        pytest.param(
            6,
            [share("east", a=1), *[alone("east", "a"), alone("west", "b")] * 2, alone("east", "a")],
            id="room for all",
        ),
        pytest.param(
            5,
            [share("east", a=1), share("west", b=2), *[alone("east", "a")] * 3],
            id="those beyond share the one of their cluster",
        ),
        pytest.param(4, [share("east", a=2), share("west", b=2), *[alone("east", "a")] * 2], id="and more of them"),
        pytest.param(2, [share("east", a=4), share("west", b=2)], id="one for each cluster"),
        pytest.param(0, [share("east", a=4), share("west", b=2)], id="never fewer"),
    ],
)
def test_where_there_is_no_room_for_so_many_shares_those_beyond_stay_together(most: int, want: list[Share]) -> None:
    shares = [share("east", a=4), share("west", b=2)]
    assert list(split_by_worker(shares, {"a": 1}, max_shares=most, starting=True)) == want


COUNTS = st.fixed_dictionaries({"a": st.integers(0, 4), "b": st.integers(0, 4)})
PLANS = st.lists(st.tuples(COUNTS, st.booleans()).filter(lambda one: any(one[0].values())), max_size=4)


@given(PLANS, st.none() | COUNTS, st.booleans(), st.integers(0, 20))
def test_nobody_moves_and_nobody_is_forgotten(
    plan: list[tuple[dict[str, int], bool]], together: dict[str, int] | None, starts: bool, most: int
) -> None:
    shares = [
        share(f"c{at}", preempts=how, **{k: v for k, v in one.items() if v}) for at, (one, how) in enumerate(plan)
    ]
    made = split_by_worker(shares, together, max_shares=most, starting=starts)
    assert _workers(made) == _workers(shares)
    assert all(one.workers == 1 for one in made if one.single_worker) and all(one.workers for one in made)
    whole = Counter(one.cluster for one in made if not one.single_worker)
    assert max(whole.values(), default=0) <= 1, "those who stay together in a cluster have one share there"
    assert len(made) <= max(most, len(shares)), "no more than there may be"
    unbounded = split_by_worker(shares, together, max_shares=99, starting=starts)
    if together is not None and len(unbounded) > most >= 2 * len(shares):
        assert most - len(made) < len(shares), "as many are alone as may be"
    if together is not None and len(unbounded) <= most and not (starts and any(one.preempts for one in shares)):
        kept = sum(
            (Counter({g.name: g.count for g in one.groups}) for one in made if not one.single_worker), Counter[str]()
        )
        assert all(kept[name] <= count for name, count in together.items())


@given(PLANS, st.none() | COUNTS, st.integers(0, 50))
def test_each_share_has_a_number_that_no_other_one_of_its_cluster_has(
    plan: list[tuple[dict[str, int], bool]], together: dict[str, int] | None, before: int
) -> None:
    shares = [
        share(f"c{at}", preempts=False, **{k: v for k, v in one.items() if v}) for at, (one, _) in enumerate(plan)
    ]
    made, last = number_rounds(split_by_worker(shares, together, max_shares=99, starting=False), before)
    keys = [(one.cluster, one.round or last) for one in made]
    assert len(set(keys)) == len(keys)
    assert all(before < number <= last for _, number in keys) and last > before
    assert all(not one.round for one in made if not one.single_worker), "those of a whole round are of the last one"


def _workers(shares: Iterable[Share]) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for one in shares:
        found.update({(one.cluster, group.name): group.count for group in one.groups})
    return found
