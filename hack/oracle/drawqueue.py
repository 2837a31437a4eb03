"""Draws specs of ClusterQueues, LocalQueues and Cohorts that Kueue's webhooks allow. Pure.

Everything that preemption could change is left out, since the arithmetic does not model it: preemption is Never
everywhere.
"""

from random import Random
from typing import Final

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from hack.oracle.drawpod import ABSENT, FLAVORS, GPU

Layout = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # resource groups: covered resources, flavors

# The namespaces of all trees, with their labels; a namespaceSelector tells them apart.
NAMESPACES: Final[dict[str, dict[str, str]]] = {"oracle-red": {"team": "red"}, "oracle-plain": {}}

_AMOUNTS: Final = {  # small, so that little fits and borrowing is the rule; fractions, so that rounding shows
    "cpu": ("0", "1", "2", "2500m", "3", "4", "6"),
    "memory": ("0", "1Gi", "2Gi", "4Gi", "5G", "7.5Gi"),
    GPU: ("0", "1", "2", "4"),
    "pods": ("0", "2", "3", "5", "9", "20"),
}
_UNLIMITED: Final = "16E"  # more than 64 bits hold: Kueue treats it as no limit
_SELECTORS: Final[tuple[Raw | None, ...]] = (
    *({},) * 28,  # everything, as most people write it
    {"matchLabels": {"team": "red"}},
    {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]},
    {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    None,
)
_FUNGIBILITY: Final[tuple[Raw, ...]] = (
    {},
    {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
    {"whenCanBorrow": "TryNextFlavor"},
    {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
    {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": "PreemptionOverBorrowing"},
)
_STOPS: Final = (*("None",) * 34, "Hold", "HoldAndDrain")


def layout(dice: Random) -> Layout:
    """The resources that share a group, and their flavors: equal for the whole tree, so that its queues can borrow."""
    resources = dice.sample(tuple(_AMOUNTS), dice.randint(1, len(_AMOUNTS)))
    chosen = dice.sample(tuple(FLAVORS), dice.randint(2, len(FLAVORS)))
    cut = dice.randint(1, len(resources) - 1) if len(resources) > 1 and dice.random() < 0.5 else 0
    if not cut:
        return ((tuple(resources), tuple(chosen[:3])),)
    half = len(chosen) // 2
    return ((tuple(resources[:cut]), tuple(chosen[:half][:3])), (tuple(resources[cut:]), tuple(chosen[half:][:3])))


def cohort(dice: Random, layout: Layout, name: str, above: list[str]) -> Raw:
    """A Cohort, mostly below one of those `above`, with quota of its own or without."""
    parent = dice.choice(above) if above and dice.random() < 0.9 else ""
    groups = _groups(dice, layout, limited=bool(parent), lends_all=True) if dice.random() < 0.5 else []
    return made("Cohort", name, {"resourceGroups": groups} | ({"parentName": parent} if parent else {}))


def cluster_queue(dice: Random, layout: Layout, name: str, cohorts: list[str], *, whole: bool = False) -> Raw:
    """A ClusterQueue, mostly in one of the cohorts; with the `whole` of the layout, or with less."""
    cohort = dice.choice(cohorts) if cohorts and dice.random() < 0.95 else ""
    selector = dice.choice(_SELECTORS)
    spec: Raw = {
        "resourceGroups": _groups(dice, _shuffled(dice, layout) if whole else _own(dice, layout), limited=bool(cohort)),
        **({} if selector is None else {"namespaceSelector": selector}),
        "flavorFungibility": dice.choice(_FUNGIBILITY),
        "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
        "stopPolicy": dice.choice(_STOPS),
    }
    return made("ClusterQueue", name, spec | ({"cohortName": cohort} if cohort else {}))


def _own(dice: Random, layout: Layout) -> Layout:
    """A queue has its tree's layout, or its flavors in another order, or fewer of them, or one that does not exist."""
    how = dice.random()
    if how < 0.6:
        return layout
    if how < 0.75:
        return _shuffled(dice, layout)
    if how < 0.95:
        return tuple((covered, chosen[:1]) for covered, chosen in layout[: dice.randint(1, len(layout))])
    (covered, chosen), *others = layout
    return ((covered, (*chosen, ABSENT)), *others)


def _shuffled(dice: Random, layout: Layout) -> Layout:
    return tuple((covered, tuple(dice.sample(chosen, len(chosen)))) for covered, chosen in layout)


def _groups(dice: Random, layout: Layout, *, limited: bool, lends_all: bool = False) -> list[Raw]:
    return [
        {
            "coveredResources": list(covered),
            "flavors": [
                {"name": one, "resources": [_row(dice, resource, limited, lends_all) for resource in covered]}
                for one in chosen
            ],
        }
        for covered, chosen in layout
    ]


def _row(dice: Random, resource: str, limited: bool, lends_all: bool) -> Raw:
    """Quota of one resource; `limited` by what only members of a cohort may have.

    Kueue lets a ClusterQueue lend no more than its own quota, and a Cohort, which lends its members' quota, any amount.
    """
    amounts = (*_AMOUNTS[resource], _UNLIMITED) if dice.random() < 0.05 else _AMOUNTS[resource]
    own = dice.randrange(len(amounts))
    row: Raw = {"name": resource, "nominalQuota": amounts[own]}
    if limited and dice.random() < 0.35:
        row["borrowingLimit"] = dice.choice(amounts)
    if limited and dice.random() < 0.35:
        row["lendingLimit"] = dice.choice(amounts if lends_all else amounts[: own + 1])
    return row


def local_queue(dice: Random, cluster_queue: str) -> Raw:
    """A LocalQueue of the same name, mostly into that ClusterQueue."""
    target = cluster_queue if dice.random() < 0.94 else f"{cluster_queue}-missing"
    queue = made("LocalQueue", cluster_queue, {"clusterQueue": target, "stopPolicy": dice.choice(_STOPS)})
    queue["metadata"]["namespace"] = dice.choice(tuple(NAMESPACES))
    return queue


def made(kind: str, name: str, spec: Raw) -> Raw:
    """An object of Kueue."""
    return {"apiVersion": names.KUEUE_API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
