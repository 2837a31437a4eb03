"""How workers are divided among clusters: tables, and properties for any numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.planning.plan_request import Offer, Strategy
from adapter.planning.strategy import allot_workers


def offer(nominal: int, borrow: int = 0) -> Offer:
    return Offer(nominal=nominal, total=nominal + borrow, potential=nominal + borrow, on_nodes=nominal + borrow)


@pytest.mark.parametrize(
    ("strategy", "wanted", "offers", "want"),
    [
        pytest.param("FillInOrder", 4, [offer(3), offer(9)], [3, 1], id="the first cluster takes what fits"),
        pytest.param("FillInOrder", 4, [offer(9), offer(9)], [4, 0], id="the second cluster is not needed"),
        pytest.param("FillInOrder", 4, [offer(2, 9), offer(2)], [2, 2],
            id="nominal quota of the second cluster before borrowing"),
        pytest.param("FillInOrder", 6, [offer(2, 9), offer(2, 9)], [4, 2], id="borrowed quota is taken in order"),
        pytest.param("FillInOrder", 9, [offer(2), offer(3)], [2, 3], id="workers that do not fit are left over"),
        pytest.param("AvailableCapacity", 4, [offer(3), offer(9)], [3, 1], id="the order of clusters is fixed already"),
        pytest.param("Spread", 6, [offer(9), offer(9), offer(9)], [2, 2, 2], id="workers are spread evenly"),
        pytest.param("Spread", 7, [offer(9), offer(9), offer(9)], [3, 2, 2],
            id="the remainder goes to the first cluster"),
        pytest.param("Spread", 6, [offer(1), offer(9), offer(9)], [1, 3, 2],
            id="a small cluster leaves the rest to the others"),
        pytest.param("Spread", 6, [offer(1, 5), offer(2, 5)], [3, 3], id="borrowed quota evens out"),
        pytest.param("Spread", 2, [offer(0, 5), offer(2, 5)], [0, 2], id="nominal quota before an even spread"),
        pytest.param("Spread", 3, [], [], id="no cluster"),
        pytest.param("Spread", 3, [offer(0), offer(0)], [0, 0], id="no capacity"),
    ],
)  # fmt: skip
def test_allot(strategy: Strategy, wanted: int, offers: list[Offer], want: list[int]) -> None:
    assert allot_workers(strategy, wanted, offers) == want


STRATEGIES: st.SearchStrategy[Strategy] = st.sampled_from(["FillInOrder", "AvailableCapacity", "Spread", "Cheapest"])
OFFERS = st.lists(st.builds(offer, st.integers(0, 9), st.integers(0, 9)), max_size=6)


@given(STRATEGIES, st.integers(0, 60), OFFERS)
def test_all_workers_that_fit_are_placed_and_never_more(strategy: Strategy, wanted: int, offers: list[Offer]) -> None:
    counts = allot_workers(strategy, wanted, offers)
    assert sum(counts) == min(wanted, sum(o.total for o in offers))
    assert all(0 <= count <= o.total for count, o in zip(counts, offers, strict=True))


@given(STRATEGIES, st.integers(0, 60), OFFERS)
def test_nothing_is_borrowed_while_nominal_quota_is_free_anywhere(
    strategy: Strategy, wanted: int, offers: list[Offer]
) -> None:
    counts = allot_workers(strategy, wanted, offers)
    borrowed = any(count > o.nominal for count, o in zip(counts, offers, strict=True))
    assert not borrowed or all(count >= o.nominal for count, o in zip(counts, offers, strict=True))


@given(st.integers(0, 60), st.lists(st.builds(offer, st.integers(0, 9)), max_size=6))
def test_spread_leaves_no_cluster_with_capacity_two_workers_behind(wanted: int, offers: list[Offer]) -> None:
    counts = allot_workers("Spread", wanted, offers)
    for count, o in zip(counts, offers, strict=True):
        assert count == o.total or max(counts) - count <= 1
