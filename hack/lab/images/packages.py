"""The Python packages of an image layer: those of a lock file, each checked against its hash.

They are installed for the image's Python, not for the one that runs this, where Debian's Python looks by itself: no
PYTHONPATH is needed. Nothing is built from source, and nothing beyond the lock file is added.
"""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hack.lab.base import versions
from hack.lab.base.commands import run
from hack.lab.base.paths import LOGS
from hack.lab.base.progress import step
from hack.lab.images import archive, rootfs
from hack.lab.images.archive import Layer, architecture

SITE = f"usr/local/lib/python{versions.PYTHON}/dist-packages"
PROGRAMS = "usr/local/bin"  # on the PATH of login shells too, which KubeRay's commands run in
_RECIPE = 1  # raise it when what is below changes what a layer holds
_MANYLINUX = (
    "2014",
    "_2_17",
    "_2_28",
    "_2_34",
)  # what Debian bookworm's glibc 2.36 satisfies, as pip wants it: one by one
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def locked(name: str, lock: Path) -> Layer:
    """The layer with all packages in the lock file `lock`."""
    key = hashlib.sha256(repr((_RECIPE, rootfs.KEY, architecture())).encode() + lock.read_bytes()).hexdigest()[:12]

    def make(goal: Path) -> None:
        with (
            step(f"install {lock.name} for {name} (once; about 1 min)"),
            tempfile.TemporaryDirectory(dir=rootfs.scratch()) as place,
        ):
            root = Path(place)
            _install(lock, root / SITE, LOGS / f"{name}-packages.log")
            _move_programs(root)
            compile_all(root, LOGS / f"{name}-packages.log")
            archive.layer_of_tree(goal, root, readable=True)

    return archive.cached_layer(f"{name}-packages-{key}", make)


def compile_all(root: Path, log: Path) -> None:
    """Precompile what is under SITE in `root`, by the image's own Python; bytecode that depends on no file times.

    Files that do not compile are passed over: some packages ship templates that are no valid Python.
    """
    inside = "/" + str(root.relative_to(rootfs.tree()))
    places = ["-s", inside, "-p", "/", f"{inside}/{SITE}"]
    run(["chroot", rootfs.tree(), rootfs.PYTHON, *rootfs.COMPILE, *places], log=log, check=False)


def _install(lock: Path, target: Path, log: Path) -> None:
    machine = _MACHINES[architecture()]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
    foreign = ["--implementation=cp", f"--python-version={versions.PYTHON}", *_platforms(machine)]
    where = {"TMPDIR": str(rootfs.scratch())}  # deleted when the next image is made, however this ends
    run([*pip, *foreign, "--require-hashes", "--target", target, "--requirement", lock], env=where, log=log)


def _platforms(machine: str) -> Iterable[str]:
    return (f"--platform=manylinux{version}_{machine}" for version in _MANYLINUX)


def _move_programs(root: Path) -> None:
    """pip puts console scripts beside the packages, made for its own Python: put them where shells find them."""
    goal = root / PROGRAMS
    goal.mkdir(parents=True)
    for script in sorted((root / SITE / "bin").glob("*")):
        content = script.read_bytes()
        if content.startswith(b"#!") and b"python" in content.partition(b"\n")[0]:
            script.write_bytes(f"#!{rootfs.PYTHON}\n".encode() + content.partition(b"\n")[2])
        script.rename(goal / script.name)
    shutil.rmtree(root / SITE / "bin", ignore_errors=True)
