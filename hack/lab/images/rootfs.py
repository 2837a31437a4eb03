"""The base of all images: a minimal Debian with Python, made by debootstrap once and then kept.

Both the unpacked tree (to compile Python for exactly that interpreter) and its layer are kept. It installs nothing
else.
"""

import hashlib
import re
import shutil
from pathlib import Path

from hack.lab.base import versions
from hack.lab.base.commands import run
from hack.lab.base.paths import CACHE, LOGS
from hack.lab.base.progress import step
from hack.lab.build import system
from hack.lab.images import archive
from hack.lab.images.archive import Layer

_SKIPPED = (  # what no container reads: a third of the size and of every import
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    "etc/apt",  # this machine's mirror, name and resolver are private
    "etc/hostname",
    "etc/resolv.conf",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
)
_EMPTY = (
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    "var/cache",
    "var/log",
)  # the runtime and programs expect these directories


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


PYTHON = "/usr/bin/python3"
"""The interpreter inside."""

# Debian's own bytecode is validated by its source's time, so it is stale in a layer, where all files have one time.
# Each process of a container would compile its imports again, which is half of the start time of `ray`.
COMPILE = ("-m", "compileall", "-qf", "--invalidation-mode", "unchecked-hash")
"""The words that make it compile what stands behind them: bytecode that depends on no file times, in the place of any
other."""

_COMPILING = (*COMPILE, f"/usr/lib/python{versions.PYTHON}")
_TREE = _hash(versions.DEBIAN, versions.IMAGE_PACKAGES, _COMPILING)
KEY = _hash(_TREE, _SKIPPED, _EMPTY)
"""Changes when what is in the base layer changes."""


def tree() -> Path:
    """The unpacked root file system."""
    goal = CACHE / "rootfs" / f"{versions.DEBIAN}-{_TREE}"
    if not goal.is_dir():
        system.prepare(("debootstrap",))
        with step(f"debootstrap {versions.DEBIAN} with {' '.join(versions.IMAGE_PACKAGES)} (once; about 1 min)"):
            _bootstrap(goal)
    return goal


def base() -> Layer:
    """The same as the lowest layer of an image."""
    return archive.cached_layer(f"base-{KEY}", lambda file: archive.layer_of_tree(file, tree(), _SKIPPED, _EMPTY))


def scratch() -> Path:
    """A directory inside the tree for temporary files, so that the tree's own Python can reach them.

    No layer holds it.
    """
    return tree() / "tmp"


def _bootstrap(goal: Path) -> None:
    fresh = goal.with_name(goal.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    fresh.chmod(0o755)  # independent of the umask: it becomes the image's /
    include = f"--include={','.join(versions.IMAGE_PACKAGES)}"
    # In a mount namespace of its own: its mounts go with it, however it ends.
    argv = ["unshare", "--mount", "debootstrap", "--variant=minbase", include, versions.DEBIAN, str(fresh), *_mirror()]
    run(argv, log=LOGS / "debootstrap.log")
    run(["chroot", fresh, PYTHON, *_COMPILING], log=LOGS / "debootstrap.log")
    fresh.rename(goal)


def _mirror() -> list[str]:
    """The mirror that this machine's apt uses for that release, or nothing: then debootstrap uses its own."""
    listed = run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(SUITE) $(REPO_URI)"], check=False)
    found = re.search(rf"^Debian {versions.DEBIAN} \S+ (\S+)$", listed, re.MULTILINE)
    return [found[1]] if found else []
