"""Why can the workers of a job not run in another cluster: a sentence, a fragment of one, or nothing?

Asked at the admission check, before any quota is held: a pod that cannot start elsewhere would hold its whole gang. What
can be removed or replaced is the rewriter's business (`rewrite.stripping`), and whether the Secrets and ConfigMaps that it refers
to can be copied is asked of the manager (`rewrite.copies`); what KubeRay adds to the template afterwards (operator-wide sidecars)
is not in a podset and not seen here. A field of a KubeRay that is newer than the manager's is not there, and nothing is said
of it.
"""

from collections.abc import Callable, Iterable, Iterator

from adapter import names
from adapter.admission import limits
from adapter.admission.policy import Chosen
from adapter.objects import raycluster
from adapter.objects.podrequests import PODS, pod_requests
from adapter.objects.raw import Raw, annotation, label, quoted
from adapter.objects.workload import PodSet, Workload

_Rule = Callable[[Raw], Iterator[str]]

AGAIN = "Delete the job, and submit it again without that."  # the end of a refusal, for a job that is submitted
# What a user may write into a template: its zone, and which of the manager's pools of nodes a pod asks for.
_OF_USERS = (names.ZONE_ANNOTATION, names.POOL_LABEL)
_CHANGED = (
    "Delete the job, and submit it again then."  # the same, where something else than the job is to be changed first
)


def of_workload(
    work: Workload, job: Raw, check: str, podsets: Iterable[PodSet], chosen: Chosen | None, clusters: Iterable[Raw]
) -> str:
    """Say in a sentence why the job of a Workload can never run remotely, empty when it can; whether or not it is submitted.

    `job` is its RayJob or RayCluster, empty while nothing is known of it; `podsets` are the worker groups that the check covers,
    `chosen` is its policy, None where that cannot be read, and `clusters` are the WorkerClusters that the policy names.
    """
    if work.job is None or work.job.kind not in names.RAY_KINDS:
        kind = work.job.kind if work.job else "pod"
        return f"AdmissionCheck {check} dispatches {' and '.join(names.RAY_KINDS)} only, found a {kind}; use another queue."
    if beside := of_job(work.job.kind, job):
        return f"{_of_whom(work)}: {beside}. {AGAIN}"
    given = _account_given(chosen, clusters)
    for podset in podsets:
        if why := of_template(podset.template, account_given=given) or of_marks(podset.template):
            return f"{_of_whom(work)}: worker group {quoted(podset.name)}: {why}. {AGAIN}"
    if chosen and chosen.policy.gang == "BestEffort" and (why := waits_for_all(work.job.kind, job)):
        return f"{_of_whom(work)}: {why}"
    return ""


def of_sources(work: Workload, why: str) -> str:
    """Say in a sentence that what its workers refer to can never be copied (`why`, a fragment), empty when it can."""
    return f"{_of_whom(work)}: {why}. {_CHANGED}" if why else ""


def not_yet(work: Workload, why: str) -> str:
    """Say in a sentence that the manager does not have what its workers refer to, empty when it has all."""
    return f"{_of_whom(work)}: {why}." if why else ""


def _of_whom(work: Workload) -> str:
    """Whom a sentence is about: the job that its user knows."""
    return f"{work.job.kind} {work.job.name}" if work.job else f"Workload {work.name}"


def _account_given(chosen: Chosen | None, clusters: Iterable[Raw]) -> bool:
    """Whether each cluster that the policy names has a service account for the pods that come to it; where no policy can be
    read nothing is planned, and nothing shall be refused for good."""
    pods = [(raw.get("spec") or {}).get("pods") or {} for raw in clusters]
    return all(one.get("serviceAccountName") for one in pods) and (bool(pods) or chosen is None)


def of_template(template: Raw, *, account_given: bool = False) -> str | None:
    """Say why a pod template (anything with a pod's `spec`) cannot run in another cluster, or None when it can.

    The fragment names the field, what was found and what to do: `spec.hostNetwork is true: …`. Why these: docs/upstream.md,
    "Jobs whose workers must stay together". `account_given`: wherever it may go, the cluster gives it a service account in
    place of its own.
    """
    if why := limits.of_template(template):  # before anything that goes through all of it
        return why
    spec = template.get("spec") or {}
    rules = [rule for rule in _RULES if not (account_given and rule[0] is _service_account)]
    return next((f"{found}: {remedy}" for rule, remedy in rules for found in rule(spec)), None)


def of_marks(template: Raw) -> str:
    """Say the same of what only we put on pods, and a template must not bring along; empty when there is nothing of it.

    A label of ours may make somebody take a pod for what it is not, and Kueue does not start a job whose template contradicts
    what our check adds to it. A running job that was written to a file and submitted anew has some.
    """
    found, spec = template.get("metadata") or {}, template.get("spec") or {}
    marks = [("metadata.labels", found.get("labels")), ("metadata.annotations", found.get("annotations"))]
    for where, held in [*marks, ("spec.nodeSelector", spec.get("nodeSelector"))]:
        for key in held or {}:
            if key == names.LOCK_NODE_SELECTOR or (key.startswith(f"{names.DOMAIN}/") and key not in _OF_USERS):
                return f"{where} has {quoted(key)}: Rayspan writes that itself, and reads it; remove it"
    return ""


def of_pod(pod: Raw) -> str:
    """Say the same of a worker pod as KubeRay made it, where only its labels tell what its job says; empty when it may go."""
    if label(pod, names.RAY_HOST_INDEX_LABEL):
        return (
            f"metadata.labels has {names.RAY_HOST_INDEX_LABEL}: the hosts of one replica could come into different clusters; set "
            "numOfHosts of its worker group to 1"
        )
    return ""


def of_copy(spec: Raw) -> str:
    """Say the same of a copy's pod spec, as it is to be made; empty when it may be.

    A template may be edited after its job was admitted, and the manager's admission adds to pods. What is reserved is
    asked elsewhere (`groupworkload.excess`), and the account is the one that the worker cluster gives.
    """
    rules = [rule for rule in _RULES if rule[0] not in (_service_account, _no_requests)]
    return next((f"{found}: {remedy}" for rule, remedy in rules for found in rule(spec)), "")


def of_job(kind: str, job: Raw) -> str:
    """Say in a fragment why the workers of a RayJob or RayCluster cannot run elsewhere, empty when they can.

    Like `of_template`: field, what was found, what to do. KubeRay acts on these fields when it makes pods, and none of them is in a
    Workload's podsets. Sources: kuberay:apis/ray/v1/raycluster_types.go; docs/upstream.md,
    "Jobs whose workers must stay together".
    """
    return next(_job_reasons(kind, job), "")


def _job_reasons(kind: str, job: Raw) -> Iterator[str]:
    where = "spec.rayClusterSpec" if kind == "RayJob" else "spec"
    spec = job.get("spec") or {}
    cluster = (spec.get("rayClusterSpec") if kind == "RayJob" else spec) or {}
    yield from _elastic(where, cluster, job)
    tls = cluster.get("tlsOptions")
    if tls is not None and tls.get("enabled") is not False:
        yield (
            f"{where}.tlsOptions is set: a worker elsewhere would wait for a certificate with its own address, and Ray does "
            "not read a new one; leave it out, and set RAY_USE_TLS and the certificates in the templates"
        )
    if (cluster.get("authOptions") or {}).get("enableK8sTokenAuth"):
        yield (
            f"{where}.authOptions.enableK8sTokenAuth is true: the token's issuer is the cluster that a pod runs in, which the "
            "manager does not trust; use authOptions.mode token"
        )
    for index, group in enumerate(cluster.get("workerGroupSpecs") or ()):
        if (group.get("numOfHosts") or 1) > 1:
            yield (
                f"{where}.workerGroupSpecs[{index}].numOfHosts is {group['numOfHosts']}: the hosts of one replica could come "
                "into different clusters; set 1"
            )
        if raycluster.made(group) != raycluster.counted(group):
            yield _miscounted(f"{where}.workerGroupSpecs[{index}]", group)
    if annotation(job, names.RAY_RESIZE_ANNOTATION):
        yield (
            f"metadata.annotations has {names.RAY_RESIZE_ANNOTATION}: a worker elsewhere is not resized while it runs; "
            "remove it"
        )


def _elastic(where: str, cluster: Raw, job: Raw) -> Iterator[str]:
    """What makes a job grow and shrink while it runs. Kueue puts another Workload in place of its first one as soon as that has
    quota, before any check answers (kueue:pkg/workloadslicing): all that was reserved elsewhere would go with the first."""
    if cluster.get("enableInTreeAutoscaling"):
        yield f"{where}.enableInTreeAutoscaling is true: a job keeps its number of workers; leave it out, and set replicas"
    if annotation(job, names.ELASTIC_ANNOTATION) == "true":
        yield f"metadata.annotations has {names.ELASTIC_ANNOTATION}: a job keeps its number of workers; remove it"


def _miscounted(where: str, group: Raw) -> str:
    """KubeRay would make workers for which no quota is held, or quota would be held for workers that nobody makes."""
    made, held = raycluster.made(group), raycluster.counted(group)
    if group.get("suspend"):
        return (
            f"{where}.suspend is true: KubeRay makes no worker of the group, and Kueue would hold quota for {held}; leave it out, "
            "or set replicas to 0"
        )
    if group.get("numOfHosts") is not None and group["numOfHosts"] < 1:
        return (
            f"{where}.numOfHosts is {group['numOfHosts']}: KubeRay makes no worker of the group, and Kueue would hold quota for "
            f"{held}; set 1"
        )
    limit = "minReplicas" if made > held else "maxReplicas"
    return (
        f"{where}.replicas is {group.get('replicas') or 0} and {limit} {group.get(limit)}: KubeRay makes {made} workers of the "
        f"group, and Kueue would hold quota for {held}; set replicas to {made}"
    )


def waits_for_all(kind: str, ray_job: Raw) -> str:
    """Say in a sentence why a job cannot start with a part of its workers, empty when it can.

    KubeRay submits to a cluster only when every worker of it is ready, unless the submitter sits beside the head
    (ray-operator rayjob_controller.go: it waits for the RayCluster's state ready). A part would wait for ever.
    """
    mode = (ray_job.get("spec") or {}).get("submissionMode") or "K8sJobMode"
    if kind != "RayJob" or mode == "SidecarMode":
        return ""
    return (
        f"its spec.submissionMode {mode} starts the job only when every worker is ready, and the policy's gang BestEffort "
        "may place fewer; submit it with SidecarMode, or through a queue whose policy places all."
    )


def _no_requests(spec: Raw) -> Iterator[str]:
    if not any(amount for name, amount in pod_requests(spec).items() if name != PODS):
        yield "spec.containers have no resources.requests"


def _named(volume: Raw) -> str:
    return f"spec.volumes[{quoted(volume.get('name'))}]"


def _host_network(spec: Raw) -> Iterator[str]:
    if spec.get("hostNetwork"):
        yield "spec.hostNetwork is true"


def _volumes(kind: str) -> _Rule:
    def rule(spec: Raw) -> Iterator[str]:
        for volume in spec.get("volumes") or ():
            if source := volume.get(kind):
                yield f"{_named(volume)}.{kind} is {quoted(source.get('path') or source.get('claimName') or '')}"

    return rule


def _resource_claims(spec: Raw) -> Iterator[str]:
    for claim in spec.get("resourceClaims") or ():
        yield f"spec.resourceClaims has {quoted(claim.get('name'))}"


def _identities(spec: Raw) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            for kind in ("serviceAccountToken", "podCertificate", "clusterTrustBundle"):
                if kind in source and not (source[kind] or {}).get("optional"):
                    yield f"{_named(volume)}.projected has a {kind}"


def _node_name(spec: Raw) -> Iterator[str]:
    if spec.get("nodeName"):
        yield f"spec.nodeName is {quoted(spec['nodeName'])}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for one in term.get("matchFields") or ():
            values = ", ".join(one.get("values") or ())
            yield f"spec.affinity.nodeAffinity has matchFields {quoted(one.get('key'))} {quoted(values)}"


def _beside_the_head(spec: Raw) -> Iterator[str]:
    rules = (spec.get("affinity") or {}).get("podAffinity") or {}
    for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        if _node_types(term.get("labelSelector") or {}) == {names.HEAD}:
            yield f"spec.affinity.podAffinity requires a pod with {names.RAY_NODE_TYPE_LABEL}={names.HEAD}"


def _node_types(selector: Raw) -> set[str]:
    """Which Ray nodes a label selector asks for; empty when it says nothing of that."""
    asked = (selector.get("matchLabels") or {}).get(names.RAY_NODE_TYPE_LABEL)
    found = {asked} if asked else set()
    for one in selector.get("matchExpressions") or ():
        if one.get("key") == names.RAY_NODE_TYPE_LABEL and one.get("operator") == "In":
            found |= {*(one.get("values") or ())}
    return found


def _sources_of_volumes(spec: Raw) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        claim = ((volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}).get("spec") or {}
        for field in ("dataSource", "dataSourceRef", "volumeName"):
            if source := claim.get(field):
                found = source.get("name") if isinstance(source, dict) else source
                yield f"{_named(volume)}.ephemeral.volumeClaimTemplate.spec.{field} is {quoted(found)}"


def _service_account(spec: Raw) -> Iterator[str]:
    for field in ("serviceAccountName", "serviceAccount"):
        if spec.get(field) not in (None, "", "default"):
            yield f"spec.{field} is {quoted(spec[field])}"


def _driver_secrets(spec: Raw) -> Iterator[str]:
    """Volumes of csi, azureFile, cephfs, flexVolume, iscsi, rbd, …: each names its Secret in one of three ways."""
    for volume in spec.get("volumes") or ():
        for kind, source in volume.items():
            if isinstance(source, dict) and kind not in ("secret", "configMap", "projected"):
                where = f"{_named(volume)}.{kind}"
                yield from _keyed(where, (source,), ("secretRef", "secretName", "nodePublishSecretRef"))


def _keyed(where: str, sources: Iterable[Raw], keys: tuple[str, ...]) -> Iterator[str]:
    """Yield each reference that must exist for the pod to start: an optional one may be missing, so it may travel."""
    for source in sources:
        for key in keys:
            reference = source.get(key)
            name = reference.get("name") if isinstance(reference, dict) else reference
            if reference and not (isinstance(reference, dict) and reference.get("optional")):
                yield f"{where}.{key} is {quoted(name)}"


_RULES: tuple[tuple[_Rule, str], ...] = (
    (_host_network, "a worker needs a pod IP of its own, which the other clusters can reach; remove it"),
    (_volumes("hostPath"), "the files of the manager's nodes are not there; use emptyDir or object storage"),
    (_volumes("persistentVolumeClaim"), "the claim is not there; use emptyDir or object storage"),
    (_resource_claims, "the claim is not there; ask for devices in resources.limits"),
    (_identities, "it is issued in the manager, which the other cluster does not trust; remove the source"),
    (_node_name, "the manager's nodes are not there; leave it out, or use labels that its nodes have, too"),
    (_beside_the_head, "the head stays in the manager; remove it"),
    (_sources_of_volumes, "the claim, snapshot or volume is not there; leave it out, and the volume is empty at first"),
    (
        _service_account,
        "the account is not there; leave it out, and the worker cluster's default is used, or have "
        "spec.pods.serviceAccountName of every WorkerCluster of the policy name one",
    ),
    (_driver_secrets, "Secrets of volume drivers are not copied to worker clusters; use emptyDir or object storage"),
    # The init container that KubeRay adds does ask for something: without a reservation it would run on others' quota.
    (_no_requests, "nothing could be reserved for a worker; say what it needs"),
)
