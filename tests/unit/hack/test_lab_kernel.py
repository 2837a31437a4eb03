"""The kernel's settings are restored when the last lab of a machine ends, in whatever order labs end."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from hack.lab.cluster import kernel

PANIC, WATCHES = "kernel/panic", "fs/inotify/max_user_instances"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a machine, which are files."""
    monkeypatch.setattr(kernel, "_MEMORY", tmp_path / "kernel.json")
    monkeypatch.setattr(kernel, "_setting", lambda key: tmp_path / key.replace("/", "."))
    for key in (*kernel._TOUCHED, kernel._WATCHES):
        setting(tmp_path, key, "1")
    return tmp_path


def setting(machine: Path, key: str, value: str) -> None:
    (machine / key.replace("/", ".")).write_text(f"{value}\n")


def settings(machine: Path) -> list[str]:
    return [(machine / key.replace("/", ".")).read_text().strip() for key in (PANIC, WATCHES)]


@pytest.mark.parametrize("down", ["ab", "ba"], ids=["the first goes first", "the last goes first"])
def test_the_last_lab_restores_the_settings_before_the_first(
    down: Sequence[str], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lab in "ab":
        monkeypatch.setattr(kernel, "NAME", lab)
        kernel.prepare()
        kernel.prepare()
        setting(machine, PANIC, "10")  # its kubelet writes this
    monkeypatch.setattr(kernel, "NAME", down[0])
    kernel.restore()
    assert settings(machine) == ["10", "1024"], "another lab needs them"
    monkeypatch.setattr(kernel, "NAME", down[1])
    kernel.restore()
    assert settings(machine) == ["1", "1"]
    kernel.restore()
    assert not (machine / "kernel.json").exists(), "and the next lab looks anew"
