"""zsh and fish complete `rayspan` by the script that it prints for each. Bash is tested by
tests/unit/cli/test_completion.py.

It needs no cluster. It is here because the lab's machine may install the two shells, which nothing else needs.
"""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lab.base.paths import REPO
from hack.lab.build import system

pytestmark = pytest.mark.long  # installing them takes longer than all of it

_SHELLS = ("zsh", "fish")
_PATIENCE = 30.0  # seconds for an answer of the program, which takes half a one
_PROGRAM = f"""\
#!{sys.executable}
import sys
sys.path.insert(0, {str(REPO)!r})
from adapter.__main__ import main
sys.exit(main())
"""
_READY = "ready> "
_ZSHRC = f"""\
autoload -U compinit
compinit -u -D
source <(rayspan completion zsh)
PS1={_READY!r}
"""
# What is typed, and what is offered then.
_ROWS = [
    ("rayspan wh", ["where", "why"]),
    ("rayspan plan --na", ["--namespace"]),
    ("rayspan plan -o ", ["json", "table", "yaml"]),
    ("rayspan drain east --wait ", ["false", "true"]),
    ("rayspan plan -f my", ["my1.yaml", "my2.yaml"]),  # files
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, and with files that could be meant."""
    system.prepare(_SHELLS)
    made = tmp_path_factory.mktemp("home")
    (made / "rayspan").write_text(_PROGRAM)
    (made / "rayspan").chmod(0o755)
    (made / ".zshrc").write_text(_ZSHRC)
    for name in ("my1.yaml", "my2.yaml"):
        (made / name).touch()
    return made


@pytest.fixture
def zsh(home: Path) -> Iterator[int]:
    """A zsh that somebody types into, once it has asked for the first line; where that is typed and read."""
    shell, there = pty.fork()
    if shell == 0:  # the child, which must end here whatever happens
        os.chdir(home)
        os.execve("/usr/bin/zsh", ["zsh", "-i"], {**_environment(home), "TERM": "dumb"})
    try:
        _read(there, [_READY])
        yield there
    finally:
        os.close(there)  # it hangs up, and zsh ends
        os.waitpid(shell, 0)


@pytest.mark.parametrize(("typed", "offered"), _ROWS, ids=[row[0] for row in _ROWS])
def test_zsh_offers_them(zsh: int, typed: str, offered: list[str]) -> None:
    os.write(zsh, typed.encode() + b"\t")
    _read(zsh, offered)


@pytest.mark.parametrize(("typed", "offered"), _ROWS, ids=[row[0] for row in _ROWS])
def test_fish_offers_them(home: Path, typed: str, offered: list[str]) -> None:
    asks = "rayspan completion fish | source; complete --do-complete $argv[1]"
    done = subprocess.run(
        ["fish", "--no-config", "-c", asks, "--", typed],
        cwd=home, env=_environment(home), capture_output=True, text=True, timeout=_PATIENCE, check=False,
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (offered, "")


def _environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": f"{home}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def _read(there: int, wanted: list[str]) -> None:
    """Read what the shell writes until each of the words is in it."""
    said, end = "", time.monotonic() + _PATIENCE
    while not all(word in said for word in wanted):
        left = end - time.monotonic()
        assert left > 0 and select.select([there], [], [], left)[0], f"{wanted} not in {said!r}"
        said += os.read(there, 65536).decode(errors="replace")
