"""Writes docs/compatibility.md. Pure but for the page's place; no name or time of a run is in it."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from hack.corpus import judge
from hack.corpus.judge import Finding, Seen
from hack.corpus.samples import OURS
from hack.lab.base import versions
from hack.lab.base.paths import REPO

PAGE: Final = REPO / "docs" / "compatibility.md"
_HEADER: Final = f"""\
# Compatibility: which Ray clusters can be dispatched

This page is generated: `make compatibility` writes it, and a test compares it with what is seen. Every sample \
below was given to a
real KubeRay {versions.KUBERAY} in a manager cluster; the worker pods that it made were rewritten for a worker cluster \
(`PodIP`), and
that cluster's API server (Kubernetes {versions.KUBERNETES}) was asked whether it takes them, in a dry run. Nothing ran.

| Outcome | What it means |
|---|---|
| {judge.DISPATCHED} | The worker cluster takes the rewritten workers. Whether it has the image, the device or \
the driver that they ask for is not asked. |
| {judge.REFUSED} | The admission check says so before any quota is held. |
| {judge.STUCK} | Not refused, although a worker would wait in the worker cluster for what is not there. |
| {judge.BROKEN} | The worker cluster refuses the pod, or the pod still speaks of the manager: a fault, \
please report it. |
| {judge.NOTHING} | There is no worker pod to dispatch, or KubeRay makes none. |

*Queue* says whether Kueue {versions.KUEUE} takes the sample as it is when it is given a queue name; the numbers \
lead to what it says.
A sample that Kueue refuses is judged by the workers that it would have. A RayService is judged by those of its \
RayClusters, which are
dispatched where Kueue and KubeRay are set as [serving.md](serving.md) says.

"""
_KUBERAY: Final = f"https://github.com/ray-project/kuberay/tree/{versions.KUBERAY}/ray-operator"
# The API server's words for it come in any order, and do not say what to do.
_NULL: Final = 'rayStartParams in body must be of type object: "null"'
_SAID_OF_NULL: Final = (
    "a group has no rayStartParams: the webhook makes null of it, which the API server refuses; "
    "write rayStartParams: {}"
)
_NAMED: Final = re.compile(r'^\S+\.ray\.io "\S+" is invalid: ')


def page(seen: Sequence[Seen]) -> str:
    """Write the whole page."""
    findings = [judge.finding(one) for one in seen]
    notes = list(dict.fromkeys(said for one in findings if (said := _kueue(one))))
    parts = [_HEADER, f"{line(seen)}\n"]
    for source, found in groupby(findings, lambda one: one.sample.source):
        parts.append(f"\n## {_title(source)}\n\n| Sample | Outcome | Why | Queue |\n|---|---|---|---|\n")
        parts += [_row(one, notes) for one in found]
    parts.append("\n## What Kueue says\n\n")
    parts += [f"{number}. `{said}`\n" for number, said in enumerate(notes, 1)]
    return "".join(parts)


def line(seen: Sequence[Seen]) -> str:
    """Count the outcomes in one sentence."""
    counts = Counter(judge.finding(one).outcome for one in seen)
    order = (judge.DISPATCHED, judge.REFUSED, judge.STUCK, judge.BROKEN, judge.NOTHING)
    return f"Of {len(seen)} samples: {', '.join(f'{counts[word]} {word}' for word in order)}."


def _row(found: Finding, notes: Sequence[str]) -> str:
    queue = f"no ({notes.index(said) + 1})" if (said := _kueue(found)) else "yes"
    return f"| {_cell(' '.join(_name(found)))} | {found.outcome} | {_cell(_why(found))} | {queue} |\n"


def _name(found: Finding) -> Iterator[str]:
    sample = found.sample
    if sample.about:
        yield f"{sample.about} ([{sample.name.removesuffix('.yaml')}](../{OURS}/{sample.name}))"
    else:
        yield f"`{sample.name.removesuffix('.yaml')}`"


def _why(found: Finding) -> str:
    return f"worker group {found.group}: {found.reason}" if found.group else found.reason


def _kueue(found: Finding) -> str:
    return _SAID_OF_NULL if _NULL in found.kueue else _NAMED.sub("", found.kueue)


def _title(source: str) -> str:
    where = source.removeprefix("kuberay: ")
    return "Our cases" if source == OURS else f"KubeRay's [{where}]({_KUBERAY}/{where})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
