"""How long a controller under test waits: as shipped, without its resyncs, or for a fraction of the time.

`shipped`: every wait as users have it. `real`: as shipped, but a resync comes after an hour, so that a lost event turns
a test red instead of late. `quick`: as `real`, and each wait that a test would sit out is short. `hasty`: as `quick`,
and it retries at once after a lie, so that an attacker has thousands of tries in minutes; no other test uses it.
`cramped`: as `quick`, and a namespace has a hundredth of its memory, so that a test fills it with little.

Shortened waits keep their order. What Kueue, KubeRay or a kubelet need is not shortened.
"""

import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any

from adapter.admission import cluster_claim
from adapter.gang import orphan_anchors, timeouts
from adapter.shell.clusters import namespace_reload
from adapter.shell.controller import engine
from adapter.shell.kube import client, memory_budget, reflector
from adapter.shell.observe import transient_state
from adapter.shell.write import copies, job_labels
from adapter.worker import head_polling

SHIPPED, REAL, QUICK = PACES = ("shipped", "real", "quick")
HASTY, CRAMPED = "hasty", "cramped"

_HOUR = timedelta(hours=1)  # longer than any test waits
_Waits = Mapping[ModuleType, Mapping[str, Any]]

_NO_NETS: _Waits = {
    engine: {"RESYNC_SECONDS": _HOUR.total_seconds()},
    timeouts: {"RESYNC": _HOUR},
    transient_state: {"PLAN_VALID_FOR": _HOUR},
}
_SHORT: _Waits = {
    # A cut link shows within their sum, 4 s in place of 15: a busy lab answers in less than 3.
    reflector: {"PROBE_SECONDS": 1.0},
    client: {"TIMEOUT_SECONDS": 3.0},
    # A source is read again in 12 s in place of 120, and polled every 3 s.
    copies: {"PAUSE_SECONDS": 3.0, "REWRITE_SECONDS": 12.0},
    head_polling: {"POLL_SECONDS": 2.0},
    job_labels: {"RIGHT_SECONDS": 5.0},
    # Longer than from an anchor to the share that is written after it.
    orphan_anchors: {"SETTLED_AFTER": timedelta(seconds=5)},
    # All by a third: their order keeps two from writing.
    cluster_claim: {
        "RENEW_SECONDS": 3.5,
        "DEADLINE_SECONDS": 13.5,
        "ABANDONED_SECONDS": 20,
        "HANDED_OVER_SECONDS": 17.0,
    },
    # Still longer than SPILL_AFTER, so that another cluster is tried first, and a gang spills before it is deactivated.
    timeouts: {
        "MIN_EXCLUSION": timedelta(seconds=5),
        "MAX_EXCLUSION": timedelta(seconds=15),
        "DEACTIVATE_AFTER": timedelta(seconds=4.5),
    },
}
# A cluster whose versions go back, or whose probe fails, is left alone until the next probe.
_AT_ONCE: _Waits = {
    reflector: {"FIRST_BACKOFF": 0.02, "LAST_BACKOFF": 0.1, "FIRST_PAUSE": 0.2, "LAST_PAUSE": 0.5, "PROBE_SECONDS": 0.2}
}
_LITTLE_MEMORY: _Waits = {
    memory_budget: {"MANAGER_NAMESPACE_BYTES": 2**20, "WORKER_NAMESPACE_BYTES": 2**19},
    namespace_reload: {"FIRST_PAUSE": 5.0, "LAST_PAUSE": 10.0, "TURN_SECONDS": 1.0},
}
_WAITS: Mapping[str, tuple[_Waits, ...]] = {
    SHIPPED: (),
    REAL: (_NO_NETS,),
    QUICK: (_NO_NETS, _SHORT),
    HASTY: (_NO_NETS, _SHORT, _AT_ONCE),
    CRAMPED: (_NO_NETS, _SHORT, _LITTLE_MEMORY),
}


def keep(pace: str) -> None:
    """Make this process wait so.

    Each module that has imported a wait by name is patched: import the controller first.
    """
    for waits in _WAITS[pace]:
        for module, values in waits.items():
            for name, value in values.items():
                _set(name, vars(module)[name], value)


def _set(name: str, shipped: object, value: object) -> None:
    for module in _product():
        if vars(module).get(name) is shipped:
            vars(module)[name] = value


def _product() -> Iterator[ModuleType]:
    return (module for name, module in list(sys.modules.items()) if name.startswith("adapter.") and module)
