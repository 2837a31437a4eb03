"""How does a verb read the objects that its user holds in a file: YAML or JSON, one or many, in lists or not.

What cannot be read is an Unusable with a sentence.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from adapter.objects.rayjob import Unusable


def text(filename: str) -> str:
    """The text of a file; "-" is the standard input."""
    try:
        return sys.stdin.read() if filename == "-" else Path(filename).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Unusable(f"{filename} cannot be read: {why}.") from None


def objects(text: str) -> list[dict[str, Any]]:
    """The objects in a text, in their order; documents that are no objects are left out."""
    try:
        return [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise Unusable(f"The file is not YAML{f', see line {mark.line + 1}' if mark else ''}.") from None


def unfolded(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same with the items of lists, such as `kubectl get -o yaml` prints, in place of the lists."""
    for one in found:
        if str(one.get("kind") or "").endswith("List") and isinstance(one.get("items"), list):
            yield from (item for item in one["items"] if isinstance(item, dict))
        else:
            yield one
