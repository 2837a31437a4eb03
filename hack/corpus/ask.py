"""Asks real API servers: which pods KubeRay makes of the samples, and whether a worker cluster takes them.

All samples are created at once and read together, since KubeRay's work takes most of the time. It decides nothing.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from adapter import names
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.resources import EVENTS, PODS, RAY_CLUSTERS, Resource
from hack.corpus import ground, judge, reduce, samples
from hack.corpus.judge import Seen
from hack.corpus.samples import Sample
from hack.lab.base.progress import LabError, step
from hack.testbed import bulk
from hack.testbed.clusters import condition

Key = tuple[str, str]

_PATIENCE: Final = 90.0  # seconds for KubeRay to make all pods; on other clusters than the lab it has a tenth of a core
_STRICT: Final = "dryRun=All&fieldValidation=Strict"  # as kubectl asks
_RAY: Final = {
    kind: Resource(names.RAY_API_VERSION, f"{kind.lower()}s")
    for kind in ("RayCluster", "RayJob", "RayService", "RayCronJob")
}
_DENIED: Final = re.compile(r'^admission webhook "\S+" denied the request: ')


def run(manager: Path, worker: Path) -> list[Seen]:
    """Look at all samples in a manager and a worker cluster, by their kubeconfigs."""
    return asyncio.run(_run(manager, worker))


async def _run(manager: Path, worker: Path) -> list[Seen]:
    async with bulk.connected(manager) as home, bulk.connected(worker) as away:
        return await look(home, away, samples.read())


async def look(manager: Client, worker: Client, samples: Sequence[Sample]) -> list[Seen]:
    """Have every sample's workers made, rewritten and shown to the worker cluster."""
    seen = [_placed(sample, place) for sample, place in zip(samples, ground.namespaces(samples), strict=True)]
    async with ground.ready(manager, seen), ground.ready(worker, seen):
        with step(f"corpus: KubeRay makes the pods of {len(seen)} samples"):
            seen = await _with_pods(manager, await asyncio.gather(*(_submitted(manager, one) for one in seen)))
        with step("corpus: the worker cluster looks at them"):
            return list(await asyncio.gather(*(_shown(worker, one) for one in seen)))


def _placed(sample: Sample, namespace: str) -> Seen:
    try:
        return Seen(sample, reduce.ray_cluster(sample.body, namespace))
    except reduce.NoCluster as why:
        return Seen(sample, {"metadata": {"namespace": namespace}}, trouble=str(why))


async def _submitted(manager: Client, seen: Seen) -> Seen:
    """Ask what a queue would say to the sample as it is, and create its RayCluster without one."""
    body, namespace = seen.sample.body, seen.cluster["metadata"]["namespace"]
    queued = reduce.in_queue(body, namespace, "any")
    kueue = await _refusal(manager, f"{_RAY[body['kind']].path(namespace)}?{_STRICT}", queued)
    if seen.trouble:
        return replace(seen, kueue=kueue)
    why = await _refusal(manager, f"{RAY_CLUSTERS.path(namespace)}?fieldValidation=Strict", seen.cluster)
    return replace(seen, kueue=kueue, trouble=f"the API server refuses it: {why}" if why else "")


async def _with_pods(manager: Client, seen: Sequence[Seen]) -> list[Seen]:
    """Wait until KubeRay has made a pod of each worker group, or said why it does not."""
    found: list[Seen] = []

    async def done() -> bool:
        pods, told = await _pods(manager), await _complaints(manager)
        found[:] = [_filled(one, pods, told) for one in seen]
        return all(one.trouble or _complete(one) for one in found)

    await bulk.until(done, patience=_PATIENCE)
    late = [key_of(one.cluster)[1] for one in found if not one.trouble and not _complete(one)]
    if late:
        raise LabError(
            f"After {_PATIENCE:.0f} s KubeRay has created no workers for {', '.join(late)}, and says nothing."
        )
    return found


def _filled(seen: Seen, pods: dict[Key, dict[str, Raw]], told: dict[Key, str]) -> Seen:
    if seen.trouble:
        return seen
    key = key_of(seen.cluster)
    return replace(seen, pods=pods.get(key, {}), trouble=told.get(key, ""))


def _complete(seen: Seen) -> bool:
    return seen.pods.keys() == {group["groupName"] for group in seen.cluster["spec"]["workerGroupSpecs"]}


async def _pods(manager: Client) -> dict[Key, dict[str, Raw]]:
    """RayCluster -> worker group -> its first pod."""
    found: dict[Key, dict[str, Raw]] = {}
    listed: list[Raw] = (await manager.get(PODS.path(), labelSelector=f"{names.PLACEMENT_LABEL}={reduce.PLACEMENT}"))[
        "items"
    ]
    for pod in sorted(listed, key=_rank):
        labels = pod["metadata"]["labels"]
        cluster = (pod["metadata"]["namespace"], labels[names.RAY_GCS_CLUSTER_LABEL])
        found.setdefault(cluster, {}).setdefault(
            labels[names.RAY_GCS_GROUP_LABEL], {"apiVersion": "v1", "kind": "Pod", **pod}
        )
    return found


def _rank(pod: Raw) -> tuple[int, ...]:
    labels = pod["metadata"]["labels"]
    return tuple(
        int(labels.get(f"ray.io/{what}") or 0) for what in ("worker-group-replica-index", "replica-host-index")
    )


async def _complaints(manager: Client) -> dict[Key, str]:
    """Why KubeRay makes no pods of a RayCluster, as its events and conditions say."""
    found: dict[Key, str] = {}
    for event in (await manager.get(EVENTS.path(), fieldSelector="involvedObject.kind=RayCluster"))["items"]:
        about = event["involvedObject"]
        if event["reason"].startswith("InvalidRayCluster"):
            key = (about["namespace"], about["name"])
            found[key] = f"KubeRay refuses it: {event['message'].replace(f' {key[0]}/{key[1]}', '')}"
    for cluster in (await manager.get(RAY_CLUSTERS.path()))["items"]:
        failed = condition(cluster, "ReplicaFailure")
        if failed.get("status") == "True":
            found[key_of(cluster)] = f"KubeRay cannot make its pods: {' '.join(failed['message'].split())}"
    return found


async def _shown(worker: Client, seen: Seen) -> Seen:
    """Ask the worker cluster about the rewritten pods."""
    if seen.trouble:
        return seen
    said = {
        group: await _refusal(worker, f"{PODS.path(key_of(pod)[0])}?{_STRICT}", judge.rewritten(pod))
        for group, pod in seen.pods.items()
    }
    return replace(seen, answers=said)


async def _refusal(client: Client, path: str, body: Raw) -> str:
    """Create an object, and return why it is refused; empty if it is taken."""
    try:
        await client.create(path, body)
    except ApiError as refused:
        if refused.status in (400, 403, 404, 422):
            return _DENIED.sub("", refused.message or refused.reason)
        raise
    return ""
