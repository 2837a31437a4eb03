"""Checks that worker pods are gated in the manager cluster, and computes the gates that the webhook adds to a pod.

One of two objects is enough: the MutatingAdmissionPolicy of manifests/gate-policy.yaml or, where an API server does not
serve that kind, the equivalent webhook of kustomize/components/admission-gate. The policy and its binding count only
with the shipped specs. A webhook counts only if the API server denies pods while it does not answer. A denied pod is
harmless: KubeRay retries. But a webhook that can never answer denies all workers, even where the policy gates them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from adapter import names
from adapter.objects.shipped_policy import EFFECTIVE_AFTER, ShippedPolicy, change_times, find_difference
from adapter.objects.unstructured import Raw

_OBJECT_SELECTOR = {"matchExpressions": [{"key": names.PLACEMENT_LABEL, "operator": "Exists"}]}
_POD_CREATION = {"apiGroups": "", "apiVersions": "v1", "operations": "CREATE", "resources": "pods"}
_NO_CA_BUNDLE = "has no clientConfig.caBundle, so the API server cannot call it"


def problem(
    policies: Mapping[str, Raw],
    bindings: Mapping[str, Raw],
    webhooks: Mapping[str, Raw],
    shipped: ShippedPolicy,
    now: datetime,
) -> str:
    """A sentence why worker pods might not be gated, or would all be denied; else empty. Each mapping is by name."""
    webhook = webhooks.get(names.GATE_POLICY) or {}
    if not (fault := _policy_fault(policies, bindings, shipped)):
        return _denies_all_reason(webhook) or _too_new_reason(
            "MutatingAdmissionPolicy", (policies[names.GATE_POLICY], bindings[names.GATE_POLICY]), now
        )
    if names.GATE_POLICY not in webhooks:
        return (
            f"{fault}, so worker pods might start in the manager cluster; apply "
            "manifests/gate-policy.yaml, or, before Kubernetes 1.36, kustomize/overlays/manager-webhook."
        )
    if fault := _webhook_fault(webhook, shipped):
        return (
            f"MutatingWebhookConfiguration {names.GATE_POLICY}: webhook {names.GATE_WEBHOOK} {fault}, so worker pods "
            "would not be gated in the manager cluster; apply kustomize/components/admission-gate and "
            f"kustomize/components/admission again, and see Job {names.ADMISSION_CERTIFICATE} in "
            f"{names.SYSTEM_NAMESPACE}."
        )
    return _too_new_reason("MutatingWebhookConfiguration", (webhook,), now)


def _too_new_reason(kind: str, gate_objects: Iterable[Raw], now: datetime) -> str:
    """A sentence if a policy or webhook is too new to count; empty also if the clocks differ too much.

    An API server may still enforce what the object said before its last change.
    """
    ages = [now - max(times) for gate_object in gate_objects if (times := [*change_times(gate_object)])]
    if not any(timedelta(0) <= age < EFFECTIVE_AFTER for age in ages):
        return ""
    return (
        f"{kind} {names.GATE_POLICY} was applied or changed just now, and API servers take some seconds to enforce it; "
        f"jobs wait for {EFFECTIVE_AFTER.total_seconds():.0f} s, so that no worker pod starts in the manager cluster."
    )


def _denies_all_reason(configuration: Raw) -> str:
    webhook = _find_webhook(configuration)
    if (
        webhook is None
        or webhook.get("failurePolicy") != "Fail"
        or _has_ca_bundle(webhook)
        or not _covers_pod_creation(webhook)
    ):
        return ""
    return (
        f"MutatingWebhookConfiguration {names.GATE_POLICY}: webhook {names.GATE_WEBHOOK} {_NO_CA_BUNDLE}, and denies "
        f"every worker pod, although MutatingAdmissionPolicy {names.GATE_POLICY} gates them already; apply "
        f"kustomize/components/admission again, after admission-gate, and see Job {names.ADMISSION_CERTIFICATE} in "
        f"{names.SYSTEM_NAMESPACE}; or delete that configuration."
    )


def required_gates(pod: Raw) -> list[Any] | None:
    """The scheduling gates that a new pod must have; None if the pod stays as it is.

    As in manifests/gate-policy.yaml, our gate is added to a pod that has the label of a Placement and is not a remote
    pod.
    """
    spec = pod.get("spec")
    labels = (pod.get("metadata") or {}).get("labels") or {}
    if not isinstance(spec, dict) or names.PLACEMENT_LABEL not in labels or _is_remote_pod(labels, spec):
        return None
    listed = spec.get("schedulingGates")
    gates = listed if isinstance(listed, list) else []
    if any(isinstance(gate, dict) and gate.get("name") == names.GATE for gate in gates):
        return None
    return [*gates, {"name": names.GATE}]


def _is_remote_pod(labels: Raw, spec: Raw) -> bool:
    """Whether it is a remote pod. A manager pod has the lock in its node selector, whatever its labels say."""
    selector = spec.get("nodeSelector")
    return names.MANAGER_LABEL in labels and not (isinstance(selector, dict) and names.LOCK_NODE_SELECTOR in selector)


def _policy_fault(policies: Mapping[str, Raw], bindings: Mapping[str, Raw], shipped: ShippedPolicy) -> str:
    """Why the policy does not gate worker pods, as the beginning of a sentence, or empty."""
    for kind, objects, spec in (
        ("MutatingAdmissionPolicy", policies, shipped.policy),
        ("MutatingAdmissionPolicyBinding", bindings, shipped.binding),
    ):
        live = objects.get(names.GATE_POLICY)
        fault = "is missing" if live is None else find_difference(live, spec)
        if fault:
            return f"{kind} {names.GATE_POLICY} {fault}"
    return ""


def _webhook_fault(configuration: Raw, shipped: ShippedPolicy) -> str:
    """A fragment on what lets workers bypass the gate, or empty.

    An absent field needs no case here, because the API server fills in its default.
    """
    webhook = _find_webhook(configuration)
    if webhook is None:
        return "is not there"
    if webhook.get("failurePolicy") != "Fail":
        return f"has failurePolicy {webhook.get('failurePolicy')}, not Fail"
    if not _covers_pod_creation(webhook):
        return "has no rule for the creation of pods"
    if _without_empty(webhook.get("objectSelector")) not in ({}, _OBJECT_SELECTOR):
        return f"has an objectSelector that is not {names.PLACEMENT_LABEL} alone"
    if _without_empty(webhook.get("namespaceSelector")):
        return "has a namespaceSelector, which excludes namespaces"
    if webhook.get("matchConditions") not in (None, [], shipped.policy["matchConditions"]):
        return "has matchConditions that are not the shipped ones, and may exclude pods"
    return "" if _has_ca_bundle(webhook) else _NO_CA_BUNDLE


def _find_webhook(configuration: Raw) -> Raw | None:
    listed = configuration.get("webhooks") or ()
    return next((webhook for webhook in listed if webhook.get("name") == names.GATE_WEBHOOK), None)


def _covers_pod_creation(webhook: Raw) -> bool:
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
