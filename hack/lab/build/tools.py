"""Where is a program that the lab needs, and how is it built when it is not there?

A program is built once per version, pinned dependencies, flags and Go version, and then never again. Directories in the
cache appear by rename, complete, so that whoever waits for a program may simply look for it. It removes nothing.
By hand: `python -m hack.lab.build.tools [NAME…]`.
"""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hack.lab.base import lock, versions
from hack.lab.base.commands import run
from hack.lab.base.paths import CACHE, LOGS, REPO
from hack.lab.base.progress import LabError, step
from hack.lab.build import catalog, golang
from hack.lab.build.catalog import Tool

_PINS = REPO / "hack" / "lab" / "modules"
_HASH_CHARS = 12  # enough to tell builds apart, short enough to read
_STRIP = ("-s", "-w")  # no symbol table, no debug data: half the size


def path(name: str) -> Path:
    """The program called `name`, which must have been built."""
    tool = catalog.named(name)
    program = home(tool) / "bin" / name
    if not program.is_file():
        raise LabError(f"{name} {tool.version} is not built yet: run `python -m hack.lab.build.tools {tool.name}`.")
    return program


def build(names: Iterable[str] | None = None) -> None:
    """Build the tools (or those that have these names, or programs with these names) that are not there yet."""
    wanted = catalog.ALL if names is None else [catalog.named(name) for name in names]
    if all(home(tool).is_dir() for tool in wanted):
        return
    with lock.held(CACHE / "tools.lock", "waiting for another build of the lab's tools"):
        for tool in catalog.ALL:
            if tool in wanted and not home(tool).is_dir():
                _make(tool)


def module_dir(name: str) -> Path:
    """The tool's unpacked Go module, with the manifests that its authors publish. Read-only; copy before editing."""
    tool = catalog.named(name)
    look = ("list", "-m", "-f", "{{.Dir}}", tool.module)
    found = _go(tool, *look)
    if not found:
        _go(tool, "mod", "download", tool.module, log=LOGS / f"{tool.name}.log")
        found = _go(tool, *look)
    return Path(found)


def home(tool: Tool) -> Path:
    """Where this build of the tool is, or will be."""
    return CACHE / "tools" / f"{tool.name}-{tool.version}-{_fingerprint(tool)}"


def _fingerprint(tool: Tool) -> str:
    digest = hashlib.sha256(repr((golang.minor(), _flags(tool), sorted(tool.packages.items()))).encode())
    for pin in ("go.mod", "go.sum"):
        digest.update((_PINS / tool.source / pin).read_bytes())
    return digest.hexdigest()[:_HASH_CHARS]


def _flags(tool: Tool) -> list[str]:
    return ["-trimpath", "-ldflags=" + " ".join((*_STRIP, *tool.ldflags))]


def _make(tool: Tool) -> None:
    goal = home(tool)
    goal.parent.mkdir(parents=True, exist_ok=True)
    with step(f"build {tool.name} {tool.version}"), tempfile.TemporaryDirectory(dir=goal.parent, prefix=".") as place:
        output = Path(place) / goal.name / "bin"
        output.mkdir(parents=True)
        _compile_c(tool, output) if tool is catalog.PAUSE else _compile_go(tool, output)
        output.parent.rename(goal)


def _compile_go(tool: Tool, output: Path) -> None:
    packages = [f"{tool.module}/{below}".rstrip("/") for below in tool.packages.values()]
    _go(tool, "build", *_flags(tool), "-o", f"{output}/", *packages, log=LOGS / f"{tool.name}.log")
    if len(tool.packages) == 1:  # Go names it after the package ("server", "ray-operator"); we name it after the tool
        (made,) = output.iterdir()
        made.rename(output / next(iter(tool.packages)))


def _go(tool: Tool, *words: str, log: Path | None = None) -> str:
    return run([golang.binary(), *words], cwd=_PINS / tool.source, env=golang.ENVIRONMENT, log=log).strip()


def _compile_c(tool: Tool, output: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LabError("There is no C compiler for the pause program: install gcc and libc6-dev, then try again.")
    for program, source in tool.packages.items():
        code = module_dir(tool.name) / source
        flags = ["-Os", "-static", f"-DVERSION=v{versions.PAUSE}"]  # as upstream's Makefile
        run([compiler, *flags, "-o", output / program, code], log=LOGS / f"{tool.name}.log")


if __name__ == "__main__":
    try:
        build(sys.argv[1:] or None)
    except LabError as failure:
        sys.exit(str(failure))
