"""Tunes the cyclic garbage collector: stored objects are trees without cycles.

Reference counting frees them; a collection walks through all of them in vain and blocks the loop. By default Python
runs a collection after 700 new container objects, which is every second pod that is read.
"""

import gc

# The number of new objects after which a collection runs: two pages of pods, mostly freed with their page. A collection
# takes some milliseconds; a few megabytes may be garbage until then.
_THRESHOLD_0 = 50_000
# The collections of a generation before one of the next older generation.
_THRESHOLD_1, _THRESHOLD_2 = 5, 10


def collect_rarely() -> None:
    gc.set_threshold(_THRESHOLD_0, _THRESHOLD_1, _THRESHOLD_2)


def freeze_objects() -> None:
    """Exclude current objects from collections: they stay, or reference counting frees them."""
    gc.freeze()
