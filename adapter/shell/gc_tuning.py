"""Tunes the cyclic garbage collector: stored objects are trees without cycles.

Reference counting frees them. A collection would walk through all of them in vain and block the loop meanwhile. By
default Python runs one after 700 new container objects, which is every second pod that is read.
"""

import gc

# New container objects between two collections of the youngest generation: two pages of pods, and most are freed with
# their page. A collection takes some milliseconds, and a few megabytes may be garbage until then.
_THRESHOLD_0 = 50_000
# Collections of one generation until the next older one is collected.
_THRESHOLD_1, _THRESHOLD_2 = 5, 10


def collect_rarely() -> None:
    """Make collections rare, in the whole process."""
    gc.set_threshold(_THRESHOLD_0, _THRESHOLD_1, _THRESHOLD_2)


def freeze_objects() -> None:
    """Exclude all current objects from collections: they stay, or reference counting frees them."""
    gc.freeze()
