"""An image archive is valid for a container runtime and reproducible."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from hack.lab.images import archive
from hack.lab.images.archive import File, Image, Layer

RUNS = {"Entrypoint": ["/program"], "User": "65532:65532"}


def a_layer(file: Path, *files: File) -> Layer:
    archive.layer_of_files(file, files)
    return Layer(file, archive.file_digest(file))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    below = a_layer(tmp_path / "below.tar", File("etc/name", b"below"))
    above = a_layer(tmp_path / "above.tar", File("program", b"run me", mode=0o755))
    return Image("example/program:1", (below, above), RUNS)


def read(packed: tarfile.TarFile, name: str) -> bytes:
    member = packed.extractfile(name)
    assert member is not None
    return member.read()


def test_the_manifests_files_have_the_configurations_digests(tmp_path: Path, image: Image) -> None:
    archive.write(tmp_path / "image.tar", image)
    with tarfile.open(tmp_path / "image.tar") as packed:
        (entry,) = json.loads(read(packed, "manifest.json"))
        configuration = read(packed, entry["Config"])
        found = [f"sha256:{hashlib.sha256(read(packed, name)).hexdigest()}" for name in entry["Layers"]]
    assert entry["RepoTags"] == ["example/program:1"]
    assert json.loads(configuration)["rootfs"]["diff_ids"] == found
    assert json.loads(configuration)["config"] == RUNS
    assert image.image_id() == f"sha256:{hashlib.sha256(configuration).hexdigest()}"


def test_equal_content_gives_equal_bytes_at_any_time_and_place(tmp_path: Path, image: Image) -> None:
    archive.write(tmp_path / "one.tar", image)
    moved = [a_layer(tmp_path / f"again-{index}.tar") for index in range(2)]
    for old, new in zip(image.layers, moved, strict=True):
        new.file.write_bytes(old.file.read_bytes())
    copies = tuple(Layer(new.file, archive.file_digest(new.file)) for new in moved)
    archive.write(tmp_path / "two.tar", Image(image.reference, copies, RUNS))
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_layer_of_a_tree_does_not_depend_on_times_or_on_the_order_of_creation(tmp_path: Path) -> None:
    for name, order in (("one", "ab"), ("two", "ba")):
        root = tmp_path / name
        root.mkdir()
        for letter in order:
            (root / letter).write_text(letter)
        (root / "link").symlink_to("a")
        os.utime(root / "a", (len(name), 1_000_000 * ord(order[0])))
        archive.layer_of_tree(tmp_path / f"{name}.tar", root, under="usr/lib")
    assert archive.file_digest(tmp_path / "one.tar") == archive.file_digest(tmp_path / "two.tar")
    with tarfile.open(tmp_path / "one.tar") as packed:
        assert packed.getnames() == ["usr/lib/a", "usr/lib/b", "usr/lib/link"]
        assert packed.getmember("usr/lib/link").issym()


def test_skipped_directories_are_left_out_or_left_empty(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for directory in ("proc", "doc", "kept"):
        (root / directory).mkdir(parents=True)
        (root / directory / "file").touch()
    archive.layer_of_tree(tmp_path / "layer.tar", root, skipped=("proc", "doc"), empty=("proc",))
    with tarfile.open(tmp_path / "layer.tar") as packed:
        assert packed.getnames() == ["kept", "kept/file", "proc"]


def test_a_layer_can_be_made_readable_for_every_user_whatever_the_umask_was(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "site").mkdir(parents=True, mode=0o700)
    (root / "site" / "module.py").touch(mode=0o600)
    (root / "site" / "program").touch(mode=0o700)
    archive.layer_of_tree(tmp_path / "layer.tar", root, readable=True)
    with tarfile.open(tmp_path / "layer.tar") as packed:
        assert [f"{one.name} {one.mode:o}" for one in packed] == [
            "site 755",
            "site/module.py 644",
            "site/program 755",
        ]


def test_the_digest_is_the_one_that_containerd_computes(tmp_path: Path, image: Image) -> None:
    """Compared once with `ctr images ls` of containerd 2.2.0; this test pins the form that it hashes."""
    sizes = [one.file.stat().st_size for one in image.layers]
    layers = ",".join(
        f'{{"mediaType":"application/vnd.docker.image.rootfs.diff.tar","digest":"sha256:{one.digest}","size":{size}}}'
        for one, size in zip(image.layers, sizes, strict=True)
    )
    manifest = (
        '{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json",'
        '"config":{"mediaType":"application/vnd.docker.container.image.v1+json",'
        f'"digest":"{image.image_id()}","size":{len(image.configuration())}}},"layers":[{layers}]}}'
    )
    assert image.digest() == f"sha256:{hashlib.sha256(manifest.encode()).hexdigest()}"
