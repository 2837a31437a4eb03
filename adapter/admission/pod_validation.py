"""What in a pod template, or in a pod, keeps it from running in another cluster: a fragment of a sentence, or nothing?

The fragment names the field, what was found and what to do. What can be removed or replaced is the rewriter's business
(`rewrite.stripping`), and whose template it is, is for whoever asks: `job_validation.py` for a job, `worker/create_pod.py` for a copy.
"""

from collections.abc import Callable, Iterable, Iterator

from adapter import names
from adapter.admission import size_limits
from adapter.objects.pod_requests import PODS, pod_requests
from adapter.objects.unstructured import Raw, label, printable

_Rule = Callable[[Raw], Iterator[str]]

# What a user may write into a template: its zone, and which of the manager's pools of nodes a pod asks for.
_USER_KEYS = (names.ZONE_ANNOTATION, names.POOL_LABEL)


def template_problem(template: Raw, *, account_given: bool = False) -> str | None:
    """Say why a pod template (anything with a pod's `spec`) cannot run in another cluster, or None when it can.

    The fragment names the field, what was found and what to do: `spec.hostNetwork is true: …`. Why these: docs/upstream.md,
    "Jobs whose workers must stay together". `account_given`: wherever it may go, the cluster gives it a service account in
    place of its own.
    """
    return next(template_problems(template, account_given=account_given), None)


def template_problems(template: Raw, *, account_given: bool = False) -> Iterator[str]:
    """Say the same of all that is in the way; of a template that is too long, that alone."""
    too_long = False
    for why in size_limits.template_excesses(template):  # before anything that goes through all of it
        too_long = True
        yield why
    if too_long:
        return
    spec = template.get("spec") or {}
    rules = [rule for rule in _RULES if not (account_given and rule[0] is _service_account)]
    yield from (f"{found}: {remedy}" for rule, remedy in rules for found in rule(spec))


def reserved_key_problems(template: Raw, own: str = "") -> Iterator[str]:
    """Say the same of all of what only we put on pods, and a template must not bring along.

    A label of ours may make somebody take a pod for what it is not, and Kueue does not start a job whose template contradicts
    what our check adds to it. A running job that was written to a file and submitted anew has some. Kueue leaves what our check
    added in the templates of an elastic job: there they name its `own` Placement, and say the truth.
    """
    found, spec = template.get("metadata") or {}, template.get("spec") or {}
    left = own and (found.get("labels") or {}).get(names.PLACEMENT_LABEL) == own
    free = (*_USER_KEYS, names.PLACEMENT_LABEL, names.LOCK_NODE_SELECTOR) if left else _USER_KEYS
    places = [("metadata.labels", found.get("labels")), ("metadata.annotations", found.get("annotations"))]
    for where, held in [*places, ("spec.nodeSelector", spec.get("nodeSelector"))]:
        for key in held or {}:
            if key.startswith(f"{names.DOMAIN}/") and key not in free:
                yield f"{where} has {printable(key)}: Rayspan writes that itself, and reads it; remove it"


def pod_problem(pod: Raw) -> str:
    """Say the same of a worker pod as KubeRay made it, where only its labels tell what its job says; empty when it may go."""
    if label(pod, names.RAY_HOST_INDEX_LABEL):
        return (
            f"metadata.labels has {names.RAY_HOST_INDEX_LABEL}: the hosts of one replica could come into different clusters; set "
            "numOfHosts of its worker group to 1"
        )
    return ""


def remote_pod_problem(spec: Raw) -> str:
    """Say the same of a copy's pod spec, as it is to be made; empty when it may be.

    A template may be edited after its job was admitted, and the manager's admission adds to pods. What is reserved is
    asked elsewhere (`groupworkload.excess`), and the account is the one that the worker cluster gives.
    """
    rules = [rule for rule in _RULES if rule[0] not in (_service_account, _no_requests)]
    return next((f"{found}: {remedy}" for rule, remedy in rules for found in rule(spec)), "")


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
                yield f"{_volume_path(volume)}.{kind} is {printable(source.get('path') or source.get('claimName') or '')}"

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
        for one in term.get("matchFields") or ():
            values = ", ".join(one.get("values") or ())
            yield f"spec.affinity.nodeAffinity has matchFields {printable(one.get('key'))} {printable(values)}"


def _head_affinity(spec: Raw) -> Iterator[str]:
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


def _volume_sources(spec: Raw) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        claim = ((volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}).get("spec") or {}
        for field in ("dataSource", "dataSourceRef", "volumeName"):
            if source := claim.get(field):
                found = source.get("name") if isinstance(source, dict) else source
                yield f"{_volume_path(volume)}.ephemeral.volumeClaimTemplate.spec.{field} is {printable(found)}"


def _service_account(spec: Raw) -> Iterator[str]:
    for field in ("serviceAccountName", "serviceAccount"):
        if spec.get(field) not in (None, "", "default"):
            yield f"spec.{field} is {printable(spec[field])}"


def _driver_secrets(spec: Raw) -> Iterator[str]:
    """Volumes of csi, azureFile, cephfs, flexVolume, iscsi, rbd, …: each names its Secret in one of three ways."""
    for volume in spec.get("volumes") or ():
        for kind, source in volume.items():
            if isinstance(source, dict) and kind not in ("secret", "configMap", "projected"):
                where = f"{_volume_path(volume)}.{kind}"
                yield from _required_references(where, (source,), ("secretRef", "secretName", "nodePublishSecretRef"))


def _required_references(where: str, sources: Iterable[Raw], keys: tuple[str, ...]) -> Iterator[str]:
    """Yield each reference that must exist for the pod to start: an optional one may be missing, so it may travel."""
    for source in sources:
        for key in keys:
            reference = source.get(key)
            name = reference.get("name") if isinstance(reference, dict) else reference
            if reference and not (isinstance(reference, dict) and reference.get("optional")):
                yield f"{where}.{key} is {printable(name)}"


_RULES: tuple[tuple[_Rule, str], ...] = (
    (_host_network, "a worker needs a pod IP of its own, which the other clusters can reach; remove it"),
    (_volume_rule("hostPath"), "the files of the manager's nodes are not there; use emptyDir or object storage"),
    (_volume_rule("persistentVolumeClaim"), "the claim is not there; use emptyDir or object storage"),
    (_resource_claims, "the claim is not there; ask for devices in resources.limits"),
    (_projected_identities, "it is issued in the manager, which the other cluster does not trust; remove the source"),
    (_node_name, "the manager's nodes are not there; leave it out, or use labels that its nodes have, too"),
    (_head_affinity, "the head stays in the manager; remove it"),
    (_volume_sources, "the claim, snapshot or volume is not there; leave it out, and the volume is empty at first"),
    (
        _service_account,
        "the account is not there; leave it out, and the worker cluster's default is used, or have "
        "spec.pods.serviceAccountName of every WorkerCluster of the policy name one",
    ),
    (_driver_secrets, "Secrets of volume drivers are not copied to worker clusters; use emptyDir or object storage"),
    # The init container that KubeRay adds does ask for something: without a reservation it would run on others' quota.
    (_no_requests, "nothing could be reserved for a worker; say what it needs"),
)
