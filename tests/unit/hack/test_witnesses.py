"""Witnesses report what they could not observe: an invalid answer, a fault of their own, a death, a hang."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3
from kubernetes import client

from hack.lab.base.progress import LabError
from hack.testbed import clusters, podwatch
from hack.testbed.reader import NotThere, Reader, Refused, Unreachable, trouble
from hack.testbed.recorder import Recorder

# --- the reader -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "path", "want"),
    [
        pytest.param(500, "/api/v1/pods", Unreachable, id="an API server without etcd"),
        pytest.param(503, "/api/v1/pods", Unreachable, id="an API server that starts"),
        pytest.param(429, "/api/v1/pods", Unreachable, id="an overloaded API server"),
        pytest.param(401, "/api/v1/pods", Refused, id="an unknown user"),
        pytest.param(403, "/api/v1/pods", Refused, id="a missing right"),
        pytest.param(400, "/api/v1/pods", Refused, id="an invalid request"),
        pytest.param(404, "/api/v1/pods/a", NotThere, id="an object that does not exist"),
        pytest.param(400, "/api/v1/pods/a/log", NotThere, id="the log of a container that has not started"),
    ],
)
def test_the_errors_of_answers(status: int, path: str, want: type[LabError]) -> None:
    assert type(trouble(status, "GET", path, "said")) is want
    assert not issubclass(Refused, Unreachable), "who excuses silence must not excuse a refusal"


class Api:
    """The part of the client that the reader uses."""

    def __init__(self, does: Callable[[], Any]) -> None:
        self.does = does

    def param_serialize(self, *_: object, **__: object) -> tuple[()]:
        return ()

    def call_api(self, **_: object) -> Any:
        return self.does()


def a_reader(does: Callable[[], Any]) -> Reader:
    reader = Reader.__new__(Reader)
    reader._api, reader._kinds = Api(does), {}
    return reader


def raises(error: BaseException) -> Callable[[], Any]:
    def does() -> Any:
        raise error

    return does


def answers(status: int, body: bytes) -> Callable[[], Any]:
    return lambda: SimpleNamespace(status=status, read=lambda: body)


@pytest.mark.parametrize(
    ("does", "want"),
    [
        pytest.param(raises(urllib3.exceptions.ProtocolError("reset")), Unreachable, id="a connection that is reset"),
        pytest.param(raises(ConnectionRefusedError()), Unreachable, id="a closed port"),
        pytest.param(
            raises(client.ApiException(status=0, reason="EOF")),
            Unreachable,
            id="a TLS connection that breaks",
        ),
        pytest.param(raises(KeyError("x")), KeyError, id="an error of the client"),
        pytest.param(answers(200, b"<html>"), json.JSONDecodeError, id="an answer that is no JSON"),
        pytest.param(answers(403, b'{"message": "forbidden"}'), Refused, id="a forbidden request"),
        pytest.param(answers(503, b"starting"), Unreachable, id="an API server that is starting"),
    ],
)
def test_only_a_missing_answer_counts_as_unreachable(does: Callable[[], Any], want: type[BaseException]) -> None:
    with pytest.raises(want) as found:
        a_reader(does).get("/api/v1/pods")
    assert isinstance(found.value, Unreachable) is (want is Unreachable)


def test_an_unknown_kind_may_appear_later() -> None:
    with pytest.raises(NotThere, match="no kind placements"):
        a_reader(answers(200, b'{"items": []}')).path("placements")


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        pytest.param(Unreachable("x"), True, id="an unreachable cluster"),
        pytest.param(NotThere(404, "x"), True, id="an object that does not exist yet"),
        pytest.param(Refused(403, "x"), False, id="a forbidden request is not retried"),
    ],
)
def test_a_wait_retries_errors_that_may_pass(error: LabError, waits: bool) -> None:
    left = [error]

    def look() -> bool:
        if left:
            raise left.pop()
        return True

    if waits:
        assert clusters.wait(look, 5, "it is there")
    else:
        with pytest.raises(Refused):
            clusters.wait(look, 5, "it is there")


# --- recorder and pod watch -------------------------------------------------------------------------------------------


def test_waiting_for_a_dead_recorder_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(self: Recorder) -> None:
        raise KeyError("metadata")

    monkeypatch.setattr(Recorder, "_follow", dies)
    begun = time.monotonic()
    with pytest.raises(LabError, match=r"died: KeyError\('metadata'\)"), Recorder("demo", {}) as seen:
        seen.wait(lambda _: False, 10, "something")
    assert time.monotonic() - begun < 5, "at once, and not when its time is up"


def test_the_error_of_a_dead_recorder_is_raised_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(self: Recorder) -> None:
        raise KeyError("metadata")

    monkeypatch.setattr(Recorder, "_follow", dies)
    monkeypatch.setattr(Recorder, "wait", lambda *_: None)
    with pytest.raises(LabError, match="The recorder died"), Recorder("demo", {}):
        pass


def kubectl(folder: Path, lines: str, then: str) -> str:
    """A program in place of kubectl that writes lines and then does something."""
    program = folder / "kubectl"
    program.write_text(
        f"#!{sys.executable}\nimport sys, time\nsys.stdout.write({lines!r}); sys.stdout.flush()\n{then}\n"
    )
    program.chmod(0o755)
    return str(program)


def test_a_story_is_complete_while_the_watch_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", kubectl(tmp_path, "ADDED|u|a|b\nMODI", "time.sleep(60)"))
    cluster = clusters.Cluster("east", tmp_path / "none")
    with podwatch.watched(cluster, "x=y", tmp_path / "out", ".metadata.uid", ".status.message") as story:
        assert story() == [["ADDED", "u", "a|b"]]


def test_a_watch_that_ended_by_itself_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", kubectl(tmp_path, "ADDED|u|a\n", "sys.exit(3)"))
    cluster = clusters.Cluster("east", tmp_path / "none")
    with (
        pytest.raises(LabError, match="ended by itself with status 3"),
        podwatch.watched(cluster, "x=y", tmp_path / "out", ".metadata.uid") as story,
    ):
        while story():
            pass
