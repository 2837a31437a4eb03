"""What does our arithmetic say to a question, and does Kueue's answer agree? Pure: objects and answers in, sentences out."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from adapter import names, quota, shape
from adapter.cohort import Amounts
from adapter.facts import key_of
from hack.clusters import condition
from hack.oracle.draw import Question

Raw = dict[str, Any]
Counts = tuple[int, ...]  # pods of each podset
Flavors = tuple[Mapping[str, str], ...]  # of each podset: resource -> flavor

_PLENTY: Final = 50  # pods to ask for where no quota counts what they ask
# What Kueue says of a Workload that lost a race within one scheduling cycle; it looks again at once (scheduler.go, processEntry).
_FLEETING: Final = "no longer fits after processing another workload"


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker cluster as its objects show it."""

    tree: quota.Tree
    queues: Mapping[tuple[str, str], tuple[str, str]]  # LocalQueue -> its ClusterQueue, and why it takes nothing
    namespaces: Mapping[str, Mapping[str, str]]  # name -> labels


@dataclass(frozen=True, slots=True)
class Forecast:
    """What must be admitted, in which flavors, and what must not; None where there is no such thing to ask for.

    `ever` is what the last podset could be given in an empty tree, `most` what it could be given now.
    """

    fits: Counts | None
    more: Counts | None
    flavors: Flavors = ()
    borrows: bool = False
    most: int = 0
    ever: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What Kueue made of a Workload."""

    reserved: bool
    flavors: Flavors
    message: str


def see(objects: Mapping[str, Iterable[Raw]]) -> Seen:
    """Read raw objects, by the plural of their kind, as the planner does."""
    return Seen(
        tree=quota.build(objects["clusterqueues"], objects["cohorts"], objects["resourceflavors"]),
        queues={key_of(one): quota.leads_to(one) for one in objects["localqueues"]},
        namespaces={one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in objects["namespaces"]},
    )


def forecast(seen: Seen, question: Question) -> tuple[Forecast, quota.Tree]:
    """Say what fits, and what the tree is once that was given; the last podset is the one that grows until it does not."""
    queue, closed = seen.queues.get((question.namespace, question.queue), ("", "there is no such LocalQueue"))
    if closed:
        return Forecast(None, (1,) * len(question.specs), reason=closed), seen.tree
    labels, tree = seen.namespaces[question.namespace], seen.tree
    counts: list[int] = []
    flavors: list[Mapping[str, str]] = []
    borrows = False
    for spec, share in zip(question.specs, question.shares, strict=True):
        request = shape.pod_requests(spec)
        room = quota.room(tree, queue, request, spec, wanted=shape.UNLIMITED, namespace=labels)
        most = room.nominal + room.borrow
        if not most:
            rest = len(question.specs) - len(counts)
            return Forecast(None, (*counts, *(1,) * rest), ever=room.ever, reason=room.reason), seen.tree
        before = tuple(counts)
        counts.append(_part(most, share))
        exact = quota.room(tree, queue, request, spec, wanted=counts[-1], namespace=labels)
        flavors.append(exact.flavors)
        borrows |= exact.nominal < counts[-1]
        tree = quota.charge(tree, queue, exact, request, counts[-1])
    more = None if most == shape.UNLIMITED else (*before, most + 1)
    return Forecast(tuple(counts), more, tuple(flavors), borrows, most, room.ever, room.reason), tree


def read(workload: Raw) -> Answer | None:
    """Kueue's answer, None while it has given none that lasts."""
    found = condition(workload, names.QUOTA_RESERVED)
    said = found.get("message") or ""
    if not found or _FLEETING in said:
        return None
    given = (workload["status"].get("admission") or {}).get("podSetAssignments") or ()
    return Answer(found["status"] == "True", tuple(one.get("flavors") or {} for one in given), said)


def disagreement(ours: Forecast, *, asked: Counts, answer: Answer | None) -> str:
    """Say in a sentence how Kueue's answer to Workloads of `asked` pods differs from ours; empty if it does not."""
    if answer is None:
        return f"Kueue said nothing about {_text(asked)}"
    if answer.reserved != (asked != ours.more):
        said = "admitted" if answer.reserved else f"did not admit ({answer.message})"
        return f"Kueue {said} {_text(asked)}, we expected {_expected(ours)}"
    if answer.reserved and answer.flavors != ours.flavors:
        return f"Kueue gave {_text(asked)} the flavors {_plain(answer.flavors)}, we expected {_plain(ours.flavors)}"
    return ""


def uncounted(before: quota.Tree, after: quota.Tree, tree: str) -> str:
    """Say where in the tree of that name the use that Kueue shows is not the one that we charged; empty if nowhere."""
    for key, charged in before.forest.usage.items():
        shown = after.forest.usage.get(key, {})
        if key[1].startswith(f"{tree}-") and _used(charged) != _used(shown):
            return f"Kueue counts {_used(shown)} at {' '.join(key)}, we charged {_used(charged)}"
    return ""


def lasting(ours: Forecast) -> str:
    """Say what is wrong with `ever` in a tree where nothing is in use; empty if nothing is, or if there is more than one podset."""
    alone = len(ours.fits or ours.more or ()) == 1  # of two, the first is in use already when the second is looked at
    return f"{ours.most} fit in an empty tree, but ever is {ours.ever}" if alone and ours.ever != ours.most else ""


def charged(seen: Seen, tree: quota.Tree) -> Seen:
    """The same cluster with another tree."""
    return replace(seen, tree=tree)


def _part(most: int, share: float) -> int:
    return max(1, math.ceil(min(most, _PLENTY if most == shape.UNLIMITED else most) * share))


def _used(amounts: Amounts) -> dict[str, int]:
    return {" ".join(cell): amount for cell, amount in amounts.items() if amount}


def _expected(ours: Forecast) -> str:
    fits = f"room for {_text(ours.fits)}" if ours.fits else "no room"
    return f"{fits} and none for {_text(ours.more)}" + (f" ({ours.reason})" if ours.reason else "")


def _text(counts: Counts | None) -> str:
    return "more" if counts is None else f"{' + '.join(map(str, counts))} pods"


def _plain(flavors: Flavors) -> str:
    return " + ".join(str(dict(sorted(one.items()))) for one in flavors)
