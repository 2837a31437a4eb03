"""Decides what becomes of a sample: dispatched or rejected, and why. Pure; it calls what the controller calls.

Some things show only in the pods that KubeRay made: a Secret that it adds, an address that remains. They are judged by
the pod itself, so that a gap shows as one and not as a success.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from adapter import names
from adapter.admission import job_validation, pod_validation
from adapter.objects.rayjob import read_ray_cluster
from adapter.objects.unstructured import Raw
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target
from hack.corpus.reduce import PLACEMENT, POOL_TOLERATION
from hack.corpus.samples import Sample

DISPATCHED: Final = "dispatched"
REFUSED: Final = "refused"
STUCK: Final = "cannot start"  # dispatched, and then it waits for objects that are missing
BROKEN: Final = "broken"  # a fault of ours: no such pod must ever be sent
NOTHING: Final = "no workers"

HEAD: Final = "10.11.0.12"
TARGET: Final = Target(
    cluster="east",
    zone="us-east-1a",
    region="us-east-1",
    queue="team-a",
    manager="mgr-1",
    workload=PLACEMENT,
    workload_uid="9b0c6a52-2d2c-4d0e-9a3c-0d6f3a1b2c3d",
    placement=PLACEMENT,
    share="rayspan-7d3f0a-east",
    round=1,
    manager_flavor_keys=frozenset({names.POOL_LABEL}),
    manager_flavor_tolerations=(POOL_TOLERATION,),
)


@dataclass(frozen=True)
class Seen:
    """The answers of the API servers, Kueue and KubeRay for a sample. `pods` is a worker pod for each worker group."""

    sample: Sample
    cluster: Raw = field(default_factory=dict)  # the RayCluster as it was to be created; {} if there is none
    kueue: str = ""  # why it cannot be submitted to a queue as it is
    trouble: str = ""  # why there are no pods, or not all
    pods: Mapping[str, Raw] = field(default_factory=dict)
    answers: Mapping[str, str] = field(
        default_factory=dict
    )  # group -> why the worker cluster forbids the rewritten pod


@dataclass(frozen=True)
class Finding:
    """One line of the table. `group` is empty where the reason is the whole sample's."""

    sample: Sample
    outcome: str
    reason: str = ""
    group: str = ""
    kueue: str = ""


def rewritten(pod: Raw) -> Raw:
    """Return the pod that an example worker cluster would get, the first of its share."""
    group = pod["metadata"]["labels"][names.RAY_GCS_GROUP_LABEL]
    return remote_pod(
        pod,
        head=HeadAddress.from_pod(pod, HEAD),
        target=TARGET,
        role="1f2e3d4c",
        slot=f"east/1/{group}/0",
        anchor_uid="a-uid",
    )


def finding(seen: Seen) -> Finding:
    """Say what becomes of a sample: of its worker groups the one that is worst off decides."""
    outcome, reason, group = _of_pods(seen)
    kind = seen.sample.body["kind"]
    if kind == names.RAY_SERVICE and (said := job_validation.service_problem(seen.sample.body)):
        outcome, reason, group = REFUSED, said, ""
    return Finding(seen.sample, outcome, reason, group, seen.kueue)


def _of_pods(seen: Seen) -> tuple[str, str, str]:
    if seen.trouble:
        return NOTHING, seen.trouble, ""
    if said := job_validation.job_problem(read_ray_cluster(seen.cluster)):
        return REFUSED, said, ""
    groups = {group["groupName"]: group for group in seen.cluster["spec"]["workerGroupSpecs"]}
    for name, group in groups.items():
        if why := pod_validation.template_problem(group["template"]):
            return REFUSED, why, name
    for name in groups:
        if why := _fault(seen, name):
            return BROKEN, why, name
    for name in groups:
        if why := pod_validation.template_problem(rewritten(seen.pods[name])):
            return STUCK, f"{why} (KubeRay adds it to the pod, so it is not seen before)", name
    return DISPATCHED, "", ""


def _fault(seen: Seen, group: str) -> str:
    """Why the pod that would be sent cannot run: the worker cluster forbids it, or it still calls the manager."""
    if why := seen.answers.get(group):
        return f"the worker cluster refuses the pod: {why}"
    service = f"{seen.cluster['metadata']['name']}-head-svc"
    left = re.search(rf"(?<![\w.-]){re.escape(service)}(?![\w-])", json.dumps(rewritten(seen.pods[group])))
    return f"the pod still speaks of the manager's {service}" if left else ""
