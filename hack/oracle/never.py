"""Does Kueue, too, say of a refused Workload that even an empty tree could not hold it? Read from its sentence. Pure.

Its scheduler says "> maximum capacity" of what no tree could hold and "insufficient unused quota" of what it could, flavor by flavor
(flavorassigner.go, fitsResourceQuota). It can be read for one podset and one resource group only: of several Kueue tells what it came to,
and where one of them has room, it tries again from the next flavor on and no longer names the others.
"""

import re
from typing import Final

_OVER: Final = re.compile(r"insufficient quota for \S+ in flavor (\S+), previously considered [^>]*> maximum capacity")
_SHORT: Final = re.compile(r"insufficient unused quota for \S+ in flavor (\S+),")
_BARRED: Final = re.compile(r"untolerated taint .*? in flavor (\S+?)(?:,|$)|flavor (\S+) doesn't match node affinity")


def says(message: str) -> bool | None:
    """Whether a sentence of Kueue means "never": no flavor is only short. None where it says nothing of quota or flavors."""
    over, short = set(_OVER.findall(message)), set(_SHORT.findall(message))
    barred = {flavor for found in _BARRED.findall(message) for flavor in found if flavor}
    return not short - over - barred if over | short | barred else None
