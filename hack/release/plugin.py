"""Makes the archives of `kubectl rayspan` for Krew, one for each system, and the manifest by which Krew finds them.

An archive holds one program and the folder of its imports, and needs Python and no pip. Python loads no compiled
library from a zip file, so it is a folder. Most libraries work without their compiled parts; the others come once for
each Python, which tells them apart by name.
"""

import gzip
import hashlib
import io
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

from hack.lab.base.commands import run
from hack.lab.base.paths import REPO

PROGRAM, LIBRARIES, MANIFEST = "kubectl-rayspan", "lib", "krew.yaml"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")  # those that every locked library is published for
COMPILED = ("orjson", "pydantic-core")  # what does not work without: they are code in Rust alone
LARGEST = 40_000_000  # bytes on a disk, with the bytecode that Python writes: the most that a plugin may take
_LOCK = REPO / "requirements.lock"
# Only `rayspan controller`, `access` and `admission` import these, which the archives cannot run.
_CONTROLLERS = (
    "uvloop", "cryptography", "cffi", "pycparser", "kopf", "click", "iso8601", "jsonpatch", "jsonpointer",
    "python-json-logger",
)  # fmt: skip
_PATIENCE = 600.0  # seconds for pip; a minute on an idle line
# Models and calls of each API, 50 of the 65 MB of the official client, and its leader election: we use neither.
_UNUSED = (
    "kubernetes/client/api/",
    "kubernetes/client/models/",
    "kubernetes/aio/client/api/",
    "kubernetes/aio/client/models/",
    "kubernetes/leaderelection/",
    "kubernetes/aio/leaderelection/",
)
_OTHERS = ("aiohttp/test_utils.py", "aiohttp/pytest_plugin.py", "pydantic/v1/")  # test helpers, and an old API
_PYTHON_ALONE = (".py", ".pem", ".yaml")  # sources, the authorities of certifi, what `join` applies


@dataclass(frozen=True)
class System:
    """Where an archive runs: as Krew calls it, and as the wheels do, the best one first."""

    os: str
    arch: str
    wheels: Sequence[str]

    @property
    def archive(self) -> str:
        return f"{PROGRAM}-{self.os}-{self.arch}.tar.gz"


SYSTEMS = (
    System("linux", "amd64", ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")),
    System("linux", "arm64", ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")),
    System("darwin", "amd64",
        ("macosx_11_0_x86_64", "macosx_10_15_x86_64", "macosx_10_12_x86_64", "macosx_10_9_x86_64")),
    System("darwin", "arm64", ("macosx_11_0_arm64",)),
)  # fmt: skip

# Any `python3` may read it, so it has only old syntax.
_START = """\
#!/usr/bin/env python3
import os
import sys

PYTHONS = %(pythons)r


def search():
    for version in reversed(PYTHONS):
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            program = os.path.join(folder, "python%%d.%%d" %% version)
            if os.access(program, os.X_OK):
                os.execv(program, [program] + sys.argv)
    sys.exit("kubectl rayspan needs Python %(least)s to %(most)s, and python3 is %%d.%%d: \
install one of them beside it." %% sys.version_info[:2])


if sys.version_info[:2] not in PYTHONS:
    search()
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), %(libraries)r))
from adapter import __main__ as command

# Under another name, which kubectl asks what may come next; Krew links the first one alone.
sys.exit(command.complete() if os.path.basename(sys.argv[0]).startswith("kubectl_complete") else command.main())
"""


def write(folder: Path, version: str, downloads: str) -> None:
    """Make all archives, of the checkout and of what pip loads, and the manifest with their checksums."""
    sums = {}
    for system in SYSTEMS:
        with tempfile.TemporaryDirectory() as place:
            _load(system, Path(place))
            content = archive(chosen(_files(Path(place))) | own())
        (folder / system.archive).write_bytes(content)
        sums[system.archive] = hashlib.sha256(content).hexdigest()
    (folder / MANIFEST).write_text(manifest(version, downloads, sums), encoding="utf-8")


def manifest(version: str, downloads: str, sums: Mapping[str, str]) -> str:
    """Krew's manifest: the archive of each system in the folder `downloads`, and its checksum."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": system.os, "arch": system.arch}},
            "uri": f"{downloads}/{system.archive}",
            "sha256": sums[system.archive],
            "bin": PROGRAM,
        }
        for system in SYSTEMS
    ]
    spec = {
        "version": version,
        "homepage": downloads.partition("/releases/")[0],
        "shortDescription": "Plan, find and explain Ray jobs that span clusters",
        "description": "Says where a Ray job's workers would go, where they are, and what keeps them from running.\n"
        "Administrators add worker clusters by it, try them, drain them and take them out.\n",
        "caveats": f"It needs Python {PYTHONS[0]} to {PYTHONS[-1]}.\n",
        "platforms": platforms,
    }
    head = {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin"}
    return yaml.safe_dump({**head, "metadata": {"name": "rayspan"}, "spec": spec}, sort_keys=False, width=10_000)


def start() -> str:
    """The text of the program that is called: it finds a suitable Python, and its libraries beside itself."""
    pythons = tuple(tuple(map(int, one.split("."))) for one in PYTHONS)
    return _START % {"pythons": pythons, "least": PYTHONS[0], "most": PYTHONS[-1], "libraries": LIBRARIES}


def chosen(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those of what pip put into a folder that the plugin needs, by their paths in the archive."""
    return {f"{LIBRARIES}/{name}": content for name, content in files.items() if _needed(name)}


def _needed(name: str) -> bool:
    path = PurePosixPath(name)
    if name.startswith(_OTHERS) or "tests" in path.parts:
        return False
    if any(name.startswith(unused) and path.name != "__init__.py" for unused in _UNUSED):
        return False
    if path.parts[0].endswith(".dist-info"):
        return "licenses" in path.parts or path.name.startswith(("LICENSE", "NOTICE"))
    compiled = {one.replace("-", "_") for one in COMPILED}
    return name.endswith(_PYTHON_ALONE) or (path.suffix == ".so" and path.parts[0] in compiled)


def own() -> dict[str, bytes]:
    """The files of the checkout in each archive."""
    package = REPO / "adapter"
    ours = {path for path in package.rglob("*") if path.suffix in _PYTHON_ALONE}
    libraries = {f"{LIBRARIES}/{path.relative_to(REPO).as_posix()}": path.read_bytes() for path in ours}
    return {PROGRAM: start().encode(), "LICENSE": (REPO / "LICENSE").read_bytes(), **libraries}


def archive(files: Mapping[str, bytes]) -> bytes:
    """A tar file with them, packed; the same to the byte for the same files."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(files[name]), 0o755 if name == PROGRAM else 0o644
            tar.addfile(entry, io.BytesIO(files[name]))
    return out.getvalue()


def _load(system: System, place: Path) -> None:
    """Everything once, by the first Python; what is compiled for the others once more beside it."""
    locked = dict(_locked(_LOCK.read_text()))
    for python in PYTHONS:
        names = [name for name in locked if name not in _CONTROLLERS] if python == PYTHONS[0] else COMPILED
        asked = place / "asked.txt"
        asked.write_text("".join(locked[name] for name in names))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
        foreign = ["--implementation=cp", f"--python-version={python}", *(f"--platform={one}" for one in system.wheels)]
        goal = place / python
        run([*pip, *foreign, "--require-hashes", "--target", goal, "--requirement", asked], timeout=_PATIENCE)


def _locked(lock: str) -> Iterator[tuple[str, str]]:
    """Name → lines of each package in a lock file."""
    for block in lock.split("\n\n", 1)[-1].replace(" \\\n ", "\x00").splitlines(keepends=True):
        if "==" in block:
            yield block.partition("==")[0], block.replace("\x00", " \\\n ")


def _files(place: Path) -> dict[str, bytes]:
    found = (path for python in PYTHONS for path in sorted((place / python).rglob("*")) if path.is_file())
    return {path.relative_to(place).as_posix().partition("/")[2]: path.read_bytes() for path in found}
