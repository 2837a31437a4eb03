"""A draw that nobody asked for is told with the command that repeats it."""

import pytest

from hack.testbed import seed


def test_a_seed_that_is_asked_for_is_taken() -> None:
    assert seed.drawn(7) == 7
    assert seed.drawn(0) == 0, "no seed is not the seed 0"


def test_a_seed_that_nobody_asked_for_is_another_one_each_time() -> None:
    assert len({seed.drawn(None) for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param([], "--seed 12", id="nothing was said"),
        pytest.param(["--n", "50", "--ray"], "--n 50 --ray --seed 12", id="all else stays as it was"),
        pytest.param(["--seed", "12", "--n", "5"], "--n 5 --seed 12", id="it was asked for"),
        pytest.param(["--n", "5", "--seed=12"], "--n 5 --seed 12", id="in one word"),
        pytest.param(["--only", "a b"], "--only 'a b' --seed 12", id="a word with a blank"),
    ],
)
def test_the_command_repeats_the_draw(words: list[str], want: str) -> None:
    assert seed.again("hack.trials.chaos", words, 12) == f".venv/bin/python -m hack.trials.chaos {want}"
