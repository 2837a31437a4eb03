"""Removes an image whose build was cut off."""

from pathlib import Path

import pytest

from hack.lab.images import archive, images
from hack.lab.images.archive import File, Image


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    def image() -> Image:
        layer = archive.cached_layer("one", lambda goal: archive.layer_of_files(goal, [File("program", b"run me")]))
        return Image("example/program:1", (layer,), {})

    monkeypatch.setattr(images, "CACHE", tmp_path)
    monkeypatch.setattr(archive, "CACHE", tmp_path)
    monkeypatch.setattr(images, "_IMAGES", {"example": image})
    return tmp_path


def test_the_next_build_removes_leftovers_of_an_ended_one(cache: Path) -> None:
    tree, elsewhere = cache / "rootfs" / "bookworm-1", cache / "elsewhere"
    for left in (cache / "rootfs" / "bookworm-2.new" / "usr", tree / "tmp" / "pip-1", tree / "usr", elsewhere):
        left.mkdir(parents=True)
    (tree / "tmp" / "link").symlink_to(elsewhere)
    for file in ("images/old.new", "layers/old.new", "layers/kept.tar"):
        (cache / file).parent.mkdir(exist_ok=True)
        (cache / file).touch()
    made = images.archive_for("example")
    found = {str(place.relative_to(cache)) for place in cache.rglob("*")}
    expected = {"elsewhere", "rootfs/bookworm-1/usr", "rootfs/bookworm-1/tmp", "layers/kept.tar", "layers/one.tar"}
    assert expected | {str(made.relative_to(cache))} <= found
    assert [place for place in found if ".new" in place or "tmp/" in place or "bookworm-2" in place] == []


def test_an_image_is_built_once(cache: Path) -> None:
    first = images.archive_for("example")
    written = first.stat().st_mtime_ns
    assert images.archive_for("example") == first
    assert first.stat().st_mtime_ns == written
