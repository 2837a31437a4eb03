"""Completion of the next word, by each way in which a shell asks for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adapter import __main__ as command
from adapter.cli import completion
from adapter.cli.commands.parser import build_parser
from hack.lab.base.paths import REPO
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


def told(*words: str) -> tuple[list[str], str]:
    """The matching words, and what else may be offered."""
    *found, files = completion.render_completions(build_parser(["rayspan"]), words).splitlines()
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
        (["where", ""], []),  # names of jobs are not completed
        (["plan", "--context", ""], []),
        (["nothing", ""], []),
        (["controller", "--"], []),
    ],
    ids=str,
)
def test_matching_words(words: list[str], found: list[str]) -> None:
    assert told(*words) == (found, ":4")


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
