"""Completion of the next word, by each way in which a shell asks for it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from aiohttp import web

from adapter import __main__ as command
from adapter.cli import completed_names, completion
from adapter.cli.commands.parser import build_parser
from adapter.cli.completion import CompletedKind, Scope
from hack.lab.base.paths import REPO
from tests.unit import apiserver
from tests.unit.apiserver import Server, lists, refuses
from tests.unit.cli.test_commandline import VERBS

_PROGRAM = f"""\
#!{sys.executable}
import sys
sys.path.insert(0, {str(REPO)!r})
from adapter.__main__ import main
sys.exit(main())
"""
# As readline calls it: the words and the index of the current one. The last line says whether files are offered.
_ASKS = """\
source <("$1" completion bash)
program=$1; shift
compopt() { echo "$@"; }
COMP_WORDS=("$program" "$@"); COMP_CWORD=$#
_rayspan "$program"
printf '%s\\n' "${COMPREPLY[@]}"
"""


_NAMES: Mapping[CompletedKind, Sequence[str]] = {
    "contexts": ["manager", "kind-east"],
    "namespaces": ["default", "team-a"],
    "jobs": ["rayjob/train", "raycluster/tune", "rayservice/train"],
    "pods": ["train-worker-x"],
    "queues": ["ray"],
    "workerclusters": ["east", "west"],
}


def told(*words: str) -> tuple[list[str], str]:
    """The matching words, and what else may be offered."""
    *found, files = completion.render_completions(
        build_parser(["rayspan"]), words, lambda kind, _: _NAMES[kind]
    ).splitlines()
    return found, files


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], sorted(VERBS)),
        ([""], sorted(VERBS)),
        (["w"], ["watch", "where", "why"]),
        (["--v"], ["--version"]),
        (["plan", "--n"], ["--namespace"]),
        (["plan", "-o", ""], ["json", "table", "yaml"]),
        (["where", "--output", "j"], ["json"]),
        (["version", "-o", ""], ["json", "table", "yaml"]),
        (["watch", "-o", ""], ["json", "text"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["drain", "east", "--wait", ""], ["false", "true"]),
        (["drain", "--context", "m", "--w"], ["--wait"]),
        (["where", ""], ["train", "tune"]),
        (["where", "tr"], ["train"]),
        (["why", "rayjob/"], ["rayjob/train"]),
        (["why", "ray"], []),
        (["where", "train", ""], []),
        (["watch", "-n", "team-a", "--context", "manager", "tu"], ["tune"]),
        (["logs", ""], ["train", "tune"]),
        (["exec", ""], ["train-worker-x"]),
        (["port-forward", "train-worker-x", ""], []),
        (["plan", "--context", ""], ["kind-east", "manager"]),
        (["plan", "-n", "t"], ["team-a"]),
        (["join", "east", "--worker-context", "k"], ["kind-east"]),
        (["cordon", ""], ["east", "west"]),
        (["leave", "w"], ["west"]),
        (["preflight", "--worker-cluster", "e"], ["east"]),
        (["move", ""], ["train", "tune"]),
        (["move", "train", "--from", ""], ["east", "west"]),
        (["move", "train", "--from", "east", "--from", "w"], ["west"]),
        (["move", "train", "--from", "east", ""], []),
        (["preflight", "--queue", ""], ["ray"]),
        (["join", "east", "--server", ""], []),
        (["nothing", ""], []),
        (["controller", "--"], []),
    ],
    ids=str,
)
def test_matching_words(words: list[str], found: list[str]) -> None:
    assert told(*words) == (found, ":4")


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        (["why", ""], Scope()),
        (["why", "-n", "team-a", "--context=m", ""], Scope(context="m", namespace="team-a")),
        (["why", "--kubeconfig", "f", "--namespace=b", "-n", "a", ""], Scope(kubeconfig="f", namespace="a")),
        (["drain", "--context", "m", "--context", "o", ""], Scope(context="o")),
    ],
    ids=str,
)
def test_names_are_read_where_the_options_say(words: list[str], scope: Scope) -> None:
    scopes: list[Scope] = []

    def read(_: CompletedKind, at: Scope) -> list[str]:
        scopes.append(at)
        return []

    completion.render_completions(build_parser(["rayspan"]), words, read)
    assert scopes == [scope]


def test_words_without_names_read_none() -> None:
    for words in ([""], ["pl"], ["why", "-"], ["why", "train", ""], ["plan", "-f", ""], ["plan", "-o", ""]):
        completion.render_completions(build_parser(["rayspan"]), words, _refuse)


def _refuse(kind: CompletedKind, _: Scope) -> list[str]:
    raise AssertionError(f"names of {kind} were read")


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "-f", ""],
        ["plan", "--filename", "jo"],
        ["render", "--worker-cluster", ""],
        ["top", "--kubeconfig", ""],
        ["join", "east", "--worker-kubeconfig", ""],
    ],
    ids=str,
)
def test_the_shell_completes_paths(words: list[str]) -> None:
    assert told(*words) == ([], ":0")


def test_kubectl_calls_the_completion_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-rayspan", "wh"])
    assert command.complete() == 0
    assert capsys.readouterr() == ("where\nwhy\n:4\n", "")


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_a_shell_script_calls_the_program(shell: str) -> None:
    script = completion.SCRIPTS[shell]
    assert f" {completion.COMPLETE_VERB} " in script and script.rstrip().splitlines()[-1].startswith(
        ("complete", "compdef")
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [(["wh"], "where\nwhy\n"), (["plan", "-o", ""], "json\ntable\nyaml\n"), (["plan", "-f", ""], "-o default\n\n")],
    ids=str,
)
def test_bash_offers_the_words(words: list[str], said: str, tmp_path: Path) -> None:
    program = tmp_path / "rayspan"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    line = ["bash", "--norc", "-c", _ASKS, "bash", str(program), *words]
    done = subprocess.run(line, env=dict(os.environ), capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == (said, "")


# --- names -----------------------------------------------------------------------------------------------------------


def _raw(name: object, **metadata: object) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "team-a", "uid": "u", **metadata}}


def _kubeconfig(folder: Path, server: str) -> str:
    content = {
        "current-context": "manager",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": name, "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}
            for name in ("manager", "$(reboot)", "arn:aws:eks:eu:1:cluster/a")
        ],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content))
    return str(file)


def test_names_of_contexts_need_no_cluster(tmp_path: Path) -> None:
    scope = Scope(kubeconfig=_kubeconfig(tmp_path, "http://127.0.0.1:1"))
    assert completed_names.read_names("contexts", scope) == ["manager", "arn:aws:eks:eu:1:cluster/a"]
    assert completed_names.read_names("contexts", Scope(kubeconfig=str(tmp_path / "none"))) == []


def test_nothing_is_offered_of_a_cluster_that_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scope = Scope(kubeconfig=_kubeconfig(tmp_path, "http://127.0.0.1:1"))
    assert completed_names.read_names("jobs", scope) == []
    assert capsys.readouterr() == ("", "")


_OWNER = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "0-1", "controller": True}


class _JobLists(Server):
    """It lists jobs, and forbids RayServices."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        *_, namespace, plural = request.path.split("/")
        if plural == "rayservices":
            return await refuses(403)(request)
        owned = _raw("train-abc", ownerReferences=[_OWNER])
        jobs = {"rayjobs": [_raw("train"), _raw("x; reboot")], "rayclusters": [_raw("tune"), owned, _raw(7), {}]}
        return await lists(7, jobs[plural] if namespace == "team-a" else [])(request)


async def test_jobs_are_listed_in_their_namespace(tmp_path: Path) -> None:
    """A RayCluster of a RayJob is no job of its own, and a name that no object may have is not offered."""
    async with apiserver.serving(_JobLists()) as server:
        scope = Scope(kubeconfig=_kubeconfig(tmp_path, server.url), context="manager")
        assert await asyncio.to_thread(completed_names.read_names, "jobs", scope) == ["rayjob/train", "raycluster/tune"]
        elsewhere = scope._replace(namespace="other")
        assert await asyncio.to_thread(completed_names.read_names, "jobs", elsewhere) == []
