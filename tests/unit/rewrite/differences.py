"""Differences between recorded pods and their remote pods, as few readable lines.

A line is one field of the pod: `+` is added, with its value, `-` is removed, `~` is changed, with the words that
changed. Names of the pod's own are written {cluster}, {group} and {pod}, so that the same change gives the same line.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from adapter import names, programs
from adapter.objects.unstructured import Raw

_ABSENT: Final = object()
_SEPARATOR: Final = re.compile(r"([\s=,;]+)")  # separates the words of a command


@dataclass(frozen=True)
class Case:
    """A pod and its remote pod; with `beside` only the differences from that case's are listed, else all of them."""

    name: str
    pod: Raw
    copy: Raw
    beside: str = ""


def page(cases: Iterable[Case]) -> str:
    """List each case's differences: all, or those added to and missing from the differences of another case."""
    found = {case.name: (case.beside, lines(case.pod, case.copy)) for case in cases}
    return "\n".join(
        _paragraph(name, beside, found[beside][1] if beside else [], told) for name, (beside, told) in found.items()
    )


def lines(pod: Raw, copy: Raw) -> list[str]:
    """List what differs in a remote pod, in the order of the pod's fields, then of its own new ones."""
    own = _Own.of(pod)
    return [own.line(*found) for found in _walk("", pod, copy)]


def _paragraph(name: str, beside: str, theirs: list[str], told: list[str]) -> str:
    title = f"{name}, beside those of {beside}:" if beside else f"{name}:"
    more = [line for line in told if line not in theirs]
    places = {_place(line) for line in told}
    less = [f"not {line}" for line in theirs if _place(line) not in places]
    return "\n".join([title, *(f"  {line}" for line in [*more, *less] or ["nothing"])]) + "\n"


def _place(line: str) -> str:
    return line[2:].partition(": ")[0]


def _walk(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    old, new = _parts(before), _parts(after)
    if (before is _ABSENT and new) or (after is _ABSENT and _by_name(before)):
        old, new = old or {}, new or {}
    if old is None or new is None:
        if before != after or type(before) is not type(after):
            yield path, before, after
        return
    for key in [*old, *(key for key in new if key not in old)]:
        yield from _walk(f"{path}{key}".removeprefix("."), old.get(key, _ABSENT), new.get(key, _ABSENT))


def _parts(value: Any) -> dict[str, Any] | None:
    """A value's parts, keyed by what each adds to the path; None if the value has no parts."""
    if isinstance(value, dict):
        return {f".{key}": item for key, item in value.items()}
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        titles = [_title(item, at) for at, item in enumerate(value)]
        return {f"[{t}]" + f"[{titles[:at].count(t)}]" * (t in titles[:at]): value[at] for at, t in enumerate(titles)}
    return {f"[{at}]": item for at, item in enumerate(value)} if isinstance(value, list) else None


def _by_name(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value)


def _title(item: Raw, at: int) -> str:
    """An owner by its kind, because its name is random; a toleration by its key, because others may precede it."""
    return str(item.get("kind") or item.get("name") or item.get("key") or at)


@dataclass(frozen=True)
class _Own:
    """A pod's own names and the placeholders that replace them."""

    words: dict[str, str]
    service: str

    @classmethod
    def of(cls, pod: Raw) -> "_Own":
        labels = pod["metadata"]["labels"]
        cluster, group = labels[names.RAY_GCS_CLUSTER_LABEL], labels[names.RAY_GCS_GROUP_LABEL]
        words = {cluster: "{cluster}", group: "{group}", pod["metadata"]["name"]: "{pod}"}
        return cls({**words, labels["ray.io/identifier"]: "{cluster}-worker"}, f"{cluster}-head-svc")

    def line(self, path: str, before: Any, after: Any) -> str:
        if after is _ABSENT:
            return f"- {path}"
        if before is _ABSENT:
            return f"+ {path}: {self._text(after)}"
        return f"~ {path}: {_changed(self._text(before), self._text(after))}"

    def _text(self, value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value)
        found = self.words.get(text, text).replace(self.service, "{cluster}-head-svc")
        return found.replace(programs.DRAIN_HOOK, "the program drain.py")


def _changed(before: str, after: str) -> str:
    old, new = _SEPARATOR.split(before), _SEPARATOR.split(after)
    steps = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    pieces = [("".join(old[i:j]), "".join(new[k:m])) for step, i, j, k, m in steps if step != "equal"]
    return ", ".join(f"{gone or 'nothing'} -> {come or 'nothing'}" for gone, come in pieces)
