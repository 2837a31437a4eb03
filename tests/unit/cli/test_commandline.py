"""The command line starts fast and helps people. Imports are counted instead of timed."""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
import yaml

from adapter import __main__ as command
from adapter import __version__, cli, membership
from adapter.cli.commands import program_commands
from adapter.cli.commands.parser import build_parser
from hack.lab.base.paths import REPO
from tests.unit.apiserver import kubeconfig

_LISTS = """\
import sys
before = {*sys.modules}
from adapter.__main__ import main
sys.argv[0] = "kubectl-rayspan"
try:
    main()
except SystemExit:
    pass
print(*sorted({*sys.modules} - before), file=sys.stderr)
"""
# The modules of the standard library that cost as much as all others.
_SLOW = {"asyncio", "email", "http", "inspect", "logging", "ssl", "subprocess", "unittest"}
_LIGHT = {
    "adapter",
    "adapter.__main__",
    "adapter.names",
    "adapter.cli",
    "adapter.cli.completion",
    "adapter.cli.terminal",
}
VERBS = (
    *("plan", "list", "where", "why", "watch", "move", "render"),
    *("logs", "exec", "port-forward", "cp"),
    *("top", "check", "cordon", "uncordon", "drain", "preflight"),
    *("join", "rotate", "leave"),
    *("version", "completion"),
)


HIDDEN = tuple(program_commands.HIDDEN_VERBS)


def _loaded(*words: str, said: str = "") -> list[str]:
    """The modules that a command line imports beyond those of a bare Python; its error message has `said`."""
    command = [sys.executable, "-c", _LISTS, *words]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True, timeout=60)
    *told, modules = done.stderr.splitlines()
    assert said in "".join(told)
    return modules.split()


@pytest.mark.parametrize("words", ["--help", "top --help", "version", "completion bash", "__complete plan --"])
def test_a_closed_pipe_ends_it_silently(words: str) -> None:
    """As `rayspan ... | head -1` does once head has its line."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "adapter", *words.split()]
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(command, cwd=REPO, stdout=writes, stderr=subprocess.PIPE, env=env, check=False, timeout=60)
    os.close(writes)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=" ".join(words))
        for words in (
            ["--help"],
            ["--version"],
            ["version"],
            ["completion", "bash"],
            ["__complete", "plan", "--"],
            *([verb, "--help"] for verb in (*VERBS, *HIDDEN)),
        )
    ],
)
def test_help_and_usage_errors_import_no_library(words: list[str]) -> None:
    loaded = _loaded(*words)
    roots = {name.partition(".")[0] for name in loaded}
    assert roots - {*sys.stdlib_module_names} == {"adapter"}, "such as kubernetes, aiohttp, pydantic or YAML"
    assert roots & _SLOW == set()
    own = {name for name in loaded if name.startswith("adapter") and not name.startswith("adapter.cli.commands")}
    assert own <= _LIGHT


# The server at this address rejects everything, so this covers the login and the first request.
NOBODY: Final = kubeconfig("https://127.0.0.1:1", cluster={"insecure-skip-tls-verify": True})
# The modules that a request needs, without those of a single verb.
_ASKS: Final = {
    *("adapter", "yaml", "_yaml", "orjson", "typing_extensions"),
    *("aiohttp", "aiohappyeyeballs", "aiosignal", "attr", "frozenlist", "idna", "multidict", "propcache", "yarl"),
}
_READS_POLICIES: Final = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection"}


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("where name", set()),
        ("list", set()),
        ("top", _READS_POLICIES),
        *(
            pytest.param(words, more, marks=pytest.mark.long)
            for words, more in (
                *((f"{verb} name", set()) for verb in ("why", "watch --output=json", "logs", "cordon", "uncordon")),
                ("plan -f manifests/samples/rayjob-pi.yaml", set()),
                ("check", _READS_POLICIES),
            )
        ),
    ],
)
def test_a_request_imports_no_more_than_it_needs(words: str, more: set[str], tmp_path: Path) -> None:
    """The official client takes as long as all other imports; planner, webhooks and Prometheus half as long."""
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(NOBODY))
    loaded = _loaded(*words.split(), "--kubeconfig", str(file), said="The manager cluster cannot be reached: ")
    roots = {name.partition(".")[0] for name in loaded}
    others = {
        name for name in roots - sys.stdlib_module_names if not name.startswith(("_cython", "cython", "_sysconfigdata"))
    }
    assert others - _ASKS <= more and "aiohttp" in others
    rooms = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("adapter.")}
    assert rooms & {"adapter.planning", "adapter.quota", "adapter.gang", "adapter.rewrite", "adapter.worker"} == set()
    assert [
        name for name in loaded if name.startswith("adapter.shell.") and not name.startswith("adapter.shell.kube")
    ] == []
    assert "aiohttp.web" not in loaded


def test_a_verbs_module_is_imported_when_it_runs() -> None:
    loaded = _loaded("render", "-f", "/nowhere")
    assert {"yaml", "pydantic", "adapter.cli.render"} <= {*loaded}


@pytest.mark.parametrize("words", [["--help"], ["contoller"]], ids=str)
def test_verbs_of_deployments_are_hidden(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser(["kubectl-rayspan", *words]).parse_args(words)
    said = "".join(capsys.readouterr())
    assert not re.search(r"^ +(controller|access|admission)|'(controller|access|admission)", said, re.MULTILINE)
    assert [verb for verb in VERBS if verb not in said] == []


def test_the_deployment_runs_the_hidden_verb() -> None:
    words = ["controller", "--port", "1", "--no-leader-elect"]
    given = build_parser(["rayspan", *words]).parse_args(words)
    assert (given.port, given.plan_port, given.verbose, given.leader_elect) == (1, 8082, False, False)


def test_metrics_are_served_over_tls_with_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[object]()

    def main(*_: object, metrics: object, **more: object) -> int:
        told.append(metrics)
        return 0

    monkeypatch.setattr(cli, "controller", SimpleNamespace(main=main), raising=False)
    for words in ("", "--metrics-port=9", "--metrics-certificate=/tls", "--metrics-certificate /tls --metrics-port 9"):
        monkeypatch.setattr(sys, "argv", ["rayspan", "controller", *words.split()])
        assert command.main() == 0
    assert told == [None, None, (Path("/tls"), 8443), (Path("/tls"), 9)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("controller --metrics-certificate", "/metrics cannot be served over TLS"),
        ("admission --certificate", "the webhooks cannot be served"),
    ],
)
def test_a_folder_without_a_certificate_is_one_sentence(words: str, said: str, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "adapter", *words.split(), str(tmp_path)]
    done = subprocess.run(line, cwd=REPO, capture_output=True, text=True, check=False, timeout=60)
    why = f"{tmp_path} has no tls.crt and tls.key that can be read: No such file or directory"
    assert done.returncode == 1 and done.stderr.endswith(f" {said}: {why}\n")
    assert done.stderr.count("\n") == 1, "no traceback"


def test_the_component_runs_the_access_server() -> None:
    words = ["access", "--log-format=json"]
    given = build_parser(["rayspan", *words]).parse_args(words)
    assert (given.port, given.health_port, given.log_format) == (8443, 8081, "json")


def test_a_deployment_runs_the_webhooks_and_a_job_makes_their_certificate() -> None:
    words = ["admission", "--log-format=json"]
    given = build_parser(["rayspan", *words]).parse_args(words)
    assert (given.port, given.health_port, given.certificate, given.log_format) == (9443, 8081, "/certificate", "json")
    assert build_parser(["rayspan", "admission-certificate"]).parse_args(["admission-certificate"]).log_format == "text"


@pytest.mark.parametrize(("name", "shown"), [("/bin/kubectl-rayspan", "kubectl rayspan"), ("x.py", "rayspan")])
def test_its_name_in_messages_is_the_name_it_was_called_by(name: str, shown: str) -> None:
    assert build_parser([name]).prog == shown


@pytest.mark.parametrize("verb", ["join", "rotate"])
def test_a_token_lasts_as_long_as_the_help_says(verb: str) -> None:
    words = [verb, "east", "--worker-context", "east"]
    assert build_parser(["rayspan", *words]).parse_args(words).expires == membership.TOKEN_LIFETIME


def test_each_verb_has_a_runner() -> None:
    words = {
        "plan": ["-f", "x"],
        "render": ["-f", "x"],
        "list": [],
        "top": [],
        "check": [],
        "preflight": [],
        "version": [],
        "completion": ["zsh"],
        "exec": ["name", "--", "ls"],
        "port-forward": ["name", "8000"],
        "cp": ["name:/x", "y"],
    }
    for verb in VERBS:
        line = [verb, *words.get(verb, ["name"])]
        given: argparse.Namespace = build_parser(["rayspan", *line]).parse_args(line)
        assert callable(given.run), verb


def test_the_installed_programs_exist() -> None:
    scripts = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["scripts"]
    assert {*scripts} == {"rayspan", "kubectl-rayspan", "kubectl_complete-rayspan"}
    for place in scripts.values():
        module, _, name = place.partition(":")
        assert callable(getattr(import_module(module), name))


def test_version_alone_makes_no_request(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["rayspan", "version"])
    assert command.main() == 0
    assert capsys.readouterr() == (f"Client: {__version__}\n", "")


@pytest.mark.parametrize("verb", ["admission", "admission-certificate"])
def test_the_plugin_alone_names_the_dependencies_of_the_webhooks(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kopf", None)
    for module in ("adapter.cli.admission", "adapter.shell.admission.webhooks"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "argv", ["rayspan", verb])
    assert command.main() == 1
    assert (
        capsys.readouterr().err
        == "The webhooks need kopf, which the plugin does not: install rayspan[controller,admission].\n"
    )


def test_the_plugin_alone_names_the_dependencies_of_the_controller(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.delitem(sys.modules, "adapter.cli.controller", raising=False)
    monkeypatch.delattr(cli, "controller", raising=False)  # from an earlier test that imported it
    monkeypatch.setattr(sys, "argv", ["rayspan", "controller"])
    assert command.main() == 1
    assert (
        capsys.readouterr().err
        == "The controller needs uvloop, which the plugin does not: install rayspan[controller].\n"
    )


def test_options_have_the_meaning_that_kubectl_gives_them() -> None:
    """`--server` of join is an API server's address, as in kubectl."""
    (verbs,) = (one for one in build_parser(["rayspan"])._actions if isinstance(one, argparse._SubParsersAction))
    options = {text for verb in verbs.choices.values() for one in verb._actions for text in one.option_strings}
    assert {"--context", "--kubeconfig", "--namespace", "--server"} <= options
    assert options & {"--as", "--cluster", "--user", "--token", "--username", "--password", "--profile"} == set()
