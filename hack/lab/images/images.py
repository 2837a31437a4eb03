"""Finds the archive of an image that the lab runs, and makes it when it is missing.

Archives are named by their image id, so equal content is written once. It starts no container and contacts no registry.
By hand: `python -m hack.lab.images [NAME…]`.
"""

import hashlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hack.lab.base import lock, versions
from hack.lab.base.paths import CACHE
from hack.lab.base.progress import LabError, step
from hack.lab.build import catalog, tools
from hack.lab.images import adapterimage, archive, rayimage, redisimage, relayimage
from hack.lab.images.archive import File, Image

_NONROOT = "65532:65532"  # the user of Kueue's and KubeRay's published images; their manifests insist on not-root
_KEPT = 3  # archives of one image: the newest, and those that a starting cluster may still be reading


def _static(tool: str, reference: str, program: str, user: str) -> Callable[[], Image]:
    """An image with nothing but one static program, at the path where the stock manifest expects it."""

    def image() -> Image:
        tools.build([tool])
        binary = tools.path(tool)
        content = archive.cached_layer(
            tools.home(catalog.named(tool)).name,
            lambda goal: archive.layer_of_files(goal, [File(program, binary.read_bytes(), mode=0o755)]),
        )
        return Image(reference, (content,), {"Entrypoint": [f"/{program}"], "User": user, "WorkingDir": "/"})

    return image


def ray(version: str) -> str:
    """The lab's name of the image of another Ray than today's."""
    return f"ray@{version}"


_PUBLISHED = {"kueue": "registry.k8s.io/kueue/kueue", "kuberay": "quay.io/kuberay/operator"}
_OTHERS = tuple(tool for tool in catalog.OTHERS if tool.name in _PUBLISHED)  # the servers of Kubernetes run in no image

_REFERENCES = {
    "pause": f"registry.k8s.io/pause:{versions.PAUSE}",
    "coredns": f"registry.k8s.io/coredns/coredns:{versions.COREDNS}",
    "kueue": f"{_PUBLISHED['kueue']}:{versions.KUEUE}",
    "kuberay": f"{_PUBLISHED['kuberay']}:{versions.KUBERAY}",
    "ray": rayimage.reference(),
    ray(versions.OLDER_RAY): rayimage.reference(versions.OLDER_RAY),
    "rayspan": adapterimage.REFERENCE,
    "redis": redisimage.REFERENCE,
    "relay": relayimage.REFERENCE,
    **{tool.key: f"{_PUBLISHED[tool.name]}:{tool.version}" for tool in _OTHERS},
}

_IMAGES: dict[str, Callable[[], Image]] = {
    "pause": _static("pause", _REFERENCES["pause"], "pause", "65535:65535"),
    "coredns": _static("coredns", _REFERENCES["coredns"], "coredns", "0:0"),  # binds port 53 without file capabilities
    "kuberay": _static("kuberay", _REFERENCES["kuberay"], "manager", _NONROOT),
    "kueue": _static("kueue", _REFERENCES["kueue"], "manager", _NONROOT),
    "rayspan": adapterimage.image,
    "ray": rayimage.image,
    ray(versions.OLDER_RAY): partial(rayimage.image, versions.OLDER_RAY),  # the lab also starts without it
    "redis": redisimage.image,  # the lab starts without it; a test that needs it imports it
    "relay": relayimage.image,  # the same
    **{tool.key: _static(tool.key, _REFERENCES[tool.key], "manager", _NONROOT) for tool in _OTHERS},
}

NAMES: tuple[str, ...] = tuple(_IMAGES)


def reference(name: str) -> str:
    """The image's name in pods."""
    return _REFERENCES[_known(name)]


def archive_for(name: str) -> Path:
    """The image's archive, ready for `ctr -n k8s.io images import --local`; made first when it is not there."""
    return prepare(name)[1]


def image_id(name: str) -> str:
    """The image's id as the kubelet reports it."""
    return prepare(name)[0].image_id()


def digest(name: str) -> str:
    """The digest that `ctr -n k8s.io images ls` shows for the image once it is imported: equal means nothing to do."""
    return prepare(name)[0].digest()


def prepare(name: str) -> tuple[Image, Path]:
    """The image as it should be now, and its archive."""
    make = _IMAGES[_known(name)]
    with lock.held(CACHE / "images.lock", "waiting for another build of the lab's images"):
        _sweep()
        image = make()
        goal = CACHE / "images" / f"{name}-{_archive_hash(image)}.tar"
        if not goal.is_file():
            with step(f"image {image.reference}"):
                goal.parent.mkdir(parents=True, exist_ok=True)
                archive.write(goal, image)
            _forget(name, goal)
    return image, goal


def _archive_hash(image: Image) -> str:
    """Of what is in the archive: the image's id says nothing of its reference."""
    return hashlib.sha256(f"{image.reference} {image.image_id()}".encode()).hexdigest()[:12]


def _sweep() -> None:
    """Remove what an interrupted build left. The caller holds the lock, so no image is being made."""
    unfinished = [file for room in ("images", "layers", "rootfs") for file in (CACHE / room).glob("*.new")]
    for place in (*unfinished, *(CACHE / "rootfs").glob("*/tmp/*")):
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def _forget(name: str, newest: Path) -> None:
    """Remove the image's older archives: our own changes with every edit, and each is large."""
    older = sorted(newest.parent.glob(f"{name}-*.tar"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in older[_KEPT:]:
        file.unlink()


def _known(name: str) -> str:
    if name not in _IMAGES:
        raise LabError(f"The lab has no image called {name}; it knows {', '.join(NAMES)}.")
    return name
