"""Makes trees in a cluster, submits Workloads to them, and removes all of it.

Names are fixed, so that a disagreement can be found again. Two runs on one cluster at one time would delete each
other's objects.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES, NAMESPACES, WORKLOADS
from hack.oracle import draw, judge, predict
from hack.oracle.draw import Tree
from hack.oracle.judge import Answer
from hack.oracle.predict import Counts, Seen
from hack.testbed import bulk
from hack.testbed.clusters import condition

_WAVE: Final = f"{names.DOMAIN}/oracle-wave"
_KINDS: Final = (NAMESPACES, LOCAL_QUEUES, CLUSTER_QUEUES, COHORTS, FLAVORS)


async def see(client: Client) -> Seen:
    """The cluster as the planner would see it now."""
    lists = await asyncio.gather(*(bulk.listed(client, kind, bulk.LABEL) for kind in _KINDS))
    return predict.see({kind.plural: found for kind, found in zip(_KINDS, lists, strict=True)})


async def build(client: Client, trees: Sequence[Tree]) -> None:
    """Make the trees, and wait until Kueue has taken in every queue."""
    await bulk.create(client, NAMESPACES, [namespace(name, labels) for name, labels in draw.NAMESPACES.items()])
    await bulk.create(client, FLAVORS, draw.flavors())
    await bulk.create(client, COHORTS, [one for tree in trees for one in tree.cohorts])
    await bulk.apply(client, CLUSTER_QUEUES, [one for tree in trees for one in tree.cluster_queues])
    await bulk.create(client, LOCAL_QUEUES, [one for tree in trees for one in tree.local_queues])
    await _taken_in(client, trees)


async def change(client: Client, trees: Sequence[Tree], queues: Iterable[Raw]) -> None:
    """Replace ClusterQueues of the trees, and wait until Kueue has taken them in; `trees` are as they are to become."""
    await bulk.apply(client, CLUSTER_QUEUES, queues)
    await _taken_in(client, trees)


async def answers(
    client: Client, wave: str, workloads: Iterable[Raw], patience: float, last: Callable[[Answer], bool]
) -> dict[str, Answer | None]:
    """Create Workloads, and return what Kueue says of each when all have an answer that is `last`, or time is up."""
    made = [bulk.labelled(one, {_WAVE: wave}) for one in workloads]
    await bulk.create(client, WORKLOADS, made)
    found: dict[str, Answer | None] = {}

    async def answered() -> bool:
        listed = await bulk.listed(client, WORKLOADS, f"{_WAVE}={wave}")
        found.update({one["metadata"]["name"]: judge.read(one) for one in listed})
        return all((given := found.get(one["metadata"]["name"])) and last(given) for one in made)

    await bulk.until(answered, patience=patience)
    return {one["metadata"]["name"]: found.get(one["metadata"]["name"]) for one in made}


async def forget(client: Client, wave: str) -> None:
    """Delete the Workloads of a wave, and wait until they are gone."""
    await bulk.delete(client, WORKLOADS, f"{_WAVE}={wave}")


async def clear(client: Client) -> None:
    """Delete all that has our label, and wait until it is gone."""
    await bulk.delete(client, WORKLOADS, bulk.LABEL)  # first: Kueue keeps a queue while it has work
    await asyncio.gather(*(bulk.delete(client, kind, bulk.LABEL) for kind in _KINDS))


async def settled(client: Client, done: Callable[[Seen], bool], patience: float) -> Seen:
    """Look until what is there is `done` or time is up, and return what was seen last."""
    seen = await see(client)

    async def looked() -> bool:
        nonlocal seen
        seen = await see(client)
        return done(seen)

    await bulk.until(looked, patience=patience)
    return seen


def workload(name: str, question: draw.Question, counts: Counts) -> Raw:
    """A group Workload without pods, as `adapter.rewrite.group_workload` makes them, one podset for each count."""
    podsets = [
        {"name": f"podset-{number}", "count": count, "template": {"spec": spec}}
        for number, (spec, count) in enumerate(zip(question.specs, counts, strict=True))
    ]
    annotations = {names.GROUP_WORKLOAD_ANNOTATION: "true"}
    return {
        "apiVersion": names.KUEUE_API_VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": question.namespace, "annotations": annotations},
        "spec": {"active": True, "queueName": question.queue, "podSets": podsets},
    }


def namespace(name: str, labels: Mapping[str, str]) -> Raw:
    """A namespace, as a tree sees it."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}


def _current(queue: Raw) -> str:
    """The status of its condition Active, empty while that is about an older version of the object."""
    found = condition(queue, names.ACTIVE)
    return found.get("status", "") if found.get("observedGeneration") == queue["metadata"]["generation"] else ""


async def _taken_in(client: Client, trees: Sequence[Tree]) -> None:
    """Wait until every queue says that it is active, or that it is not, whichever it must."""
    active = {key_of(one) for tree in trees for one in draw.active(tree)}
    ours = {key_of(one) for tree in trees for one in (*tree.cluster_queues, *tree.local_queues)}

    async def told() -> bool:
        queues = [
            *await bulk.listed(client, CLUSTER_QUEUES, bulk.LABEL),
            *await bulk.listed(client, LOCAL_QUEUES, bulk.LABEL),
        ]
        return all(_current(one) == str(key_of(one) in active) for one in queues if key_of(one) in ours)

    await bulk.until(told, "Kueue has taken in all queues")
