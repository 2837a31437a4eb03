"""`rayspan watch` from its user's view: output on a terminal and elsewhere, and exit codes."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import watch
from adapter.diagnosis.job_facts import JobFacts
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import NAMESPACE, make_workload
from tests.unit.cli.test_where import answers, in_queue, of_service
from tests.unit.diagnosis.jobs import make_facts, make_head, make_job, make_worker
from tests.unit.stores import make_group, make_ray_job
from tests.unit.verbs import run

GONE = refuses(404, "NotFound")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAUSE_SECONDS", 0.01)


def over(status: str, **more: Any) -> JobFacts:
    """The job after its end: KubeRay has deleted its RayCluster."""
    job = make_job(jobDeploymentStatus=status, rayClusterName="", **more)
    return make_facts(make_workload(), job=job, ray_cluster={}, pods=[])


WAITS = make_facts(make_workload(reserved=None), job=make_job(rayClusterName=""), pods=[], ray_cluster={})
STARTS = make_facts(pods=[make_head(), make_worker(0), make_worker(1, cluster="west", up=False)])
DONE = over("Complete", jobStatus="SUCCEEDED")
FAILED = over("Failed", reason="AppFailed", message="it raised")


def looks(*facts: JobFacts) -> list[Answer]:
    return [answer for one in facts for answer in answers(one)]


async def watched(monkeypatch: pytest.MonkeyPatch, config: Path, *more: str, job: str = "train") -> int:
    return await run(monkeypatch, "watch", job, "-n", NAMESPACE, "--kubeconfig", config, *more)


# --- the output -------------------------------------------------------------------------------------------------------


async def test_each_new_line_is_printed_once_until_the_job_succeeds(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = looks(WAITS, WAITS, STARTS, make_facts(), DONE)
    assert await watched(monkeypatch, config) == 0
    said = capsys.readouterr()
    lines = [line.partition(" s  ")[2] for line in said.out.splitlines()]
    assert lines[0].startswith("RayJob demo/train: Waits: ")
    assert "manager: 1 head Running" in lines
    assert [line for line in lines if line.startswith(("east:", "west:"))] == [
        "east: 1 worker Running",
        "west: 1 worker Pending",
        "west: 1 worker Running",
    ]
    assert lines[-1] == "RayJob demo/train: Done: It has succeeded."
    assert len(lines) == len({*lines}) and said.err == ""


async def test_programs_read_one_document_a_line_for_each_change(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = looks(WAITS, WAITS, make_facts(), FAILED)
    assert await watched(monkeypatch, config, "-o", "json") == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["outcome"] for one in found] == ["Waits", "Runs", "Failed"]
    assert all(one.pop("time") for one in found) and len(found[1]["nodes"]) == 3


async def test_a_terminal_shows_one_picture_over_the_last_one(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "40")
    server.lists = looks(make_facts(), DONE)
    assert await watched(monkeypatch, config) == 0
    first, second = capsys.readouterr().out.split("\033[J")[:2]
    height = first.count("\n")
    assert "└─ RayCluster train-abc" in first and second.startswith(f"\033[{height}F\033[KNAME")
    assert all(len(line.removeprefix("\033[K")) < 60 for line in first.splitlines())


async def test_a_tree_higher_than_the_screen_is_shown_as_lines(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("LINES", "9")
    monkeypatch.setenv("COLUMNS", "200")
    server.lists = looks(make_facts(), DONE)
    assert await watched(monkeypatch, config) == 0
    first = capsys.readouterr().out.split("\033[J")[0]
    assert "└─" not in first and "east: 1 worker Running" in first and first.count("\n") < 9


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        pytest.param(DONE, 0, id="the job has succeeded"),
        pytest.param(over("Complete", jobStatus="FAILED", message="it raised"), 1, id="the job has failed"),
        pytest.param(FAILED, 1, id="KubeRay has given the job up"),
    ],
)
async def test_a_finished_job_is_shown_once(
    facts: JobFacts, code: int, server: Server, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lists = looks(facts)
    assert await watched(monkeypatch, config) == code
    assert server.lists == []


async def test_a_rejected_job_is_watched_further(server: Server, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may correct the fault."""
    refused = make_facts(
        make_workload(check="Rejected", message="no"), job=make_job(rayClusterName=""), pods=[], ray_cluster={}
    )
    server.lists = looks(refused, refused, DONE)
    assert await watched(monkeypatch, config) == 0


async def test_a_deleted_or_replaced_job_ends_the_watch(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = in_queue()
    other = replace(facts, job={**facts.job, "metadata": {**facts.job["metadata"], "uid": "another"}})
    for after in ([GONE], answers(other)):
        server.lists = [*looks(facts), *after, refuses(401, "Unauthorized")]  # a second read would report it
        assert await watched(monkeypatch, config) == 1
        assert capsys.readouterr().err == "rayjob/train was deleted before its end was observed.\n"


async def test_a_ray_cluster_and_a_service_are_watched_until_they_are_deleted(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = says(make_ray_job(make_group(0), kind="RayCluster", queue=None))
    nothing = [says({"items": []})] * 7
    server.lists = [GONE, cluster, *nothing, cluster, *nothing, GONE]
    assert await watched(monkeypatch, config) == 0
    assert capsys.readouterr().err == "raycluster/train was deleted.\n"
    server.lists = [*of_service("active", "pending")[1], GONE]
    assert await watched(monkeypatch, config, job="rayservice/chat") == 0
    said = capsys.readouterr()
    assert "active RayCluster demo/chat-active: " in said.out and "pending RayCluster demo/chat-pending: " in said.out
    assert said.err == "rayservice/chat was deleted.\n"


async def test_an_unreachable_manager_is_retried_and_reported_once(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = refuses(500, "InternalError", "etcd is away.")
    server.lists = [*looks(make_facts()), busy, busy, *looks(make_facts(), DONE)]
    assert await watched(monkeypatch, config) == 0
    err = capsys.readouterr().err
    assert err.count("trying again ...") == 1 and "etcd is away." in err


async def test_a_removed_right_ends_the_watch(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [*looks(make_facts()), refuses(401, "Unauthorized")]
    assert await watched(monkeypatch, config) == 1
    assert "does not accept your credentials" in capsys.readouterr().err


async def test_a_closed_pipe_ends_the_watch_silently(server: Server, config: Path) -> None:
    server.lists = looks(WAITS, *[STARTS, WAITS] * 50)
    reads, writes = os.pipe()
    words = ("-m", "adapter", "watch", "train", "-n", NAMESPACE, "--kubeconfig", str(config))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=writes, stderr=asyncio.subprocess.PIPE
    )
    os.close(writes)
    await asyncio.to_thread(os.read, reads, 1)
    os.close(reads)
    _, err = await process.communicate()
    assert (process.returncode, err) == (141, b"")


async def test_a_job_that_may_not_be_read_does_not_count_as_deleted(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script would take exit code 0 for the end of the job."""
    cluster = says(make_ray_job(make_group(0), kind="RayCluster", queue=None))
    server.lists = [cluster, *[says({"items": []})] * 7, refuses(403)]
    assert await watched(monkeypatch, config, job="raycluster/train") == 1
    refusal = (
        "Namespace demo has no RayCluster train that you may see. You may not read rayclusters here: its RayCluster is "
        "not shown.\n"
    )
    assert capsys.readouterr().err == refusal


async def test_no_such_job(server: Server, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.lists = [GONE, GONE, GONE]
    assert await watched(monkeypatch, config) == 2
