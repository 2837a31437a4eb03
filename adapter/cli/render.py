"""`rayspan render`: print the remote pods of the workers in a file, and the reason of each change.

It runs the controller's own rewriting code and connects to no cluster.
"""

import argparse
import re
from collections.abc import Iterator, Sequence

import yaml

from adapter import names
from adapter.admission import pod_validation
from adapter.admission.pod_warnings import PodSettings
from adapter.cli import common
from adapter.cli.common import EXIT_OK, EXIT_USAGE, print_error
from adapter.cli.pod_diff import diff_pods
from adapter.cli.render_input import RenderInput, RenderObject, read_object, unreadable_error
from adapter.cli.terminal import clean_line, print_note, print_text
from adapter.objects import specs
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.placement import ShareKey
from adapter.objects.unstructured import UNREADABLE, Raw, label, mapping_field
from adapter.objects.worker_pod import Slot
from adapter.rewrite import group_workload, rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target

EXIT_REJECTED = 3
_PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"  # of objects that do not exist yet
_PLACEHOLDER_CLUSTER = {"kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": "worker"}}
_PLACEHOLDER_SOURCE = {"kubeConfig": {"secretRef": {"name": "any"}}}  # never used to connect
# Texts that kubectl's YAML reads as a number or a boolean, and PyYAML's does not: `1e3`, `y`
# (go-yaml v2: resolve.go, yamlStyleFloat and resolveTable).
_LIKE_OTHER_TYPE = re.compile(r"[-+]?[.0-9][0-9a-zA-Z_.+-]*|[yYnN]")


class _ManifestDumper(yaml.SafeDumper):
    """Writes YAML in which kubectl reads each text as a text."""


def _represent_text(dumper: _ManifestDumper, text: str) -> yaml.Node:
    style = "'" if _LIKE_OTHER_TYPE.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_ManifestDumper.add_representer(str, _represent_text)


def main(args: argparse.Namespace) -> int:
    """Print the remote pods, report the rejected workers, and return the exit code."""
    try:
        cluster, spec = _read_worker_cluster(args.worker_cluster)
        texts = common.expand_lists(common.read_objects(common.read_text(args.filename)))
        mappings = {cluster: spec.pods} if args.worker_cluster else pod_validation.NO_CLUSTERS
        settings = PodSettings.of_mapping(spec.pods)
        objects = [read for raw in texts if (read := read_object(raw, settings, mappings))]
        if not any(read.workers for read in objects):
            raise InvalidJob(_no_workers_message(objects))
        manifests = [_render_worker(worker, args.head, cluster, spec) for worker in _accepted_workers(objects)]
    except (InvalidJob, specs.InvalidSpec) as error:
        return print_error(" ".join(error.messages), EXIT_USAGE)
    print_text("".join(manifests))
    for line in _remarks(objects):
        print_note(line)
    return EXIT_REJECTED if any(map(_is_rejected, objects)) else EXIT_OK


def _no_workers_message(objects: Sequence[RenderObject]) -> str:
    if objects:
        return f"{objects[0].origin} has no worker group: its head runs in the manager cluster, and nothing is copied."
    return (
        f"The file holds no Ray worker: a Pod with the label {names.RAY_NODE_TYPE_LABEL}: {names.WORKER}, or a "
        f"{', '.join(names.RAY_KINDS)} or {names.RAY_SERVICE}."
    )


def _accepted_workers(objects: Sequence[RenderObject]) -> list[RenderInput]:
    accepted = [read for read in objects if not read.rejections]
    return [worker for read in accepted for worker in read.workers if not worker.rejections]


def _is_rejected(read: RenderObject) -> bool:
    return bool(read.rejections) or any(worker.rejections for worker in read.workers)


def _remarks(objects: Sequence[RenderObject]) -> Iterator[str]:
    """A sentence for each reason of a rejection, for each warning, and for what Kueue does not queue."""
    for read in objects:
        if read.omission:
            yield read.omission
        yield from (f"{read.origin}: {reason}." for reason in read.rejections)
        for worker in read.workers:
            yield from (f"{worker.origin}: {reason}." for reason in worker.rejections or worker.warnings)


def _read_worker_cluster(filename: str) -> tuple[str, specs.WorkerCluster]:
    """The name and spec of the file's WorkerCluster, or of a placeholder if there is no file."""
    if not filename:
        return "worker", specs.parse_worker_cluster({**_PLACEHOLDER_CLUSTER, "spec": {"source": _PLACEHOLDER_SOURCE}})
    clusters = [
        raw for raw in common.read_objects(common.read_text(filename)) if raw.get("kind") == names.WORKER_CLUSTER_KIND
    ]
    if len(clusters) != 1:
        raise InvalidJob(f"{filename} must hold one {names.WORKER_CLUSTER_KIND}, found {len(clusters)}.")
    return str(mapping_field(clusters[0], "metadata").get("name") or "worker"), specs.parse_worker_cluster(clusters[0])


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
                yaml.dump(remote_pod, Dumper=_ManifestDumper, sort_keys=False, width=160),
            ]
        )
    except (*UNREADABLE, RecursionError, yaml.YAMLError):
        raise unreadable_error(worker.origin) from None


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
