"""What does somebody who asks for a plan get to read: the planner's decision with the facts it was made on, as data.

Plain JSON values under names that stay: programs read them, and `table` shows them to people. It decides nothing, and
says nothing that a Placement of the same job would not say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from adapter.objects.placement import Share
from adapter.objects.podrequests import PODS, Resources, as_text
from adapter.planning import ledger, price, strategy
from adapter.planning.offers import Offers
from adapter.planning.planner import Plan
from adapter.planning.price import Prices
from adapter.planning.request import Candidate, Request, closed, queue_name
from adapter.planning.verdict import Verdict

Answer = dict[str, Any]


def refused(about: Mapping[str, Any], sentence: str) -> Answer:
    """No cluster was asked: the sentence says why the job would not get so far."""
    return {**about, "fits": False, "sentence": sentence, "clusters": []}


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
    scarce = ledger.scarcest(request, one)
    groups = {group.name: group.count for group in share.groups} if share else {}
    return {
        "asked": asked.index(one.name) + 1 if one.name in asked else None,
        "cluster": one.name,
        "zone": one.zone,
        "clusterQueue": queue_name(request, one),
        "nominal": found.nominal,
        "borrow": found.borrow,
        "ever": found.ever,
        "chosen": found.chosen,
        **({"groups": groups} if len(request.groups) > 1 and groups else {}),
        **({"preempts": True} if share and share.preempts else {}),
        "reason": found.reason,
        "pricePerHour": None if cost is None else price.as_text(cost),
        "scarcest": _quota(scarce) if scarce else None,
        "quota": [_quota(row) for row in ledger.rows(request, one)],
    }


def _quota(row: ledger.Row) -> Answer:
    amounts = {"nominal": row.nominal, "used": row.used, "free": row.free, "ever": row.ever}
    texts = {name: as_text(amount, row.resource) for name, amount in amounts.items()}
    return {"flavor": row.flavor, "resource": row.resource, **texts}


def _cost(request: Request, share: Share, prices: Prices) -> Decimal | None:
    asks = {group.name: group.request for group in request.groups}
    return price.per_hour(prices, [(asks[part.name], part.count) for part in share.groups])


def _total(costs: Mapping[str, Decimal | None]) -> Answer:
    """The whole gang's price, and which of its clusters name none; nothing where none does."""
    known = [cost for cost in costs.values() if cost is not None]
    if not known:
        return {}
    without = [name for name, cost in costs.items() if cost is None]
    total = price.as_text(sum(known, Decimal(0)))
    return {"pricePerHour": total, **({"withoutPrice": without} if without else {})}


def _texts(request: Resources) -> dict[str, str]:
    return {name: as_text(amount, name) for name, amount in sorted(request.items()) if name != PODS}
