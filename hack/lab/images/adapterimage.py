"""Makes the image of our own controller: the checkout's adapter/, on locked dependencies, on the shared base.

The dependencies are cached by their lock file. Our own layer is small and made again whenever adapter/ has changed: it
takes a second.
"""

import hashlib
import shutil
import tempfile
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

from hack.lab.base.paths import LOGS, REPO
from hack.lab.base.progress import LabError
from hack.lab.images import archive, packages, rootfs
from hack.lab.images.archive import Image, Layer

REFERENCE = "rayspan/rayspan:dev"
_USER = "65532:65532"  # the user that distroless images call nonroot
RUNS: dict[str, Any] = {
    "User": _USER,
    "WorkingDir": "/",
    "Entrypoint": ["python3", "-m", "adapter"],
    "Env": [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "LANG=C.UTF-8",
        "HOME=/tmp",
        "PYTHONDONTWRITEBYTECODE=1",  # the bytecode is there already, and the root file system is read-only
        "PYTHONUNBUFFERED=1",
    ],
}
_SUBJECT = REPO / "adapter"
_PROJECT = REPO / "pyproject.toml"


def image() -> Image:
    """The image as the checkout is now."""
    content = content_hash()
    layers = (rootfs.base(), packages.locked("rayspan", REPO / "requirements.lock"), _own(content))
    return Image(REFERENCE, layers, {**RUNS, "Labels": {"rayspan.dev/content": content}})


def content_hash() -> str:
    """A digest of the state of adapter/."""
    digest = hashlib.sha256(_PROJECT.read_bytes())
    for file in files():
        digest.update(f"{file.relative_to(REPO)}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def files() -> list[Path]:
    """The files of the checkout that are in it."""
    return sorted(file for file in _SUBJECT.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _own(content: str) -> Layer:
    return archive.cached_layer(f"rayspan-{rootfs.KEY}-{content}", partial(_make, content))


def _make(content: str, goal: Path) -> None:
    with tempfile.TemporaryDirectory(dir=rootfs.scratch()) as place:
        site = Path(place) / packages.SITE
        for file in files():
            copy = site / file.relative_to(REPO)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        if content_hash() != content:  # the cache would keep a mixture under the name of this content
            raise LabError(f"{_SUBJECT} changed while its image was made; start again")
        _register(site)
        packages.compile_all(Path(place), LOGS / "rayspan-compile.log")
        archive.layer_of_tree(goal, Path(place), readable=True)


def _register(site: Path) -> None:
    """Make it an installed distribution, so that importlib.metadata answers as it does after pip."""
    project = tomllib.loads(_PROJECT.read_text())["project"]
    info = site / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    needed = "".join(f"Requires-Dist: {one}\n" for one in project.get("dependencies", ()))
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head + needed)
    (info / "INSTALLER").write_text("rayspan-lab\n")
