"""Images as layers, and one docker-archive of them, which a container runtime imports without a registry.

A layer is a plain tar file, equal to the byte for equal content, and its digest. Layers in the cache are found by the
name their maker gives them, and never change. An archive is equal for equal layers. Its digests are known before
anything is written, so a node can check whether it has the image already.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hack.lab.base.paths import CACHE
from hack.lab.base.progress import LabError

_EPOCH = 0  # every file's time: a layer's build time must not change its digest
_CHUNK = 1 << 20  # read and written at once: large enough to be as fast as the disk
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # those that all of our upstreams support
_CREATED = "1970-01-01T00:00:00Z"  # when it was built must not change its id
_CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
_LAYER_TYPE = "application/vnd.docker.image.rootfs.diff.tar"
_MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Layer:
    """A layer that is on disk."""

    file: Path
    digest: str
    """sha256, in hex, of the uncompressed tar: what image configurations call a diff id."""


@dataclass(frozen=True)
class File:
    """A file to put into a layer: either content that is given, or a symbolic link."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    directory: bool = False
    owner: tuple[int, int] = (0, 0)


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
        """The image's id as the kubelet reports it."""
        return _sha256(self.configuration())

    def digest(self) -> str:
        """What `ctr images ls` shows after the import: the digest of the manifest that containerd makes of the
        archive."""
        configuration = self.configuration()
        layers = [_descriptor(_LAYER_TYPE, f"sha256:{one.digest}", one.file.stat().st_size) for one in self.layers]
        config = _descriptor(_CONFIG_TYPE, _sha256(configuration), len(configuration))
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST_TYPE, "config": config, "layers": layers}
        return _sha256(_json(manifest))


def cached_layer(name: str, make: Callable[[Path], None]) -> Layer:
    """The layer called `name` in the cache, made by `make(file)` when it is not there."""
    goal = CACHE / "layers" / f"{name}.tar"
    note = goal.with_suffix(".sha256")
    if not (goal.is_file() and note.is_file()):
        goal.parent.mkdir(parents=True, exist_ok=True)
        fresh = goal.with_suffix(".new")
        make(fresh)
        note.write_text(file_digest(fresh))
        fresh.rename(goal)
    return Layer(goal, note.read_text())


def file_digest(file: Path) -> str:
    """sha256 of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def layer_of_files(goal: Path, files: Iterable[File]) -> None:
    """Write a layer with exactly these files; directories above them are the layers' below, or appear by themselves."""
    with _tar(goal) as out:
        for file in sorted(files, key=lambda file: file.path):
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.mode, entry.size = file.mode, len(file.content)
            entry.uid, entry.gid = file.owner
            if file.link:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, file.link, 0o777
            elif file.directory:
                entry.type = tarfile.DIRTYPE
            out.addfile(_plain(entry), io.BytesIO(file.content))


def layer_of_tree(
    goal: Path,
    root: Path,
    skipped: Sequence[str] = (),
    empty: Sequence[str] = (),
    under: str = "",
    *,
    readable: bool = False,
) -> None:
    """Write a layer with the contents of `root`, placed at `under`.

    Of `skipped` paths only those in `empty` appear. `readable` undoes a strict umask: any user of the container can
    read everything.
    """
    with _tar(goal) as out:
        for file in _walk(root, root, frozenset(skipped), frozenset(empty)):
            name = str(PurePosixPath(under) / file.relative_to(root))
            entry = _plain(out.gettarinfo(file, arcname=name))
            if readable:
                entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
            if entry.isreg():
                with file.open("rb", buffering=_CHUNK) as content:
                    out.addfile(entry, content)
            else:
                out.addfile(entry)


def _walk(place: Path, root: Path, skipped: frozenset[str], empty: frozenset[str]) -> Iterator[Path]:
    for file in sorted(place.iterdir()):
        name = str(file.relative_to(root))
        if name not in skipped or name in empty:
            yield file
        if name not in skipped and file.is_dir() and not file.is_symlink():
            yield from _walk(file, root, skipped, empty)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = _EPOCH
    entry.uname = entry.gname = ""
    return entry


def _tar(goal: Path) -> tarfile.TarFile:
    return tarfile.open(goal, "w", format=tarfile.PAX_FORMAT)


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
