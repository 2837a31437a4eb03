"""Makes the lab's image of Redis: Debian's own, on the base of Ray's image.

The head's GCS keeps its state there when it must be fault tolerant. Only the tests of that need it: nothing else builds
it.
"""

from hack.lab.base import versions
from hack.lab.images import debian, rootfs
from hack.lab.images.archive import Image

REFERENCE = f"redis:{versions.DEBIAN}"  # a tag of the published image, too: other clusters than the lab pull that one
_NOBODY = "65534:65534"
_RUNS = {"User": _NOBODY, "WorkingDir": "/tmp", "Entrypoint": ["redis-server"], "Env": ["PATH=/usr/bin:/bin"]}


def image() -> Image:
    """Redis' image."""
    return Image(REFERENCE, (rootfs.base(), debian.package("redis-server")), _RUNS)
