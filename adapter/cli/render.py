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
from adapter.cli.common import EXIT_OK, EXIT_USAGE, print_error
from adapter.cli.pod_diff import diff_pods
from adapter.objects import rayjob, rayservice, specs
from adapter.objects.placement import ShareKey
from adapter.objects.rayjob import InvalidJob
from adapter.objects.unstructured import UNREADABLE, Raw, label, meta
from adapter.objects.worker_pod import Slot
from adapter.rewrite import group_workload, rewriter, stripping
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target

EXIT_REJECTED = 3
_PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"  # the uid of what does not exist yet
_PLACEHOLDER_CLUSTER = {"kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": "worker"}}
_PLACEHOLDER_SOURCE = {"kubeConfig": {"secretRef": {"name": "any"}}}  # nobody connects


@dataclass(frozen=True, slots=True)
class RenderInput:
    """A worker pod, or a worker template as a pod; `why` says all that keeps it from going."""

    origin: str
    pod: Raw
    rejections: tuple[str, ...] = ()
    from_template: bool = False


def main(args: argparse.Namespace) -> int:
    """Print what can go, say what cannot, and return the exit code."""
    try:
        cluster, spec = _read_worker_cluster(args.worker_cluster)
        found = [
            one
            for raw in common.expand_lists(common.read_objects(common.read_text(args.filename)))
            for one in _find_workers(raw, bool(spec.pods.service_account))
        ]
        if not found:
            raise InvalidJob(
                f"The file holds no Ray worker: a Pod with the label {names.RAY_NODE_TYPE_LABEL}: {names.WORKER}, or a "
                f"{', '.join(names.RAY_KINDS)} or {names.RAY_SERVICE}."
            )
        shown = [_render_worker(one, args.head, cluster, spec) for one in found if not one.rejections]
    except (InvalidJob, specs.InvalidSpec) as error:
        return print_error(" ".join(error.messages), EXIT_USAGE)
    print("".join(shown), end="")
    refused = [one for one in found if one.rejections]
    for one in refused:
        print(*(f"{one.origin}: {why}." for why in one.rejections), sep="\n", file=sys.stderr)
    return EXIT_REJECTED if refused else EXIT_OK


def _read_worker_cluster(filename: str) -> tuple[str, specs.WorkerCluster]:
    """The WorkerCluster's name and spec; without a file one that has nothing but its name."""
    if not filename:
        return "worker", specs.parse_worker_cluster({**_PLACEHOLDER_CLUSTER, "spec": {"source": _PLACEHOLDER_SOURCE}})
    clusters = [
        raw for raw in common.read_objects(common.read_text(filename)) if raw.get("kind") == names.WORKER_CLUSTER_KIND
    ]
    if len(clusters) != 1:
        raise InvalidJob(f"{filename} must hold one {names.WORKER_CLUSTER_KIND}, found {len(clusters)}.")
    return str(_mapping_field(clusters[0], "metadata").get("name") or "worker"), specs.parse_worker_cluster(clusters[0])


def _find_workers(raw: Raw, account_given: bool) -> Iterator[RenderInput]:
    """The workers of one object; other objects have none."""
    kind = raw.get("kind")
    written = _mapping_field(raw, "metadata")
    where = f"{kind} {written.get('name') or written.get('generateName') or 'without a name'}"
    try:
        if kind == "Pod" and label(raw, names.RAY_NODE_TYPE_LABEL) == names.WORKER:
            bare = {**raw, "spec": _unscheduled_spec(raw)}
            why = chain(
                pod_validation.template_problems(bare, account_given=account_given),
                _as_reasons(pod_validation.pod_problem(raw)),
            )
            yield RenderInput(where, raw, _limit_reasons(why))
        elif kind in names.RAY_KINDS:
            yield from _template_workers(raw, where, account_given)
        elif kind == names.RAY_SERVICE:
            found = rayservice.ray_cluster(raw)
            yield from _template_workers(found, where, account_given, _as_reasons(job_validation.service_problem(raw)))
    except (*UNREADABLE, RecursionError):
        raise _unreadable_error(where) from None


def _as_reasons(reason: str) -> tuple[str, ...]:
    return (reason,) if reason else ()


def _limit_reasons(reasons: Iterator[str]) -> tuple[str, ...]:
    return tuple(islice(reasons, specs.MAX_REPORTED_FAULTS))


def _unscheduled_spec(pod: Raw) -> dict[str, Any]:
    """A pod's spec as its template was: what admission and a scheduler added may be there."""
    spec = stripping.without_token(pod.get("spec") or {})
    return {key: value for key, value in spec.items() if key != "nodeName"}


def _template_workers(
    raw: Raw, origin: str, account_given: bool, service_reasons: tuple[str, ...] = ()
) -> Iterator[RenderInput]:
    """The workers of a job; `above` is what is wrong with what makes it."""
    spec = raw.get("spec") or {}
    cluster = (spec.get("rayClusterSpec") if raw["kind"] == "RayJob" else spec) or {}
    beside = _limit_reasons(chain(service_reasons, job_validation.job_problems(rayjob.read_job(raw["kind"], raw))))
    for group in cluster.get("workerGroupSpecs") or ():
        template = group.get("template") or {}
        why = _limit_reasons(
            chain(
                beside,
                pod_validation.template_problems(template, account_given=account_given),
                pod_validation.reserved_key_problems(template),
            )
        )
        yield RenderInput(
            f"{origin}: worker group {group.get('groupName')}",
            _pod_of_template(raw, group, template),
            why,
            from_template=True,
        )


def _pod_of_template(raw: Raw, group: Raw, template: Raw) -> dict[str, Any]:
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


def _render_worker(worker: RenderInput, head: str, cluster: str, spec: specs.WorkerCluster) -> str:
    try:
        group = label(worker.pod, names.RAY_GCS_GROUP_LABEL)
        role = group_workload.role_of_group(group)
        target = _placeholder_target(worker.pod, cluster, spec)
        slot = str(Slot(ShareKey(cluster, target.round), role, 0))
        copy = rewriter.remote_pod(
            worker.pod,
            head=HeadAddress.from_pod(worker.pod, head),
            target=target,
            role=role,
            total=1,
            slot=slot,
            anchor_uid=_PLACEHOLDER_UID,
            pod_group=group_workload.pod_group_name(target),
            pull_secrets=(worker.pod["spec"].get("imagePullSecrets") or ()) if worker.from_template else (),
        )
        comments = [f"{worker.origin} in worker cluster {cluster}"]
        comments += (
            ["KubeRay adds the start command, the head's address and wait-gcs-ready later."]
            if worker.from_template
            else []
        )
        comments += [f"  {change}" for change in diff_pods(worker.pod, copy)]
        return "".join(
            [
                "---\n",
                *(f"# {_single_line(line)}\n" for line in comments),
                yaml.safe_dump(copy, sort_keys=False, width=160),
            ]
        )
    except (*UNREADABLE, RecursionError, yaml.YAMLError):
        raise _unreadable_error(worker.origin) from None


def _single_line(text: str) -> str:
    """A comment must not end before its line does, whatever the file's keys hold."""
    return "".join(char if char.isprintable() else " " for char in text)


def _placeholder_target(pod: Raw, cluster: str, spec: specs.WorkerCluster) -> Target:
    placement = label(pod, names.PLACEMENT_LABEL) or "placement"
    return Target.for_share(
        cluster,
        spec,
        queue=label(pod, names.QUEUE_LABEL) or "queue",
        manager="manager",
        workload=placement,
        workload_uid=_PLACEHOLDER_UID,
        placement=placement,
        round_=1,
    )


def _mapping_field(holder: Raw, field: str) -> Raw:
    found = holder.get(field)
    return found if isinstance(found, dict) else {}


def _unreadable_error(origin: str) -> InvalidJob:
    return InvalidJob(f"{origin} cannot be read; `kubectl apply --dry-run=server` says what is wrong with it.")
