"""Checks that a message for people is a sentence: whole, short, about an object, and without programmer's text.

It applies to messages about objects that others wrote. Whether one is true is for its own tests.
"""

import re
from typing import Final

# An Event's message has this limit, and users read a job's Events: a longer one is cut, and its advice is at the end.
LONGEST: Final = 1_024

_NOUNS: Final = re.compile(
    r"RayJob|RayCluster|Workload|AdmissionCheck|ClusterQueue|LocalQueue|WorkerCluster|Policy|Secret|ConfigMap|Placement|Namespace"
    r"|\b(?:spec|metadata)\b|\b(?:jobs?|workers?|groups?|clusters?|queues?|shares?|namespace)\b"
)
_INNARDS: Final = re.compile(r"Traceback|\b\w+(?:Error|Exception)\b|<\w+ object at|\bNone\b|frozenset|dict_")


def fault(text: str, longest: int = LONGEST) -> str:
    """Why a text is no sentence, empty when it is one."""
    if not text.strip():
        return "it is empty"
    if len(text) > longest:
        return f"it has {len(text)} characters, and {longest} are read"
    if not text.endswith("."):
        return "it does not end with a full stop"
    if odd := next((one for one in text if not one.isprintable()), ""):
        return f"it holds {odd!r}"
    if found := _INNARDS.search(text):
        return f"it says {found[0]!r}"
    return "" if _NOUNS.search(text) else "it names no object and no field"
