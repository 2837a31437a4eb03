"""`rayspan list` from its user's view: requests, output and exit codes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from adapter import names
from adapter.diagnosis.job_facts import JobFacts
from tests.unit.apiserver import Answer, Server, lists, refuses
from tests.unit.builders import NAMESPACE, QUEUE
from tests.unit.cli.test_where import in_queue
from tests.unit.diagnosis.jobs import make_facts
from tests.unit.verbs import run

KUEUE, RAY = "/apis/kueue.x-k8s.io/v1beta2", "/apis/ray.io/v1"


def page(*objects: Mapping[str, Any]) -> Answer:
    return lists(1, [dict(raw) for raw in objects if raw])


def answers(*jobs: JobFacts, is_selected: bool = False) -> list[Answer]:
    """The API server's answers, in the order in which the kinds are read."""
    first = jobs[0] if jobs else make_facts()
    checks = [{"metadata": {"name": name}, "spec": {"controllerName": names.CONTROLLER_NAME}} for name in first.checks]
    ray_clusters = page(*(facts.ray_cluster for facts in jobs))
    return [
        page(*(facts.job for facts in jobs)),
        ray_clusters,
        page(),
        *([ray_clusters] if is_selected else []),
        page(*(facts.workload for facts in jobs)),
        page(*(facts.placement for facts in jobs)),
        page(*(pod for facts in jobs for pod in facts.pods)),
        page(first.local_queue),
        page(*first.worker_clusters.values()),
        page(*checks),
        page(),
        page(),
    ]


async def listed(monkeypatch: pytest.MonkeyPatch, server: Server, config: Path, said: list[Answer], *words: str) -> int:
    server.lists = said
    return await run(monkeypatch, "list", "--kubeconfig", config, *words)


async def test_a_line_for_each_job(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await listed(monkeypatch, server, config, answers(make_facts()), "-n", NAMESPACE) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "KIND", "QUEUE", "STATE", "WORKERS", "CLUSTERS", "AGE"]
    assert row.split()[:5] == ["train", "RayJob", QUEUE, "Runs", "2/2"] and "1 east, 1 west" in row
    asked = {(request.path, request.query.get("labelSelector")) for request in server.asked}
    assert (f"{RAY}/namespaces/{NAMESPACE}/rayjobs", None) in asked
    assert (f"/api/v1/namespaces/{NAMESPACE}/pods", names.RAY_GCS_CLUSTER_LABEL) in asked


async def test_all_namespaces_and_the_sentence_of_a_waiting_job(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await listed(monkeypatch, server, config, answers(in_queue()), "-A", "-o", "wide") == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith("NAMESPACE") and header.endswith("REASON")
    assert row.startswith(NAMESPACE) and "0/99" in row
    assert row.endswith("99 workers needed at once, 9 fit now.")
    assert f"{KUEUE}/workloads" in {request.path for request in server.asked}


async def test_a_selector_selects_the_jobs_and_not_their_rayclusters(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = answers(make_facts(), is_selected=True)
    assert await listed(monkeypatch, server, config, said, "-n", NAMESPACE, "-l", "team=vision", "-o", "name") == 0
    assert capsys.readouterr().out == "rayjob.ray.io/train\n"
    asked = [
        request.query.get("labelSelector") for request in server.asked if request.path.endswith(("rayjobs", "clusters"))
    ]
    assert asked == ["team=vision", "team=vision", None, None]  # RayJobs, RayClusters twice, WorkerClusters


async def test_a_document_for_programs(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await listed(monkeypatch, server, config, answers(make_facts()), "-n", NAMESPACE, "-o", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (row["kind"], row["name"], row["outcome"], row["where"]) == ("RayJob", "train", "Runs", "1 east, 1 west")


async def test_without_jobs_a_sentence_says_so(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await listed(monkeypatch, server, config, answers(), "-n", NAMESPACE) == 0
    assert capsys.readouterr().out == "No job with a queue found.\n"


async def test_kinds_that_may_not_be_read_are_named(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = answers(make_facts())
    said[7] = refuses(403)  # WorkerClusters
    assert await listed(monkeypatch, server, config, said, "-n", NAMESPACE) == 0
    assert "You may not read workerclusters here" in capsys.readouterr().out


async def test_terminal_escapes_of_a_tenant_are_not_printed(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = make_facts()
    facts.placement["status"]["where"] = "\x1b[2J2 east"
    assert await listed(monkeypatch, server, config, answers(facts), "-n", NAMESPACE) == 0
    assert "\x1b" not in capsys.readouterr().out


async def test_namespace_and_all_namespaces_exclude_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server: Server, config: Path
) -> None:
    assert await listed(monkeypatch, server, config, [], "-A", "-n", NAMESPACE) == 2
    assert "not allowed with argument" in capsys.readouterr().err
