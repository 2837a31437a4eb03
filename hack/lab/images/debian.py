"""Makes image layers of Debian's packages, with the libraries that they need, on the base of all images.

Nothing is installed, and nothing that is in the base is fetched again. What is not under usr/ is left out: init
scripts.
"""

import tempfile
from pathlib import Path

from hack.lab.base.commands import run
from hack.lab.base.paths import LOGS
from hack.lab.base.progress import step
from hack.lab.images import archive, rootfs
from hack.lab.images.archive import Layer

_RECIPE = 1  # raise it when what is below changes what a layer holds


def package(name: str, *skipped: str) -> Layer:
    """The layer of a package, without what is `skipped` of usr/."""

    def make(goal: Path) -> None:
        with step(f"fetch Debian's {name}"), tempfile.TemporaryDirectory(dir=rootfs.scratch()) as place:
            root, log = Path(place) / "root", LOGS / f"{name}.log"
            for file in _fetched(name, Path(place), log):
                run(["dpkg-deb", "--extract", file, root], log=log)
            # A directory lib/ would replace the base's link of that name.
            archive.layer_of_tree(goal, root / "usr", ("share", *skipped), under="usr", readable=True)

    return archive.cached_layer(f"debian-{name}-{_RECIPE}-{rootfs.KEY}", make)


def _fetched(name: str, place: Path, log: Path) -> list[Path]:
    """Fetch the package and those that it needs beyond the base, with this machine's apt, from the base's mirror.

    apt keeps its lists and caches in `place`, since they are no part of the base.
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
    run([*apt, "update"], log=log)
    run([*apt, "install", "--yes", "--no-install-recommends", "--download-only", name], log=log)
    return sorted((place / "archives").glob("*.deb"))
