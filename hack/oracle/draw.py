"""Draws a random tree, and the questions about it, from a seed. A seed always draws the same. Pure.

A tree is some ClusterQueues with LocalQueues, and the Cohorts above them. Between two questions a queue may be changed.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from adapter.objects.unstructured import RawDict as Raw
from hack.oracle import drawpod, drawqueue
from hack.oracle.drawpod import ABSENT, FLAVORS
from hack.oracle.drawqueue import NAMESPACES, Layout

__all__ = ["NAMESPACES", "ROUNDS", "Question", "Tree", "active", "changed", "flavors", "tree"]


ROUNDS: Final = 3  # questions about a tree: the load of a later one is what the earlier ones were admitted with


@dataclass(frozen=True)
class Question:
    """A question: a queue, and pods of these specs, one podset each.

    `shares` say how much of what fits is then taken, podset by podset: 1 is all. `change` is a ClusterQueue that
    replaces the one of its name before the question is asked.
    """

    namespace: str
    queue: str
    specs: tuple[Raw, ...]
    shares: tuple[float, ...]
    change: Raw | None = None


@dataclass(frozen=True)
class Tree:
    """The objects of one tree, as they are to be created, and the questions in the order in which they are asked."""

    name: str
    cohorts: tuple[Raw, ...]
    cluster_queues: tuple[Raw, ...]
    local_queues: tuple[Raw, ...]
    questions: tuple[Question, ...] = ()


def flavors() -> list[Raw]:
    """The ResourceFlavors that the trees share."""
    return [drawqueue.made("ResourceFlavor", name, spec) for name, spec in FLAVORS.items()]


def tree(seed: int, index: int) -> Tree:
    """Draw the tree number `index` of a seed; no other tree has its names."""
    dice = Random(f"{seed}/{index}")
    name = f"oracle-{seed}-{index}"
    layout = drawqueue.layout(dice)
    cohorts = [f"{name}-c{number}" for number in range(dice.randint(0, 4))]
    queues = [f"{name}-q{number}" for number in range(dice.randint(1, 4))]
    drawn = Tree(
        name=name,
        cohorts=tuple(_cohorts(dice, layout, cohorts)),
        cluster_queues=tuple(drawqueue.cluster_queue(dice, layout, each, cohorts) for each in queues),
        local_queues=tuple(drawqueue.local_queue(dice, each) for each in queues),
    )
    now, questions = drawn, []
    for number in range(ROUNDS):
        change = _change(dice, layout, queues, cohorts) if number and dice.random() < 0.3 else None
        now = changed(now, change)
        questions.append(replace(_question(dice, layout, now), change=change))
    asked = {question.queue for question in questions}
    return replace(
        drawn,
        local_queues=tuple(one for one in drawn.local_queues if one["metadata"]["name"] in asked),
        questions=tuple(questions),
    )


def changed(before: Tree, queue: Raw | None) -> Tree:
    """The tree with a ClusterQueue in place of the one of the same name."""
    if queue is None:
        return before
    name = queue["metadata"]["name"]
    return replace(
        before,
        cluster_queues=tuple(queue if one["metadata"]["name"] == name else one for one in before.cluster_queues),
    )


def active(of: Tree) -> list[Raw]:
    """The ClusterQueues and LocalQueues of the tree that Kueue calls active."""
    queues = [one for one in of.cluster_queues if one["spec"]["stopPolicy"] == "None" and ABSENT not in str(one)]
    targets = {one["metadata"]["name"] for one in queues}
    into = [one for one in of.local_queues if one["spec"]["clusterQueue"] in targets]
    return [*queues, *(one for one in into if one["spec"]["stopPolicy"] == "None")]


def _cohorts(dice: Random, layout: Layout, named: list[str]) -> list[Raw]:
    """Those cohorts that are objects; one that has no parent and no quota need not be.

    They never form a cycle, although our arithmetic handles one. A Workload that leaves a ClusterQueue below a cycle
    keeps Kueue 0.19.2 busy for ever, with its cache locked (pkg/cache/scheduler reportActiveWorkloads walks
    PathSelfToRoot).
    """
    made = [drawqueue.cohort(dice, layout, each, named[:number]) for number, each in enumerate(named)]
    return [one for one in made if dice.random() < 0.8 or "parentName" in one["spec"]]


def _change(dice: Random, layout: Layout, queues: list[str], cohorts: list[str]) -> Raw:
    """Other quotas, another order of flavors or another cohort for a queue: its load may then exceed its quota.

    The queue is never drained, as that would evict the load, and it loses no flavor. Kueue would go on counting what is
    in use there but no longer show it in status (cache.Usage), so only a reader of all Workloads could know it.
    """
    change = drawqueue.cluster_queue(dice, layout, dice.choice(queues), cohorts, whole=True)
    if change["spec"]["stopPolicy"] == "HoldAndDrain":
        change["spec"]["stopPolicy"] = "Hold"
    return change


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
