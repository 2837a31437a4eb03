"""Finds what keeps a pod template, or a pod, from running in another cluster.

A result is a fragment with the field, its value and the remedy. `rewrite.stripping` removes or replaces what it can.
The callers add the object's name: `job_validation.py` that of the job, `worker/create_pod.py` that of the remote pod.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from adapter import names
from adapter.admission import size_limits
from adapter.admission.naming_validation import naming_problems
from adapter.objects.pod_requests import PODS, pod_requests
from adapter.objects.replica import HOST_LABELS
from adapter.objects.required_objects import account_of, required_objects, unnamed_objects, unnamed_reason
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import Raw, printable

NO_CLUSTERS: Final[Mapping[str, PodMapping]] = MappingProxyType({})  # nothing is named anywhere

_Rule = Callable[[Raw], Iterator[str]]

# An allowlist: the API may get more kinds. Of claims and host paths a WorkerCluster names those that pods may use.
# csi: a cluster's administrator allows each driver inline, in its CSIDriver. nfs: the server decides about the node.
_VOLUME_KINDS: Final = frozenset({
    "name", "emptyDir", "configMap", "secret", "projected", "downwardAPI", "ephemeral", "image",
    "persistentVolumeClaim", "hostPath", "csi", "nfs",
})  # fmt: skip
_CLAIM_FIELDS: Final = frozenset({
    "accessModes", "resources", "storageClassName", "volumeMode", "volumeAttributesClassName",
})  # fmt: skip
_CLAIM_DOMAINS: Final = ("kubernetes.io", "k8s.io")
_SECRETS_STORE: Final = "secrets-store.csi.k8s.io"

_AUTH_MODE: Final = "RAY_AUTH_MODE"
_KUBERNETES_TOKENS: Final = "RAY_ENABLE_K8S_TOKEN_AUTH"

# Our keys that a user may write into a template.
_USER_KEYS = (
    names.ZONE_ANNOTATION,
    names.REGION_ANNOTATION,
    names.POOL_LABEL,
    names.REQUIRED_TOPOLOGY_ANNOTATION,
    names.PREFERRED_TOPOLOGY_ANNOTATION,
    names.UNCONSTRAINED_TOPOLOGY_ANNOTATION,
)


def template_problem(
    template: Raw, namespace: str = "", mappings: Mapping[str, PodMapping] | None = NO_CLUSTERS
) -> str | None:
    """Why a pod template (anything with a pod's `spec`) cannot run in another cluster, or None.

    Reasons: docs/upstream.md, "Jobs whose workers must stay together". `mappings`: by WorkerCluster of the policy; None
    while they are not known.
    """
    return next(template_problems(template, namespace, mappings), None)


def template_problems(
    template: Raw, namespace: str = "", mappings: Mapping[str, PodMapping] | None = NO_CLUSTERS
) -> Iterator[str]:
    """A fragment for each problem; for an oversized template, only those on its size."""
    too_long = False
    # The size comes first: the rules below read the whole template.
    for excess in size_limits.template_excesses(template):
        too_long = True
        yield excess
    if too_long:
        return
    spec = template.get("spec") or {}
    yield from (f"{fault}: {remedy}" for rule, remedy in _RULES for fault in rule(spec))
    if mappings is not None:
        yield from naming_problems(required_objects(spec), mappings, namespace)
    yield from _missing_requests(spec)


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
    for key in HOST_LABELS:
        if key in (metadata.get("labels") or {}):
            yield f"metadata.labels has {key}: KubeRay writes it on each host of a replica; remove it"


def remote_pod_problem(spec: Raw, manager_spec: Raw, mapping: PodMapping, namespace: str) -> str:
    """Why a remote pod with this `spec` must not be created for a pod with `manager_spec`, empty when it may be.

    The pod is checked again because its template may be edited after admission, and the manager's webhooks and policies
    may add fields; the WorkerCluster may name less than when the pod was planned. `manager_spec` is without the
    manager's API token. `group_workload.excess_requests` checks the requests.
    """
    problems = (
        f"{fault}: {remedy}"
        for rule, remedy in _RULES
        # The remote pod may have an account from the WorkerCluster, which is no reason for a token.
        for fault in rule(manager_spec if rule is _projected_identities else spec)
    )
    unnamed = unnamed_objects(required_objects(manager_spec), mapping, namespace)
    return next(problems, "") or unnamed_reason(unnamed, mapping, namespace)


def _missing_requests(spec: Raw) -> Iterator[str]:
    """A fragment if a pod requests nothing.

    KubeRay's init container has requests. If no quota were reserved for the worker, this container would run on the
    quota of others.
    """
    if not any(amount for name, amount in pod_requests(spec).items() if name != PODS):
        yield "spec.containers have no resources.requests: no quota could be reserved for a worker; set them"


def _volume_path(volume: Raw) -> str:
    return f"spec.volumes[{printable(volume.get('name'))}]"


def _host_network(spec: Raw) -> Iterator[str]:
    if spec.get("hostNetwork"):
        yield "spec.hostNetwork is true"


def _existing_claims(spec: Raw) -> Iterator[str]:
    """Claims that no template makes: Kueue admits no Workload with one (kueue:pkg/workload, HasResourceClaim)."""
    for claim in spec.get("resourceClaims") or ():
        if not claim.get("resourceClaimTemplateName"):
            field = f"spec.resourceClaims[{printable(claim.get('name'))}].resourceClaimName"
            yield f"{field} is {printable(claim.get('resourceClaimName') or '')}"


def _projected_identities(spec: Raw) -> Iterator[str]:
    """Tokens, certificates and trust of an account; the token of an account that is named is a required object."""
    token = () if account_of(spec) else ("serviceAccountToken",)
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            for kind in (*token, "podCertificate", "clusterTrustBundle"):
                if kind in source and not (source[kind] or {}).get("optional"):
                    yield f"{_volume_path(volume)}.projected has a {kind}"


def _kubernetes_tokens(spec: Raw) -> Iterator[str]:
    """The variables by which Ray authenticates its nodes at the Kubernetes API, where the pod has both as text.

    KubeRay sets them for authOptions.enableK8sTokenAuth (kuberay:controllers/ray/common/pod.go); users may, too.
    """
    for container in spec.get("containers") or ():
        env = {entry.get("name"): str(entry.get("value") or "") for entry in container.get("env") or ()}
        if env.get(_AUTH_MODE) == "token" and env.get(_KUBERNETES_TOKENS, "").lower() in ("true", "1"):
            yield f"spec.containers[{printable(container.get('name'))}].env has {_KUBERNETES_TOKENS}"


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


def _volume_kinds(spec: Raw) -> Iterator[str]:
    """Volumes of kinds that are not known to be safe: most name a disk of one cluster, and do not ask who owns it."""
    for volume in spec.get("volumes") or ():
        for kind, source in volume.items():
            if source is not None and kind not in _VOLUME_KINDS:
                yield f"{_volume_path(volume)}.{printable(kind)} is set"


def _claim_templates(spec: Raw) -> Iterator[str]:
    """Fields by which the claim of an ephemeral volume could get a volume that exists.

    A claim without a class, or with a selector, takes a volume that an administrator made for others. An annotation
    names a class before the field does (k8s: component-helpers/storage/volume/pv_helpers.go).
    """
    for volume in spec.get("volumes") or ():
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
        claim, where = template.get("spec") or {}, f"{_volume_path(volume)}.ephemeral.volumeClaimTemplate"
        for field, source in claim.items():
            if source is not None and field not in _CLAIM_FIELDS:
                name = source.get("name") if isinstance(source, dict) else source
                yield f"{where}.spec.{printable(field)} is {printable(name)}" if name else f"{where}.spec has {field}"
        if claim.get("storageClassName") == "":
            yield f"{where}.spec.storageClassName is empty"
        for key in (template.get("metadata") or {}).get("annotations") or ():
            if key.partition("/")[0].endswith(_CLAIM_DOMAINS):
                yield f"{where}.metadata.annotations has {printable(key)}"


def _driver_objects(spec: Raw) -> Iterator[str]:
    """Inline CSI volumes that name a Secret, or a SecretProviderClass of the namespace."""
    for volume in spec.get("volumes") or ():
        source, where = volume.get("csi") or {}, f"{_volume_path(volume)}.csi"
        yield from _required_references(where, (source,), ("nodePublishSecretRef",))
        if source.get("driver") == _SECRETS_STORE and not source.get("nodePublishSecretRef"):
            yield f"{where}.driver is {_SECRETS_STORE}"
            continue
        for key, value in (source.get("volumeAttributes") or {}).items():
            if "secret" in key.lower():  # of the worker cluster's namespace, as file.csi.azure.com reads it
                yield f"{where}.volumeAttributes.{printable(key)} is {printable(value)}"


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
        _existing_claims,
        "Kueue admits no worker with a claim that exists before it; use a resourceClaimTemplateName that a "
        "WorkerCluster names",
    ),
    (
        _projected_identities,
        "it is issued in the manager, which the other cluster does not trust; remove the source, or for a token set "
        "spec.serviceAccountName to an account that a WorkerCluster names",
    ),
    (
        _kubernetes_tokens,
        "the token's issuer is the cluster that a pod runs in, which the manager does not trust; remove it, and use a "
        "token in a Secret",
    ),
    (
        _node_name,
        "the manager's nodes do not exist in the worker cluster; remove it, or use labels that nodes there also have",
    ),
    (_head_affinity, "the head stays in the manager; remove it"),
    (
        _volume_kinds,
        "such a volume is a disk or a share of one cluster; use emptyDir, an ephemeral volume, object storage, or a "
        "claim that the WorkerCluster names",
    ),
    (
        _claim_templates,
        "a worker gets no claim, snapshot or volume that exists in the worker cluster; remove it, and the volume is "
        "new and empty",
    ),
    (_driver_objects, "Secrets of volume drivers are not copied to worker clusters; use emptyDir or object storage"),
)
