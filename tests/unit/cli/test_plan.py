"""`rayspan plan` from its user's view: requests, output and exit codes."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import common
from adapter.objects.unstructured import Raw
from tests.unit import apiserver, verbs
from tests.unit.apiserver import Answer, Server, kubeconfig, refuses, says
from tests.unit.builders import NAMESPACE, START
from tests.unit.stores import Sight, make_group, make_ray_job

PROXY = "/api/v1/namespaces/rayspan-system/services/rayspan-controller:plan/proxy/plan"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([{"kind": "ConfigMap"}, make_ray_job()]))
    return file


async def answer(workers: int = 4) -> Raw:
    return await Sight({"east": 9}).preview.preview_plan(make_ray_job(make_group(workers)), NAMESPACE, START)


async def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    return await verbs.run(monkeypatch, "plan", *words)


async def test_plan_uses_the_users_login_at_the_api_server(
    server: Server, config: Path, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [says(await answer())]
    assert await run(monkeypatch, "-f", job, "--kubeconfig", config) == 0
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", PROXY)
    assert asked.headers["Authorization"] == f"Bearer {apiserver.TOKEN}"
    assert asked.body == {"namespace": NAMESPACE, "object": make_ray_job()}
    said = capsys.readouterr()
    assert said.out.endswith("Fits: 4 of 4 workers to east.\n") and "ASKED" in said.out and said.err == ""


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_programs_read_the_whole_answer(
    output: str,
    server: Server,
    config: Path,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [says(await answer(99))]
    assert await run(monkeypatch, "-f", job, "--kubeconfig", config, "-o", output) == 3
    assert yaml.safe_load(capsys.readouterr().out) == await answer(99)


async def test_an_answer_of_another_version_is_reported(
    server: Server, config: Path, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [says({"fits": True, "clusters": [{"name": "east"}]})]
    assert await run(monkeypatch, "-f", job, "--kubeconfig", config) == 1
    assert capsys.readouterr().err == (
        "The controller's answer cannot be shown: the controller has another version; try -o json.\n"
    )


FORBIDDEN = (
    'services "rayspan-controller:plan" is forbidden: User "jane@example.com" cannot create resource "services/proxy" '
    'in API group ""'
)


@pytest.mark.parametrize(
    ("said", "code", "sentence"),
    [
        (refuses(422, "InvalidJob", "RayJob train: no."), 2, "RayJob train: no."),
        (refuses(413, "InvalidJob", "Too large."), 2, "Too large."),
        (
            refuses(403, "Forbidden", FORBIDDEN),
            1,
            (
                "You may not ask for plans here; an administrator of the manager cluster can allow it "
                "with `kubectl -n rayspan-system create rolebinding rayspan-plan --role=rayspan-plan "
                "--user=jane@example.com`."
            ),
        ),
        (
            refuses(401, "Unauthorized"),
            1,
            ("The manager cluster does not accept your credentials: log in again, or check your kubeconfig."),
        ),
        (
            refuses(404, "NotFound", 'services "rayspan-controller" not found'),
            1,
            "There is no Service rayspan-controller in namespace rayspan-system: Rayspan is not installed in this "
            "cluster, or too old to make plans.",
        ),
        (
            refuses(503, "ServiceUnavailable", "no endpoints available"),
            1,
            "Service rayspan-controller in namespace rayspan-system has no ready controller behind it; see `kubectl -n "
            "rayspan-system get pods`.",
        ),
        (refuses(503, "NotReady", "It has just started."), 1, "It has just started."),
        (refuses(429, "TooManyRequests", "Ask again."), 1, "Ask again."),
        (
            apiserver.text(apiserver.PAGE),
            1,
            "The manager cluster cannot be reached: what answers there is no Kubernetes API server",
        ),
    ],
)
async def test_trouble_is_one_sentence(
    said: Answer,
    code: int,
    sentence: str,
    server: Server,
    config: Path,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [said]
    assert await run(monkeypatch, "-f", job, "--kubeconfig", config) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{sentence}\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "The file is not YAML, see line 1."),
        ("\x01", "The file is not YAML."),
        ("", "The file must hold one RayJob, RayCluster or RayService, found 0 of them in: nothing."),
        ("just words", "The file must hold one RayJob, RayCluster or RayService, found 0 of them in: nothing."),
        ("kind: Job", "The file must hold one RayJob, RayCluster or RayService, found 0 of them in: Job."),
        (
            "kind: RayJob\n---\nkind: RayCluster",
            "The file must hold one RayJob, RayCluster or RayService, found 2 of them in: RayJob, RayCluster.",
        ),
        (
            "kind: RayService\nspec: {upgradeStrategy: {type: NewClusterWithIncrementalUpgrade}}",
            "The RayService has no plan: spec.upgradeStrategy.type is NewClusterWithIncrementalUpgrade, which moves "
            "workers from one RayCluster to the next, but in a queue each RayCluster has quota of its own; set "
            "NewCluster.",
        ),
        (
            "kind: RayService\nspec: {rayClusterSpec: {rayVersion: 2.60.0}}",
            "The RayService has no plan: spec.rayClusterConfig is missing, where a RayService has the spec of its "
            "RayCluster, not in spec.rayClusterSpec; define head and workers there.",
        ),
        (
            "kind: RayService\nspec: [5]",
            ("The RayService cannot be read; `kubectl apply --dry-run=server` shows what is wrong with it."),
        ),
        (
            "kind: RayJob\nmetadata: {namespace: other}",
            "The file's namespace other is not demo; leave out --namespace, or name the same one.",
        ),
        (
            "kind: RayJob\n2026-01-02: a day\n",
            "The file has keys or values that JSON cannot represent; no Kubernetes object has such.",
        ),
        ("#" * 2**20 + "\n", "job.yaml is larger than 1 MiB; remove everything but the job."),
    ],
)
async def test_a_file_without_a_job_makes_no_request(
    text: str,
    sentence: str,
    server: Server,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert await run(monkeypatch, "-f", "job.yaml", "-n", NAMESPACE, "--kubeconfig", config) == 2
    assert capsys.readouterr().err == f"{sentence}\n"
    assert not server.asked


async def test_the_plan_of_a_service_is_for_the_raycluster_of_its_next_upgrade(
    server: Server, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller of an earlier version, without RayServices, answers too."""
    cluster = make_ray_job(make_group(2), kind="RayCluster")
    service = {**cluster, "kind": "RayService", "spec": {"serveConfigV2": "", "rayClusterConfig": cluster["spec"]}}
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(service))
    server.lists = [says(await answer())]
    assert await run(monkeypatch, "-f", file, "--kubeconfig", config) == 0
    (asked,) = server.asked
    assert asked.body == {"namespace": NAMESPACE, "object": cluster, "ofService": True}


async def test_no_file_no_kubeconfig_no_server(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(monkeypatch, "-f", tmp_path / "none.yaml") == 2
    assert capsys.readouterr().err == f"{tmp_path}/none.yaml cannot be read: No such file or directory.\n"
    assert await run(monkeypatch) == 2
    assert "-f/--filename" in capsys.readouterr().err
    assert await run(monkeypatch, "-f", job, "--kubeconfig", tmp_path / "none") == 1
    assert capsys.readouterr().err.startswith("The manager cluster cannot be reached: ")
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(yaml.safe_dump(kubeconfig("http://127.0.0.1:1")))
    assert await run(monkeypatch, "-f", job, "--kubeconfig", nowhere) == 1
    err = capsys.readouterr().err
    assert err.startswith("The manager cluster cannot be reached: Cannot connect") and err.count("\n") == 1
    assert await run(monkeypatch, "-f", job, "--kubeconfig", nowhere, "--context", "elsewhere") == 1
    assert capsys.readouterr().err.count("\n") == 1


async def test_the_namespace_comes_from_the_file_then_the_option_then_the_context(
    server: Server, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = make_ray_job()
    del bare["metadata"]["namespace"]
    file = tmp_path / "bare.yaml"
    file.write_text(yaml.safe_dump(bare))
    found = kubeconfig(server.url)
    server.lists = [says(await answer()) for _ in range(3)]
    await run(monkeypatch, "-f", file, "--kubeconfig", config)
    await run(monkeypatch, "-f", file, "-n", "team", "--kubeconfig", config)
    found["contexts"][0]["context"]["namespace"] = "mine"
    with_namespace = tmp_path / "with-namespace"
    await asyncio.to_thread(with_namespace.write_text, yaml.safe_dump(found))
    await run(monkeypatch, "-f", file, "--kubeconfig", with_namespace)
    assert [asked.body["namespace"] for asked in server.asked] == ["default", "team", "mine"]


async def test_a_slow_answer_is_reported_as_a_wait(
    server: Server,
    config: Path,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server answers once the sentence is printed."""
    monkeypatch.setattr(common, "HINT_AFTER_SECONDS", 0.05)
    told: list[str] = []

    async def late(request: Any) -> Any:
        async with asyncio.timeout(30):
            while "\n" not in "".join(told):
                await asyncio.sleep(0.01)
                told.append(capsys.readouterr().err)
        return await says(await answer())(request)

    server.lists = [late]
    assert await run(monkeypatch, "-f", job, "--kubeconfig", config) == 0
    assert "".join(told) + capsys.readouterr().err == "Waiting for the controller's answer ...\n"


def test_the_job_may_come_by_a_pipe_and_help_shows_how(tmp_path: Path) -> None:
    """Runs the process: it reads its standard input, and `--help` has an example and the exit codes."""
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(yaml.safe_dump(kubeconfig("http://127.0.0.1:1")))
    words = [sys.executable, "-m", "adapter", "plan"]
    done = subprocess.run(
        [*words, "-f", "-", "--kubeconfig", str(nowhere)],
        input=json.dumps(make_ray_job()),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith(
        "The manager cluster cannot be reached: "
    )
    text = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "   ".join(("ASKED", "CLUSTER", "CHOSEN", "NOMINAL", "BORROWED", "EVER")) in text  # the example's columns
    assert "kubectl rayspan plan -f my-job.yaml" in text and "exit code: 0 it fits, 3 it does not fit" in text
