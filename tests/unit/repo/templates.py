"""Renders the chart's templates: only the forms that hack/release writes; any other form is an error.

Stands in for Helm where a test must be quick; tests marked `long` check the same with Helm itself.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from adapter.objects.unstructured import RawDict as Raw
from hack.lab.base.versions import KUBERNETES

_BLOCK = re.compile(r"^ *\{\{- (.*) \}\}$")
_INLINE = re.compile(r"\{\{ (.*?) \}\}")
_LINES = re.compile(r"^toYaml (\S+) \| nindent (\d+)$")
_CONDITION = re.compile(r'^(if|with) (?:(not|eq|ne) )?(\S+)(?: "([^"]*)")?$')
_OLDER = re.compile(r'^(if) (semverCompare) "<(\d+\.\d+)\.0-0" \.Capabilities\.KubeVersion\.Version$')


class Refused(Exception):
    """The chart rejects this installation."""


def render(
    chart: Path, chosen: Mapping[str, Any], namespace: str = "default", kubernetes: str = KUBERNETES
) -> list[Raw]:
    """The chart's objects for these values, this release namespace and this version of the cluster."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    values = _merged(yaml.safe_load((chart / "values.yaml").read_text()), chosen)
    top = {
        "Values": values,
        "Chart": {"AppVersion": about["appVersion"]},
        "Release": {"Namespace": namespace},
        "Version": kubernetes,
    }
    texts = [
        "\n".join(_lines(file.read_text().splitlines(), top, top)) for file in sorted(chart.glob("templates/*.yaml"))
    ]
    return [found for text in texts for found in yaml.load_all(text, yaml.CSafeLoader) if found]


def _merged(under: Raw, over: Mapping[str, Any]) -> Raw:
    """Merges maps and replaces all else, as Helm does."""
    merged = copy.deepcopy(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _lines(lines: Sequence[str], top: Raw, dot: Any) -> Iterator[str]:
    number = 0
    while number < len(lines):
        found = _BLOCK.match(lines[number])
        if not found:
            yield _INLINE.sub(lambda part: _inline(part[1], top, dot), lines[number])
        elif condition := _begun(found[1]):
            end = _end(lines, number)
            value, holds = _judged(condition, top, dot)
            if holds:
                yield from _lines(lines[number + 1 : end], top, value if condition[1] == "with" else dot)
            number = end
        elif block := _LINES.match(found[1]):
            text = yaml.safe_dump(_value(block[1], top, dot))
            yield from (" " * int(block[2]) + line for line in text.splitlines())
        elif found[1].startswith("fail "):
            raise Refused(found[1].removeprefix("fail ").strip('"'))
        else:
            raise AssertionError(f"no form that the chart has: {found[1]}")
        number += 1


def _end(lines: Sequence[str], begin: int) -> int:
    depth = 0
    for number in range(begin, len(lines)):
        found = _BLOCK.match(lines[number])
        depth += bool(found and _begun(found[1])) - bool(found and found[1] == "end")
        if depth == 0:
            return number
    raise AssertionError(f"without an end: {lines[begin]}")


def _begun(text: str) -> re.Match[str] | None:
    return _OLDER.match(text) or _CONDITION.match(text)


def _minor(version: str) -> list[int]:
    return [int(part) for part in version.removeprefix("v").split(".")[:2]]


def _judged(condition: re.Match[str], top: Raw, dot: Any) -> tuple[Any, bool]:
    if condition[2] == "semverCompare":
        return None, _minor(top["Version"]) < _minor(condition[3])
    value = _value(condition[3], top, dot)
    holds = {None: bool(value), "not": not value, "eq": value == condition[4], "ne": value != condition[4]}
    return value, holds[condition[2]]


def _inline(text: str, top: Raw, dot: Any) -> str:
    path, _, rest = text.partition(" | ")
    value = _value(path, top, dot)
    if rest.startswith("default "):
        value = value or _value(rest.removeprefix("default "), top, dot)
    elif rest == "quote":
        return f'"{value}"'
    else:
        assert not rest, f"no form that the chart has: {text}"
    return str(value)


def _value(path: str, top: Raw, dot: Any) -> Any:
    if path == ".":
        return dot
    assert path.startswith("."), path
    found: Any = top
    for step in path[1:].split("."):
        found = found[step]
    return found
