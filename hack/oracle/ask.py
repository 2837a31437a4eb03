"""How are trees made in a cluster, Workloads asked for, and all of it removed? The talk to one API server, and nothing else.

Everything that it makes has one label and fixed names, so that what an interrupted run left is found and removed by the next
one; two runs on one cluster at the same time would take each other's objects away.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from kubernetes.aio import client as kube
from kubernetes.aio import config as kube_config

from adapter import names
from adapter.facts import key_of
from adapter.shell.client import Client
from adapter.shell.resources import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES, NAMESPACES, WORKLOADS, Resource
from hack.clusters import condition
from hack.lab.progress import LabError
from hack.oracle import draw, predict
from hack.oracle.draw import Tree
from hack.oracle.predict import Answer, Counts, Seen

Raw = dict[str, Any]

LABEL: Final = f"{names.DOMAIN}/oracle"
_WAVE: Final = f"{names.DOMAIN}/oracle-wave"
_KINDS: Final = (NAMESPACES, LOCAL_QUEUES, CLUSTER_QUEUES, COHORTS, FLAVORS)  # in the order in which they are removed
_PATIENCE: Final = 120.0  # seconds for a step with hundreds of objects on two busy cores; a fifth is usual
_PAUSE: Final = 0.3  # seconds between two lists; one of hundreds of Workloads costs a tenth of that


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Client]:
    """Log in by a kubeconfig of ours, in any way in which it logs in."""
    settings = kube.Configuration()
    await kube_config.load_kube_config(config_file=str(kubeconfig), client_configuration=settings)
    client = Client(kube.ApiClient(settings))
    try:
        yield client
    finally:
        await client.close()


async def look(client: Client) -> dict[str, list[Raw]]:
    """All objects of ours but Workloads, by the plural of their kind."""
    lists = await asyncio.gather(*(_list(client, kind, LABEL) for kind in _KINDS))
    return {kind.plural: found for kind, found in zip(_KINDS, lists, strict=True)}


async def see(client: Client) -> Seen:
    """The cluster as the planner would see it now."""
    return predict.see(await look(client))


async def build(client: Client, trees: Sequence[Tree]) -> None:
    """Make the trees, and wait until Kueue has taken in every queue."""
    await _create(client, NAMESPACES, [namespace(name, labels) for name, labels in draw.NAMESPACES.items()])
    await _create(client, FLAVORS, draw.flavors())
    await _create(client, COHORTS, [one for tree in trees for one in tree.cohorts])
    await _create(client, CLUSTER_QUEUES, [one for tree in trees for one in tree.cluster_queues])
    await _create(client, LOCAL_QUEUES, [one for tree in trees for one in tree.local_queues])
    active = {key_of(one) for tree in trees for one in draw.active(tree)}

    async def taken_in() -> bool:
        queues = [*await _list(client, CLUSTER_QUEUES, LABEL), *await _list(client, LOCAL_QUEUES, LABEL)]
        return all(_current(one) == ("True" if key_of(one) in active else "False") for one in queues)

    await _until(taken_in, "Kueue has taken in all queues")


async def answers(
    client: Client, wave: str, workloads: Iterable[Raw], patience: float, last: Callable[[Answer], bool]
) -> dict[str, Answer | None]:
    """Create Workloads, and return what Kueue says of each when all have an answer that is `last`, or time is up."""
    made = [_labelled(one, {_WAVE: wave}) for one in workloads]
    await _create(client, WORKLOADS, made)
    found: dict[str, Answer | None] = {}

    async def answered() -> bool:
        listed = await _list(client, WORKLOADS, f"{_WAVE}={wave}")
        found.update({one["metadata"]["name"]: predict.read(one) for one in listed})
        return all((given := found.get(one["metadata"]["name"])) and last(given) for one in made)

    await _until(answered, patience=patience)
    return {one["metadata"]["name"]: found.get(one["metadata"]["name"]) for one in made}


async def forget(client: Client, wave: str) -> None:
    """Delete the Workloads of a wave, and wait until they are gone."""
    await _delete(client, WORKLOADS, f"{_WAVE}={wave}")


async def clear(client: Client) -> None:
    """Delete all that has our label, and wait until it is gone."""
    await _delete(client, WORKLOADS, LABEL)
    for kind in _KINDS:
        await _delete(client, kind, LABEL)


async def settled(client: Client, done: Callable[[Seen], bool], patience: float) -> Seen:
    """Look until what is there is `done` or time is up, and return what was seen last."""
    seen = await see(client)

    async def looked() -> bool:
        nonlocal seen
        seen = await see(client)
        return done(seen)

    await _until(looked, patience=patience)
    return seen


def workload(name: str, question: draw.Question, counts: Counts) -> Raw:
    """A group Workload without pods, as `adapter.reservation` makes them, one podset for each count."""
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


def _labelled(body: Raw, more: Mapping[str, str]) -> Raw:
    labels = {**(body["metadata"].get("labels") or {}), **more}
    return body | {"metadata": body["metadata"] | {"labels": labels}}


def _current(queue: Raw) -> str:
    """The status of its condition Active, empty while that is about an older version of the object."""
    found = condition(queue, names.ACTIVE)
    return found.get("status", "") if found.get("observedGeneration") == queue["metadata"]["generation"] else ""


async def _create(client: Client, kind: Resource, bodies: Iterable[Raw]) -> None:
    ours = [_labelled(body, {LABEL: "true"}) for body in bodies]
    await asyncio.gather(*(client.create(kind.path(body["metadata"].get("namespace", "")), body) for body in ours))


async def _list(client: Client, kind: Resource, selector: str) -> list[Raw]:
    found: list[Raw] = (await client.get(kind.path(), labelSelector=selector))["items"]
    return found


async def _delete(client: Client, kind: Resource, selector: str) -> None:
    found = [one["metadata"] for one in await _list(client, kind, selector)]
    paths = [kind.path(one.get("namespace", ""), one["name"]) for one in found]
    await asyncio.gather(*(client.delete(path, one["uid"]) for path, one in zip(paths, found, strict=True)))

    async def gone() -> bool:
        return not await _list(client, kind, selector)

    await _until(gone, f"no {kind.plural} are left")


async def _until(done: Callable[[], Awaitable[bool]], what: str = "", patience: float = _PATIENCE) -> None:
    """Ask until it is done; when time is up, raise LabError if `what` names a thing that must happen."""
    deadline = time.monotonic() + patience
    while not await done():
        if time.monotonic() > deadline:
            if what:
                raise LabError(f"After {patience:.0f} s still not: {what}.")
            return
        await asyncio.sleep(_PAUSE)
