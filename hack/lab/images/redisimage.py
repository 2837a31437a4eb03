"""Makes the lab's image of Redis: Debian's own, with the libraries it needs, on the base of Ray's image.

The head's GCS keeps its state there when it must be fault tolerant. Only the tests of that need it: nothing else builds
it, and nothing that is in the base is fetched again.
"""

import tempfile
from pathlib import Path

from hack.lab.base import versions
from hack.lab.base.commands import run
from hack.lab.base.paths import LOGS
from hack.lab.base.progress import step
from hack.lab.images import archive, rootfs
from hack.lab.images.archive import Image

REFERENCE = f"redis:{versions.DEBIAN}"  # a tag of the published image, too: other clusters than the lab pull that one
_PACKAGE = "redis-server"
_NOBODY = "65534:65534"
_RUNS = {"User": _NOBODY, "WorkingDir": "/tmp", "Entrypoint": ["redis-server"], "Env": ["PATH=/usr/bin:/bin"]}
_RECIPE = 1  # raise it when what is below changes what the layer holds
_LOG = LOGS / "redis.log"


def image() -> Image:
    """Redis' image."""
    return Image(REFERENCE, (rootfs.base(), archive.cached_layer(f"redis-{_RECIPE}-{rootfs.KEY}", _make)), _RUNS)


def _make(goal: Path) -> None:
    with step(f"fetch Debian's {_PACKAGE}"), tempfile.TemporaryDirectory(dir=rootfs.scratch()) as place:
        root = Path(place) / "root"
        for package in _fetched(Path(place)):
            run(["dpkg-deb", "--extract", package, root], log=_LOG)
        # Without what is not under usr/: init scripts. A directory lib/ would replace the base's link of that name.
        archive.layer_of_tree(goal, root / "usr", ("share",), under="usr", readable=True)


def _fetched(place: Path) -> list[Path]:
    """Fetch the package and those that it needs beyond the base, with this machine's apt, from the base's mirror.

    Nothing is installed. apt keeps its lists and caches in `place`, since they are no part of the base.
    """
    for partial in ("lists/partial", "archives/partial"):
        (place / partial).mkdir(parents=True)
    inside = f"/{place.relative_to(rootfs.tree())}"
    settings = (
        f"RootDir={rootfs.tree()}",
        f"Dir::State::Lists={inside}/lists",
        f"Dir::Cache={inside}",
        "Dir::Cache::pkgcache=pkgcache.bin",  # some machines disable it by an empty name, which is the root here
        "Dir::Cache::srcpkgcache=srcpkgcache.bin",
        "Debug::NoLocking=true",  # the lock files would be in the base
        "APT::Sandbox::User=root",  # the cache may be readable by root alone
    )
    apt = ["apt-get", "--quiet", *(word for setting in settings for word in ("-o", setting))]
    run([*apt, "update"], log=_LOG)
    run([*apt, "install", "--yes", "--no-install-recommends", "--download-only", _PACKAGE], log=_LOG)
    return sorted((place / "archives").glob("*.deb"))
