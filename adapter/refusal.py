"""Why can a worker group's pod template not run in another cluster: one sentence fragment, or nothing.

Asked at the admission check, before any quota is held: a pod that cannot start elsewhere would hold its whole gang. What
can be removed or replaced is the rewriter's business (`stripping`), and whether the Secrets and ConfigMaps that it refers to
can be copied is asked of the manager (`copies`); what KubeRay adds to the template afterwards (operator-wide sidecars) and `numOfHosts` are not in a podset and not seen here.
"""

from collections.abc import Callable, Iterable, Iterator

from adapter.facts import Raw
from adapter.shape import PODS, pod_requests

_Rule = Callable[[Raw], Iterator[str]]


def refusal(template: Raw) -> str | None:
    """Say why a pod template (anything with a pod's `spec`) cannot run in another cluster, or None when it can.

    The fragment names the field, what was found and what to do: `spec.hostNetwork is true: …`. The list is the first
    reject list of kuberay.md section 9.
    """
    spec = template.get("spec") or {}
    return next((f"{found}: {remedy}" for rule, remedy in _RULES for found in rule(spec)), None)


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


def _host_network(spec: Raw) -> Iterator[str]:
    if spec.get("hostNetwork"):
        yield "spec.hostNetwork is true"


def _volumes(kind: str) -> _Rule:
    def rule(spec: Raw) -> Iterator[str]:
        for volume in spec.get("volumes") or ():
            if source := volume.get(kind):
                yield f"spec.volumes[{volume.get('name')}].{kind} is {source.get('path') or source.get('claimName')}"

    return rule


def _resource_claims(spec: Raw) -> Iterator[str]:
    for claim in spec.get("resourceClaims") or ():
        yield f"spec.resourceClaims has {claim.get('name')}"


def _token_volumes(spec: Raw) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if "serviceAccountToken" in source:
                yield f"spec.volumes[{volume.get('name')}].projected has a serviceAccountToken"


def _service_account(spec: Raw) -> Iterator[str]:
    for field in ("serviceAccountName", "serviceAccount"):
        if spec.get(field) not in (None, "", "default"):
            yield f"spec.{field} is {spec[field]}"


def _driver_secrets(spec: Raw) -> Iterator[str]:
    """Volumes of csi, azureFile, cephfs, flexVolume, iscsi, rbd, …: each names its Secret in one of three ways."""
    for volume in spec.get("volumes") or ():
        for kind, source in volume.items():
            if isinstance(source, dict) and kind not in ("secret", "configMap", "projected"):
                where = f"spec.volumes[{volume.get('name')}].{kind}"
                yield from _keyed(where, (source,), ("secretRef", "secretName", "nodePublishSecretRef"))


def _keyed(where: str, sources: Iterable[Raw], keys: tuple[str, ...]) -> Iterator[str]:
    """Yield each reference that must exist for the pod to start: an optional one may be missing, so it may travel."""
    for source in sources:
        for key in keys:
            reference = source.get(key)
            name = reference.get("name") if isinstance(reference, dict) else reference
            if reference and not (isinstance(reference, dict) and reference.get("optional")):
                yield f"{where}.{key} is {name}"


_RULES: tuple[tuple[_Rule, str], ...] = (
    (_host_network, "a worker needs a pod IP of its own, which the other clusters can reach; remove it"),
    (_volumes("hostPath"), "the files of the manager's nodes are not there; use emptyDir or object storage"),
    (_volumes("persistentVolumeClaim"), "the claim is not there; use emptyDir or object storage"),
    (_resource_claims, "the claim is not there; ask for devices in resources.limits"),
    (_token_volumes, "the token's issuer is the manager, which the other cluster does not trust; remove the source"),
    (_service_account, "the account is not there; leave it out, and the worker cluster's default is used"),
    (_driver_secrets, "Secrets of volume drivers are not copied to worker clusters; use emptyDir or object storage"),
    # The init container that KubeRay adds does ask for something: without a reservation it would run on others' quota.
    (_no_requests, "nothing could be reserved for a worker; say what it needs"),
)
