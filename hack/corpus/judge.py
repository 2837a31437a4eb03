"""Decides what becomes of a sample, from the answers of the clusters and by the rules of Rayspan. Pure.

Rayspan's sentences are those of the warnings at `kubectl apply`. Some things show only in the pods that KubeRay made: a
Secret that it adds, an address that remains. They are judged by the pod itself, so that a gap shows as one.
"""

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from adapter import names
from adapter.admission import pod_validation, warnings
from adapter.admission.policy import PolicyObjects
from adapter.admission.warnings import WarningContext
from adapter.objects import job_manifest, specs
from adapter.objects.admissioncheck import AdmissionCheck
from adapter.objects.queues import LocalQueue, read_cluster_queue
from adapter.objects.unstructured import Raw
from adapter.rewrite import stripping
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target
from hack.corpus import naming, reduce
from hack.corpus.answers import Answers, PodAnswer, Refusal
from hack.corpus.reduce import PLACEMENT, POOL_TOLERATION
from hack.corpus.samples import Sample

ACCEPTED: Final = "accepted"
NO_WORKERS: Final = "accepted, no workers"
REFUSED: Final = "refused"
INVALID: Final = "not for KubeRay"
STUCK: Final = "cannot start"  # accepted, and then it waits for objects that are missing
BROKEN: Final = "broken"  # a fault of ours: no such pod must ever be sent
RUNS: Final = (ACCEPTED, NO_WORKERS)

NAMESPACE: Final = "corpus"  # of all sentences
QUEUE: Final = "ray"
_CHECK: Final = AdmissionCheck("rayspan", controller=names.CONTROLLER_NAME, policy="default", active=True)
_CLUSTER_QUEUE: Final = read_cluster_queue({
    "metadata": {"name": "ray"}, "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": _CHECK.name}]}},
})  # fmt: skip
_POLICY: Final = {
    "apiVersion": names.API_VERSION, "kind": names.DISPATCH_POLICY_KIND, "metadata": {"name": _CHECK.policy},
    "spec": {"clusters": {"names": [naming.CLUSTER]}},
}  # fmt: skip
_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_HEAD: Final = "10.11.0.12"


@dataclass(frozen=True)
class Verdict:
    """What becomes of a sample, why, and what Rayspan warns of."""

    outcome: str
    reasons: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=())
    """The lists of `spec.pods` that name something for it, and the label of the queue that adds lines."""

    @property
    def runs(self) -> bool:
        return self.outcome in RUNS


def verdict(sample: Sample, answers: Answers, *, named: bool) -> Verdict:
    """What becomes of a sample as it is, or with an administrator's naming."""
    if answers.alone or answers.kuberay:
        alone = answers.alone or Refusal("KubeRay", answers.kuberay)
        return Verdict(INVALID, (alone,))
    pods = naming.names_for(reduce.worker_templates(sample.body), NAMESPACE) if named else {}
    queue = answers.defaults_queue if named else answers.queue
    submitted = reduce.in_queue(sample.body, NAMESPACE, QUEUE)
    faults, differences = _sentences(_with_fields(submitted, answers.defaults if named else {}), pods)
    refusals = [queue, answers.worker_cluster if named else Refusal()]
    reasons = [*filter(None, refusals), *(Refusal(names.EventReason.REJECTED, fault) for fault in faults)]
    by_admin = (*pods, *((names.JOB_DEFAULTS_LABEL,) if named and answers.defaults else ()))
    outcome, of_pods = _of_pods(answers)
    if reasons:
        return Verdict(REFUSED, tuple(reasons), differences, by_admin)
    return Verdict(outcome, of_pods, differences, by_admin)


def _of_pods(answers: Answers) -> tuple[str, tuple[Refusal, ...]]:
    """What becomes of a sample that is not refused: of its worker groups the one that is worst off decides."""
    if denied := [answer.denied for answer in answers.pods.values() if answer.denied]:
        return BROKEN, (denied[0],)
    if left := [answer.manager_name for answer in answers.pods.values() if answer.manager_name]:
        return BROKEN, (Refusal("ManagerName", left[0]),)
    if added := [answer.addition for answer in answers.pods.values() if answer.addition]:
        return STUCK, (Refusal("KubeRayAddition", added[0]),)
    return (ACCEPTED if answers.pods else NO_WORKERS), ()


def sentences_at_apply(submitted: Raw, pods: Raw) -> warnings.JobWarnings:
    """What Rayspan says of a submitted object, where the only WorkerCluster has these `spec.pods`."""
    clusters = [naming.worker_cluster(pods)]
    queue = LocalQueue(NAMESPACE, QUEUE, _CLUSTER_QUEUE.name, "")
    objects = PolicyObjects({_CHECK.policy: _POLICY}, clusters)
    context = WarningContext({QUEUE: queue}, {_CLUSTER_QUEUE.name: _CLUSTER_QUEUE}, {_CHECK.name: _CHECK}, objects)
    return warnings.job_warnings(submitted, context, _NOW)


def _sentences(submitted: Raw, pods: Raw) -> tuple[list[str], tuple[str, ...]]:
    """Rayspan's faults and differences without the sample's name.

    What Kueue requires is left out, because Kueue itself was asked. So is a job on a RayCluster that exists: it has no
    workers of its own.
    """
    said, metadata = sentences_at_apply(submitted, pods), submitted["metadata"]
    title = f"{submitted['kind']} {metadata.get('name') or metadata.get('generateName')}: "
    of_service = submitted["kind"] == names.RAY_SERVICE
    parsed = job_manifest.parse_partially(reduce.queued_object(submitted), NAMESPACE, of_service=of_service)
    on_existing = bool((submitted.get("spec") or {}).get("clusterSelector"))
    faults = [fault for fault in said.faults if fault != parsed.omission and not on_existing]
    return [fault.removeprefix(title) for fault in faults], tuple(
        difference.removeprefix(title) for difference in said.differences
    )


def _with_fields(raw: Raw, fields: Mapping[str, Any]) -> Raw:
    """The object with fields that its queue added; a path has its keys and indices as JSON."""
    changed = copy.deepcopy(dict(raw))
    for path, value in fields.items():
        *parents, last = json.loads(path)
        holder: Any = changed
        for key in parents:
            holder = holder.setdefault(key, {}) if isinstance(holder, dict) else holder[key]
        holder[last] = value
    return changed


def mapping_of(sample: Sample) -> specs.PodMapping:
    """`spec.pods` of the WorkerCluster that names all that the sample needs."""
    pods = naming.names_for(reduce.worker_templates(sample.body), "")
    return specs.parse_worker_cluster(naming.worker_cluster(pods)).pods


def rewritten(pod: Raw, mapping: specs.PodMapping = specs.NO_MAPPING) -> Raw:
    """Return the pod that an example worker cluster would get, the first of its share."""
    group = pod["metadata"]["labels"][names.RAY_GCS_GROUP_LABEL]
    return remote_pod(
        pod, head=HeadAddress.from_pod(pod, _HEAD), target=_target(mapping), role="1f2e3d4c",
        slot=f"east/1/{group}/0", anchor_uid="a-uid",
    )  # fmt: skip


def _target(mapping: specs.PodMapping) -> Target:
    return Target(
        cluster=naming.CLUSTER, zone="us-east-1a", region="us-east-1", queue="team-a", manager="mgr-1",
        workload=PLACEMENT, workload_uid="9b0c6a52-2d2c-4d0e-9a3c-0d6f3a1b2c3d", placement=PLACEMENT,
        share="rayspan-7d3f0a-east", round=1, pods=mapping, manager_flavor_keys=frozenset({names.POOL_LABEL}),
        manager_flavor_tolerations=(POOL_TOLERATION,),
    )  # fmt: skip


def pod_answer(cluster: Raw, pod: Raw, mapping: specs.PodMapping, denied: Refusal) -> PodAnswer:
    """What becomes of the remote pod of a manager pod, of which the worker cluster says `denied`."""
    remote = rewritten(pod, mapping)
    service = f"{cluster['metadata']['name']}{names.HEAD_SERVICE_SUFFIX}"
    left = re.search(rf"(?<![\w.-]){re.escape(service)}(?![\w-])", json.dumps(remote))
    return PodAnswer(denied, service if left else "", _addition(cluster, pod, remote, mapping))


def _addition(cluster: Raw, pod: Raw, remote: Raw, mapping: specs.PodMapping) -> str:
    """Why the controller would not create the remote pod, although its template has no such fault."""
    group = pod["metadata"]["labels"][names.RAY_GCS_GROUP_LABEL]
    templates = {spec["groupName"]: spec["template"] for spec in cluster["spec"]["workerGroupSpecs"]}
    if pod_validation.template_problem(templates[group], "", {naming.CLUSTER: mapping}):
        return ""
    return pod_validation.remote_pod_problem(remote["spec"], stripping.without_token(pod["spec"]), mapping, "")


def is_foreseen(sample: Sample) -> bool:
    """Whether Rayspan says at `kubectl apply`, without a name of a WorkerCluster, that something is missing."""
    said = sentences_at_apply(reduce.in_queue(sample.body, NAMESPACE, QUEUE), {})
    return bool(said.faults)
