"""`rayspan logs -f JOB` against an API server: the logs that it follows as workers come and go, each by its own grant.

A program that is called kubectl stands in for kubectl: it prints the worker's name until that worker ends.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapter.cli.commands.parser import build_parser
from adapter.cli.worker_access import follow_logs, grants
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import kind_of
from tests.unit.apiserver import PATIENCE, Answer, Server, kubeconfig, lists, says
from tests.unit.builders import NAMESPACE
from tests.unit.diagnosis.jobs import make_facts, make_head, make_worker

_RUNS: Raw = {"containerStatuses": [{"state": {"running": {}}}]}
_KUBECTL = """\
#!/bin/sh
case "$*" in *"config view"*) exec cat "$PLAY/viewed" ;; esac
while [ "$1" != logs ]; do shift; done
echo "$2" > "$PLAY/begun"
read -r _ < "$PLAY/$2"
"""


@dataclass
class Job:
    """A job whose pods a test replaces, as an API server shows it."""

    pods: list[Raw]
    status: str = "Running"
    granted: list[str] = field(default_factory=list)  # the pods for which a grant was created

    async def answer(self, request: web.Request) -> web.StreamResponse:
        facts = make_facts()
        kind, _ = kind_of(request.path)
        found: dict[str, Answer] = {
            "rayjobs": says({**facts.job, "status": {**facts.job["status"], "jobDeploymentStatus": self.status}}),
            "rayclusters": says(facts.ray_cluster),
            "localqueues": says(facts.local_queue),
            "services/rayspan-access": says({"kind": "APIVersions"}),
            "workeraccesses": says({"metadata": {"name": "grant"}}),
            "pods": lists(1, self.pods),
        }
        if kind == "workeraccesses":
            self.granted.append(json.loads(await request.text())["spec"]["pod"])
        if "/proxy/" in request.path:
            return await found["services/rayspan-access"](request)
        return await found.get(kind, lists(1))(request)


class _Always(list[Answer]):
    """An endless script of answers."""

    def __init__(self, job: Job) -> None:
        super().__init__([job.answer])

    def pop(self, _: Any = 0) -> Answer:
        return self[0]


@dataclass
class Play:
    """The output and input of the stand-ins for kubectl."""

    folder: Path
    begun: Any  # a file with one line for each pod whose log was started
    gates: dict[str, int] = field(default_factory=dict)

    async def next(self) -> str:
        async with asyncio.timeout(PATIENCE):
            return str(await asyncio.to_thread(self.begun.readline)).strip()

    def admit(self, *pods: Raw) -> None:
        for pod in pods:
            os.mkfifo(self.folder / _name(pod))
            self.gates[_name(pod)] = os.open(self.folder / _name(pod), os.O_RDWR)

    def end(self, *pods: Raw) -> None:
        """Ends the worker and with it its log."""
        for pod in pods:
            os.write(self.gates[_name(pod)], b"\n")


@pytest.fixture
def play(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    folder = tmp_path / "play"
    folder.mkdir()
    (folder / "kubectl").write_text(_KUBECTL)
    (folder / "kubectl").chmod(0o755)
    (folder / "viewed").write_text(json.dumps(kubeconfig(server.url)))
    os.mkfifo(folder / "begun")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PLAY", str(folder))
    monkeypatch.setattr(follow_logs, "PAUSE_SECONDS", 0.01)
    with os.fdopen(os.open(folder / "begun", os.O_RDWR)) as begun:  # it writes too, and nobody reads its end
        made = Play(folder, begun)
        yield made
        os.write(begun.fileno(), b"\n")  # a stand-in that still waits after a failed test must end
        for gate in made.gates.values():
            os.close(gate)


async def test_a_replacement_worker_is_followed(server: Server, config: Path, play: Play) -> None:
    """An ended log is not started again, and the end of the job ends the command."""
    first, lost, comes = (make_worker(number, **_RUNS) for number in range(3))
    play.admit(first, lost, comes)
    job = Job([make_head(), first, lost])
    server.lists = _Always(job)
    following = asyncio.create_task(_followed(config, "-f"))
    assert {await play.next(), await play.next()} == {_name(first), _name(lost)}

    job.pods = [make_head(), first, comes]
    play.end(lost)
    assert await play.next() == _name(comes)

    job.status = "Complete"
    play.end(first, comes)
    async with asyncio.timeout(PATIENCE):
        assert await following == 0
    assert sorted(job.granted) == sorted(map(_name, (first, lost, comes))), "a grant for each, and none twice"


async def test_a_worker_is_followed_once_it_has_a_container(server: Server, config: Path, play: Play) -> None:
    first, comes = make_worker(0, **_RUNS), make_worker(1, up=False)
    play.admit(first, comes)
    job = Job([make_head(), first, comes])
    server.lists = _Always(job)
    following = asyncio.create_task(_followed(config, "-f"))
    assert await play.next() == _name(first)
    asked = len(server.asked)
    await server.until(lambda: len(server.asked) > asked + 16)  # two looks
    assert job.granted == [_name(first)]

    job.pods = [make_head(), first, make_worker(1, **_RUNS)]
    assert await play.next() == _name(comes)
    job.status = "Complete"
    play.end(first, comes)
    async with asyncio.timeout(PATIENCE):
        assert await following == 0


@pytest.mark.parametrize("flags", [(), ("-f",)], ids=["once", "followed"])
async def test_a_finished_job_has_a_hint_to_its_own_log(
    server: Server, config: Path, play: Play, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    """Its workers are deleted: empty output would look as if they had printed nothing."""
    server.lists = _Always(Job([], status="Complete"))
    assert await _followed(config, *flags) == 0
    assert capsys.readouterr().err.splitlines() == [
        (
            "No worker of rayjob/train has a log now: the workers of a finished job are gone, and "
            "the others have not started."
        ),
        f"What RayJob {NAMESPACE}/train itself printed: kubectl -n {NAMESPACE} logs job/train",
    ]


async def _followed(config: Path, *flags: str) -> int:
    words = ["logs", *flags, "rayjob/train", "-n", NAMESPACE, "--kubeconfig", str(config)]
    given = build_parser(["kubectl-rayspan", *words]).parse_args(words)
    client = await Client.for_user(str(config), "")
    try:
        with grants.open_access(given, client) as ways:
            return await follow_logs._LogFollower(given, client, NAMESPACE, ways).run()
    finally:
        await client.close()


def _name(pod: Raw) -> str:
    return str(pod["metadata"]["name"])
