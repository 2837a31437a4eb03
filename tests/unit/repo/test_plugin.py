"""docs/use.md's installation makes the programs of the plugin, and they work, alone and called by kubectl.

The locked setuptools builds the wheel from the files that the Dockerfile copies, and it is installed into a virtual
environment of its own. Its libraries are those of the environment that runs this.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from adapter import __version__
from hack.lab.base.paths import REPO
from hack.testbed import clusters

pytestmark = pytest.mark.long  # a release needs it

USE, INSTALL = ((REPO / "docs" / name).read_text() for name in ("use.md", "install.md"))
_COPIED = re.compile(r"^COPY (?!--from)(.*) \S+$", re.MULTILINE)
_PROGRAMS = ("rayspan", "kubectl-rayspan", "kubectl_complete-rayspan")


def _run(words: Sequence[str | Path], **more: str) -> str:
    done = subprocess.run(words, env=os.environ | more, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `pip wheel` makes it; in a copy, because the build leaves files behind."""
    source, goal = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (word for line in _COPIED.findall((REPO / "Dockerfile").read_text()) for word in line.split()):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (REPO / name).is_dir():
            shutil.copytree(REPO / name, source / name, symlinks=True)
        else:
            shutil.copy(REPO / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    _run([*pip, "--wheel-dir", goal, source], PYTHONPATH=str(_setuptools(tmp_path_factory.mktemp("tools"))))
    (made,) = goal.iterdir()
    return made


def _setuptools(place: Path) -> Path:
    """The build tool is not in the development environment: it comes from pip's cache or an index."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", str(place)]
    _run([*pip, "--requirement", REPO / "requirements-build.lock"])
    return place


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment, like the one that pipx makes for each application."""
    place = tmp_path_factory.mktemp("environment")
    _run([sys.executable, "-m", "venv", "--without-pip", place])
    (site,) = place.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--quiet", "--no-deps"]
    _run([*pip, "--no-index", wheel])
    return place / "bin"


def test_the_pages_name_the_wheel_that_is_made(wheel: Path) -> None:
    told = set(re.findall(r"\$RELEASE/(rayspan-\S+?\.whl)", USE + INSTALL))
    assert told == {wheel.name}


def test_the_wheel_has_the_text_of_linked_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as held:
        told = {name: held.read(name) for name in held.namelist() if name.endswith(".yaml")}
    links = {str(file.relative_to(REPO)): file for file in (REPO / "adapter").rglob("*.yaml") if file.is_symlink()}
    assert links and told == {name: file.read_bytes() for name, file in links.items()}


def test_the_programs_exist_and_know_their_version(programs: Path) -> None:
    assert {name for name in _PROGRAMS if (programs / name).exists()} == {*_PROGRAMS}
    for name in _PROGRAMS[:2]:
        assert _run([programs / name, "version"]) == f"Client: {__version__}\n"


def test_a_verb_finds_its_libraries(programs: Path) -> None:
    said = _run([programs / "kubectl-rayspan", "plan", "--help"])
    assert "usage: kubectl rayspan plan" in said
    done = subprocess.run(
        [programs / "kubectl-rayspan", "where", "x", "--kubeconfig", "/no/where"],
        capture_output=True, text=True,
        timeout=60, check=False
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "The manager cluster cannot be reached: there is no file /no/where to be its kubeconfig\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["wh"], ["where", "why", ":4"]),
        (["plan", "-o", ""], ["json", "table", "yaml", ":4"]),
        (["plan", "-f", ""], [":0"]),
    ],
    ids=str,
)
def test_kubectl_finds_the_plugin_and_its_completion(programs: Path, words: list[str], found: list[str]) -> None:
    """It is called as a shell with kubectl's own completion calls it."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    assert _run([clusters.program(), "rayspan", "version"], PATH=path) == f"Client: {__version__}\n"
    assert _run([clusters.program(), "__complete", "rayspan", *words], PATH=path).splitlines() == found
