"""What does a container runtime need to take in an image without a registry? One docker-archive, the same for the same input.

It only describes and packs layers that exist. The digests are known without writing anything, so that a node can tell
beforehand whether it has the image already.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.lab.base.progress import LabError
from hack.lab.images.layer import Layer

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # those that every one of our upstreams supports
_CREATED = "1970-01-01T00:00:00Z"  # when it was built must not change its id
_CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
_LAYER_TYPE = "application/vnd.docker.image.rootfs.diff.tar"
_MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Image:
    """A name, what it consists of from the bottom up, and how it runs (Docker's keys: Entrypoint, Env, User, …)."""

    reference: str
    layers: tuple[Layer, ...]
    runs: Mapping[str, object]

    def configuration(self) -> bytes:
        """The image's configuration file."""
        return _json(
            {
                "architecture": architecture(),
                "os": "linux",
                "created": _CREATED,
                "config": self.runs,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in self.layers]},
                "history": [{"created": _CREATED} for _ in self.layers],
            }
        )

    def image_id(self) -> str:
        """What the kubelet reports as the image's id."""
        return _sha256(self.configuration())

    def digest(self) -> str:
        """What `ctr images ls` shows after the import: the digest of the manifest that containerd makes of the archive."""
        configuration = self.configuration()
        layers = [_descriptor(_LAYER_TYPE, f"sha256:{one.digest}", one.file.stat().st_size) for one in self.layers]
        config = _descriptor(_CONFIG_TYPE, _sha256(configuration), len(configuration))
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST_TYPE, "config": config, "layers": layers}
        return _sha256(_json(manifest))


def architecture() -> str:
    """This machine's, as image configurations spell it."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise LabError(f"The lab's images can be built on {' and '.join(_ARCHITECTURES)} only, and this is {machine}.")
    return _ARCHITECTURES[machine]


def write(goal: Path, image: Image) -> None:
    """Pack the image. `goal` appears when it is complete."""
    configuration = image.configuration()
    name = image.image_id().removeprefix("sha256:") + ".json"
    layers = [f"{layer.digest}.tar" for layer in image.layers]
    manifest = _json([{"Config": name, "RepoTags": [image.reference], "Layers": layers}])
    fresh = goal.with_suffix(".new")
    with tarfile.open(fresh, "w", format=tarfile.PAX_FORMAT) as out:
        _add(out, "manifest.json", manifest)
        _add(out, name, configuration)
        for layer in dict.fromkeys(image.layers):
            _add_file(out, f"{layer.digest}.tar", layer.file)
    fresh.rename(goal)


def _add(out: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    out.addfile(entry, io.BytesIO(content))


def _add_file(out: tarfile.TarFile, name: str, file: Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = file.stat().st_size
    with file.open("rb") as content:
        out.addfile(entry, content)


def _descriptor(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": kind, "digest": digest, "size": size}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
