"""Finds a program that the lab needs, and builds it when it is missing.

A program is built once per version, pinned dependencies, flags and Go version. Directories in the cache appear by
rename, complete, so a process that waits for a program may simply look for it. All programs of one go.mod are one call
of Go, so that shared code is compiled once and every core is busy. It removes only what an interrupted build left half
made. By hand: `python -m hack.lab.build.tools [NAME…]`.
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from hack.lab.base import lock, sidebyside, versions
from hack.lab.base.commands import run
from hack.lab.base.paths import CACHE, LOGS, REPO
from hack.lab.base.progress import LabError, step
from hack.lab.build import catalog, golang
from hack.lab.build.catalog import Tool

_PINS = REPO / "hack" / "lab" / "modules"
# What Go compiles takes five gigabytes, and is useless once all is built; an interrupted build resumes with it. A
# developer who changes what is built sets GOCACHE to a place of their own, which is left alone.
COMPILED = CACHE / "go-build"
_HASH_CHARS = 12  # enough to tell builds apart, short enough to read
_HALF_MADE = "."  # what the names of unfinished directories begin with
_STRIP = ("-s", "-w")  # no symbol table, no debug data: half the size


def path(name: str) -> Path:
    """The program called `name`, such as kubelet or kubelet@v1.35.4, which must have been built."""
    tool = catalog.named(name)
    program = home(tool) / "bin" / name.partition("@")[0]
    if not program.is_file():
        raise LabError(
            f"{program.name} {tool.version} is not built yet: run `python -m hack.lab.build.tools {tool.key}`."
        )
    return program


def build(names: Iterable[str] | None = None) -> None:
    """Build today's tools (or those that have these names, or programs with these names) that are not there yet."""
    wanted = catalog.ALL if names is None else [catalog.named(name) for name in names]
    if all(home(tool).is_dir() for tool in wanted):
        return
    with lock.held(CACHE / "tools.lock", "waiting for another build of the lab's tools"):
        _sweep()
        missing = [tool for tool in catalog.BUILDABLE if tool in wanted and not home(tool).is_dir()]
        for source in dict.fromkeys(tool.source for tool in missing):
            _make([tool for tool in missing if tool.source == source])
        shutil.rmtree(COMPILED, ignore_errors=True)


def module_dir(name: str) -> Path:
    """The tool's unpacked Go module, with the manifests that its authors publish. Read-only; copy before editing."""
    tool = catalog.named(name)
    look = ("list", "-m", "-f", "{{.Dir}}", tool.module)
    found = _go(tool.source, *look)
    if not found:
        _go(tool.source, "mod", "download", tool.module, log=LOGS / f"{tool.name}.log")
        found = _go(tool.source, *look)
    return Path(found)


def home(tool: Tool) -> Path:
    """Where this build of the tool is, or will be."""
    return CACHE / "tools" / f"{tool.name}-{tool.version}-{_fingerprint(tool)}"


def title(tools: Sequence[Tool]) -> str:
    """The builds, and roughly how long each takes from scratch."""
    what = ", ".join(f"{tool.name} {tool.version}" for tool in tools)
    minutes = sum(tool.minutes for tool in tools)
    return f"build {what}" + (f" (once; about {minutes:.0f} min on 2 cores)" if minutes >= 1 else "")


def _fingerprint(tool: Tool) -> str:
    digest = hashlib.sha256(repr((golang.minor(), _flags(tool), sorted(tool.programs.items()))).encode())
    for pin in ("go.mod", "go.sum"):
        digest.update((_PINS / tool.source / pin).read_bytes())
    for package in sorted(set(tool.programs.values())):
        for file in sorted((_PINS / tool.source / package.removeprefix(f"{tool.ours}/")).glob("*.go")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:_HASH_CHARS]


def _flags(tool: Tool) -> list[str]:
    """How its programs are built and linked: each is stamped with its own version, though one call builds several."""
    tags = [f"-tags={','.join(tool.tags)}"] if tool.tags else []
    flags = " ".join((*_STRIP, *tool.ldflags))
    return [*tags, *(f"-ldflags={package}={flags}" for package in dict.fromkeys(tool.programs.values()))]


def _sweep() -> None:
    """Remove what an interrupted build left. The caller holds the lock: no other build runs."""
    for place in (CACHE / "tools").glob(f"{_HALF_MADE}*"):
        shutil.rmtree(place)


def _make(tools: Sequence[Tool]) -> None:
    """Build tools of one go.mod. Each appears when all of them are complete."""
    goal = CACHE / "tools"
    goal.mkdir(parents=True, exist_ok=True)
    with step(title(tools)), tempfile.TemporaryDirectory(dir=goal, prefix=_HALF_MADE) as scratch:
        place = Path(scratch)
        if catalog.PAUSE in tools:
            _compile_c(catalog.PAUSE, place)
        _compile_go([tool for tool in tools if tool is not catalog.PAUSE], place)
        for tool in tools:
            (place / tool.name).rename(home(tool))


def _compile_go(tools: Sequence[Tool], place: Path) -> None:
    if not tools:
        return
    packages = dict.fromkeys(package for tool in tools for package in tool.programs.values())
    flags = ["-trimpath", *(flag for tool in tools for flag in _flags(tool))]
    made, temporary = place / "made", place / "temporary"
    temporary.mkdir()
    log = LOGS / f"{tools[0].source}.log"
    _go(tools[0].source, "build", *flags, "-o", f"{made}/", *packages, log=log, temporary=temporary)
    for tool in tools:
        programs = _programs(place, tool)
        for program, package in tool.programs.items():
            os.link(made / made_as(package), programs / program)


def made_as(package: str) -> str:
    """Go's name for the program of a package: the last part of its path that is no version ("server" is etcd)."""
    return [part for part in package.split("/") if not re.fullmatch(r"v\d+", part)][-1]


def _programs(place: Path, tool: Tool) -> Path:
    programs = place / tool.name / "bin"
    programs.mkdir(parents=True)
    return programs


def _go(source: str, *words: str, log: Path | None = None, temporary: Path | None = None) -> str:
    places = {"GOCACHE": os.environ.get("GOCACHE") or str(COMPILED)}
    if temporary:
        places["GOTMPDIR"] = str(temporary)  # not /tmp, which may be memory and is not swept
    return run([golang.binary(), *words], cwd=_PINS / source, env={**golang.ENVIRONMENT, **places}, log=log).strip()


def _compile_c(tool: Tool, place: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LabError("There is no C compiler for the pause program: install gcc and libc6-dev, then try again.")
    output = _programs(place, tool)
    for program, source in tool.programs.items():
        code = module_dir(tool.name) / source
        flags = ["-Os", "-static", f"-DVERSION=v{versions.PAUSE}"]  # as upstream's Makefile
        run([compiler, *flags, "-o", output / program, code], log=LOGS / f"{tool.name}.log")


if __name__ == "__main__":
    sidebyside.interruptible()
    try:
        build(sys.argv[1:] or None)
    except LabError as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        sidebyside.leave("Interrupted; Go goes on from here the next time.")
