"""What is one layer of an image? A plain tar file, the same to the byte whenever its content is the same, and its digest.

It knows nothing of images. Layers in the cache are found by the name their maker gives them, and are never changed.
"""

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hack.lab.base.paths import CACHE

_EPOCH = 0  # every file's time: when a layer was made must not change its digest
_CHUNK = 1 << 20  # read and written at once: large enough to be as fast as the disk


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


def cached(name: str, make: Callable[[Path], None]) -> Layer:
    """The layer called `name` in the cache, made by `make(file)` when it is not there."""
    goal = CACHE / "layers" / f"{name}.tar"
    note = goal.with_suffix(".sha256")
    if not (goal.is_file() and note.is_file()):
        goal.parent.mkdir(parents=True, exist_ok=True)
        fresh = goal.with_suffix(".new")
        make(fresh)
        note.write_text(digest(fresh))
        fresh.rename(goal)
    return Layer(goal, note.read_text())


def digest(file: Path) -> str:
    """sha256 of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def from_files(goal: Path, files: Iterable[File]) -> None:
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


def from_tree(
    goal: Path,
    root: Path,
    skipped: Sequence[str] = (),
    empty: Sequence[str] = (),
    under: str = "",
    *,
    readable: bool = False,
) -> None:
    """Write a layer with what is below `root`, placed at `under`; of `skipped` paths only those in `empty` appear.

    `readable` undoes a strict umask: whatever user the container runs as can read everything."""
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
