"""Incomplete namespaces take turns: a bounded number in all, and none is passed over."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from adapter.shell.write.namespace_turns import NamespaceTurns

PAUSE = 2.0


@given(namespaces=st.integers(1, 12), between=st.floats(0.1, 30.0))
def test_turns_go_round(namespaces: int, between: float) -> None:
    """Each namespace asks when its delay is over, and `between` seconds after each of its turns."""
    turns, taken = NamespaceTurns(PAUSE), list[tuple[float, str]]()
    wakes = {f"team-{number}": 0.0 for number in range(namespaces)}
    while len(taken) < 5 * namespaces:
        namespace = min(wakes, key=lambda name: (wakes[name], name))
        now = wakes[namespace]
        delay = turns.take_or_delay(namespace, now)
        if not delay:
            taken.append((now, namespace))
        wakes[namespace] = now + (delay or between)
    times = [time for time, _ in taken]
    assert all(later - earlier >= PAUSE - 1e-6 for earlier, later in itertools.pairwise(times))
    counts = [sum(name == namespace for _, name in taken) for namespace in wakes]
    assert max(counts) - min(counts) <= 1


def test_a_namespace_that_asks_often_has_one_turn() -> None:
    turns = NamespaceTurns(PAUSE)
    assert turns.take_or_delay("other", 0.0) == 0.0
    assert [turns.take_or_delay("eager", 0.0) for _ in range(9)] == [PAUSE] * 9
    assert turns.take_or_delay("patient", 0.5) == 2 * PAUSE - 0.5


def test_a_namespace_that_is_complete_keeps_no_turn() -> None:
    turns = NamespaceTurns(PAUSE)
    turns.take_or_delay("a", 0.0)
    turns.take_or_delay("b", 0.0)
    turns.forget("b")
    assert turns.take_or_delay("b", 9.0) == 0.0
