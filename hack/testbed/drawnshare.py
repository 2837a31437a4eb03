"""Which of the long tests are run where the machine is too slow for all of them at a time? A share of their files, drawn anew each time.

Files, for the tests of one may share what takes long to make. What is not long always runs, but for what is brief because a long one asks
for more: that runs where the long one does not.
"""

import random
from collections.abc import Iterable


def left_out(files: Iterable[str], share: int, seed: int) -> frozenset[str]:
    """The files whose long tests are not run: all but one in `share`, rounded up. The same for the same seed, and other `share - 1` seeds
    run the others as well: together they leave none out."""
    ordered = sorted(set(files))
    random.Random(seed - seed % share).shuffle(ordered)
    return frozenset(name for place, name in enumerate(ordered) if place % share != seed % share)
