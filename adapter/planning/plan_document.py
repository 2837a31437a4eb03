"""The document of a dry-run plan: the planner's decision, and the facts that it was made on.

Programs read its stable names. The document has nothing that a Placement of the job would not have. Capacity promised
to other gangs counts as used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from adapter.objects.placement import Share, Verdict
from adapter.objects.pod_requests import PODS, Resources, format_quantity
from adapter.planning import planner, strategy
from adapter.planning.offers import Offers
from adapter.planning.plan_request import (
    Candidate,
    GangRequest,
    counted_request_in,
    filter_reason,
    queue_name,
    resource_names_in,
)
from adapter.planning.planner import GangPlan
from adapter.planning.prices import format_money
from adapter.planning.strategy import hourly_cost_in
from adapter.quota import cohort
from adapter.quota.clusterqueue import CLUSTER_QUEUE, ClusterQueueRules

PlanJson = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One resource in one flavor of the ClusterQueue, in the units of `pod_requests.Resources`."""

    flavor: str
    resource: str
    nominal: int
    used: int
    available: int  # borrowing included
    potential: int  # if nothing were in use


def rejected_document(about: Mapping[str, Any], sentence: str, other_reasons: Sequence[str] = ()) -> PlanJson:
    """The document for a job that cannot be planned."""
    return {
        **about,
        "fits": False,
        "sentence": sentence,
        "clusters": [],
        **({"notes": [*other_reasons]} if other_reasons else {}),
    }


def no_workers_document(about: Mapping[str, Any]) -> PlanJson:
    return {**about, "fits": True, "sentence": "No worker of this job needs to be placed.", "clusters": []}


def planned_document(
    about: Mapping[str, Any],
    request: GangRequest,
    candidates: Sequence[Candidate],
    plan: GangPlan,
    *,
    extra_sentence: str = "",
) -> PlanJson:
    """The document of a gang's plan; clusters that were not asked are last."""
    candidates = strategy.order_candidates(request, planner.candidates_asking(candidates, plan.questions))
    shares = {share.cluster: share for share in plan.shares}
    as_planned = replace(request, reclaims_quota=any(share.preempts for share in plan.shares))
    cluster_order = [
        gang_offer.candidate.name
        for gang_offer in strategy.order_clusters(as_planned, _gang_offers(as_planned, candidates))
    ]
    verdicts = {verdict.cluster: verdict for verdict in plan.verdicts}
    ordered = sorted(
        candidates,
        key=lambda candidate: (
            cluster_order.index(candidate.name) if candidate.name in cluster_order else len(cluster_order)
        ),
    )
    costs = {
        candidate.name: _share_cost(request, candidate, shares[candidate.name])
        for candidate in candidates
        if candidate.name in shares
    }
    return {
        **about,
        "strategy": request.strategy,
        "gang": request.mode,
        **({"minWorkers": request.min_workers} if request.mode == "BestEffort" else {}),
        "workers": request.workers,
        "groups": [
            {
                "name": group.name,
                "workers": group.count,
                **{field: value for field, value in group.location._asdict().items() if value},
                "request": _resource_texts(group.request),
            }
            for group in request.groups
        ],
        "fits": bool(plan.shares),
        "never": plan.never_fits,
        "sentence": plan.sentence + extra_sentence,
        **_total_cost(costs),
        "clusters": [
            _cluster_entry(
                request,
                candidate,
                verdicts[candidate.name],
                cluster_order,
                shares.get(candidate.name),
                costs.get(candidate.name),
            )
            for candidate in ordered
        ],
    }


def _gang_offers(request: GangRequest, candidates: Sequence[Candidate]) -> list[strategy.GangOffer]:
    offers = Offers(request)
    return [
        strategy.gang_offer(offers, candidate, offers.quota_path(candidate))
        for candidate in candidates
        if not filter_reason(request, candidate)
    ]


def _cluster_entry(
    request: GangRequest,
    candidate: Candidate,
    verdict: Verdict,
    cluster_order: Sequence[str],
    share: Share | None,
    cost: Decimal | None,
) -> PlanJson:
    scarce, renames = scarcest_quota(request, candidate), resource_names_in(request.groups, candidate)
    groups = {group.name: group.count for group in share.groups} if share else {}
    return {
        "asked": cluster_order.index(candidate.name) + 1 if candidate.name in cluster_order else None,
        "cluster": candidate.name,
        "zone": candidate.location.zone,
        **({"region": candidate.location.region} if candidate.location.region else {}),
        "clusterQueue": queue_name(request, candidate),
        "nominal": verdict.nominal,
        "borrow": verdict.borrow,
        "ever": verdict.potential,
        "chosen": verdict.chosen,
        **({"groups": groups} if len(request.groups) > 1 and groups else {}),
        **({"preempts": True} if share and share.preempts else {}),
        "reason": verdict.reason,
        **({"resourceNames": dict(renames)} if renames else {}),
        "pricePerHour": None if cost is None else format_money(cost),
        **_gang_cost_entry(request, candidate),
        "scarcest": _quota_entry(scarce) if scarce else None,
        "quota": [_quota_entry(row) for row in quota_rows(request, candidate)],
    }


def _quota_entry(row: QuotaRow) -> PlanJson:
    amounts = {"nominal": row.nominal, "used": row.used, "free": row.available, "ever": row.potential}
    texts = {name: format_quantity(amount, row.resource) for name, amount in amounts.items()}
    return {"flavor": row.flavor, "resource": row.resource, **texts}


def _share_cost(request: GangRequest, candidate: Candidate, share: Share) -> Decimal | None:
    return hourly_cost_in(request, candidate, {part.name: part.count for part in share.groups})


def _gang_cost_entry(request: GangRequest, candidate: Candidate) -> PlanJson:
    """What the order of the clusters follows, if that is their price."""
    if request.strategy != "Cheapest":
        return {}
    cost = strategy.gang_cost_in(request, candidate)
    return {"pricePerHourOfAll": None if cost is None else format_money(cost)}


def _total_cost(costs: Mapping[str, Decimal | None]) -> PlanJson:
    """The whole gang's price, and its clusters without a price."""
    prices = [cost for cost in costs.values() if cost is not None]
    if not prices:
        return {}
    unpriced = [name for name, cost in costs.items() if cost is None]
    total = format_money(sum(prices, Decimal(0)))
    return {"pricePerHour": total, **({"withoutPrice": unpriced} if unpriced else {})}


def _resource_texts(request: Resources) -> dict[str, str]:
    return {name: format_quantity(amount, name) for name, amount in sorted(request.items()) if name != PODS}


def quota_rows(request: GangRequest, candidate: Candidate) -> list[QuotaRow]:
    """Every flavor of every requested resource, in the ClusterQueue's order."""
    queue = candidate.quota_tree.queues.get(queue_name(request, candidate))
    if queue is None or queue.closed_reason or filter_reason(request, candidate):
        return []
    counted = (counted_request_in(request, candidate, group) for group in request.groups)
    requested = {name for resources in counted for name, amount in resources.items() if amount}
    return [
        _quota_row(candidate, queue.name, flavor, resource) for flavor, resource in _flavor_resources(queue, requested)
    ]


def scarcest_quota(request: GangRequest, candidate: Candidate) -> QuotaRow | None:
    """The resource that is free for the fewest workers; None if no quota limits the gang."""
    if filter_reason(request, candidate):
        return None
    offers = Offers(request)
    path = offers.quota_path(candidate)
    shortfalls = [shortfall for group in request.groups if (shortfall := offers.shortfall(candidate, path, group))]
    scarcest = min(shortfalls, key=lambda shortfall: shortfall.free // max(shortfall.need, 1), default=None)
    return (
        _quota_row(candidate, queue_name(request, candidate), scarcest.flavor, scarcest.resource) if scarcest else None
    )


def _flavor_resources(queue: ClusterQueueRules, requested: set[str]) -> Iterator[tuple[str, str]]:
    for group in queue.groups:
        for flavor in group.flavors:
            yield from ((flavor, resource) for resource in sorted(group.resources & requested))


def _quota_row(candidate: Candidate, queue: str, flavor: str, resource: str) -> QuotaRow:
    forest, key, cell = candidate.quota_tree.forest, (CLUSTER_QUEUE, queue), (flavor, resource)
    path = cohort.quota_path(forest, key)
    return QuotaRow(
        flavor=flavor,
        resource=resource,
        nominal=forest.subtree_quota[key].get(cell, 0),
        used=forest.usage(key).get(cell, 0),
        available=max(0, cohort.available(path, cell)),
        potential=max(0, cohort.potential_available(path, cell)),
    )
