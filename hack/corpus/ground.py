"""The namespaces where samples are tried: a few, since some have one name, with what their pods need to be made.

All objects carry one label. What an interrupted run left is found by it and deleted first.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from adapter import names
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.resources import LOCAL_QUEUES, NAMESPACES, RAY_CLUSTERS, Resource
from hack.corpus import reduce
from hack.corpus.samples import Sample
from hack.lab.base.progress import step
from hack.testbed import bulk

NAMESPACE: Final = "corpus"  # the first one; our samples name it in their commands
DEFAULTS_QUEUE: Final = "defaults"  # the LocalQueue that adds the lines of the component job-defaults
_LABEL: Final = f"{names.DOMAIN}/corpus"
_PATIENCE: Final = 60.0  # seconds until an API server applies a new policy
_SERVICE_ACCOUNTS: Final = Resource("v1", "serviceaccounts")
_CLUSTER_SCOPED: Final = {
    "PriorityClass": Resource("scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    "RuntimeClass": Resource("node.k8s.io/v1", "runtimeclasses", namespaced=False),
}


def namespaces(samples: Iterable[Sample]) -> list[str]:
    """For each sample the first namespace in which its name is free."""
    taken: set[tuple[str, str]] = set()
    found: list[str] = []
    for sample in samples:
        number, name = 0, reduce.name_of(sample.body)
        while (f"{NAMESPACE}{number or ''}", name) in taken:
            number += 1
        taken.add((f"{NAMESPACE}{number or ''}", name))
        found.append(f"{NAMESPACE}{number or ''}")
    return found


@dataclass(frozen=True)
class Place:
    """A sample's namespace, its RayCluster there, and the objects that its pods need to be made."""

    namespace: str
    cluster: Raw | None
    needs: tuple[Raw, ...]


@asynccontextmanager
async def ready(client: Client, placed: Sequence[Place]) -> AsyncIterator[None]:
    """The namespaces, and what pods need to be made. What an earlier run left is deleted first, our own in the end."""
    await _clear(client)
    with step("corpus: what an earlier look left is gone"):
        await _gone(client)
    places = sorted({place.namespace for place in placed})
    await asyncio.gather(*(client.create(NAMESPACES.path(), _labelled({"metadata": {"name": it}})) for it in places))
    await asyncio.gather(*(client.create(LOCAL_QUEUES.path(it), _defaults_queue()) for it in places))
    needs = [need for place in placed for need in place.needs]
    await asyncio.gather(*(client.create(_CLUSTER_SCOPED[need["kind"]].path(), _labelled(need)) for need in needs))
    accounts = {(place.namespace, name) for place in placed if place.cluster for name in _accounts(place.cluster)}
    await asyncio.gather(
        *(client.create(_SERVICE_ACCOUNTS.path(it), {"metadata": {"name": name}}) for it, name in accounts)
    )
    await bulk.until(partial(_inhabited, client, places), "every namespace has its default service account")
    try:
        yield
    finally:
        await _clear(client)


def _defaults_queue() -> Raw:
    metadata = {"name": DEFAULTS_QUEUE, "labels": {names.JOB_DEFAULTS_LABEL: "true"}}
    return {
        "apiVersion": names.KUEUE_API_VERSION, "kind": "LocalQueue", "metadata": metadata,
        "spec": {"clusterQueue": "corpus"},
    }  # fmt: skip


async def await_defaults(manager: Client) -> None:
    """Wait until the API server applies the policy of the component job-defaults."""
    head = {"template": {"spec": {"containers": [{"name": "ray", "image": "ray"}]}}}
    labels = {names.QUEUE_LABEL: DEFAULTS_QUEUE}
    body = {
        "apiVersion": names.RAY_API_VERSION, "kind": "RayCluster", "metadata": {"name": "probe", "labels": labels},
        "spec": {"headGroupSpec": head},
    }  # fmt: skip

    async def is_applied() -> bool:
        try:
            await manager.dry_run_create(RAY_CLUSTERS.path(NAMESPACE), body)
        except ApiError:
            return False
        return True

    await bulk.until(is_applied, "the API server applies the policy of job-defaults", _PATIENCE)


async def _inhabited(client: Client, places: Sequence[str]) -> bool:
    """Whether pods can be made in all namespaces."""
    default = await client.get(_SERVICE_ACCOUNTS.path(), fieldSelector="metadata.name=default")
    return set(places) <= {one["metadata"]["namespace"] for one in default["items"]}


def _accounts(cluster: Raw) -> set[str]:
    """Service accounts that the pods name, which a user has made before; one that cannot exist stays away."""
    spec = cluster["spec"]
    templates = [group["template"]["spec"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
    named = {template.get("serviceAccountName") or "default" for template in templates}
    return {name for name in named if re.fullmatch(r"[a-z0-9.-]+", name)} - {"default"}


def _labelled(body: Raw) -> Raw:
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), _LABEL: "true"}}}


async def _clear(client: Client) -> None:
    """Delete what carries our label. RayClusters go before their namespaces: KubeRay would make their pods again
    otherwise.
    """
    ours = await _ours(client)
    for place in ours[NAMESPACES]:
        await _clear_clusters(client, place["metadata"]["name"])
    doomed = [(kind, one["metadata"]) for kind, found in ours.items() for one in found]
    await asyncio.gather(*(client.delete(kind.path(name=it["name"]), it["uid"]) for kind, it in doomed))


async def _clear_clusters(client: Client, namespace: str) -> None:
    """Delete the RayClusters of a namespace. One with Redis would wait for a Job that cannot run here: its finalizer is
    removed.
    """
    try:
        found = (await client.get(RAY_CLUSTERS.path(namespace)))["items"]
    except ApiError as refused:
        if refused.not_found:  # no KubeRay in this cluster
            return
        raise
    for one in found:
        path = RAY_CLUSTERS.path(*key_of(one))
        await client.delete(path, one["metadata"]["uid"])
        if one["metadata"].get("finalizers"):
            await client.merge_patch(path, {"metadata": {"uid": one["metadata"]["uid"], "finalizers": None}})


async def _ours(client: Client) -> dict[Resource, list[Raw]]:
    kinds = (NAMESPACES, *_CLUSTER_SCOPED.values())
    return {kind: (await client.get(kind.path(), labelSelector=_LABEL))["items"] for kind in kinds}


async def _gone(client: Client) -> None:
    async def gone() -> bool:
        return not any((await _ours(client)).values())

    await bulk.until(gone, "the namespaces of an earlier look are gone")
