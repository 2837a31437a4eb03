"""Asks real API servers: who takes the samples, which pods KubeRay makes of them, and whether a worker cluster does.

All samples are created at once and read together, since KubeRay's work takes most of the time. It decides nothing.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from adapter import names
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.resources import EVENTS, PODS, RAY_CLUSTERS, WORKER_CLUSTERS, Resource
from hack.corpus import ground, judge, naming, reduce, samples
from hack.corpus.answers import TAKEN, Answers, Refusal
from hack.corpus.samples import Sample
from hack.lab.base.progress import LabError, step
from hack.testbed import bulk
from hack.testbed.clusters import Clusters, condition
from hack.testbed.stage import added

Key = tuple[str, str]

_PATIENCE: Final = 90.0  # seconds for KubeRay to make all pods; on other clusters than the lab it has a tenth of a core
_STRICT: Final = "dryRun=All&fieldValidation=Strict"  # as kubectl asks
_RAY: Final = {
    kind: Resource(names.RAY_API_VERSION, f"{kind.lower()}s") for kind in ("RayCluster", "RayJob", "RayService")
}
_DENIED: Final = re.compile(r'^admission webhook "\S+" denied the request: ')
_OBJECT: Final = re.compile(r'^\S+\.(?:ray\.io|rayspan\.dev) "\S*" is invalid: ')
# The API server's words for it come in any order, and do not say what to do.
_NULL: Final = 'rayStartParams in body must be of type object: "null"'
_ADDED_FIELDS: Final = ("shutdownAfterJobFinishes", "rayStartParams", names.ELASTIC_ANNOTATION)


@dataclass(frozen=True)
class Seen:
    """The answers for a sample, its RayCluster as it is created, and a worker pod for each worker group."""

    sample: Sample
    namespace: str
    cluster: Raw | None
    answers: Answers = field(default_factory=Answers)
    pods: Mapping[str, Raw] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """Whether there are as many pods as there will be."""
        if self.cluster is None or self.answers.alone or self.answers.kuberay:
            return True
        return self.pods.keys() == {group["groupName"] for group in self.cluster["spec"]["workerGroupSpecs"]}


def run(fleet: Clusters) -> list[Seen]:
    """Ask about all samples in a fleet's manager and its first worker cluster."""
    with added(fleet.manager, "job-defaults"):
        return asyncio.run(_run(fleet))


async def _run(fleet: Clusters) -> list[Seen]:
    worker = next(iter(fleet.workers.values()))
    async with bulk.connected(fleet.manager.kubeconfig) as home, bulk.connected(worker.kubeconfig) as away:
        return await ask(home, away, samples.read())


async def ask(manager: Client, worker: Client, all_samples: Sequence[Sample]) -> list[Seen]:
    """Have every sample's workers made, rewritten and shown to the worker cluster."""
    seen = [
        Seen(sample, namespace, reduce.ray_cluster(sample.body, namespace))
        for sample, namespace in zip(all_samples, ground.namespaces(all_samples), strict=True)
    ]
    places = [ground.Place(entry.namespace, entry.cluster, entry.sample.needs) for entry in seen]
    async with ground.ready(manager, places), ground.ready(worker, places):
        await ground.await_defaults(manager)
        with step(f"corpus: KubeRay makes the pods of {len(seen)} samples"):
            seen = await _with_pods(manager, await asyncio.gather(*(_submitted(manager, entry) for entry in seen)))
        with step("corpus: the worker cluster looks at them"):
            return list(await asyncio.gather(*(_shown(worker, entry) for entry in seen)))


async def _submitted(manager: Client, seen: Seen) -> Seen:
    """Ask about the sample without and with a queue, and create its RayCluster without one."""
    alone, _ = await _dry_run(manager, reduce.in_queue(seen.sample.body, seen.namespace, ""))
    queue, _ = await _dry_run_queued(manager, seen, "any")
    defaults_queue, stored = await _dry_run_queued(manager, seen, ground.DEFAULTS_QUEUE)
    pods = naming.names_for(reduce.worker_templates(seen.sample.body), seen.namespace) if not alone else {}
    named, _ = await _dry_run(manager, {**naming.worker_cluster(pods), "metadata": {"name": "corpus"}})
    if seen.cluster is not None and not alone:
        alone, _ = await _create(manager, f"{RAY_CLUSTERS.path(seen.namespace)}?fieldValidation=Strict", seen.cluster)
    sent = reduce.queued_object(reduce.in_queue(seen.sample.body, seen.namespace, ground.DEFAULTS_QUEUE))
    lines = dict(added_fields(sent, stored)) if stored else {}
    answers = Answers(alone=alone, queue=queue, defaults_queue=defaults_queue, defaults=lines, worker_cluster=named)
    return replace(seen, answers=answers)


async def _dry_run_queued(manager: Client, seen: Seen, queue: str) -> tuple[Refusal, Raw]:
    return await _dry_run(manager, reduce.queued_object(reduce.in_queue(seen.sample.body, seen.namespace, queue)))


def added_fields(sent: Any, stored: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The lines that the component job-defaults adds: their path as JSON, and value."""
    if isinstance(sent, list):
        for index, (before, after) in enumerate(zip(sent, stored, strict=False)):
            yield from added_fields(before, after, (*path, index))
    elif isinstance(sent, Mapping) and isinstance(stored, Mapping):
        for key, value in stored.items():
            if key in _ADDED_FIELDS and sent.get(key) != value:
                yield json.dumps([*path, key]), value
            elif key in sent or key == "annotations":
                yield from added_fields(sent.get(key) or {}, value, (*path, key))


async def _with_pods(manager: Client, seen: Sequence[Seen]) -> list[Seen]:
    """Wait until KubeRay has made a pod of each worker group, or said why it does not."""
    settled: list[Seen] = []

    async def are_settled() -> bool:
        pods, complaints = await _pods(manager), await _complaints(manager)
        settled[:] = [_with_answer(entry, pods, complaints) for entry in seen]
        return all(entry.is_settled for entry in settled)

    await bulk.until(are_settled, patience=_PATIENCE)
    if silent := [entry.sample.key for entry in settled if not entry.is_settled]:
        raise LabError(
            f"After {_PATIENCE:.0f} s KubeRay has created no workers for {', '.join(silent)}, and says nothing."
        )
    return settled


def _with_answer(seen: Seen, pods: dict[Key, dict[str, Raw]], complaints: dict[Key, str]) -> Seen:
    if seen.cluster is None or seen.answers.alone:
        return seen
    key = key_of(seen.cluster)
    return replace(seen, pods=pods.get(key, {}), answers=replace(seen.answers, kuberay=complaints.get(key, "")))


async def _pods(manager: Client) -> dict[Key, dict[str, Raw]]:
    """RayCluster -> worker group -> its first pod."""
    pods: dict[Key, dict[str, Raw]] = {}
    selector = f"{names.PLACEMENT_LABEL}={reduce.PLACEMENT}"
    listed: list[Raw] = (await manager.get(PODS.path(), labelSelector=selector))["items"]
    for pod in sorted(listed, key=_rank):
        labels = pod["metadata"]["labels"]
        cluster = (pod["metadata"]["namespace"], labels[names.RAY_GCS_CLUSTER_LABEL])
        whole = {"apiVersion": "v1", "kind": "Pod", **pod}
        pods.setdefault(cluster, {}).setdefault(labels[names.RAY_GCS_GROUP_LABEL], whole)
    return pods


def _rank(pod: Raw) -> tuple[int, ...]:
    labels = pod["metadata"]["labels"]
    return tuple(int(labels.get(key) or 0) for key in (names.RAY_REPLICA_INDEX_LABEL, names.RAY_HOST_INDEX_LABEL))


async def _complaints(manager: Client) -> dict[Key, str]:
    """Why KubeRay makes no pods of a RayCluster, as its events and conditions say."""
    complaints: dict[Key, str] = {}
    for event in (await manager.get(EVENTS.path(), fieldSelector="involvedObject.kind=RayCluster"))["items"]:
        about = event["involvedObject"]
        if event["reason"].startswith("InvalidRayCluster"):
            key = (about["namespace"], about["name"])
            complaints[key] = f"KubeRay refuses it: {event['message'].replace(f' {key[0]}/{key[1]}', '')}"
    for cluster in (await manager.get(RAY_CLUSTERS.path()))["items"]:
        failed = condition(cluster, "ReplicaFailure")
        if failed.get("status") == "True":
            complaints[key_of(cluster)] = f"KubeRay cannot make its pods: {' '.join(failed['message'].split())}"
    return complaints


async def _shown(worker: Client, seen: Seen) -> Seen:
    """Ask the worker cluster about the rewritten pods, with all that the sample needs named."""
    if seen.cluster is None or seen.answers.alone or seen.answers.kuberay:
        return seen
    mapping = judge.mapping_of(seen.sample)
    answers = {}
    for group, pod in sorted(seen.pods.items()):
        denied, _ = await _create(worker, f"{PODS.path(seen.namespace)}?{_STRICT}", judge.rewritten(pod, mapping))
        answers[group] = judge.pod_answer(seen.cluster, pod, mapping, denied)
    return replace(seen, answers=replace(seen.answers, pods=answers))


async def _dry_run(client: Client, body: Raw) -> tuple[Refusal, Raw]:
    resource = WORKER_CLUSTERS if body["kind"] == names.WORKER_CLUSTER_KIND else _RAY[body["kind"]]
    namespace = body["metadata"].get("namespace", "") if resource.namespaced else ""
    return await _create(client, f"{resource.path(namespace)}?{_STRICT}", body)


async def _create(client: Client, path: str, body: Raw) -> tuple[Refusal, Raw]:
    """Create an object, and return why it is refused, or the object as it is stored."""
    try:
        return TAKEN, await client.create(path, body)
    except ApiError as refused:
        if refused.status in (400, 403, 404, 422):
            return Refusal(refused.reason or str(refused.status), plain_words(refused.message or refused.reason)), {}
        raise


def plain_words(message: str) -> str:
    """An API server's message without the object's name, so that samples with the same fault have the same text."""
    if _NULL in message:
        return (
            "a group has no rayStartParams: the webhook makes null of it, which the API server refuses; write "
            "rayStartParams: {}"
        )
    return _OBJECT.sub("", _DENIED.sub("", message))
