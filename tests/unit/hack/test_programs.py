"""`--help` of a program starts nothing: the lab is shared, and some programs have no other option."""

from collections.abc import Callable, Sequence

import pytest

from hack.corpus import __main__ as corpus
from hack.demo import __main__ as demo
from hack.testbed import clusters, install


def _touched(*_: object) -> None:
    raise AssertionError("the lab was touched")


@pytest.mark.parametrize(
    ("main", "name"),
    [
        pytest.param(demo.main, "hack.demo", id="demo"),
        pytest.param(corpus.main, "hack.corpus", id="corpus"),
        pytest.param(install.main, "hack.testbed.install", id="install"),
    ],
)
@pytest.mark.parametrize(
    "words", [pytest.param(["--help"], id="the option --help"), pytest.param(["--n", "5"], id="an unknown option")]
)
def test_help_starts_nothing(
    main: Callable[[Sequence[str]], int],
    name: str,
    words: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo, "_lab_up", _touched)
    monkeypatch.setattr(clusters, "of_lab", _touched)
    monkeypatch.setattr(install, "on_lab", _touched)
    with pytest.raises(SystemExit):
        main(words)
    assert f"usage: python -m {name}" in "".join(capsys.readouterr())
