"""A recording of the demo has the output with its times in a playable form, and its picture shows the essentials."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hack.demo import __main__ as demo
from hack.demo import cast, picture, watch
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError

PICTURE = "docs/demo.svg"


def clock(*seconds: float) -> Iterator[float]:
    yield from seconds


def recorded(*said: str) -> tuple[cast.Recorder, io.StringIO]:
    """Output at 100 s, 101 s and so on, in a recording that began at 100 s."""
    ticks = clock(100.0, *(100.0 + n for n in range(len(said))))
    recorder = cast.Recorder(shown := io.StringIO(), lambda: next(ticks))
    for text in said:
        recorder.write(text)
    return recorder, shown


def test_output_is_shown_unchanged_and_recorded_with_its_times() -> None:
    recorder, shown = recorded("one\n", "", "two\nthree é\n")
    assert shown.getvalue() == "one\ntwo\nthree é\n"
    head, *events = map(json.loads, recorder.text("A title").splitlines())
    assert head == {"version": 2, "width": 120, "height": 48, "idle_time_limit": 2.0, "title": "A title"}
    assert events == [[0.0, "o", "one\r\n"], [2.0, "o", "two\r\nthree é\r\n"]]


def test_printed_text_is_recorded() -> None:
    ticks = clock(*map(float, range(10)))
    recorder = cast.Recorder(shown := io.StringIO(), lambda: next(ticks))
    with contextlib.redirect_stdout(recorder):
        screen = watch._Screen()
        screen.show(0.8, ["RayJob     Initializing"])
        screen.show(1.8, ["RayJob     Running"])
    assert shown.getvalue() == "   0.8 s  RayJob     Initializing\n   1.8 s  RayJob     Running\n"
    assert "\\u001b" not in recorder.text("") and "Running" in recorder.text("")


@pytest.mark.parametrize("code", [0, 1])
def test_only_a_successful_demo_is_written(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ran(_: str) -> int:
        sys.stdout.write("The demo ran.\n")
        return code

    monkeypatch.setattr(demo, "_demo", ran)
    file = tmp_path / "demo.cast"
    assert demo.main(["--record", str(file)]) == code
    assert capsys.readouterr().out == "The demo ran.\n"
    assert file.exists() == (code == 0)
    assert code or picture.main([str(file), str(tmp_path / "demo.svg")]) == 0


# --- the picture -----------------------------------------------------------------------------------------------------


def _lines(svg: str) -> list[str]:
    """The text of the picture, line by line in reading order."""
    rows: dict[str, list[str]] = {}
    for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        rows.setdefault(each.get("y", ""), []).append("".join(each.itertext()).replace("\xa0", " "))
    return ["".join(parts).rstrip() for parts in rows.values()]


def test_the_picture_has_each_line_and_the_title() -> None:
    recorder, _ = recorded("$ kubectl <apply> & wait\n", "   0.8 s  RayJob     Running\n", "\x1b[32mdone\x1b[0m\n")
    drawn = [line for line in _lines(picture.svg(recorder.text("A title"))) if line]
    assert drawn == ["A title", "$ kubectl <apply> & wait", "   0.8 s  RayJob     Running", "done"]


def test_the_picture_has_the_last_states_of_a_cluster() -> None:
    """Between the states of the job and after the last; each cluster that changed is shown once."""
    states = ["RayJob     Running", "mgr  -", "east  1 pending", "east  2 pending", "mgr  1 head", "east  2 ready"]
    shown = [
        f"   {second}.0 s  {state}"
        for second, state in enumerate([*states, "Placement  Ended", "east  -", "east  x", "mgr  -"])
    ]
    recorder, _ = recorded(*(f"{line}\n" for line in shown), "The job has ended.\n")
    drawn = [line.split("s  ")[-1] for line in _lines(picture.svg(recorder.text("x"))) if line][1:]
    wanted = [*states[:3], *states[4:], "Placement  Ended", "east  -", "east  x", "mgr  -", "The job has ended."]
    assert drawn == wanted


def test_the_picture_is_reproducible_and_loads_nothing() -> None:
    text = recorded("one\n")[0].text("x")
    assert picture.svg(text) == picture.svg(text)
    drawn = re.sub(r"<!--.*?-->", "", picture.svg(text), flags=re.DOTALL)  # Rich's own mark
    assert {*re.findall(r"https?://[^\s\"')<]+", drawn)} == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "no recording", id="an empty file"),
        pytest.param("hello\n", "no recording", id="an invalid JSON header"),
        pytest.param('{"version": 2}\n', "no recording", id="a header without a width"),
        pytest.param('{"version": 3, "width": 80, "title": "x"}\n', "of version 3", id="another version"),
        pytest.param(
            '{"version": 2, "width": 80, "title": "x"}\n[0, "o", "\\u001b[2Fa"]\n', "moves the cursor",
            id="a cursor movement",
        ),
    ],
)  # fmt: skip
def test_an_invalid_recording_is_an_error(text: str, said: str) -> None:
    with pytest.raises(LabError, match=said):
        picture.svg(text)


def test_the_readme_shows_the_existing_picture() -> None:
    assert (PICTURE in (REPO / "README.md").read_text()) == (REPO / PICTURE).exists()
