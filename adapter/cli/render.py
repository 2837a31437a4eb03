"""`rayspan render`: print the remote pods of the workers in a file, and the reason of each change.

It runs the controller's own rewriting code and connects to no cluster.
"""

import argparse
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
from adapter.cli.terminal import clean_line, print_note, print_text
from adapter.objects import rayjob, rayservice, specs
from adapter.objects.placement import ShareKey
from adapter.objects.rayjob import InvalidJob
from adapter.objects.unstructured import UNREADABLE, Raw, label, meta
from adapter.objects.worker_pod import Slot
from adapter.rewrite import group_workload, rewriter, stripping
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target

EXIT_REJECTED = 3
_PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"  # of objects that do not exist yet
_PLACEHOLDER_CLUSTER = {"kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": "worker"}}
_PLACEHOLDER_SOURCE = {"kubeConfig": {"secretRef": {"name": "any"}}}  # never used to connect


@dataclass(frozen=True, slots=True)
class RenderInput:
    """A worker pod, or a worker template as a pod; `rejections` are the reasons why it cannot have a remote pod."""

    origin: str
    pod: Raw
    rejections: tuple[str, ...] = ()
    from_template: bool = False


def main(args: argparse.Namespace) -> int:
    """Print the remote pods, report the rejected workers, and return the exit code."""
    try:
        cluster, spec = _read_worker_cluster(args.worker_cluster)
        workers = [
            worker
            for raw in common.expand_lists(common.read_objects(common.read_text(args.filename)))
            for worker in _find_workers(raw, bool(spec.pods.service_account))
        ]
        if not workers:
            raise InvalidJob(
                f"The file holds no Ray worker: a Pod with the label {names.RAY_NODE_TYPE_LABEL}: {names.WORKER}, or a "
                f"{', '.join(names.RAY_KINDS)} or {names.RAY_SERVICE}."
            )
        manifests = [_render_worker(worker, args.head, cluster, spec) for worker in workers if not worker.rejections]
    except (InvalidJob, specs.InvalidSpec) as error:
        return print_error(" ".join(error.messages), EXIT_USAGE)
    print_text("".join(manifests))
    rejected = [worker for worker in workers if worker.rejections]
    for worker in rejected:
        for reason in worker.rejections:
            print_note(f"{worker.origin}: {reason}.")
    return EXIT_REJECTED if rejected else EXIT_OK


def _read_worker_cluster(filename: str) -> tuple[str, specs.WorkerCluster]:
    """The name and spec of the file's WorkerCluster, or of a placeholder if there is no file."""
    if not filename:
        return "worker", specs.parse_worker_cluster({**_PLACEHOLDER_CLUSTER, "spec": {"source": _PLACEHOLDER_SOURCE}})
    clusters = [
        raw for raw in common.read_objects(common.read_text(filename)) if raw.get("kind") == names.WORKER_CLUSTER_KIND
    ]
    if len(clusters) != 1:
        raise InvalidJob(f"{filename} must hold one {names.WORKER_CLUSTER_KIND}, found {len(clusters)}.")
    return str(_mapping_field(clusters[0], "metadata").get("name") or "worker"), specs.parse_worker_cluster(clusters[0])


def _find_workers(raw: Raw, account_given: bool) -> Iterator[RenderInput]:
    """The workers of one object; none for other kinds."""
    kind = raw.get("kind")
    metadata = _mapping_field(raw, "metadata")
    origin = f"{kind} {metadata.get('name') or metadata.get('generateName') or 'without a name'}"
    try:
        if kind == "Pod" and label(raw, names.RAY_NODE_TYPE_LABEL) == names.WORKER:
            template = {**raw, "spec": _unscheduled_spec(raw)}
            problems = chain(
                pod_validation.template_problems(template, account_given=account_given),
                _as_reasons(pod_validation.pod_problem(raw)),
            )
            yield RenderInput(origin, raw, _limit_reasons(problems))
        elif kind in names.RAY_KINDS:
            yield from _template_workers(raw, origin, account_given)
        elif kind == names.RAY_SERVICE:
            ray_cluster = rayservice.ray_cluster(raw)
            yield from _template_workers(
                ray_cluster, origin, account_given, tuple(job_validation.service_problems(raw))
            )
    except (*UNREADABLE, RecursionError):
        raise _unreadable_error(origin) from None


def _as_reasons(reason: str) -> tuple[str, ...]:
    return (reason,) if reason else ()


def _limit_reasons(reasons: Iterator[str]) -> tuple[str, ...]:
    return tuple(islice(reasons, specs.MAX_REPORTED_FAULTS))


def _unscheduled_spec(pod: Raw) -> dict[str, Any]:
    """A pod's spec without the additions of admission and the scheduler."""
    spec = stripping.without_token(pod.get("spec") or {})
    return {key: value for key, value in spec.items() if key != "nodeName"}


def _template_workers(
    raw: Raw, origin: str, account_given: bool, service_reasons: tuple[str, ...] = ()
) -> Iterator[RenderInput]:
    """The workers of a job; `service_reasons` are the problems of its RayService."""
    spec = raw.get("spec") or {}
    cluster = (spec.get("rayClusterSpec") if raw["kind"] == "RayJob" else spec) or {}
    job_reasons = _limit_reasons(chain(service_reasons, job_validation.job_problems(rayjob.read_job(raw["kind"], raw))))
    for group in cluster.get("workerGroupSpecs") or ():
        template = group.get("template") or {}
        reasons = _limit_reasons(
            chain(
                job_reasons,
                pod_validation.template_problems(template, account_given=account_given),
                pod_validation.reserved_key_problems(template),
            )
        )
        yield RenderInput(
            f"{origin}: worker group {group.get('groupName')}",
            _pod_of_template(raw, group, template),
            reasons,
            from_template=True,
        )


def _pod_of_template(raw: Raw, group: Raw, template: Raw) -> dict[str, Any]:
    """A template as the first pod of its group, as far as the pod is known before KubeRay creates it."""
    name, metadata = group.get("groupName"), template.get("metadata") or {}
    ray_cluster = meta(raw).get("name")  # not known yet for a RayJob
    labels = {
        **(metadata.get("labels") or {}),
        names.RAY_GCS_CLUSTER_LABEL: ray_cluster,
        names.RAY_GCS_GROUP_LABEL: name,
        names.RAY_NODE_TYPE_LABEL: names.WORKER,
    }
    identity = {"name": f"{ray_cluster}-{name}-worker-0".lower(), "namespace": meta(raw).get("namespace") or "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **identity, "labels": labels},
        "spec": template.get("spec") or {},
    }


def _render_worker(worker: RenderInput, head: str, cluster: str, spec: specs.WorkerCluster) -> str:
    try:
        group = label(worker.pod, names.RAY_GCS_GROUP_LABEL)
        role = group_workload.role_of_group(group)
        target = _placeholder_target(worker.pod, cluster, spec)
        slot = str(Slot(ShareKey(cluster, target.round), role, 0))
        remote_pod = rewriter.remote_pod(
            worker.pod,
            head=HeadAddress.from_pod(worker.pod, head),
            target=target,
            role=role,
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
        comments += [f"  {change}" for change in diff_pods(worker.pod, remote_pod)]
        return "".join(
            [
                "---\n",
                *(f"# {clean_line(line)}\n" for line in comments),  # a key of the file must not end a comment
                yaml.safe_dump(remote_pod, sort_keys=False, width=160),
            ]
        )
    except (*UNREADABLE, RecursionError, yaml.YAMLError):
        raise _unreadable_error(worker.origin) from None


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
    value = holder.get(field)
    return value if isinstance(value, dict) else {}


def _unreadable_error(origin: str) -> InvalidJob:
    return InvalidJob(f"{origin} cannot be read; `kubectl apply --dry-run=server` shows what is wrong with it.")
