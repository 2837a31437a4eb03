"""The plugin's archives are whole, small enough and accepted by Krew; the one for this machine runs by itself.

pip downloads nothing for other systems here: this machine's libraries stand in.
"""

import ast
import asyncio
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from adapter import __version__
from hack.lab.base.paths import REPO
from hack.release import plugin
from tests.unit.apiserver import Server, says

pytestmark = pytest.mark.long  # a release needs it

VERSION, DOWNLOADS = f"v{__version__}", f"https://example.com/us/rayspan/releases/download/v{__version__}"
LOCKED = dict(plugin._locked((REPO / "requirements.lock").read_text()))
_SERVERS = ("controller", "access", "admission")  # verbs that run in pods, whose libraries no plugin has
SUMS = {system.archive: f"{number:064x}" for number, system in enumerate(plugin.SYSTEMS)}


# --- the manifest ----------------------------------------------------------------------------------------------------


def test_the_manifest_meets_krews_rules() -> None:
    """krew-index asks for a name, a version with a v, a short description, and an archive and checksum by platform."""
    found = yaml.safe_load(plugin.manifest(VERSION, DOWNLOADS, SUMS))
    assert (found["apiVersion"], found["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert found["metadata"] == {"name": plugin.PROGRAM.removeprefix("kubectl-")}
    spec = found["spec"]
    assert spec["version"] == VERSION and spec["homepage"] == "https://example.com/us/rayspan"
    assert 0 < len(spec["shortDescription"]) <= 50 and not spec["shortDescription"].endswith(".")
    labels = [platform["selector"]["matchLabels"] for platform in spec["platforms"]]
    assert {(label["os"], label["arch"]) for label in labels} == {
        (system, machine) for system in ("linux", "darwin") for machine in ("amd64", "arm64")
    }  # fmt: skip
    for one, system in zip(spec["platforms"], plugin.SYSTEMS, strict=True):
        assert one["uri"] == f"{DOWNLOADS}/{system.archive}" and one["uri"].endswith(".tar.gz")
        assert (one["sha256"], one["bin"]) == (SUMS[system.archive], plugin.PROGRAM)


def test_the_checksum_is_that_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_load", lambda system, place: None)
    plugin.write(tmp_path, VERSION, DOWNLOADS)
    sums = {one["sha256"] for one in yaml.safe_load((tmp_path / plugin.MANIFEST).read_text())["spec"]["platforms"]}
    (told,) = sums  # without libraries all archives are equal
    for system in plugin.SYSTEMS:
        said = subprocess.run(["sha256sum", tmp_path / system.archive], capture_output=True, text=True, check=True)
        assert said.stdout.split()[0] == told


# --- the files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("kubernetes/aio/client/api/core_v1_api.py", False),
        ("kubernetes/client/models/v1_pod.py", False),
        ("kubernetes/aio/client/models/__init__.py", True),
        ("kubernetes/aio/config/kube_config.py", True),
        ("aiohttp/client.py", True),
        ("aiohttp/_http_parser.cpython-311-x86_64-linux-gnu.so", False),
        ("aiohttp/_http_parser.pyx", False),
        ("pydantic_core/_pydantic_core.cpython-314-darwin.so", True),
        ("orjson/orjson.cpython-312-darwin.so", True),
        ("certifi/cacert.pem", True),
        ("pydantic_core/_pydantic_core.pyi", False),
        ("aiohttp-3.14.5.dist-info/licenses/LICENSE.txt", True),
        ("aiohttp-3.14.5.dist-info/RECORD", False),
        ("bin/normalizer", False),
        ("pydantic/v1/main.py", False),
        ("pydantic/main.py", True),
        ("websocket/tests/test_app.py", False),
    ],
)
def test_the_needed_files_of_libraries(name: str, wanted: bool) -> None:
    assert (f"lib/{name}" in plugin.chosen({name: b""})) is wanted


def test_each_locked_package_has_its_checksums() -> None:
    lock = (REPO / "requirements.lock").read_text()
    assert {*LOCKED} == {*re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)} >= {*plugin.COMPILED, *plugin._CONTROLLERS}
    assert sum(text.count("--hash=sha256:") for text in LOCKED.values()) == lock.count("--hash=sha256:")
    assert all(text.rstrip().splitlines()[-1].startswith("    --hash") for text in LOCKED.values())


def test_only_the_controllers_libraries_are_left_out() -> None:
    """The webhooks' libraries too, and what only these libraries need: jsonpatch, jsonpointer; cryptography, two."""
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {re.split(r"[^\w-]", one)[0] for extra in ("controller", "admission") for one in extras[extra]}
    asked = {re.split(r"[^\w-]", one)[0] for one in metadata.requires("kopf") or () if "extra ==" not in one}
    assert {*plugin._CONTROLLERS} - {"jsonpointer", "cffi", "pycparser"} == named | asked - {"aiohttp", "pyyaml"}


def test_the_archive_has_the_files_of_a_wheel() -> None:
    found = plugin.own()
    assert {"kubectl-rayspan", "LICENSE", "lib/adapter/__main__.py", "lib/adapter/programs/drain_hook.py"} <= {*found}
    assert b"kind: ClusterRole" in found["lib/adapter/cli/membership/worker.yaml"]  # the text instead of a broken link
    assert not any("__pycache__" in name for name in found)


# --- the program -----------------------------------------------------------------------------------------------------


def _start(folder: Path, *words: str, pythons: str = "", path: str = "") -> subprocess.CompletedProcess[str]:
    text = (
        re.sub(r"^PYTHONS = .*$", f"PYTHONS = {pythons}", plugin.start(), flags=re.MULTILINE)
        if pythons
        else plugin.start()
    )
    program = folder / plugin.PROGRAM
    program.write_text(text)
    line: list[str | Path] = [sys.executable, program, *words]
    return subprocess.run(
        line, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_old_python_can_read_it() -> None:
    ast.parse(plugin.start(), feature_version=(3, 4))


def test_it_knows_the_python_of_its_tests() -> None:
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in plugin.PYTHONS
    least = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["requires-python"]
    assert least == f">={plugin.PYTHONS[0]}"


def test_an_unsupported_python_starts_a_supported_one(tmp_path: Path) -> None:
    other = tmp_path / "python3.99"
    other.write_text('#!/bin/sh\necho "$@"\n')
    other.chmod(0o755)
    done = _start(tmp_path, "where", "my job", pythons="((3, 98), (3, 99))", path=f"/nowhere:{tmp_path}")
    assert done.stdout == f"{tmp_path}/{plugin.PROGRAM} where my job\n"


def test_a_missing_python_is_one_sentence(tmp_path: Path) -> None:
    done = _start(tmp_path, pythons="((3, 99),)", path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"kubectl rayspan needs Python {plugin.PYTHONS[0]} to {plugin.PYTHONS[-1]}, and python3 is "
    )


# --- the archive for this machine ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive as Krew unpacks it, made of this environment's libraries."""
    files = {}
    for name in {*LOCKED} - {*plugin._CONTROLLERS}:
        for one in metadata.files(name) or ():
            if one.parts[0] != ".." and Path(str(one.locate())).is_file():
                files[one.as_posix()] = Path(str(one.locate())).read_bytes()
    place = tmp_path_factory.mktemp("krew")
    with tarfile.open(fileobj=io.BytesIO(plugin.archive(plugin.chosen(files) | plugin.own()))) as tar:
        tar.extractall(place, filter="data")
    return place


async def test_it_reaches_a_cluster_with_its_own_libraries_alone(unpacked: Path, server: Server, config: Path) -> None:
    server.lists = [says({"version": "0.9.0"})]
    line = [sys.executable, "-S", str(unpacked / plugin.PROGRAM), "version", "--kubeconfig", str(config)]
    done = await asyncio.create_subprocess_exec(*line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert await done.communicate() == (f"Client: {__version__}\nController: 0.9.0\n".encode(), b"")


def test_each_verb_finds_its_imports_and_the_plugin_is_small_enough(unpacked: Path) -> None:
    """With the bytecode of all verbs, and the compiled libraries of every supported Python."""
    verbs = {path for path in (REPO / "adapter/cli").rglob("*.py") if path.stem not in ("__init__", *_SERVERS)}
    modules = sorted(".".join(path.relative_to(REPO).with_suffix("").parts) for path in verbs)
    text = f"import sys; sys.path.insert(0, 'lib'); import {', '.join(modules)}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-S", "-c", text], cwd=unpacked, env=environment, check=True, timeout=60)

    weight = {path: path.stat().st_size for path in unpacked.rglob("*") if path.is_file()}
    compiled = sum(size for path, size in weight.items() if path.suffix == ".so")
    assert compiled > 1_000_000 and len([path for path in weight if path.suffix == ".pyc"]) > 300
    assert sum(weight.values()) + compiled * (len(plugin.PYTHONS) - 1) <= plugin.LARGEST


def test_its_completion_program_answers_kubectl(unpacked: Path, tmp_path: Path) -> None:
    link = tmp_path / "kubectl_complete-rayspan"
    link.symlink_to(unpacked / plugin.PROGRAM)
    done = subprocess.run([sys.executable, link, "wh"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "where\nwhy\n:4\n"


def test_the_page_names_the_pythons_and_the_manifest() -> None:
    page = (REPO / "docs/use.md").read_text()
    assert f"Python {plugin.PYTHONS[0]} to {plugin.PYTHONS[-1]}" in page
    assert f"--manifest-url=$RELEASE/{plugin.MANIFEST}`" in page
    assert f"ln -s {plugin.PROGRAM} ~/.krew/bin/kubectl_complete-rayspan" in page
