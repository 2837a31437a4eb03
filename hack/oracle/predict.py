"""What does our arithmetic say to a question? Asked as the planner asks it: what fits, then the flavors of that many. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from adapter import quota, shape
from adapter.facts import key_of
from hack.oracle.draw import Question

Raw = dict[str, Any]
Counts = tuple[int, ...]  # pods of each podset
Flavors = tuple[Mapping[str, str], ...]  # of each podset: resource -> flavor

_PLENTY: Final = 50  # pods to ask for where no quota counts what they ask


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
    groups: tuple[tuple[str, ...], ...] = ()  # the ClusterQueue's flavors by resource group


@dataclass(frozen=True, slots=True)
class _Given:
    """What a podset is given: `room` is all that there was, `tree` what is left."""

    room: quota.Room
    count: int
    flavors: Mapping[str, str]
    borrows: bool
    tree: quota.Tree


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
    given: list[_Given] = []
    for spec, share in zip(question.specs, question.shares, strict=True):
        tree = given[-1].tree if given else seen.tree
        given.append(_give(tree, queue, spec, share, seen.namespaces[question.namespace]))
        if not given[-1].count:
            break
    *before, last = (one.count for one in given)
    most = given[-1].room.nominal + given[-1].room.borrow
    left = len(question.specs) - len(given)
    ours = Forecast(
        fits=(*before, last) if last else None,
        more=None if most == shape.UNLIMITED else (*before, most + 1, *(1,) * left),
        flavors=tuple(one.flavors for one in given) if last else (),
        borrows=any(one.borrows for one in given),
        most=most,
        ever=given[-1].room.ever,
        reason=given[-1].room.reason,
        groups=tuple(group.flavors for group in seen.tree.queues[queue].groups),
    )
    return ours, given[-1].tree if last else seen.tree


def charged(seen: Seen, tree: quota.Tree) -> Seen:
    """The same cluster with another tree."""
    return replace(seen, tree=tree)


def _give(tree: quota.Tree, queue: str, spec: Raw, share: float, labels: Mapping[str, str]) -> _Given:
    """Give a podset its share of all that fits."""
    request = shape.pod_requests(spec)
    room = quota.room(tree, queue, request, spec, wanted=shape.UNLIMITED, namespace=labels)
    count = _part(room.nominal + room.borrow, share)
    exact = quota.room(tree, queue, request, spec, wanted=count, namespace=labels)
    return _Given(room, count, exact.flavors, exact.nominal < count, quota.charge(tree, queue, exact, request, count))


def _part(most: int, share: float) -> int:
    if most == shape.UNLIMITED:
        return _PLENTY
    return math.ceil(most * share) or min(most, 1)
