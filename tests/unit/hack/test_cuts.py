"""Which cut may cost a worker, and which may cost an actor."""

import pytest

from hack.trials.cuts import Cut


def cut(*ways: str, seconds: float = 30.0) -> Cut:
    return Cut(tuple((scope, way) for scope, _, way in (one.partition("/") for one in ways)), seconds)


@pytest.mark.parametrize(
    ("struck", "replaced", "anew", "want"),
    [
        pytest.param(cut("api/drop"), [], 0, [], id="nobody noticed"),
        pytest.param(cut("api/drop"), ["east"], 0, ["1 workers in east were replaced"], id="the API alone"),
        pytest.param(cut("api/drop", seconds=600), ["east"], 0, ["1 workers in east"], id="the API alone, however long"),
        pytest.param(cut("api/drop"), [], 2, ["only the API was cut, and 2 actors started anew"], id="actors noticed"),
        pytest.param(cut("api/drop"), ["east"], 1, ["were replaced", "started anew"], id="both are said"),
        pytest.param(cut("data/drop"), [], 2, [], id="the data for a short while: processes may start anew"),
        pytest.param(cut("data/drop"), ["east", "east"], 2, ["2 workers in east were replaced"], id="but no worker may go"),
        pytest.param(cut("data/reject"), ["east"], 0, ["1 workers in east were replaced"], id="in whichever way"),
        pytest.param(cut("data/drop", seconds=90), ["east"], 2, [], id="the data for longer than Ray waits"),
        pytest.param(cut("all/drop"), ["east"], 2, [], id="everything"),
        pytest.param(cut("data/drop"), ["west"], 0, [], id="a worker elsewhere is nobody's promise"),
        pytest.param(cut("api/drop", "all/link"), ["west"], 1, [], id="two clusters, and the other one went"),
        pytest.param(cut("all/link", "data/drop"), ["east", "west"], 2, ["1 workers in west"], id="two clusters, and the spared one went"),
    ],
)  # fmt: skip
def test_what_a_cut_must_not_do(struck: Cut, replaced: list[str], anew: int, want: list[str]) -> None:
    said = struck.judged(replaced, anew)
    assert [part in one for part, one in zip(want, said, strict=True)] == [True] * len(want)
