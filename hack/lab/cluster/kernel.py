"""Saves the machine's settings that the labs change at the first `up`, and restores them at the last `down`.

These settings have no namespace, so they change for the whole machine while a lab runs; the labs write no others. A
kubelet sets some of them; one is raised here. Several labs may run on one machine and start and stop in any order, so
all of them save in one place.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hack.lab.base import lock
from hack.lab.base.paths import NAME, SHARED

_MEMORY = SHARED / "kernel.json"
_TOUCHED = (  # kubelet's setupKernelTunables
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_WATCHES = "fs/inotify/max_user_instances"
# A kernel gives root 128; a node's kubelet, container runtime and pods hold about a dozen, so the ninth node would not
# start.
_LEAST_WATCHES = 1024


def prepare() -> None:
    """Remember the settings, once: a second `up` must not take the kubelet's values for the machine's; raise one."""
    with _alone():
        labs, before = _remembered()
        missing = {key: _setting(key).read_text().strip() for key in (*_TOUCHED, _WATCHES) if key not in before}
        _remember(sorted({*labs, NAME}), {**before, **missing})
    if int(_setting(_WATCHES).read_text()) < _LEAST_WATCHES:
        _setting(_WATCHES).write_text(str(_LEAST_WATCHES))


def restore() -> None:
    """Put them back, unless another lab stands yet, which does so when it goes down."""
    with _alone():
        labs, before = _remembered()
        others = [name for name in labs if name != NAME]
        if others:
            _remember(others, before)
            return
        for key, value in before.items():
            if _setting(key).read_text().strip() != value:
                _setting(key).write_text(value)
        _MEMORY.unlink(missing_ok=True)


def _remembered() -> tuple[Sequence[str], Mapping[str, str]]:
    """The labs that stand, and what the settings were before the first of them."""
    found: dict[str, Any] = json.loads(_MEMORY.read_text(encoding="utf-8")) if _MEMORY.exists() else {}
    return found.get("labs", ()), found.get("before", {})


def _remember(labs: Sequence[str], before: Mapping[str, str]) -> None:
    fresh = _MEMORY.with_suffix(".new")
    fresh.write_text(json.dumps({"labs": labs, "before": before}), encoding="utf-8")
    fresh.rename(_MEMORY)


def _alone() -> AbstractContextManager[None]:
    return lock.held(_MEMORY.with_suffix(".lock"), "waiting for another lab")


def _setting(key: str) -> Path:
    return Path("/proc/sys") / key
