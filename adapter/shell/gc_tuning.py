"""How often does Python look for garbage that holds itself, among hundreds of thousands of objects that never do?

What is kept of API servers are trees: each goes with the last who holds it. Whoever looks for cycles among them walks through all in vain,
and the loop stands still meanwhile; Python does so after each 700 objects that are made, which is every second pod that is read.
"""

import gc

# Objects that hold others, between two looks at those that were made since: two pages of pods, of which most go with the page. Some
# milliseconds each, and a few megabytes of what might be garbage.
_THRESHOLD_0 = 50_000
_THRESHOLD_1, _THRESHOLD_2 = 5, 10  # of these looks, until those are looked at that stood one, and those that stood two


def collect_rarely() -> None:
    """Look seldom from now on, in the whole process."""
    gc.set_threshold(_THRESHOLD_0, _THRESHOLD_1, _THRESHOLD_2)


def freeze_objects() -> None:
    """Leave out of all looks what there is now: it stays, or goes by itself."""
    gc.freeze()
