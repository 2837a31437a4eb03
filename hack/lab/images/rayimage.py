"""Makes Ray's image: Ray from PyPI on the shared base, under the name and with the user of the published one.

It is not the published image: no Anaconda, no CUDA, no compiler, and only the packages that
`ray[data,default,serve,train,tune]` needs, or `ray[default]` for the older one. A lock file pins them; its first line
says how it is made.
"""

import re
from pathlib import Path

from hack.lab.base import versions
from hack.lab.base.progress import LabError
from hack.lab.images import archive, packages, rootfs
from hack.lab.images.archive import File, Image, Layer

LOCKS = {
    versions.RAY: Path(__file__).with_name("ray.lock"),
    versions.OLDER_RAY: Path(__file__).with_name(f"ray-{versions.OLDER_RAY}.lock"),
}
_ID, _GROUP = (
    1000,
    100,
)  # the published image's user `ray` in `users`: volumes and security contexts are written for them
_HOME = "/home/ray"
_RUNS = {
    "User": f"{_ID}:{_GROUP}",
    "WorkingDir": _HOME,
    "Cmd": ["/bin/bash"],
    "Env": [
        f"PATH={_HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        f"HOME={_HOME}",
        "LANG=C.UTF-8",
    ],
}


def reference(version: str = versions.RAY) -> str:
    """The image's name in pods, as in stock samples."""
    return f"rayproject/ray:{version}"


def image(version: str = versions.RAY) -> Image:
    """Ray's image."""
    _check_lock(version)
    layers = (rootfs.base(), packages.locked("ray", LOCKS[version]), _user())
    return Image(reference(version), layers, _RUNS)


def _user() -> Layer:
    """The user, its home, and `python`, which people's entrypoints call."""
    users = (rootfs.tree() / "etc/passwd").read_text() + f"ray:x:{_ID}:{_GROUP}:ray:{_HOME}:/bin/bash\n"
    files = (
        File("etc/passwd", users.encode()),
        File(_HOME, directory=True, mode=0o755, owner=(_ID, _GROUP)),
        File(f"{packages.PROGRAMS}/python", link="/usr/bin/python3"),
    )
    return archive.cached_layer(f"ray-user-{rootfs.KEY}", lambda goal: archive.layer_of_files(goal, files))


def _check_lock(version: str) -> None:
    if not re.search(rf"^ray==({re.escape(version)}) ", LOCKS[version].read_text(), re.MULTILINE):
        raise LabError(f"{LOCKS[version].name} is not for Ray {version}: make it again as its first line says.")
