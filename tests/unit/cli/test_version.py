"""`rayspan version` from its user's view: the sources of the controller's version, and messages without one."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import __version__
from tests.unit import apiserver, verbs
from tests.unit.apiserver import Answer, Server, refuses, says

PROXY = "/api/v1/namespaces/rayspan-system/services/rayspan-controller:plan/proxy/version"
DEPLOYMENT = "/apis/apps/v1/namespaces/rayspan-system/deployments/rayspan-controller"
DEPLOYED = says({"spec": {"template": {"spec": {"containers": [{"image": "hub.example/rayspan:v0.9.0"}]}}}})
NO_RIGHT = refuses(403, "Forbidden", 'deployments.apps is forbidden: User "jane" cannot get resource "deployments"')


async def version(monkeypatch: pytest.MonkeyPatch, config: Path, *more: str) -> int:
    return await verbs.run(monkeypatch, "version", "--kubeconfig", config, *more)


@pytest.mark.parametrize(
    ("answers", "code", "controller", "image"),
    [
        pytest.param([says({"version": "0.9.0"})], 0, "0.9.0", None, id="the controller answers"),
        pytest.param(
            [refuses(403, "Forbidden", "no"), DEPLOYED], 0, None, "hub.example/rayspan:v0.9.0",
            id="the image of the Deployment",
        ),
        pytest.param([refuses(404, "NotFound", "no"), NO_RIGHT], 1, None, None, id="neither answers"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_programs_read_what_is_known(
    output: str,
    answers: list[Answer],
    code: int,
    controller: str | None,
    image: str | None,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [*answers]
    assert await version(monkeypatch, config, "-o", output) == code
    said = capsys.readouterr()
    found = json.loads(said.out) if output == "json" else yaml.safe_load(said.out)
    assert found == {"clientVersion": __version__, "controllerVersion": controller, "controllerImage": image}
    assert bool(said.err) == bool(code)


async def test_without_a_cluster_programs_read_the_plugins_version(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await verbs.run(monkeypatch, "version", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"clientVersion": __version__, "controllerVersion": None, "controllerImage": None}
    assert not server.asked


async def test_the_controllers_answer_is_shown(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [says({"version": "0.9.0"})]
    assert await version(monkeypatch, config) == 0
    assert capsys.readouterr() == (f"Client: {__version__}\nController: 0.9.0\n", "")
    assert [(one.method, one.path) for one in server.asked] == [("POST", PROXY)]  # the path that the Role allows


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(refuses(403, "Forbidden", "no"), id="no right to ask the controller"),
        pytest.param(apiserver.text("404: Not Found", 404), id="a controller of an earlier version"),
        pytest.param(refuses(503, "ServiceUnavailable", "no endpoints available"), id="a controller that is down"),
        pytest.param(says({"kind": "Status"}), id="an answer without a version"),
    ],
)
async def test_the_image_is_shown_without_an_answer(
    said: Answer,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [said, DEPLOYED]
    assert await version(monkeypatch, config) == 0
    assert capsys.readouterr() == (f"Client: {__version__}\nController: image hub.example/rayspan:v0.9.0\n", "")
    assert [one.path for one in server.asked] == [PROXY, DEPLOYMENT]


async def test_a_missing_kubeconfig_is_named(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = config.with_name("missing")
    assert await version(monkeypatch, missing) == 1
    assert capsys.readouterr().err == (
        f"The manager cluster cannot be reached: there is no file {missing} to be its kubeconfig\n"
    )


NOT_READ = "The controller's version cannot be read. "


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (
            [
                refuses(403, "Forbidden", 'services "rayspan-controller:plan" is forbidden: User "jane" cannot create'),
                NO_RIGHT,
            ],
            (f"{NOT_READ}You may not ask for plans here; an administrator of the manager cluster can "
"allow it with `kubectl -n rayspan-system create rolebinding rayspan-plan "
"--role=rayspan-plan --user=jane`."),
        ),
        (
            [refuses(404, "NotFound", "not found"), refuses(404, "NotFound", "not found")],
            (f"{NOT_READ}No controller answers behind Service rayspan-controller in namespace "
"rayspan-system: Rayspan is not installed in this cluster, or is too old to report its "
"version."),
        ),
        (
            [says({"kind": "Status"}), says({"spec": {}})],
            f"{NOT_READ}The controller's answer holds no version.",
        ),
        (
            [refuses(401, "Unauthorized")],
            (f"{NOT_READ}The manager cluster does not accept your credentials: log in again, or check "
"your kubeconfig."),
        ),
        (
            [apiserver.text(apiserver.PAGE), apiserver.text(apiserver.PAGE)],
            "The manager cluster cannot be reached: what answers there is no Kubernetes API server",
        ),
    ],
    ids=["no right", "not installed", "odd", "unknown", "no API server"],
)  # fmt: skip
async def test_an_unreadable_version_is_reported(
    answers: list[Any],
    sentence: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = answers
    assert await version(monkeypatch, config) == 1
    assert capsys.readouterr() == (f"Client: {__version__}\n", f"{sentence}\n")
    assert server.lists == []
