"""Which settings of the machine does a kubelet change, and what were they before? Remembered at `up`, put back at `down`.

These have no namespace, so they change for the whole machine while the lab runs; it writes no others.
"""

import json
from pathlib import Path

from hack.lab.paths import STATE

_MEMORY = STATE / "kernel.json"
_TOUCHED = (  # kubelet's setupKernelTunables
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def remember() -> None:
    """Once per lab: a second `up` must not take the kubelet's values for the machine's."""
    if not _MEMORY.exists():
        STATE.mkdir(parents=True, exist_ok=True)
        fresh = _MEMORY.with_suffix(".new")
        fresh.write_text(json.dumps({key: _setting(key).read_text().strip() for key in _TOUCHED}), encoding="utf-8")
        fresh.rename(_MEMORY)


def restore() -> None:
    if _MEMORY.exists():
        for key, value in json.loads(_MEMORY.read_text(encoding="utf-8")).items():
            if _setting(key).read_text().strip() != value:
                _setting(key).write_text(value)
        _MEMORY.unlink()


def _setting(key: str) -> Path:
    return Path("/proc/sys") / key
