"""`rayspan render`: what would a worker pod look like in a worker cluster, and what was changed and why?

The code of real copies, applied to a file; no cluster is asked. Exit code 0: all of it can go; 3: some cannot, and the
standard error says why; 2: there is nothing to show.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import yaml

from adapter import names
from adapter.admission import job_validation, pod_validation
from adapter.cli import common
from adapter.cli.common import DONE, USAGE, complain
from adapter.cli.pod_diff import changes
from adapter.objects import rayjob, rayservice, specs
from adapter.objects.placement import ShareKey
from adapter.objects.rayjob import Unusable
from adapter.objects.unstructured import UNREADABLE, Raw, label, meta
from adapter.objects.worker_pod import Slot
from adapter.rewrite import group_workload, rewriter, stripping
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target

REFUSED = 3
_NOBODY = "00000000-0000-0000-0000-000000000000"  # the uid of what does not exist yet
_CLUSTER = {"kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": "worker"}}
_SOURCE = {"kubeConfig": {"secretRef": {"name": "any"}}}  # nobody connects


@dataclass(frozen=True, slots=True)
class Found:
    """A worker pod, or a worker template as a pod; `why` says all that keeps it from going."""

    where: str
    pod: Raw
    why: tuple[str, ...] = ()
    template: bool = False


def main(given: argparse.Namespace) -> int:
    """Print what can go, say what cannot, and return the exit code."""
    try:
        cluster, spec = _cluster(given.worker_cluster)
        found = [
            one
            for raw in common.unfolded(common.read_objects(common.read_text(given.filename)))
            for one in _read(raw, bool(spec.pods.service_account))
        ]
        if not found:
            raise Unusable(
                f"The file holds no Ray worker: a Pod with the label {names.RAY_NODE_TYPE_LABEL}: {names.WORKER}, or a "
                f"{', '.join(names.RAY_KINDS)} or {names.RAY_SERVICE}."
            )
        shown = [_shown(one, given.head, cluster, spec) for one in found if not one.why]
    except (Unusable, specs.Invalid) as error:
        return complain(" ".join(error.every), USAGE)
    print("".join(shown), end="")
    refused = [one for one in found if one.why]
    for one in refused:
        print(*(f"{one.where}: {why}." for why in one.why), sep="\n", file=sys.stderr)
    return REFUSED if refused else DONE


def _cluster(filename: str) -> tuple[str, specs.WorkerCluster]:
    """The WorkerCluster's name and spec; without a file one that has nothing but its name."""
    if not filename:
        return "worker", specs.worker_cluster({**_CLUSTER, "spec": {"source": _SOURCE}})
    clusters = [
        raw for raw in common.read_objects(common.read_text(filename)) if raw.get("kind") == names.WORKER_CLUSTER_KIND
    ]
    if len(clusters) != 1:
        raise Unusable(f"{filename} must hold one {names.WORKER_CLUSTER_KIND}, found {len(clusters)}.")
    return str(_mapping(clusters[0], "metadata").get("name") or "worker"), specs.worker_cluster(clusters[0])


def _read(raw: Raw, account_given: bool) -> Iterator[Found]:
    """The workers of one object; other objects have none."""
    kind = raw.get("kind")
    written = _mapping(raw, "metadata")
    where = f"{kind} {written.get('name') or written.get('generateName') or 'without a name'}"
    try:
        if kind == "Pod" and label(raw, names.RAY_NODE_TYPE_LABEL) == names.WORKER:
            bare = {**raw, "spec": _unscheduled(raw)}
            why = chain(pod_validation.reasons(bare, account_given=account_given), _said(pod_validation.of_pod(raw)))
            yield Found(where, raw, _bounded(why))
        elif kind in names.RAY_KINDS:
            yield from _templates(raw, where, account_given)
        elif kind == names.RAY_SERVICE:
            found = rayservice.ray_cluster(raw)
            yield from _templates(found, where, account_given, _said(job_validation.of_service(raw)))
    except (*UNREADABLE, RecursionError):
        raise _unreadable(where) from None


def _said(why: str) -> tuple[str, ...]:
    return (why,) if why else ()


def _bounded(why: Iterator[str]) -> tuple[str, ...]:
    return tuple(islice(why, specs.MOST_TOLD))


def _unscheduled(pod: Raw) -> dict[str, Any]:
    """A pod's spec as its template was: what admission and a scheduler added may be there."""
    spec = stripping.without_token(pod.get("spec") or {})
    return {key: value for key, value in spec.items() if key != "nodeName"}


def _templates(raw: Raw, where: str, account_given: bool, above: tuple[str, ...] = ()) -> Iterator[Found]:
    """The workers of a job; `above` is what is wrong with what makes it."""
    spec = raw.get("spec") or {}
    cluster = (spec.get("rayClusterSpec") if raw["kind"] == "RayJob" else spec) or {}
    beside = _bounded(chain(above, job_validation.job_reasons(rayjob.read_job(raw["kind"], raw))))
    for group in cluster.get("workerGroupSpecs") or ():
        template = group.get("template") or {}
        why = _bounded(
            chain(beside, pod_validation.reasons(template, account_given=account_given), pod_validation.marks(template))
        )
        yield Found(
            f"{where}: worker group {group.get('groupName')}", _as_pod(raw, group, template), why, template=True
        )


def _as_pod(raw: Raw, group: Raw, template: Raw) -> dict[str, Any]:
    """A template as the first pod of its group, as far as it is known before KubeRay makes it."""
    name, metadata = group.get("groupName"), template.get("metadata") or {}
    ray_cluster = meta(raw).get("name")  # a RayJob's RayCluster has a name that nobody knows before
    labels = {
        **(metadata.get("labels") or {}),
        names.RAY_GCS_CLUSTER_LABEL: ray_cluster,
        names.RAY_GCS_GROUP_LABEL: name,
        names.RAY_NODE_TYPE_LABEL: names.WORKER,
    }
    place = {"name": f"{ray_cluster}-{name}-worker-0".lower(), "namespace": meta(raw).get("namespace") or "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **place, "labels": labels},
        "spec": template.get("spec") or {},
    }


def _shown(one: Found, head: str, cluster: str, spec: specs.WorkerCluster) -> str:
    try:
        group = label(one.pod, names.RAY_GCS_GROUP_LABEL)
        role = group_workload.role(group)
        target = _target(one.pod, cluster, spec)
        slot = str(Slot(ShareKey(cluster, target.round), role, 0))
        copy = rewriter.remote_pod(
            one.pod,
            head=HeadAddress.of(one.pod, head),
            target=target,
            role=role,
            total=1,
            slot=slot,
            anchor_uid=_NOBODY,
            pod_group=group_workload.name(target),
            pull_secrets=(one.pod["spec"].get("imagePullSecrets") or ()) if one.template else (),
        )
        comments = [f"{one.where} in worker cluster {cluster}"]
        comments += (
            ["KubeRay adds the start command, the head's address and wait-gcs-ready later."] if one.template else []
        )
        comments += [f"  {change}" for change in changes(one.pod, copy)]
        return "".join(
            [
                "---\n",
                *(f"# {_one_line(line)}\n" for line in comments),
                yaml.safe_dump(copy, sort_keys=False, width=160),
            ]
        )
    except (*UNREADABLE, RecursionError, yaml.YAMLError):
        raise _unreadable(one.where) from None


def _one_line(text: str) -> str:
    """A comment must not end before its line does, whatever the file's keys hold."""
    return "".join(char if char.isprintable() else " " for char in text)


def _target(pod: Raw, cluster: str, spec: specs.WorkerCluster) -> Target:
    placement = label(pod, names.PLACEMENT_LABEL) or "placement"
    return Target.of(
        cluster,
        spec,
        queue=label(pod, names.QUEUE_LABEL) or "queue",
        manager="manager",
        workload=placement,
        workload_uid=_NOBODY,
        placement=placement,
        round_=1,
    )


def _mapping(holder: Raw, field: str) -> Raw:
    found = holder.get(field)
    return found if isinstance(found, dict) else {}


def _unreadable(where: str) -> Unusable:
    return Unusable(f"{where} cannot be read; `kubectl apply --dry-run=server` says what is wrong with it.")
