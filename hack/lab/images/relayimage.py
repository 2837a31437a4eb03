"""Makes the lab's image of the relay: frp and Debian's HAProxy, on the base of all images, whose Python runs the hook.

One image serves the router, the head's sidecars and the workers' sidecars. Only the tests of islands need this one;
Dockerfile.relay makes that of a release.
"""

from pathlib import Path

from hack.lab.build import catalog, tools
from hack.lab.images import archive, debian, rootfs
from hack.lab.images.archive import File, Image, Layer

REFERENCE = "rayspan/rayspan-relay:dev"
_NONROOT = "65532:65532"
RUNS = {
    "User": _NONROOT,
    "WorkingDir": "/",
    "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin", "PYTHONUNBUFFERED=1"],
}


def image() -> Image:
    """The relay's image."""
    return Image(REFERENCE, (rootfs.base(), debian.package("haproxy"), _frp()), RUNS)


def _frp() -> Layer:
    tools.build(["frp"])

    def make(goal: Path) -> None:
        programs = (tools.path(program) for program in catalog.FRP.programs)
        files = [File(f"usr/local/bin/{file.name}", file.read_bytes(), mode=0o755) for file in programs]
        archive.layer_of_files(goal, files)

    return archive.cached_layer(tools.home(catalog.FRP).name, make)
