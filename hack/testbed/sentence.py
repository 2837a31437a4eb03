"""Is what a person reads a sentence: whole, short enough to be read, about something, and nothing that only a programmer can read?

Asked of what we say of objects that others wrote. Whether it is true is for the tests of whatever says it.
"""

import re
from typing import Final

# Events hold so much, and whoever looks at a job reads its events: what is longer is cut there, and what to do stands at the end.
LONGEST: Final = 1_024

_NOUNS: Final = re.compile(
    r"RayJob|RayCluster|Workload|AdmissionCheck|ClusterQueue|LocalQueue|WorkerCluster|Policy|Secret|ConfigMap|Placement|Namespace"
    r"|\b(?:spec|metadata)\b|\b(?:jobs?|workers?|groups?|clusters?|queues?|shares?|namespace)\b"
)
_INNARDS: Final = re.compile(r"Traceback|\b\w+(?:Error|Exception)\b|<\w+ object at|\bNone\b|frozenset|dict_")


def fault(text: str, longest: int = LONGEST) -> str:
    """What keeps a text from being a sentence, empty when nothing does."""
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
