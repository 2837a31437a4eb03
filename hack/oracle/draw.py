"""Which random tree, and which questions about it, does a seed stand for? The same seed draws the same, always. Pure.

A tree is some ClusterQueues with LocalQueues, and the Cohorts above them. Everything that preemption could change is left
out, since the arithmetic does not model it: preemption is Never everywhere.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from adapter import names
from hack.oracle import drawpod
from hack.oracle.drawpod import ABSENT, FLAVORS, GPU

Raw = dict[str, Any]
Layout = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # resource groups: covered resources, flavors

# The namespaces of all trees, with their labels; a namespaceSelector tells them apart.
NAMESPACES: Final[dict[str, dict[str, str]]] = {"oracle-red": {"team": "red"}, "oracle-plain": {}}
ROUNDS: Final = 3  # questions about a tree: the load of the later ones is what the earlier ones were given

_AMOUNTS: Final = {  # small, so that little fits and borrowing is the rule; fractions, so that rounding shows
    "cpu": ("0", "1", "2", "2500m", "3", "4", "6"),
    "memory": ("0", "1Gi", "2Gi", "4Gi", "5G", "7.5Gi"),
    GPU: ("0", "1", "2", "4"),
    "pods": ("0", "2", "3", "5", "9", "20"),
}
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


@dataclass(frozen=True)
class Question:
    """Who asks in which queue for pods of these specs, one podset each.

    `shares` say how much of what fits is then really taken, podset by podset: 1 is all.
    """

    namespace: str
    queue: str
    specs: tuple[Raw, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Tree:
    """The objects of one tree, as they are to be created, and the questions in the order in which they are asked."""

    name: str
    cohorts: tuple[Raw, ...]
    cluster_queues: tuple[Raw, ...]
    local_queues: tuple[Raw, ...]
    questions: tuple[Question, ...]


def flavors() -> list[Raw]:
    """The ResourceFlavors that the trees share."""
    return [_object("ResourceFlavor", name, spec) for name, spec in FLAVORS.items()]


def tree(seed: int, index: int) -> Tree:
    """Draw the tree number `index` of a seed; no other tree has its names."""
    dice = Random(f"{seed}/{index}")
    name = f"oracle-{seed}-{index}"
    layout = _layout(dice)
    cohorts = [f"{name}-c{number}" for number in range(dice.randint(0, 4))]
    queues = [f"{name}-q{number}" for number in range(dice.randint(1, 4))]
    made = [_cohort(dice, layout, each, cohorts[:number]) for number, each in enumerate(cohorts)]
    named = [one for one in made if dice.random() < 0.8 or "parentName" in one["spec"]]  # the others are implied
    cluster_queues = tuple(_cluster_queue(dice, layout, each, cohorts) for each in queues)
    local_queues = tuple(_local_queue(dice, each) for each in queues)
    drawn = Tree(name, tuple(named), cluster_queues, local_queues, ())
    return replace(drawn, questions=tuple(_question(dice, layout, drawn) for _ in range(ROUNDS)))


def active(tree: Tree) -> list[Raw]:
    """The ClusterQueues and LocalQueues of the tree that Kueue calls active: they take Workloads."""
    queues = [one for one in tree.cluster_queues if one["spec"]["stopPolicy"] == "None" and ABSENT not in str(one)]
    targets = {one["metadata"]["name"] for one in queues}
    into = [one for one in tree.local_queues if one["spec"]["clusterQueue"] in targets]
    return [*queues, *(one for one in into if one["spec"]["stopPolicy"] == "None")]


def _layout(dice: Random) -> Layout:
    """Which resources share a group, and their flavors: the same for the whole tree, so that its queues can borrow."""
    resources = dice.sample(tuple(_AMOUNTS), dice.randint(1, len(_AMOUNTS)))
    chosen = dice.sample(tuple(FLAVORS), dice.randint(2, len(FLAVORS)))
    cut = dice.randint(1, len(resources) - 1) if len(resources) > 1 and dice.random() < 0.5 else 0
    if not cut:
        return ((tuple(resources), tuple(chosen[:3])),)
    half = len(chosen) // 2
    return ((tuple(resources[:cut]), tuple(chosen[:half][:3])), (tuple(resources[cut:]), tuple(chosen[half:][:3])))


def _cohort(dice: Random, layout: Layout, name: str, above: list[str]) -> Raw:
    parent = dice.choice(above) if above and dice.random() < 0.9 else ""
    groups = _groups(dice, layout, limited=bool(parent), lends_all=True) if dice.random() < 0.5 else []
    return _object("Cohort", name, {"resourceGroups": groups} | ({"parentName": parent} if parent else {}))


def _cluster_queue(dice: Random, layout: Layout, name: str, cohorts: list[str]) -> Raw:
    cohort = dice.choice(cohorts) if cohorts and dice.random() < 0.95 else ""
    spec: Raw = {
        "resourceGroups": _groups(dice, _own(dice, layout), limited=bool(cohort)),
        "namespaceSelector": dice.choice(_SELECTORS),
        "flavorFungibility": dice.choice(_FUNGIBILITY),
        "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
        "stopPolicy": dice.choice(_STOPS),
    }
    return _object("ClusterQueue", name, spec | ({"cohortName": cohort} if cohort else {}))


def _own(dice: Random, layout: Layout) -> Layout:
    """A queue has its tree's layout, or its flavors in another order, or fewer of them, or one that does not exist."""
    how = dice.random()
    if how < 0.6:
        return layout
    if how < 0.75:
        return tuple((covered, tuple(dice.sample(chosen, len(chosen)))) for covered, chosen in layout)
    if how < 0.95:
        return tuple((covered, chosen[:1]) for covered, chosen in layout[: dice.randint(1, len(layout))])
    (covered, chosen), *others = layout
    return ((covered, (*chosen, ABSENT)), *others)


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

    Kueue lets a ClusterQueue lend no more than it has itself, and a Cohort, which lends what its members have, anything.
    """
    amounts = _AMOUNTS[resource]
    own = dice.randrange(len(amounts))
    row: Raw = {"name": resource, "nominalQuota": amounts[own]}
    if limited and dice.random() < 0.35:
        row["borrowingLimit"] = dice.choice(amounts)
    if limited and dice.random() < 0.35:
        row["lendingLimit"] = dice.choice(amounts if lends_all else amounts[: own + 1])
    return row


def _local_queue(dice: Random, cluster_queue: str) -> Raw:
    target = cluster_queue if dice.random() < 0.97 else f"{cluster_queue}-missing"
    made = _object("LocalQueue", cluster_queue, {"clusterQueue": target, "stopPolicy": dice.choice(_STOPS)})
    made["metadata"]["namespace"] = dice.choice(tuple(NAMESPACES))
    return made


def _question(dice: Random, layout: Layout, drawn: Tree) -> Question:
    """Most questions go where something is taken: the numbers are what can be wrong in many ways."""
    working = [one for one in active(drawn) if one["kind"] == "LocalQueue"]
    into = dice.choice(working if working and dice.random() < 0.8 else drawn.local_queues)["metadata"]
    queue = into["name"] if dice.random() < 0.98 else f"{into['name']}-missing"
    covered = {resource for group, _ in layout for resource in group}
    count = 2 if dice.random() < 0.2 else 1
    return Question(
        namespace=into["namespace"],
        queue=queue,
        specs=tuple(drawpod.pod_spec(dice, covered) for _ in range(count)),
        shares=tuple(dice.choice((1.0, 1.0, 0.5, dice.random())) for _ in range(count)),
    )


def _object(kind: str, name: str, spec: Raw) -> Raw:
    return {"apiVersion": names.KUEUE_API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
