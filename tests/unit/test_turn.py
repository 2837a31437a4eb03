"""Priority before age, and a gang that waited long is not passed by for ever."""

from dataclasses import replace

import pytest

from adapter import turn
from adapter.facts import Workload, workload
from tests.unit.builders import at, make_workload


def gang(name: str, *, created: float = 0, priority: int | None = None) -> Workload:
    return replace(workload(make_workload(name=name)), created=at(created), priority=priority)


def waiting(work: Workload, *, looked: bool = True) -> turn.Waiting:
    return turn.Waiting(work, looked)


@pytest.mark.parametrize(
    ("me", "others", "want"),
    [
        pytest.param(gang("me", created=5), [gang("old", created=1), gang("new", created=9)], ["old"], id="the older one"),
        pytest.param(gang("me", created=1), [gang("top", created=9, priority=10)], ["top"], id="priority beats age"),
        pytest.param(gang("me", priority=5), [gang("a", priority=1), gang("b", priority=9)], ["b"], id="lower ones wait"),
        pytest.param(gang("me"), [gang("a"), gang("z")], ["a"], id="of the same second, by name"),
        pytest.param(gang("me"), [gang("me")], [], id="not oneself"),
        pytest.param(
            gang("me", created=9), [gang("b", created=5), gang("a", created=6), gang("c", priority=1, created=8)],
            ["c", "b", "a"], id="in their order",
        ),
    ],
)  # fmt: skip
def test_before(me: Workload, others: list[Workload], want: list[str]) -> None:
    assert [one.work.name for one in turn.before(me, map(waiting, others))] == want


@pytest.mark.parametrize(
    ("one", "seconds", "want"),
    [
        pytest.param(waiting(gang("a")), 301, True, id="waited long"),
        pytest.param(waiting(gang("a")), 300, False, id="not long enough"),
        pytest.param(
            waiting(gang("a"), looked=False), 999, True, id="about to be planned: what it gathered stays its own"
        ),
        pytest.param(waiting(replace(gang("a"), created=None)), 999, False, id="of no known age"),
    ],
)
def test_holds_back(one: turn.Waiting, seconds: float, want: bool) -> None:
    assert turn.holds_back(one, at(seconds)) is want


def test_the_order_is_one_order() -> None:
    """Whoever is before another is not behind it: else two gangs could each wait for the other."""
    gangs = [gang(n, created=c, priority=p) for n, c, p in (("a", 1, 0), ("b", 1, 5), ("c", 0, 0), ("d", 3, None))]
    for one in gangs:
        first = {w.work.name for w in turn.before(one, map(waiting, gangs))}
        for other in first:
            back = turn.before(next(g for g in gangs if g.name == other), map(waiting, gangs))
            assert one.name not in {w.work.name for w in back}
