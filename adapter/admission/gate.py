"""Are worker pods held in the manager cluster, by a policy or by a webhook, and what does the webhook write onto a pod?

One of the two is enough: the MutatingAdmissionPolicy of manifests/gate-policy.yaml, or, where an API server does not serve that kind,
the webhook of kustomize/components/admission-gate, which does the same. A webhook counts only while no worker can pass it by: the API
server has to refuse the pod when nobody answers. Whether somebody answers now is not asked: a pod that is refused is harmless, and
KubeRay tries again. But one that nobody can answer for refuses all workers, beside the policy as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw, meta, parse_time

_OBJECT_SELECTOR = {"matchExpressions": [{"key": names.PLACEMENT_LABEL, "operator": "Exists"}]}
_POD_CREATION = {
    "apiGroups": "",
    "apiVersions": "v1",
    "operations": "CREATE",
    "resources": "pods",
}  # what one rule must reach
_NO_CA_BUNDLE = "has no clientConfig.caBundle, so the API server calls nobody"
# An API server reads policies and webhooks by watches of its own, and compiles policies every second (apiserver pkg/admission/plugin/policy/
# generic policy_source.go). On a busy machine one was not asked 1.1 s after it was applied; and nothing takes a worker back that was not held.
EFFECTIVE_AFTER = timedelta(seconds=5)
_KNOWN_CONDITIONS = {"is-no-copy"}  # the names of those that may stand there


def problem(
    policies: Mapping[str, Raw], bindings: Mapping[str, Raw], webhooks: Mapping[str, Raw], now: datetime
) -> str:
    """Say in a sentence why worker pods would not be held, empty when they would.

    Each is what there is of its kind, by name: MutatingAdmissionPolicies, their bindings, MutatingWebhookConfigurations.
    """
    webhook = webhooks.get(names.GATE_POLICY) or {}
    if not (missing := _missing_policy(policies, bindings)):
        return _denies_all_reason(webhook) or _too_new_reason(
            "MutatingAdmissionPolicy", (policies[names.GATE_POLICY], bindings[names.GATE_POLICY]), now
        )
    if names.GATE_POLICY not in webhooks:
        return (
            f"{missing} is missing in the manager cluster, so worker pods would start there; apply manifests/gate-policy.yaml, or, "
            "before Kubernetes 1.36, kustomize/overlays/manager-webhook."
        )
    if fault := _webhook_fault(webhook):
        return (
            f"MutatingWebhookConfiguration {names.GATE_POLICY}: webhook {names.GATE_WEBHOOK} {fault}, so worker pods would not be held in the "
            f"manager cluster; apply kustomize/components/admission-gate and kustomize/components/admission again, and see Job {names.ADMISSION_CERTIFICATE} in {names.SYSTEM_NAMESPACE}."
        )
    return _too_new_reason("MutatingWebhookConfiguration", (webhook,), now)


def _too_new_reason(kind: str, gate_objects: Iterable[Raw], now: datetime) -> str:
    """A sentence where one of these may not be asked yet; empty where all are, or clocks differ too much to tell."""
    ages = [now - created for one in gate_objects if (created := parse_time(meta(one).get("creationTimestamp")))]
    if not any(timedelta(0) <= age < EFFECTIVE_AFTER for age in ages):
        return ""
    return (
        f"{kind} {names.GATE_POLICY} was applied just now, and API servers take some seconds to ask it; "
        f"jobs wait for {EFFECTIVE_AFTER.total_seconds():.0f} s, so that no worker pod starts in the manager cluster."
    )


def _denies_all_reason(configuration: Raw) -> str:
    """A sentence where the webhook, beside the policy, refuses each worker; empty where it does not."""
    found = _find_webhook(configuration)
    if (
        found is None
        or found.get("failurePolicy") != "Fail"
        or _has_ca_bundle(found)
        or not _covers_pod_creation(found)
    ):
        return ""
    return (
        f"MutatingWebhookConfiguration {names.GATE_POLICY}: webhook {names.GATE_WEBHOOK} {_NO_CA_BUNDLE}, and refuses each worker pod, though "
        f"MutatingAdmissionPolicy {names.GATE_POLICY} holds them, too; apply kustomize/components/admission again, after admission-gate, and see Job "
        f"{names.ADMISSION_CERTIFICATE} in {names.SYSTEM_NAMESPACE}; or delete that configuration."
    )


def required_gates(pod: Raw) -> list[Any] | None:
    """The scheduling gates that a pod which is being created must have, None when it is to stay as it is.

    It is the rule of manifests/gate-policy.yaml: whoever has the label of a Placement, and is no copy that is to run.
    """
    spec = pod.get("spec")
    labels = (pod.get("metadata") or {}).get("labels") or {}
    if not isinstance(spec, dict) or names.PLACEMENT_LABEL not in labels or _is_remote_pod(labels, spec):
        return None
    found = spec.get("schedulingGates")
    there = found if isinstance(found, list) else []
    if any(isinstance(one, dict) and one.get("name") == names.GATE for one in there):
        return None
    return [*there, {"name": names.GATE}]


def _is_remote_pod(labels: Raw, spec: Raw) -> bool:
    """A copy has no lock; a pod of ours has, whatever its labels say."""
    selector = spec.get("nodeSelector")
    return names.MANAGER_LABEL in labels and not (isinstance(selector, dict) and names.LOCK_NODE_SELECTOR in selector)


def _missing_policy(policies: Mapping[str, Raw], bindings: Mapping[str, Raw]) -> str:
    if names.GATE_POLICY not in policies:
        return f"MutatingAdmissionPolicy {names.GATE_POLICY}"
    if (bindings.get(names.GATE_POLICY, {}).get("spec") or {}).get("policyName") != names.GATE_POLICY:
        return f"MutatingAdmissionPolicyBinding {names.GATE_POLICY}"
    return ""


def _webhook_fault(configuration: Raw) -> str:
    """What keeps the webhook from holding every worker, a fragment; empty when nothing does. The API server has filled in defaults."""
    found = _find_webhook(configuration)
    if found is None:
        return "is not there"
    if found.get("failurePolicy") != "Fail":
        return f"has failurePolicy {found.get('failurePolicy')}, not Fail"
    if not _covers_pod_creation(found):
        return "has no rule for the creation of pods"
    if _without_empty(found.get("objectSelector")) not in ({}, _OBJECT_SELECTOR):
        return f"has an objectSelector that is not {names.PLACEMENT_LABEL} alone"
    if _without_empty(found.get("namespaceSelector")):
        return "has a namespaceSelector, which leaves namespaces out"
    if {one.get("name") for one in found.get("matchConditions") or ()} - _KNOWN_CONDITIONS:
        return "has matchConditions of others, which may leave pods out"
    return "" if _has_ca_bundle(found) else _NO_CA_BUNDLE


def _find_webhook(configuration: Raw) -> Raw | None:
    listed = configuration.get("webhooks") or ()
    return next((one for one in listed if one.get("name") == names.GATE_WEBHOOK), None)


def _covers_pod_creation(webhook: Raw) -> bool:
    """Whether it is asked of pods that are being created."""
    return any(_rule_covers_pods(rule) for rule in webhook.get("rules") or ())


def _has_ca_bundle(webhook: Raw) -> bool:
    return bool((webhook.get("clientConfig") or {}).get("caBundle"))


def _rule_covers_pods(rule: Raw) -> bool:
    def has(values: Sequence[str], wanted: str) -> bool:
        return wanted in values or "*" in values

    return rule.get("scope") != "Cluster" and all(
        has(rule.get(field) or (), wanted) for field, wanted in _POD_CREATION.items()
    )


def _without_empty(selector: Raw | None) -> dict[str, Any]:
    return {key: value for key, value in (selector or {}).items() if value}
