"""Whatever labs come and go on a machine, and in which order, the kernel's settings are in the end what they were before the first."""

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
def test_the_last_lab_that_goes_puts_back_what_the_first_one_found(
    down: Sequence[str], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lab in "ab":
        monkeypatch.setattr(kernel, "NAME", lab)
        kernel.prepare()
        kernel.prepare()
        setting(machine, PANIC, "10")  # its kubelet does so
    monkeypatch.setattr(kernel, "NAME", down[0])
    kernel.restore()
    assert settings(machine) == ["10", "1024"], "another lab needs them"
    monkeypatch.setattr(kernel, "NAME", down[1])
    kernel.restore()
    assert settings(machine) == ["1", "1"]
    kernel.restore()
    assert not (machine / "kernel.json").exists(), "and the next lab looks anew"
