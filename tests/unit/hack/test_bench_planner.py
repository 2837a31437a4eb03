"""The planner's bench: a gang that fills the fleet fits, and one more worker does not."""

import pytest

from adapter.planning.planner import charge_shares, plan
from hack.bench import plannerinput
from hack.bench.plannerinput import Size


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("depth", [1, 3])
def test_gang_just_fits(groups: int, depth: int) -> None:
    made = plannerinput.make(Size(pods=24, clusters=4, queues=20, depth=depth, groups=groups, gangs=5, nodes=2))
    candidates = list(made.candidates)
    for request, shares in made.in_flight:
        candidates = charge_shares(request, candidates, shares)
    found = plan(made.request, candidates)
    assert sum(share.workers for share in found.shares) == 24, found.sentence
    assert {one.nominal for one in found.verdicts} == {3}, "half of each cluster's part is borrowed"
    assert not plan(plannerinput.one_more(made.request), candidates).shares
