"""Does Kueue, too, say of a refused Workload that even an empty tree could not hold it? Read from its sentence. Pure.

Its scheduler says "> maximum capacity" of what no tree could hold and "insufficient unused quota" of what it could, flavor by flavor
(flavorassigner.go, fitsResourceQuota). One podset only: of two, it holds the first against the second.
"""

import re
from collections.abc import Sequence
from typing import Final

_OVER: Final = re.compile(r"insufficient quota for \S+ in flavor (\S+), previously considered [^>]*> maximum capacity")
_SHORT: Final = re.compile(r"insufficient unused quota for \S+ in flavor (\S+),")
_BARRED: Final = re.compile(r"untolerated taint .*? in flavor (\S+?)(?:,|$)|flavor (\S+) doesn't match node affinity")


def says(message: str, groups: Sequence[Sequence[str]]) -> bool | None:
    """Whether a sentence of Kueue means "never"; None where it does not tell. `groups` are a queue's flavors by group.

    It is never where a group has no flavor that is only short. That it is not never is told only if there is one group: Kueue stops
    at the first group of which it can make nothing, and does not say what it thinks of the next.
    """
    over, short = set(_OVER.findall(message)), set(_SHORT.findall(message))
    barred = {flavor for found in _BARRED.findall(message) for flavor in found if flavor}
    told = [(set(group) & (over | short | barred), set(group) & (short - over - barred)) for group in groups]
    if any(named and not hopeful for named, hopeful in told):
        return True
    return False if len(groups) == 1 and short else None
