"""The cuts that may cost a worker, and those that may cost an actor."""

import pytest

from hack.trials.cuts import Cut


def cut(*ways: str, seconds: float = 30.0) -> Cut:
    return Cut(tuple((scope, way) for scope, _, way in (one.partition("/") for one in ways)), seconds)


@pytest.mark.parametrize(
    ("struck", "replaced", "anew", "want"),
    [
        pytest.param(cut("api/drop"), [], 0, [], id="an API cut without losses"),
        pytest.param(
            cut("api/drop"), ["east"], 0, ["1 workers in east were replaced"], id="an API cut that cost a worker",
        ),
        pytest.param(
            cut("api/drop", seconds=600), ["east"], 0, ["1 workers in east"], id="a long API cut that cost a worker",
        ),
        pytest.param(
            cut("api/drop"), [], 2, ["only the API was cut, and 2 actors started anew"],
            id="an API cut that cost actors",
        ),
        pytest.param(
            cut("api/drop"), ["east"], 1, ["were replaced", "started anew"],
            id="an API cut that cost a worker and an actor",
        ),
        pytest.param(cut("data/drop"), [], 2, [], id="a short data cut may restart actors"),
        pytest.param(
            cut("data/drop"), ["east", "east"], 2, ["2 workers in east were replaced"],
            id="a short data cut may cost no worker",
        ),
        pytest.param(
            cut("data/reject"), ["east"], 0, ["1 workers in east were replaced"],
            id="a data cut by rejection may cost no worker",
        ),
        pytest.param(
            cut("data/drop", seconds=90), ["east"], 2, [], id="a data cut longer than Ray waits may cost a worker",
        ),
        pytest.param(cut("all/drop"), ["east"], 2, [], id="a cut of everything may cost a worker"),
        pytest.param(cut("data/drop"), ["west"], 0, [], id="a worker of an uncut cluster does not count"),
        pytest.param(
            cut("api/drop", "all/link"), ["west"], 1, [], id="two cut clusters: the fully cut one lost a worker",
        ),
        pytest.param(
            cut("all/link", "data/drop"), ["east", "west"], 2, ["1 workers in west"],
            id="two cut clusters: the one with a data cut lost a worker",
        ),
    ],
)  # fmt: skip
def test_the_losses_that_a_cut_must_not_cause(struck: Cut, replaced: list[str], anew: int, want: list[str]) -> None:
    said = struck.judged(replaced, anew)
    assert [part in one for part, one in zip(want, said, strict=True)] == [True] * len(want)
