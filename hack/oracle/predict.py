"""Forecasts Kueue's answer by our arithmetic, through the planner's own path, `Offers` and `charged`. Pure.

It asks what fits, then the flavors of that many. So what is proved against Kueue is what plans use.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from adapter.objects import pod_requests
from adapter.objects.placement import GroupShare, Share
from adapter.objects.unstructured import Raw, key_of
from adapter.planning.offers import Offers
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest, Offer
from adapter.planning.planner import charge_shares
from adapter.quota import clusterqueue
from adapter.quota.tree import build, local_queue_target
from hack.oracle.draw import Question

Counts = tuple[int, ...]  # pods of each podset
Flavors = tuple[Mapping[str, str], ...]  # of each podset: resource -> flavor

_PLENTY: Final = 50  # pods to ask for where no quota counts what they request


Seen = Candidate  # a worker cluster as its objects show it


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
    """A podset's assignment: `room` is all that was available, `left` the cluster afterwards."""

    room: Offer
    reason: str
    count: int
    flavors: Mapping[str, str]
    borrows: bool
    left: Seen


def see(objects: Mapping[str, Iterable[Raw]]) -> Seen:
    """Read raw objects, by the plural of their kind, as the planner does."""
    return Seen(
        name="seen",
        problem="",
        quota_tree=build(objects["clusterqueues"], objects["cohorts"], objects["resourceflavors"]),
        queues={key_of(one): local_queue_target(one) for one in objects["localqueues"]},
        namespaces={one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in objects["namespaces"]},
    )


def forecast(seen: Seen, question: Question) -> tuple[Forecast, Seen]:
    """Forecast what fits, and the cluster after that was admitted; the last podset grows until it does not fit."""
    queue, closed = seen.queues.get((question.namespace, question.queue), ("", "there is no such LocalQueue"))
    if closed:
        return Forecast(None, (1,) * len(question.specs), reason=closed), seen
    given: list[_Given] = []
    for spec, share in zip(question.specs, question.shares, strict=True):
        given.append(_give(given[-1].left if given else seen, question, spec, share))
        if not given[-1].count:
            break
    *before, last = (one.count for one in given)
    most = given[-1].room.total
    more = (*before, most + 1, *(1,) * (len(question.specs) - len(given)))
    ours = Forecast(
        fits=(*before, last) if last else None,
        more=None if most == pod_requests.UNLIMITED or (before and _second_try(seen, queue, question, more)) else more,
        flavors=tuple(one.flavors for one in given) if last else (),
        borrows=any(one.borrows for one in given),
        most=most,
        ever=given[-1].room.potential,
        reason=given[-1].reason,
        told=_told(seen.quota_tree.queues[queue].groups, question),
    )
    return ours, given[-1].left if last else seen


def gang(question: Question, spec: Raw, count: int) -> GangRequest:
    """So many pods of one podset, as the planner is asked for them."""
    group = GroupRequest("podset", "podset", count, spec, pod_requests.pod_requests(spec))
    return GangRequest(question.namespace, question.queue, (group,))


def admitted(seen: Seen, asked: GangRequest) -> Seen:
    """The cluster once all pods of a gang of one podset were given what they ask for."""
    (group,) = asked.groups
    (left,) = charge_shares(asked, [seen], [Share(seen.name, (GroupShare(group.name, group.role, group.count),))])
    return left


def _give(seen: Seen, question: Question, spec: Raw, share: float) -> _Given:
    """Give a podset its share of all that fits."""
    room, reason, _ = _asked(seen, gang(question, spec, pod_requests.UNLIMITED))
    asked = gang(question, spec, _part(room.total, share))
    exact, _, flavors = _asked(seen, asked)
    return _Given(room, reason, asked.workers, flavors, exact.nominal < asked.workers, admitted(seen, asked))


def _asked(seen: Seen, asked: GangRequest) -> tuple[Offer, str, Mapping[str, str]]:
    """The most for a gang of one podset, why it is no more, and its flavors."""
    offers, (group,) = Offers(asked), asked.groups
    line = offers.quota_path(seen)
    return (
        offers.offer_for(seen, line, group),
        offers.shortage_reason(seen, line, group),
        offers.assigned_flavors(seen, line, group, group.count),
    )


def _told(groups: Sequence[clusterqueue.ResourceGroup], question: Question) -> bool:
    """Kueue names every flavor where it tries once: for one podset whose resources are all in the only group."""
    if len(question.specs) > 1 or len(groups) > 1:
        return False
    asked = {resource for resource, need in pod_requests.pod_requests(question.specs[0]).items() if need}
    return asked <= {pod_requests.PODS, *groups[0].resources}


def _second_try(seen: Seen, queue: str, question: Question, counts: Counts) -> bool:
    """Whether two podsets that do not fit might, if the first one were given other flavors.

    Where one podset fits and the other does not, Kueue retries the Workload and gives the first the next flavor of each
    group (workload.AssignmentClusterQueueState). Our arithmetic takes the first flavor that fits and does not look
    back.
    """
    (first, last), (some, others) = question.specs, counts
    for groups in product(*(_each_flavor(group) for group in seen.quota_tree.queues[queue].groups)):
        only = replace(seen.quota_tree.queues[queue], groups=groups)
        narrow = replace(seen, quota_tree=replace(seen.quota_tree, queues={**seen.quota_tree.queues, queue: only}))
        wanted = gang(question, first, some)
        forest = admitted(narrow, wanted).quota_tree.forest
        rest = replace(seen, quota_tree=replace(seen.quota_tree, forest=forest))
        if _fits(narrow, wanted) and _fits(rest, gang(question, last, others)):
            return True
    return False


def _fits(seen: Seen, asked: GangRequest) -> bool:
    return _asked(seen, asked)[0].total >= asked.workers


def _each_flavor(group: clusterqueue.ResourceGroup) -> list[clusterqueue.ResourceGroup]:
    return [replace(group, flavors=(flavor,)) for flavor in group.flavors]


def _part(most: int, share: float) -> int:
    if most == pod_requests.UNLIMITED:
        return _PLENTY
    return math.ceil(most * share) or min(most, 1)
