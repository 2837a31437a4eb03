"""Which settings of the machine does the lab change, and what were they before? Remembered at `up`, put back at `down`.

These have no namespace, so they change for the whole machine while the lab runs; it writes no others. A kubelet sets some of
them; one is raised here. A lab that came up beside another one remembers what that one had set, so the later one goes down first.
"""

import json
from pathlib import Path

from hack.lab.base.paths import STATE

_MEMORY = STATE / "kernel.json"
_TOUCHED = (  # kubelet's setupKernelTunables
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_WATCHES = "fs/inotify/max_user_instances"
# A kernel gives root 128, and a node's kubelet, container runtime and pods hold about a dozen: the ninth node would not start.
_LEAST_WATCHES = 1024


def prepare() -> None:
    """Remember the settings, once per lab: a second `up` must not take the kubelet's values for the machine's; raise one."""
    known: dict[str, str] = json.loads(_MEMORY.read_text(encoding="utf-8")) if _MEMORY.exists() else {}
    missing = [key for key in (*_TOUCHED, _WATCHES) if key not in known]
    if missing:
        STATE.mkdir(parents=True, exist_ok=True)
        fresh = _MEMORY.with_suffix(".new")
        fresh.write_text(
            json.dumps(known | {key: _setting(key).read_text().strip() for key in missing}), encoding="utf-8"
        )
        fresh.rename(_MEMORY)
    if int(_setting(_WATCHES).read_text()) < _LEAST_WATCHES:
        _setting(_WATCHES).write_text(str(_LEAST_WATCHES))


def restore() -> None:
    if _MEMORY.exists():
        for key, value in json.loads(_MEMORY.read_text(encoding="utf-8")).items():
            if _setting(key).read_text().strip() != value:
                _setting(key).write_text(value)
        _MEMORY.unlink()


def _setting(key: str) -> Path:
    return Path("/proc/sys") / key
