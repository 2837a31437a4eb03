"""A random draw is reported with the command that repeats it."""

import pytest

from hack.testbed import seed


def test_a_given_seed_is_used() -> None:
    assert seed.drawn(7) == 7
    assert seed.drawn(0) == 0, "no seed is not the seed 0"


def test_a_seed_that_is_not_given_is_random() -> None:
    assert len({seed.drawn(None) for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param([], "--seed 12", id="no options"),
        pytest.param(["--n", "50", "--ray"], "--n 50 --ray --seed 12", id="other options stay"),
        pytest.param(["--seed", "12", "--n", "5"], "--n 5 --seed 12", id="the seed was given"),
        pytest.param(["--n", "5", "--seed=12"], "--n 5 --seed 12", id="the seed was given in one word"),
        pytest.param(["--only", "a b"], "--only 'a b' --seed 12", id="an option with a space"),
    ],
)
def test_the_command_repeats_the_draw(words: list[str], want: str) -> None:
    assert seed.again("hack.trials.chaos", words, 12) == f".venv/bin/python -m hack.trials.chaos {want}"
