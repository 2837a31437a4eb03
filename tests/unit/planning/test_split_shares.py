"""Which workers of a plan stay together in one share, and which get single-worker shares."""

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
        pytest.param(
            [share("east", a=2)], None, True, [share("east", a=2)], id="all workers are the minimum and stay together"
        ),
        pytest.param(
            [share("east", a=2)], {}, False, [alone("east", "a")] * 2, id="each worker of a scale-up has its own share"
        ),
        pytest.param(
            [share("east", a=2)], {"a": 2}, True, [share("east", a=2)], id="the job wants no more than its minimum"
        ),
        pytest.param(
            [share("east", a=2)], {"a": 9}, True, [share("east", a=2)], id="the job wants less than its minimum"
        ),
        pytest.param(
            [share("east", a=3)],
            {"a": 1},
            True,
            [share("east", a=1), *[alone("east", "a")] * 2],
            id="workers beyond the minimum have their own shares",
        ),
        pytest.param(
            [share("east", a=2), share("west", a=2)],
            {"a": 3},
            True,
            [share("east", a=2), share("west", a=1), alone("west", "a")],
            id="the first clusters hold the minimum",
        ),
        pytest.param(
            [share("east", a=1, b=2)],
            {"a": 1, "b": 1},
            True,
            [share("east", a=1, b=1), alone("east", "b")],
            id="each group has its own minimum",
        ),
        pytest.param(
            [share("east", a=1, b=1)],
            {"b": 1},
            True,
            [share("east", b=1), alone("east", "a")],
            id="one group has no minimum",
        ),
        pytest.param(
            [share("east", preempts=True, a=2), share("west", a=1)],
            {"a": 1},
            True,
            [share("east", preempts=True, a=2), alone("west", "a")],
            id="a first share that preempts stays whole",
        ),
        pytest.param(
            [share("east", preempts=True, a=2)],
            {},
            False,
            [alone("east", "a", preempts=True)] * 2,
            id="in a scale-up each share preempts for itself",
        ),
        pytest.param(
            [share("east", a=3), share("west", a=1, b=1)],
            {},
            False,
            [alone("east", "a"), alone("west", "a"), alone("east", "a"), alone("west", "b"), alone("east", "a")],
            id="single-worker shares alternate between clusters, so that none waits until another one is done",
        ),
    ],
)
def test_split_by_worker(
    shares: list[Share], together: Mapping[str, int] | None, starts: bool, want: list[Share]
) -> None:
    assert list(split_by_worker(shares, together, max_shares=9, starting=starts)) == want


@pytest.mark.parametrize(
    ("most", "want"),
    [
        pytest.param(
            6,
            [share("east", a=1), *[alone("east", "a"), alone("west", "b")] * 2, alone("east", "a")],
            id="all shares fit",
        ),
        pytest.param(
            5,
            [share("east", a=1), share("west", b=2), *[alone("east", "a")] * 3],
            id="workers beyond the limit join the share of their cluster",
        ),
        pytest.param(
            4,
            [share("east", a=2), share("west", b=2), *[alone("east", "a")] * 2],
            id="most workers are beyond the limit",
        ),
        pytest.param(2, [share("east", a=4), share("west", b=2)], id="one share for each cluster"),
        pytest.param(0, [share("east", a=4), share("west", b=2)], id="never fewer than one share for each cluster"),
    ],
)
def test_workers_beyond_the_limit_of_shares_stay_together(most: int, want: list[Share]) -> None:
    shares = [share("east", a=4), share("west", b=2)]
    assert list(split_by_worker(shares, {"a": 1}, max_shares=most, starting=True)) == want


COUNTS = st.fixed_dictionaries({"a": st.integers(0, 4), "b": st.integers(0, 4)})
PLANS = st.lists(st.tuples(COUNTS, st.booleans()).filter(lambda one: any(one[0].values())), max_size=4)


@given(PLANS, st.none() | COUNTS, st.booleans(), st.integers(0, 20))
def test_splitting_moves_and_drops_no_worker(
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
    if together is not None and len(unbounded) <= most and not (starts and any(share.preempts for share in shares)):
        kept = sum(
            (Counter({g.name: g.count for g in one.groups}) for one in made if not one.single_worker), Counter[str]()
        )
        assert all(kept[name] <= count for name, count in together.items())


@given(PLANS, st.none() | COUNTS, st.integers(0, 50))
def test_share_keys_are_unique(
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
    for share in shares:
        found.update({(share.cluster, group.name): group.count for group in share.groups})
    return found
