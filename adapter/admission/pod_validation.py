"""Finds what keeps a pod template, or a pod, from running in another cluster.

A result is a fragment with the field, its value and the remedy. `rewrite.stripping` removes or replaces what it can.
The callers add the object's name: `job_validation.py` that of the job, `worker/create_pod.py` that of the remote pod.
"""

from collections.abc import Callable, Iterable, Iterator

from adapter import names
from adapter.admission import size_limits
from adapter.objects.pod_requests import PODS, pod_requests
from adapter.objects.unstructured import Raw, label, printable

_Rule = Callable[[Raw], Iterator[str]]

# Our keys that a user may write into a template.
_USER_KEYS = (names.ZONE_ANNOTATION, names.POOL_LABEL)


def template_problem(template: Raw, *, account_given: bool = False) -> str | None:
    """Why a pod template (anything with a pod's `spec`) cannot run in another cluster, or None.

    Reasons: docs/upstream.md, "Jobs whose workers must stay together". `account_given`: each cluster replaces the pod's
    service account.
    """
    return next(template_problems(template, account_given=account_given), None)


def template_problems(template: Raw, *, account_given: bool = False) -> Iterator[str]:
    """A fragment for each problem; for an oversized template, only those on its size."""
    too_long = False
    # The size comes first: the rules below read the whole template.
    for excess in size_limits.template_excesses(template):
        too_long = True
        yield excess
    if too_long:
        return
    spec = template.get("spec") or {}
    rules = [rule for rule in _RULES if not (account_given and rule[0] is _service_account)]
    yield from (f"{fault}: {remedy}" for rule, remedy in rules for fault in rule(spec))


def reserved_key_problems(template: Raw, own: str = "") -> Iterator[str]:
    """A fragment for each key in a template that only Rayspan may write.

    A label of ours could make a pod pass for what it is not. Kueue does not start a job whose template contradicts what
    our check adds; a running job that was exported and submitted again has such keys. Kueue leaves such keys in the
    templates of an elastic job. There they name the job's `own` Placement, and are permitted.
    """
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    has_own_label = own and (metadata.get("labels") or {}).get(names.PLACEMENT_LABEL) == own
    permitted = (*_USER_KEYS, names.PLACEMENT_LABEL, names.LOCK_NODE_SELECTOR) if has_own_label else _USER_KEYS
    fields = [("metadata.labels", metadata.get("labels")), ("metadata.annotations", metadata.get("annotations"))]
    for where, entries in [*fields, ("spec.nodeSelector", spec.get("nodeSelector"))]:
        for key in entries or {}:
            if key.startswith(f"{names.DOMAIN}/") and key not in permitted:
                yield f"{where} has {printable(key)}: the key is reserved for Rayspan; remove it"


def pod_problem(pod: Raw) -> str:
    """Why a worker pod, by its labels, must not run elsewhere; empty when it may."""
    if label(pod, names.RAY_HOST_INDEX_LABEL):
        return (
            f"metadata.labels has {names.RAY_HOST_INDEX_LABEL}: the hosts of one replica could be placed in different "
            "clusters; set numOfHosts of its worker group to 1"
        )
    return ""


def remote_pod_problem(spec: Raw) -> str:
    """Why a remote pod with this `spec` must not be created, empty when it may be.

    The pod is checked again because its template may be edited after admission, and the manager's webhooks and policies
    may add fields. `group_workload.excess_requests` checks the requests.
    """
    rules = [rule for rule in _RULES if rule[0] not in (_service_account, _no_requests)]
    return next((f"{fault}: {remedy}" for rule, remedy in rules for fault in rule(spec)), "")


def _no_requests(spec: Raw) -> Iterator[str]:
    if not any(amount for name, amount in pod_requests(spec).items() if name != PODS):
        yield "spec.containers have no resources.requests"


def _volume_path(volume: Raw) -> str:
    return f"spec.volumes[{printable(volume.get('name'))}]"


def _host_network(spec: Raw) -> Iterator[str]:
    if spec.get("hostNetwork"):
        yield "spec.hostNetwork is true"


def _volume_rule(kind: str) -> _Rule:
    def rule(spec: Raw) -> Iterator[str]:
        for volume in spec.get("volumes") or ():
            if source := volume.get(kind):
                yield (
                    f"{_volume_path(volume)}.{kind} is {printable(source.get('path') or source.get('claimName') or '')}"
                )

    return rule


def _resource_claims(spec: Raw) -> Iterator[str]:
    for claim in spec.get("resourceClaims") or ():
        yield f"spec.resourceClaims has {printable(claim.get('name'))}"


def _projected_identities(spec: Raw) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            for kind in ("serviceAccountToken", "podCertificate", "clusterTrustBundle"):
                if kind in source and not (source[kind] or {}).get("optional"):
                    yield f"{_volume_path(volume)}.projected has a {kind}"


def _node_name(spec: Raw) -> Iterator[str]:
    if spec.get("nodeName"):
        yield f"spec.nodeName is {printable(spec['nodeName'])}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            values = ", ".join(field.get("values") or ())
            yield f"spec.affinity.nodeAffinity has matchFields {printable(field.get('key'))} {printable(values)}"


def _head_affinity(spec: Raw) -> Iterator[str]:
    rules = (spec.get("affinity") or {}).get("podAffinity") or {}
    for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        if _node_types(term.get("labelSelector") or {}) == {names.HEAD}:
            yield f"spec.affinity.podAffinity requires a pod with {names.RAY_NODE_TYPE_LABEL}={names.HEAD}"


def _node_types(selector: Raw) -> set[str]:
    """The Ray node types that a label selector asks for."""
    node_type = (selector.get("matchLabels") or {}).get(names.RAY_NODE_TYPE_LABEL)
    node_types = {node_type} if node_type else set()
    for expression in selector.get("matchExpressions") or ():
        if expression.get("key") == names.RAY_NODE_TYPE_LABEL and expression.get("operator") == "In":
            node_types |= {*(expression.get("values") or ())}
    return node_types


def _volume_sources(spec: Raw) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        claim = ((volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}).get("spec") or {}
        for field in ("dataSource", "dataSourceRef", "volumeName"):
            if source := claim.get(field):
                name = source.get("name") if isinstance(source, dict) else source
                yield f"{_volume_path(volume)}.ephemeral.volumeClaimTemplate.spec.{field} is {printable(name)}"


def _service_account(spec: Raw) -> Iterator[str]:
    for field in ("serviceAccountName", "serviceAccount"):
        if spec.get(field) not in (None, "", "default"):
            yield f"spec.{field} is {printable(spec[field])}"


def _driver_secrets(spec: Raw) -> Iterator[str]:
    """Volumes of csi, azureFile, cephfs, flexVolume, iscsi, rbd, …: each names its Secret in one of three fields."""
    for volume in spec.get("volumes") or ():
        for kind, source in volume.items():
            if isinstance(source, dict) and kind not in ("secret", "configMap", "projected"):
                where = f"{_volume_path(volume)}.{kind}"
                yield from _required_references(where, (source,), ("secretRef", "secretName", "nodePublishSecretRef"))


def _required_references(where: str, sources: Iterable[Raw], keys: tuple[str, ...]) -> Iterator[str]:
    """A fragment for each reference that is not optional; the object of an optional reference may be missing."""
    for source in sources:
        for key in keys:
            reference = source.get(key)
            name = reference.get("name") if isinstance(reference, dict) else reference
            if reference and not (isinstance(reference, dict) and reference.get("optional")):
                yield f"{where}.{key} is {printable(name)}"


_RULES: tuple[tuple[_Rule, str], ...] = (
    (_host_network, "a worker needs a pod IP of its own, which the other clusters can reach; remove it"),
    (
        _volume_rule("hostPath"),
        "the files of the manager's nodes do not exist in the worker cluster; use emptyDir or object storage",
    ),
    (
        _volume_rule("persistentVolumeClaim"),
        "the claim does not exist in the worker cluster; use emptyDir or object storage",
    ),
    (_resource_claims, "the claim does not exist in the worker cluster; ask for devices in resources.limits"),
    (_projected_identities, "it is issued in the manager, which the other cluster does not trust; remove the source"),
    (
        _node_name,
        "the manager's nodes do not exist in the worker cluster; remove it, or use labels that nodes there also have",
    ),
    (_head_affinity, "the head stays in the manager; remove it"),
    (
        _volume_sources,
        "the claim, snapshot or volume does not exist in the worker cluster; remove it, and the volume "
        "is empty at first",
    ),
    (
        _service_account,
        "the account does not exist in the worker cluster; remove it to use the default account there, or set "
        "spec.pods.serviceAccountName on every WorkerCluster of the policy",
    ),
    (_driver_secrets, "Secrets of volume drivers are not copied to worker clusters; use emptyDir or object storage"),
    # KubeRay's init container has requests. If no quota were reserved for the worker, this container would run on the
    # quota of others.
    (_no_requests, "no quota could be reserved for a worker; set them"),
)
