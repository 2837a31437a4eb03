"""Draws the share of the long tests that runs on a machine too slow for all of them. A share of their files.

It draws files because the tests of one may share a slow fixture. Tests that are not long always run. A test that is
brief only because a long one covers more runs where that long one does not.
"""

import random
from collections.abc import Iterable


def left_out(files: Iterable[str], share: int, seed: int) -> frozenset[str]:
    """The files whose long tests are not run: all but one in `share`, rounded up.

    A seed always draws the same. The other `share - 1` seeds run the others: together they leave none out.
    """
    ordered = sorted(set(files))
    random.Random(seed - seed % share).shuffle(ordered)
    return frozenset(name for place, name in enumerate(ordered) if place % share != seed % share)
