"""What does our arithmetic say to a question? Asked as the planner asks it: what fits, then the flavors of that many. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from adapter.objects import podrequests
from adapter.objects.raw import key_of
from adapter.quota import tree as quota
from adapter.quota.clusterqueue import Group
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
    told: bool = False  # whether Kueue's sentence about a refusal can be read, see judge.py


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
    more = (*before, most + 1, *(1,) * (len(question.specs) - len(given)))
    ours = Forecast(
        fits=(*before, last) if last else None,
        more=None if most == podrequests.UNLIMITED or (before and _second_try(seen, queue, question, more)) else more,
        flavors=tuple(one.flavors for one in given) if last else (),
        borrows=any(one.borrows for one in given),
        most=most,
        ever=given[-1].room.ever,
        reason=given[-1].room.reason,
        told=_told(seen.tree.queues[queue].groups, question),
    )
    return ours, given[-1].tree if last else seen.tree


def charged(seen: Seen, tree: quota.Tree) -> Seen:
    """The same cluster with another tree."""
    return replace(seen, tree=tree)


def _give(tree: quota.Tree, queue: str, spec: Raw, share: float, labels: Mapping[str, str]) -> _Given:
    """Give a podset its share of all that fits."""
    request = podrequests.pod_requests(spec)
    room = quota.room(tree, queue, request, spec, wanted=podrequests.UNLIMITED, namespace=labels)
    count = _part(room.nominal + room.borrow, share)
    exact = quota.room(tree, queue, request, spec, wanted=count, namespace=labels)
    return _Given(room, count, exact.flavors, exact.nominal < count, quota.charge(tree, queue, exact, request, count))


def _told(groups: Sequence[Group], question: Question) -> bool:
    """Kueue names every flavor where it tries once: for one podset, all of whose resources are in the one group that there is."""
    if len(question.specs) > 1 or len(groups) > 1:
        return False
    asked = {resource for resource, need in podrequests.pod_requests(question.specs[0]).items() if need}
    return asked <= {podrequests.PODS, *groups[0].resources}


def _second_try(seen: Seen, queue: str, question: Question, counts: Counts) -> bool:
    """Whether Workloads of two podsets that do not fit might, were the first one given other flavors than it is.

    Where a podset fits and another does not, Kueue tries the Workload again, and gives the first the next flavor of each group
    (workload.AssignmentClusterQueueState). Our arithmetic takes the first flavor that fits and does not look back.
    """
    labels = seen.namespaces[question.namespace]
    (first, last), (some, others) = question.specs, counts
    needs, needed = podrequests.pod_requests(first), podrequests.pod_requests(last)
    for groups in product(*(_each_flavor(group) for group in seen.tree.queues[queue].groups)):
        only = replace(seen.tree.queues[queue], groups=groups)
        narrow = replace(seen.tree, queues={**seen.tree.queues, queue: only})
        room = quota.room(narrow, queue, needs, first, wanted=some, namespace=labels)
        rest = quota.charge(seen.tree, queue, room, needs, some)
        left = quota.room(rest, queue, needed, last, wanted=others, namespace=labels)
        if room.nominal + room.borrow >= some and left.nominal + left.borrow >= others:
            return True
    return False


def _each_flavor(group: Group) -> list[Group]:
    return [replace(group, flavors=(flavor,)) for flavor in group.flavors]


def _part(most: int, share: float) -> int:
    if most == podrequests.UNLIMITED:
        return _PLENTY
    return math.ceil(most * share) or min(most, 1)
