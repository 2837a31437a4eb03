"""What does somebody who asks for a plan get to read: the planner's decision with the facts it was made on, as data?

Plain JSON values under names that stay: programs read them, and `cli/plantable` shows them to people. It decides nothing, and
says nothing that a Placement of the same job would not say. How many pods fit is the planner's answer alone; the amounts of
quota are those of the trees that are given, so what other gangs were promised is in use already.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from adapter.objects.placement import Share, Verdict
from adapter.objects.pod_requests import CPU, PODS, Resources, format_quantity
from adapter.planning import strategy
from adapter.planning.offers import Offers
from adapter.planning.plan_request import Candidate, Request, closed, queue_name
from adapter.planning.planner import Plan
from adapter.quota import cohort
from adapter.quota.clusterqueue import CLUSTER_QUEUE, ClusterQueueRules

Answer = dict[str, Any]
Prices = Mapping[str, Decimal]  # resource -> one core of cpu, one GiB of memory, one piece of anything else
_MILLI, _GIB = Decimal(1000), Decimal(2**30)


@dataclass(frozen=True, slots=True)
class Row:
    """One resource in one flavor of the ClusterQueue, in the units of `podrequests.Resources`."""

    flavor: str
    resource: str
    nominal: int
    used: int
    free: int  # borrowing included
    ever: int  # if nothing were in use


def refused(about: Mapping[str, Any], sentence: str, others: Sequence[str] = ()) -> Answer:
    """No cluster was asked: the sentence says why the job would not get so far, and `others` what else is in its way."""
    return {**about, "fits": False, "sentence": sentence, "clusters": [], **({"notes": [*others]} if others else {})}


def local(about: Mapping[str, Any]) -> Answer:
    """The job has no worker: there is nothing to place, and nothing that it would wait for."""
    return {**about, "fits": True, "sentence": "No worker of this job is to run elsewhere.", "clusters": []}


def planned(
    about: Mapping[str, Any],
    request: Request,
    among: Sequence[Candidate],
    made: Plan,
    prices: Mapping[str, Prices],
    *,
    more: str = "",
) -> Answer:
    """The plan of a gang on these candidates; `more` is what is to be said beside the plan's own sentence.

    Clusters stand in the order in which they were asked; those that were not asked follow, in the policy's order.
    """
    shares = {share.cluster: share for share in made.shares}
    as_planned = replace(request, reclaims=any(share.preempts for share in made.shares))
    asked = [look.candidate.name for look in strategy.order(as_planned, _looks(as_planned, among))]
    verdicts = {verdict.cluster: verdict for verdict in made.verdicts}
    listed = sorted(among, key=lambda one: asked.index(one.name) if one.name in asked else len(asked))
    costs = {name: _cost(request, share, prices.get(name, {})) for name, share in shares.items()}
    return {
        **about,
        "strategy": request.strategy,
        "gang": request.gang,
        **({"minWorkers": request.minimum} if request.gang == "BestEffort" else {}),
        "workers": request.workers,
        "groups": [
            {"name": g.name, "workers": g.count, **({"zone": g.zone} if g.zone else {}), "request": _texts(g.request)}
            for g in request.groups
        ],
        "fits": bool(made.shares),
        "never": made.never,
        "sentence": made.sentence + more,
        **_total(costs),
        "clusters": [
            _cluster(request, one, verdicts[one.name], asked, shares.get(one.name), costs.get(one.name))
            for one in listed
        ],
    }


def _looks(request: Request, among: Sequence[Candidate]) -> list[strategy.Look]:
    offers = Offers(request)
    return [strategy.look(offers, one, offers.line(one)) for one in among if not closed(request, one)]


def _cluster(
    request: Request, one: Candidate, found: Verdict, asked: Sequence[str], share: Share | None, cost: Decimal | None
) -> Answer:
    scarce = scarcest(request, one)
    groups = {group.name: group.count for group in share.groups} if share else {}
    return {
        "asked": asked.index(one.name) + 1 if one.name in asked else None,
        "cluster": one.name,
        "zone": one.zone,
        "clusterQueue": queue_name(request, one),
        "nominal": found.nominal,
        "borrow": found.borrow,
        "ever": found.potential,
        "chosen": found.chosen,
        **({"groups": groups} if len(request.groups) > 1 and groups else {}),
        **({"preempts": True} if share and share.preempts else {}),
        "reason": found.reason,
        "pricePerHour": None if cost is None else as_money(cost),
        "scarcest": _quota(scarce) if scarce else None,
        "quota": [_quota(row) for row in rows(request, one)],
    }


def _quota(row: Row) -> Answer:
    amounts = {"nominal": row.nominal, "used": row.used, "free": row.free, "ever": row.ever}
    texts = {name: format_quantity(amount, row.resource) for name, amount in amounts.items()}
    return {"flavor": row.flavor, "resource": row.resource, **texts}


def _cost(request: Request, share: Share, prices: Prices) -> Decimal | None:
    asks = {group.name: group.request for group in request.groups}
    return per_hour(prices, [(asks[part.name], part.count) for part in share.groups])


def _total(costs: Mapping[str, Decimal | None]) -> Answer:
    """The whole gang's price, and which of its clusters name none; nothing where none does."""
    known = [cost for cost in costs.values() if cost is not None]
    if not known:
        return {}
    without = [name for name, cost in costs.items() if cost is None]
    total = as_money(sum(known, Decimal(0)))
    return {"pricePerHour": total, **({"withoutPrice": without} if without else {})}


def _texts(request: Resources) -> dict[str, str]:
    return {name: format_quantity(amount, name) for name, amount in sorted(request.items()) if name != PODS}


def rows(request: Request, one: Candidate) -> list[Row]:
    """Every flavor of every resource that the gang asks for, as the ClusterQueue lists them; empty where it is closed."""
    queue = one.tree.queues.get(queue_name(request, one))
    if queue is None or queue.closed_reason or closed(request, one):
        return []
    asked = {name for group in request.groups for name, need in group.request.items() if need}
    return [_row(one, queue.name, flavor, resource) for flavor, resource in _cells(queue, asked)]


def scarcest(request: Request, one: Candidate) -> Row | None:
    """The resource of which the fewest workers' worth is free, None where no quota bounds the gang."""
    if closed(request, one):
        return None
    offers = Offers(request)
    line = offers.line(one)
    found = [tight for group in request.groups if (tight := offers.tight(one, line, group))]
    least = min(found, key=lambda tight: tight.free // max(tight.need, 1), default=None)
    return _row(one, queue_name(request, one), least.flavor, least.resource) if least else None


def _cells(queue: ClusterQueueRules, asked: set[str]) -> Iterator[tuple[str, str]]:
    for group in queue.groups:
        for flavor in group.flavors:
            yield from ((flavor, resource) for resource in sorted(group.resources & asked))


def _row(one: Candidate, queue: str, flavor: str, resource: str) -> Row:
    forest, key, cell = one.tree.forest, (CLUSTER_QUEUE, queue), (flavor, resource)
    line = cohort.quota_path(forest, key)
    return Row(
        flavor=flavor,
        resource=resource,
        nominal=forest.subtree_quota[key].get(cell, 0),
        used=forest.usage(key).get(cell, 0),
        free=max(0, cohort.available(line, cell)),
        ever=max(0, cohort.potential_available(line, cell)),
    )


def per_hour(prices: Prices, workers: Iterable[tuple[Resources, int]]) -> Decimal | None:
    """Add up what (requests of one worker, count) cost in an hour; None where no price is named.

    A resource without a price costs nothing: whoever names only the price of a GPU means that.
    """
    if not prices:
        return None
    return sum(
        (
            _units(name, amount) * prices[name] * count
            for one, count in workers
            for name, amount in one.items()
            if name in prices
        ),
        Decimal(0),
    )


def as_money(money: Decimal) -> str:
    """Two decimals, up to four where they say something: `1.20`, `0.0125`."""
    whole, _, cents = f"{money:.4f}".partition(".")
    return f"{whole}.{cents[:2]}{cents[2:].rstrip('0')}"


def _units(resource: str, amount: int) -> Decimal:
    per_unit = {CPU: _MILLI, "memory": _GIB}.get(resource, Decimal(1))
    return Decimal(amount) / per_unit
